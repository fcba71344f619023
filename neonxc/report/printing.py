"""Format numbers, shares and standardised values for the page."""

from __future__ import annotations

import math
from typing import Any

from neonxc.report.contents import Column


def number(value: Any) -> str:
    """Format a number with up to four digits, thousands separators and a minus sign; keep other values."""
    if not isinstance(value, int | float):
        return "" if value is None else str(value)
    if not math.isfinite(value):
        return "–"
    if value and not 1e-4 <= abs(value) < 1e9:
        text = f"{value:.3g}"
    else:
        digits = 0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def share(value: float | None) -> str:
    """Format a share in percent; only exact values give "0%" and "100%"."""
    if value is None or not math.isfinite(value):
        return "–"
    if value != 0 and abs(value) < 0.005:
        return "<1%" if value > 0 else ">−1%"
    if 0.995 <= value < 1:
        return ">99%"
    return f"{value:.0%}".replace("-", "−")


def signed(value: float) -> str:
    """Format a share in percent with its sign."""
    text = share(value)
    return f"+{text}" if value > 0 and text[0].isdigit() else text


def standardised(column: Column, value: Any) -> str | None:
    """Standardise a value, given as a number or as printed; None if that is not possible."""
    if column.kind != "number" or column.mean is None or not column.spread:
        return None
    text = str(value).removesuffix(column.unit).strip().replace(",", "").replace("−", "-")
    try:
        scaled = (float(text) - column.mean) / column.spread
    except ValueError:
        return None
    return f"{scaled:+.2f}".replace("-", "−") if math.isfinite(scaled) else None
