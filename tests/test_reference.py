"""The API reference is complete."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PACKAGES = [
    "neonxc",
    "neonxc.evaluation",
    "neonxc.lrp",
    "neonxc.models",
    "neonxc.plot",
    "neonxc.rules",
    "neonxc.trees",
]
GUIDES = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]


def resolved(dotted):
    """The object of a dotted name, or None."""
    parts = dotted.split(".")
    found = import_module(parts[0])
    for n, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                import_module(".".join(parts[:n]))
            except ImportError:
                return None
        found = getattr(found, part, None)
    return found


def documented():
    """Names that the pages of the reference list."""
    names = set()
    for page in (DOCS / "reference").glob("*.md"):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule::"):
                module = line.split()[-1]
            elif found := re.fullmatch(r"(?:   |\.\. autoclass:: )([A-Za-z][\w.]*)", line):
                names.add(f"{module}.{found[1]}")
    return names


def has_page(thing):
    return isinstance(thing, type) or (callable(thing) and hasattr(thing, "__module__"))


def names_in(code, attributes=True):
    """Dotted names of this package in some code: imported ones, and attributes of `neonxc`."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "neonxc":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif attributes and isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if re.fullmatch(r"neonxc(\.\w+)+", dotted):
                yield dotted


def test_every_listed_name_exists_once():
    lines = [
        f"{page.name}: {line.strip()}"
        for page in (DOCS / "reference").glob("*.md")
        for line in re.findall(r"^   [A-Za-z][\w.]*$", page.read_text(encoding="utf-8"), flags=re.M)
    ]
    assert len(lines) > 150
    assert len(set(lines)) == len(lines)
    assert [name for name in sorted(documented()) if resolved(name) is None] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_exported_has_a_page(package):
    listed = [resolved(name) for name in documented()]
    home = import_module(package)
    missing = [
        name
        for name in home.__all__
        if has_page(getattr(home, name)) and not any(getattr(home, name) is thing for thing in listed)
    ]
    assert missing == []


def test_everything_that_guides_use_has_a_page():
    listed = [resolved(name) for name in documented()]
    used = {
        name
        for page in GUIDES
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
        for name in names_in(block)
    }
    assert len(used) > 60
    missing = [
        name
        for name in sorted(used)
        if has_page(thing := resolved(name)) and not any(thing is one for one in listed)
    ]
    assert missing == []


def test_tests_import_what_is_public():
    """Other names change with the code; those that tests import nevertheless are in tests/README.md."""
    tests = Path(__file__).parent
    listed = [resolved(name) for name in documented()]
    imported = {
        name
        for file in tests.rglob("*.py")
        if file.parent.name != "benchmarks"
        for name in names_in(file.read_text(encoding="utf-8"), attributes=False)
    }
    internal = {
        name
        for name in imported
        if name.rpartition(".")[0] not in PACKAGES and not any(resolved(name) is thing for thing in listed)
    }
    explained = re.findall(r"^\| `(neonxc\.[\w.]+)`", (tests / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(internal) == sorted(explained)
