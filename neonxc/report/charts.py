"""Bars, distributions and curves as inline SVG, coloured by the style sheet, and numbers as they are printed.

All texts in an SVG are escaped where they are inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from markupsafe import Markup, escape

from neonxc.common.locales import current_marks
from neonxc.common.numbers import percent, text
from neonxc.report.description import ColumnEntry, Curve, Statement

# size of the plot of a distribution, in pixels
WIDTH = 120
HEIGHT = 32


def bar(value: float, least: float, most: float) -> Markup:
    """Draw a bar from 0 to `value`, on a scale from `least` (<= 0) to `most` (>= 0)."""
    value = value if isfinite(value) else 0.0
    span = (most - least) or 1.0
    kind = "for" if value >= 0 else "against"
    zero = -least / span * 100
    end = (value - least) / span * 100
    return Markup(
        f'<svg class=bar aria-hidden=true><rect class={kind} x="{min(zero, end):.0f}%" '
        f'width="{abs(end - zero):.0f}%"/><line x1="{zero:.0f}%" x2="{zero:.0f}%" y2="100%"/></svg>'
    )


def distribution(statement: Statement) -> Markup:
    """Draw the distributions inside (filled) and outside (outlined) a cluster, as histograms or bars."""
    if not statement.inside or not statement.outside:
        return Markup("")
    draw = _histogram if len(statement.bins) == len(statement.inside) + 1 else _categories
    shapes = draw(statement, max(*statement.inside, *statement.outside, 1e-12))
    return Markup(
        f'<svg class="distribution" viewBox="0 -1 {WIDTH} {HEIGHT + 2}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(summary(statement))}">{shapes}</svg>'
    )


def summary(statement: Statement) -> str:
    """Describe a distribution in words."""
    inside = number(statement.inside_typical)
    outside = number(statement.outside_typical)
    return f"typically {inside} inside the cluster, {outside} outside" if inside or outside else "distribution"


def _histogram(statement: Statement, top: float) -> str:
    first, *_, last = statement.bins
    edges = [(edge - first) / ((last - first) or 1.0) * WIDTH for edge in statement.bins]
    paths = ""
    for kind, shares in (("in", statement.inside), ("out", statement.outside)):
        steps = "".join(
            f"V{HEIGHT * (1 - share / top):.0f}H{right:.0f}"
            for share, right in zip(shares, edges[1:], strict=True)
        )
        paths += f'<path class="{kind}" d="M0 {HEIGHT}{steps}V{HEIGHT}"/>'
    return paths


def _categories(statement: Statement, top: float) -> str:
    wide = WIDTH / max(len(statement.bins), 3)
    groups = ""

    def rect(kind: str, x: float, share: float) -> str:
        y = HEIGHT * (1 - share / top)
        height = HEIGHT * share / top
        return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide / 2 - 2:.1f}" height="{height:.1f}"/>'

    rows = zip(statement.bins, statement.inside, statement.outside, strict=True)
    for i, (name, inside, outside) in enumerate(rows):
        title = f"<title>{escape(name)}: {share(inside)} inside, {share(outside)} outside</title>"
        bars = rect("in", i * wide + 1, inside) + rect("out", (i + 0.5) * wide - 1, outside)
        groups += f"<g>{title}{bars}</g>"
    return groups


PLOT_WIDTH = 460
PLOT_HEIGHT = 250
# edges of the plot area; the names are right of it
LEFT = 40
RIGHT = 308
TOP = 12
BOTTOM = 214
STEP = 38  # vertical distance between two names


def curves(lines: Sequence[Curve], x_label: str, y_label: str, shares: bool) -> Markup:
    """Draw curves, on axes from 0 to 100% for shares and otherwise from the smallest to the largest value."""
    (x0, x1), (y0, y1) = ((0.0, 1.0), (0.0, 1.0)) if shares else (_span(lines, "x"), _span(lines, "y"))
    printed = share if shares else number

    def across(x: float) -> float:
        return LEFT + (x - x0) / (x1 - x0) * (RIGHT - LEFT)

    def down(y: float) -> float:
        return TOP + (y1 - y) / (y1 - y0) * (BOTTOM - TOP)

    drawn = ""
    for part in (0.0, 0.5, 1.0):
        x = x0 + part * (x1 - x0)
        y = y0 + part * (y1 - y0)
        drawn += (
            f'<line class=grid x1="{LEFT}" x2="{RIGHT}" y1="{down(y):.1f}" y2="{down(y):.1f}"/>'
            f'<text x="{LEFT - 6}" y="{down(y) + 4:.1f}" text-anchor=end>{printed(y)}</text>'
            f'<text x="{across(x):.1f}" y="{BOTTOM + 18}" text-anchor=middle>{printed(x)}</text>'
        )
    heights = _apart([down(line.y[-1]) for line in lines])
    for i, (line, height) in enumerate(zip(lines, heights, strict=True)):
        points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in zip(line.x, line.y, strict=True))
        name = line.name if len(line.name) <= 16 else line.name[:15] + "…"
        drawn += (  # with a legend: a line sample, the name (in full as a tooltip) and the text below it
            f'<g class="curve n{i % 6}"><polyline points="{points}"/><path d="M{RIGHT + 10} {height:.1f}h18"/>'
            f'<text class=name x="{RIGHT + 34}" y="{height + 4:.1f}">{escape(name)}'
            f"<title>{escape(line.name)}</title></text>"
            f'<text x="{RIGHT + 34}" y="{height + 19:.1f}">{escape(line.text)}</text></g>'
        )
    summary = "; ".join(f"{line.name} {line.text}".strip() for line in lines)
    return Markup(
        f'<svg class=curves viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" role=img '
        f'aria-label="{escape(f"{y_label} against {x_label}: {summary}")}">'
        f'<text x="{(LEFT + RIGHT) / 2}" y="{PLOT_HEIGHT - 2}" text-anchor=middle>{escape(x_label)}</text>'
        f"{drawn}</svg>"
    )


def _span(lines: Sequence[Curve], axis: str) -> tuple[float, float]:
    values = [value for line in lines for value in getattr(line, axis)]
    least = min(values)
    most = max(values)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _apart(heights: list[float]) -> list[float]:
    """Move the heights of names until neighbours are at least STEP apart and none is below the plot area."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    above = float("-inf")
    below = BOTTOM - 8.0 + STEP
    for i in order:
        above = moved[i] = max(heights[i], above + STEP)
    for i in reversed(order):
        below = moved[i] = min(moved[i], below - STEP)
    return moved


