"""The notebooks are kept without outputs, and are pages of the documentation, whose build runs them."""

import ast
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {"table", "training", "sentences", "compare"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_code_and_prose_alone(path):
    book = json.loads(path.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert set(book["metadata"]) == {"kernelspec", "language_info"}  # nothing of who ran it, and where
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    cells = book["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert "".join(cells[0]["source"]).startswith("# ")
    for cell in cells:
        assert set(cell["metadata"]) <= {"tags"}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            lines = [line for line in "".join(cell["source"]).splitlines() if not line.startswith("%")]
            ast.parse("\n".join(lines))


def test_notebooks_are_pages():
    trees = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.S)
    (listed,) = [tree.split() for tree in trees if ":caption: Notebooks" in tree]
    pages = {f"notebooks/{path.stem}" for path in [*NOTEBOOKS, DOCS / "notebooks" / "index.md"]}
    assert {name for name in listed if name.startswith("notebooks/")} == pages
    overview = (DOCS / "notebooks" / "index.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"[]({path.name})" not in overview] == []


def test_the_build_runs_the_notebooks():
    settings = (DOCS / "conf.py").read_text(encoding="utf-8")
    assert 'nb_execution_mode = "force"' in settings
    assert "nb_execution_raise_on_error = True" in settings
