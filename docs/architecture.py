"""Write the page about the architecture, with the folders as they are: ``python docs/architecture.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).with_name("architecture.md")
PACKAGES = ("neonxc", "neonxc.trees", "neonxc.models")
HEAD = """# Architecture

The code is in three folders. `neonxc/` rewrites a clustering as a network and attributes its decisions; it also
holds what the two others share, the measures, the report and the command line. `trees/` (`neonxc.trees`) explains
a clustering by threshold trees. `models/` (`neonxc.models`) holds clusterers, and networks whose features are
clustered. This page is for readers of the code, and for those who add to it.

![Objects and who owns whom: a network owns its inputs and its head, NEON asks the head.](images/architecture.png)

Solid arrows lead to what an object owns, dashed ones to what it makes. A network from {func}`neonxc.neuralize`
owns its *inputs*, the only way from what users pass to what is computed, and its *head*, which decides.
`net.inputs.read` returns a *table*, which keeps the way back to the caller's type. A *question* is about a target
and a competitor; the head's *answer* at a block of points is computed once, and is asked for logits, contrasts,
weights or relevance.

## What happens to a row on its way to an attribution

1. {func}`neonxc.neuralize` reads the fitted clustering. `clusterings` has a reader per family, which makes a
   *head*; any other clustering gets one by a surrogate. `pipelines` folds the steps before the clusterer into an
   encoding of the table and an affine map. While the network is calibrated on X, its decisions are
   [compared](checks.md) with the labels that the clusterer itself has for these rows.
2. `net.inputs.read` reads what the user passes, whatever the container, and encodes it. There is one class of
   inputs for raw columns, encoded tables, terms, feature networks, words and sentences; nobody else asks which it
   is.
3. The inputs compute the points: raw columns are points themselves, a feature network computes them, texts are
   averages of word vectors.
4. The head answers block by block, in blocks that fit the cache: values by detection and grouping, then the
   competition's contrasts and weights, which write the decision for a cluster as a weighted sum of neurons.
5. The detection shares the decision among the columns, and the inputs lead it back: by LRP through a feature
   network, and by words for texts. The table returns it in the caller's type.

## What happens to a column on its way to a tree

1. An explainer of `trees/explainers` is a criterion, a way of growing, and a rule for the labels of leaves.
2. `fit` in `trees/estimator.py` shows the five steps. `trees/fit` reads the *training data*, a table in memory,
   rows of one of several processes, or batches from disk, and finds the *reference* clustering. Both, with the
   codes of the columns, are the *problem*, for which a tree is *grown* and finished.
3. `trees/cuts` replaces the values of each column by codes, once per fit. At a *node*, it sums what a criterion
   asks for (counts, coordinates, distances) over the points left of each possible cut.
4. `trees/criteria` score the cuts by these sums, `trees/cuts/search.py` finds the best one, and
   `trees/cuts/growth.py` decides which leaf is split next.
5. `trees/fit/finished.py` turns the *grown* tree into a `ThresholdTree`. It predicts, and is converted to rules,
   to scikit-learn, or by `neuralize` to a network.

## Where to add something

| to add | write | as in |
|---|---|---|
| a family of clusterings | a reader, registered with `neonxc.clusterings.read` | `clusterings/readers.py` |
| a criterion of trees | a `Criterion` and its explainer, see [the guide](extend.md) | `trees/criteria/labels.py` |
| a rule of LRP | a callable with the signature of `neonxc.lrp.Rule` | `lrp/rules.py` |
| an operation that LRP propagates through | a function with the decorator `operation` | `lrp/operations` |
| a kind of input | a class of inputs, registered with `neonxc.inputs.make_inputs` | `inputs/words.py` |
| a class that `neonxc.save` stores | two functions for `common.registry.register` | `models/kernel/reader.py` |

## The folders

A folder imports from those above it alone. Imports inside functions are for optional packages, for modules that
take long to load or that only some inputs need, and for the few places where `neonxc/` uses `trees/` or `models/`.
`python docs/architecture.py` writes this page from the imports and the docstrings of the code.

| folder | what it is |
|---|---|
"""


def modules() -> dict[str, Path]:
    """Return the files of all modules by their names, without those that offer the names of a whole package."""
    found = {}
    for package in PACKAGES:
        folder = package.rpartition(".")[2]
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            if name not in PACKAGES and path.stem != "__main__":
                found[name] = path
    return found


def unit(module: str) -> str:
    """Return the folder or module, right inside a package, that a module belongs to."""
    package = max((name for name in PACKAGES if f"{module}.".startswith(f"{name}.")), key=len)
    return f"{package}.{module.removeprefix(package).split('.')[1]}"


def imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the project that a module imports at its beginning."""
    parent = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*parent.split(".")[: 1 - node.level or None], *filter(None, [base])])
            names = (f"{base}.{alias.name}" for alias in node.names)
            yield from ({name if name in known else base for name in names} & known.keys())


def levels() -> dict[str, int]:
    """Return the level of each folder or module: one above the highest from which it imports.

    Raises
    ------
    graphlib.CycleError
        Folders import from each other.
    """
    known = modules()
    below: dict[str, set[str]] = {unit(name): set() for name in known}
    for name, path in known.items():
        below[unit(name)] |= {unit(other) for other in imported(name, path, known)} - {unit(name)}
    found: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        found[name] = 1 + max((found[other] for other in below[name]), default=-1)
    return found


def page() -> str:
    """Return the page in markdown."""
    known = modules()
    rows = []
    for name, _ in sorted(levels().items(), key=lambda item: (item[1], item[0])):
        if known[name].name != "__init__.py":
            continue  # a module right inside a package, which belongs to no folder
        about = ast.get_docstring(ast.parse(known[name].read_text(encoding="utf-8"))) or ""
        sentence = re.sub(":[a-z]+:`", "`", about.partition("\n\n")[0].replace("\n", " "))
        rows.append(f"| `{name}` | {sentence} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
