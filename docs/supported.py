"""Write the page of what is supported: ``python docs/supported.py``.

The operations are those in the table of LRP, the networks those of a benchmark, and the releases of other packages
those that the tests are run with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import neonxc.lrp  # noqa: F401  # fills the table
from neonxc.lrp.tensor_table import OPERATIONS

PAGE = Path(__file__).with_name("supported.md")
ZOO = PAGE.parent / "benchmarks" / "zoo.json"
OLDEST = PAGE.parent.parent / ".ci" / "oldest.txt"
NEWEST = {"numpy": "2.4", "pandas": "3.1", "scikit-learn": "1.9", "torch": "2.14", "torchvision": "0.29"}
"""The releases with which all tests of this version were run last."""
HEAD = """# What is supported

## Operations

This table lists the operations that `neonxc.lrp` supports, and how relevance passes through them. It does not
matter whether a module or a function calls an operation, and whether it works in place.
`python docs/supported.py` writes this page from the table of the engine.

| operations | what happens |
|---|---|
"""
FOOT = """
Parameters are constants, as are masks, indices, and values that are detached or computed under
`torch.no_grad()`. If a weight or a bias depends on the input, it is treated as a factor or a summand. Other
arguments that depend on it, such as the bounds of `clamp` or the grid of `grid_sample`, are refused.

All other nonlinear operations are held constant and marked. Their results may serve as gates, that is, as
factors or divisors of other values, as in squeeze-excitation, attention gates, or a normalisation or GELU
written out by hand. If such a result reaches the output in any other way, `UnsupportedOperation` names the
function, the line that called it and the module.
"""

NETWORKS = """
## Networks

`python -m tests.benchmarks.zoo` runs LRP on a small network of each family of timm and of torchvision, with
random weights and one image. The output is that without LRP, and relevance is finite. Where biases, position
embeddings and class tokens are zero, relevance should sum to the output (LRP-0). How much of it attention keeps
depends on its rule, see [](lrp.md#vision-transformers). Times are those of LRP-γ over those of a plain gradient,
with one thread.

| | run | sum of relevance over the output: median, smallest, largest | time in gradients, median |
|---|---|---|---|
"""


VERSIONS = """
## Releases of other packages

Every change is checked with two sets of packages on Python 3.11. All tests are run with the newest releases.
Those of networks, trees, inputs and recorded answers are run with the oldest ones, too, there with sums in the
order in which other processors add them. Releases in between are not tested, and newer ones are not excluded.

| package | oldest | newest |
|---|---|---|
"""


def of_versions() -> str:
    """Return the section on releases of other packages, from the constraints that the tests are run with."""
    lines = []
    for line in OLDEST.read_text(encoding="utf-8").splitlines():
        package, _, oldest = line.partition("==")
        if package in NEWEST:
            lines.append(f"| {package} | {oldest.removesuffix('.*')} | {NEWEST[package]} |\n")
    return VERSIONS + "".join(lines)


def of_networks(report: dict[str, Any]) -> str:
    """Return the section on networks, from the figures of the benchmark."""
    lines = []
    left = []
    for heading, table in report["tables"].items():
        library, _, part = heading.partition(": ")
        for row in table["rows"]:
            if part == "summary":
                sums = ", ".join(f"{row[key]:.3g}" for key in ("sum / output, median", "smallest", "largest"))
                times = f"{row['time / gradient, median']:.2g}"
                lines.append(f"| {library}, {row['kind']} | {row['run']} | {sums} | {times} |\n")
            elif row["reason"]:
                left.append(f"- `{row['model']}` of {library}: {row['reason']}\n")
    return NETWORKS + "".join(lines) + "\nThese do not run:\n\n" + "".join(left)


def page() -> str:
    """Return the page in markdown."""
    rows: dict[str, set[str]] = {}
    for name, operation in OPERATIONS.items():
        if not name.startswith("_"):
            rows.setdefault(operation.description, set()).add(name)
    table = [f"| `{'`, `'.join(sorted(names))}` | {what} |\n" for what, names in rows.items()]
    networks = of_networks(json.loads(ZOO.read_text(encoding="utf-8")))
    return HEAD + "".join(table) + FOOT + networks + of_versions()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
