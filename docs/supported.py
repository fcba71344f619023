"""Write the page of what LRP supports, from the engine's own table: ``python docs/supported.py``."""

from __future__ import annotations

from pathlib import Path

import neonxc.lrp  # noqa: F401  # fills the table
from neonxc.lrp.table import OPERATIONS

PAGE = Path(__file__).with_name("supported.md")
HEAD = """# Supported operations

What `neonxc.lrp` does at every operation that it knows, whether a module or a plain function calls it, in place
or not. This page is written by `python docs/supported.py` from the engine's table.

| operations | what happens |
|---|---|
"""
FOOT = """
Parameters are constants, whether they can be trained or not, as are values that were detached or computed under
`torch.no_grad()`. Where a weight depends on the input it is the factor of a product; other arguments that do, such
as the bounds of `clamp` or the grid of `grid_sample`, are refused.

Anything else that is not linear is held constant and marked: it may serve as a gate, that is, as a factor or
divisor of another value (squeeze-excitation, attention gates, a normalisation or GELU written out by hand). If it
reaches the output in any other way, `UnsupportedOperation` names the function, the line that called it
and the module.
"""


def page() -> str:
    """Return the page in markdown."""
    rows: dict[str, set[str]] = {}
    for name, operation in OPERATIONS.items():
        if not name.startswith("_"):
            rows.setdefault(operation.what, set()).add(name)
    table = [f"| `{'`, `'.join(sorted(names))}` | {what} |\n" for what, names in rows.items()]
    return HEAD + "".join(table) + FOOT


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
