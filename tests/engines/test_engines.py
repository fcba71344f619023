"""The recipes of the documentation for other engines; ``pytest -m engines`` runs those that are installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "engines.md").read_text(encoding="utf-8"), re.S)
PRINTED = {
    "spark": [r"cluster 0", r"178 \d+", "True"],
    "ray": ["178", "True", "'logit', 'heatmaps'", "'logit', 'relevance'"],
    "dask": ["178", "True"],
    "pyarrow": ["178"],
}


@pytest.mark.engines
@pytest.mark.parametrize("engine", PRINTED)
def test_recipes(engine, tmp_path):
    pytest.importorskip({"spark": "pyspark"}.get(engine, engine))
    code = [BLOCKS[0], *(block for block in BLOCKS if block.startswith(f"# {engine}"))]
    program = tmp_path / "program.py"
    lines = "\n".join([f"folder = {str(tmp_path)!r}", *code])
    program.write_text("if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in lines.split("\n")))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    for line in PRINTED[engine]:
        assert re.search(line, ran.stdout), ran.stdout


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_recipes_are_short(block):
    lines = [line for line in block.split("\n") if line and not line.startswith("#")]
    assert len(lines) <= 15
