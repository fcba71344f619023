"""Write the table of what LRP supports, from the engine's own registry: ``python docs/supported.py``."""

from __future__ import annotations

from pathlib import Path

from neonxc.lrp.operations.plain import DESCRIPTIONS, PRODUCTS, QUOTIENTS
from neonxc.lrp.operations.registry import HANDLERS

PAGE = Path(__file__).with_name("supported.md")
HEAD = """# Supported operations

What `neonxc.lrp` does at every operation that it knows, whether a module or a plain function calls it, in place
or not. This table is written by `python docs/supported.py` from the engine's registry.

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
PRODUCT = (
    "by a constant or a gate: as a scaling; matrix products by a weight: the composite's rule, whatever function "
    "computes them; of two values that depend on the input: each gets half of the relevance"
)


def page() -> str:
    """Return the page in markdown."""
    groups: dict[str, set[str]] = {}
    for function, handler in HANDLERS.items():
        groups.setdefault(handler.what, set()).add(function.__name__.lstrip("_").rstrip("_"))
    rows = [(", ".join(f"`{name}`" for name in sorted(names)), what) for what, names in groups.items()]
    rows += [(f"{kind}: {_names(names)}", what) for kind, names, what in DESCRIPTIONS]
    rows.append((f"products: {_names(PRODUCTS)}", PRODUCT))
    rows.append((f"quotients: {_names(QUOTIENTS)}", "the divisor is held constant"))
    return HEAD + "".join(f"| {names} | {what} |\n" for names, what in rows) + FOOT


def _names(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names) if not (name.startswith("_") or "_with_" in name))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
