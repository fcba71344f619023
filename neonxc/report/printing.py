"""Format numbers, shares and standardised values for the page."""

from __future__ import annotations

import math
from typing import Any

from neonxc.common.numbers import percent, text
from neonxc.report.contents import Column


def number(value: Any) -> str:
    """Format a number for the page, with a minus sign; keep other values."""
    if not isinstance(value, int | float):
        return "" if value is None else str(value)
    return text(value).replace("-", "−") if math.isfinite(value) else "–"


def share(value: float | None) -> str:
    """Format a share in percent, with a minus sign."""
    return percent(value).replace("-", "−")


def signed(value: float) -> str:
    """Format a share in percent with its sign."""
    return percent(value, signed=True).replace("-", "−")


def standardised(column: Column, value: Any) -> str | None:
    """Standardise a value, given as a number or as printed; None if that is not possible."""
    if column.kind != "number" or column.mean is None or not column.spread:
        return None
    printed = str(value).removesuffix(column.unit).strip().replace(",", "").replace("−", "-")
    try:
        scaled = (float(printed) - column.mean) / column.spread
    except ValueError:
        return None
    return f"{scaled:+.2f}".replace("-", "−") if math.isfinite(scaled) else None
