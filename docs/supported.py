"""Write the page of what LRP supports, from the engine's own table: ``python docs/supported.py``."""

from __future__ import annotations

from pathlib import Path

import neonxc.lrp  # noqa: F401  # fills the table
from neonxc.lrp.table import OPERATIONS

PAGE = Path(__file__).with_name("supported.md")
HEAD = """# Supported operations

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