def number(value: Any) -> str:
    """Format a number for the page, with a minus sign; keep other values."""
    if not isinstance(value, int | float):
        return "" if value is None else str(value)
    return text(value).replace("-", "−") if isfinite(value) else "–"


def share(value: float | None) -> str:
    """Format a share in percent, with a minus sign."""
    return percent(value).replace("-", "−")


def signed(value: float) -> str:
    """Format a share in percent with its sign."""
    return percent(value, signed=True).replace("-", "−")


def standardised(column: ColumnEntry, value: Any) -> str | None:
    """Standardise a value, given as a number or as printed; None if that is not possible."""
    if column.kind != "number" or column.mean is None or not column.spread:
        return None
    try:
        scaled = (_parsed(value, column.unit) - column.mean) / column.spread
    except ValueError:
        return None
    if not isfinite(scaled):
        return None
    return f"{scaled:+.2f}".replace(".", current_marks().decimal).replace("-", "−")


def _parsed(value: Any, unit: str) -> float:
    """Read a number, or a number as it is printed now, with or without its unit."""
    if isinstance(value, int | float):
        return float(value)
    marks = current_marks()
    printed = str(value).removesuffix(unit).strip()
    return float(printed.replace(marks.thousands, "").replace(marks.decimal, ".").replace("−", "-"))
