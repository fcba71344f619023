"""Bars, distributions and curves as inline SVG, coloured by the style sheet, and numbers as they are printed.

    bar             from 0 to a value; the scale from `lowest` to `highest` is as wide as the SVG
    distribution    a fraction f of points, of which the largest is `top`, is HEIGHT * f / top high
    curves          across(x) = LEFT + (x - x0) / (x1 - x0) * (RIGHT - LEFT)
                    down(y)   = TOP  + (y1 - y) / (y1 - y0) * (BOTTOM - TOP)      (y upwards, pixels downwards)

All texts in an SVG are escaped where they are inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from markupsafe import Markup, escape

from neonxc.common.locales import current_marks
from neonxc.common.numbers import percent, text
from neonxc.report.description import ColumnEntry, Curve, Statement

# size of the plot of a distribution, in pixels
WIDTH = 120
HEIGHT = 32


def bar(value: float, lowest: float, highest: float) -> Markup:
    """Draw a bar from 0 to `value`, on a scale from `lowest` (<= 0) to `highest` (>= 0)."""
    if not isfinite(value):
        value = 0.0
    kind = "for" if value >= 0 else "against"
    extent = (highest - lowest) or 1.0
    zero = -lowest / extent * 100
    end = (value - lowest) / extent * 100
    left = min(zero, end)
    width = abs(end - zero)
    return Markup(
        f'<svg class=bar aria-hidden=true><rect class={kind} x="{left:.0f}%" '
        f'width="{width:.0f}%"/><line x1="{zero:.0f}%" x2="{zero:.0f}%" y2="100%"/></svg>'
    )


def distribution(statement: Statement) -> Markup:
    """Draw the distributions inside (filled) and outside (outlined) a cluster, as histograms or bars."""
    if not statement.inside or not statement.outside:
        return Markup("")
    top = max(*statement.inside, *statement.outside, 1e-12)  # divided by, also if all fractions are 0
    has_edges = len(statement.bins) == len(statement.inside) + 1
    shapes = _histogram(statement, top) if has_edges else _categories(statement, top)
    label = escape(summary(statement))
    return Markup(
        f'<svg class="distribution" viewBox="0 -1 {WIDTH} {HEIGHT + 2}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{shapes}</svg>'
    )


def summary(statement: Statement) -> str:
    """Describe a distribution in words."""
    inside = number(statement.inside_typical)
    outside = number(statement.outside_typical)
    if not inside and not outside:
        return "distribution"
    return f"typically {inside} inside the cluster, {outside} outside"


def _histogram(statement: Statement, top: float) -> str:
    """Draw the outlines of two histograms, whose bins may have different widths."""
    ends = [float(end) for end in statement.bins]
    extent = (ends[-1] - ends[0]) or 1.0
    edges = [(end - ends[0]) / extent * WIDTH for end in ends]
    paths = ""
    for kind, fractions in (("in", statement.inside), ("out", statement.outside)):
        steps = ""
        for fraction, right in zip(fractions, edges[1:], strict=True):
            y = HEIGHT * (1 - fraction / top)
            steps += f"V{y:.0f}H{right:.0f}"
        paths += f'<path class="{kind}" d="M0 {HEIGHT}{steps}V{HEIGHT}"/>'
    return paths


def _categories(statement: Statement, top: float) -> str:
    """Draw two bars for every category, beside each other; a tooltip has their numbers."""
    step = WIDTH / max(len(statement.bins), 3)
    groups = ""
    rows = zip(statement.bins, statement.inside, statement.outside, strict=True)
    for i, (name, inside, outside) in enumerate(rows):
        title = f"<title>{escape(name)}: {in_percent(inside)} inside, {in_percent(outside)} outside</title>"
        left = _rectangle("in", i * step + 1, step / 2 - 2, inside / top)
        right = _rectangle("out", (i + 0.5) * step - 1, step / 2 - 2, outside / top)
        groups += f"<g>{title}{left}{right}</g>"
    return groups


def _rectangle(kind: str, x: float, width: float, fraction: float) -> str:
    """Draw a bar that is a fraction of the height of the plot."""
    y = HEIGHT * (1 - fraction)
    height = HEIGHT * fraction
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


PLOT_WIDTH = 460
PLOT_HEIGHT = 250
# edges of the plot area; the names are right of it
LEFT = 40
RIGHT = 308
TOP = 12
BOTTOM = 214
STEP = 38  # vertical distance between two names
LONG = 16  # characters of a name
N_COLOURS = 6  # of curves, in the style sheet


class Axes(NamedTuple):
    """Ranges of the axes, of which neither is empty."""

    x0: float
    x1: float
    y0: float
    y1: float
    are_fractions: bool

    @classmethod
    def of(cls, lines: Sequence[Curve], are_fractions: bool) -> Axes:
        """Return axes from 0 to 1 for fractions, and otherwise from the smallest to the largest value."""
        if are_fractions:
            return cls(0.0, 1.0, 0.0, 1.0, are_fractions)
        x0, x1 = _range([x for line in lines for x in line.x])
        y0, y1 = _range([y for line in lines for y in line.y])
        return cls(x0, x1, y0, y1, are_fractions)

    def across(self, x: float) -> float:
        """Return the distance of a value from the left."""
        return LEFT + (x - self.x0) / (self.x1 - self.x0) * (RIGHT - LEFT)

    def down(self, y: float) -> float:
        """Return the distance of a value from the top."""
        return TOP + (self.y1 - y) / (self.y1 - self.y0) * (BOTTOM - TOP)

    def printed(self, value: float) -> str:
        """Return the label of a value."""
        return in_percent(value) if self.are_fractions else number(value)


def curves(lines: Sequence[Curve], x_label: str, y_label: str, are_fractions: bool) -> Markup:
    """Draw curves with grid lines and a legend, on axes from 0 to 100% for fractions."""
    axes = Axes.of(lines, are_fractions)
    drawn = "".join(_grid(axes, t) for t in (0.0, 0.5, 1.0))
    heights = _apart([axes.down(line.y[-1]) for line in lines])
    for i, (line, height) in enumerate(zip(lines, heights, strict=True)):
        drawn += f'<g class="curve n{i % N_COLOURS}">{_curve(line, axes)}{_legend(line, height)}</g>'

    described = "; ".join(f"{line.name} {line.text}".strip() for line in lines)
    label = escape(f"{y_label} against {x_label}: {described}")
    middle = (LEFT + RIGHT) / 2
    return Markup(
        f'<svg class=curves viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" role=img aria-label="{label}">'
        f'<text x="{middle}" y="{PLOT_HEIGHT - 2}" text-anchor=middle>{escape(x_label)}</text>'
        f"{drawn}</svg>"
    )


def _grid(axes: Axes, t: float) -> str:
    """Draw a horizontal line at the fraction t of the axes, and label both axes there."""
    x = axes.x0 + t * (axes.x1 - axes.x0)
    y = axes.y0 + t * (axes.y1 - axes.y0)
    across = axes.across(x)
    down = axes.down(y)
    return (
        f'<line class=grid x1="{LEFT}" x2="{RIGHT}" y1="{down:.1f}" y2="{down:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor=end>{axes.printed(y)}</text>'
        f'<text x="{across:.1f}" y="{BOTTOM + 18}" text-anchor=middle>{axes.printed(x)}</text>'
    )


def _curve(line: Curve, axes: Axes) -> str:
    """Draw a curve through its points."""
    points = [f"{axes.across(x):.1f},{axes.down(y):.1f}" for x, y in zip(line.x, line.y, strict=True)]
    return f'<polyline points="{" ".join(points)}"/>'


def _legend(line: Curve, height: float) -> str:
    """Draw a line sample, the name of a curve (in full as a tooltip), and its text below."""
    name = line.name
    if len(name) > LONG:
        name = name[: LONG - 1] + "…"
    return (
        f'<path d="M{RIGHT + 10} {height:.1f}h18"/>'
        f'<text class=name x="{RIGHT + 34}" y="{height + 4:.1f}">{escape(name)}'
        f"<title>{escape(line.name)}</title></text>"
        f'<text x="{RIGHT + 34}" y="{height + 19:.1f}">{escape(line.text)}</text>'
    )


def _range(values: list[float]) -> tuple[float, float]:
    """Return the smallest and the largest value, or a range around the only one."""
    lowest = min(values)
    highest = max(values)
    if lowest == highest:
        return lowest - 0.5, highest + 0.5
    return lowest, highest


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


def number(value: float | str | None) -> str:
    """Format a number for the page, with a minus sign; keep other values."""
    if value is None:
        return ""
    if not isinstance(value, int | float):
        return str(value)
    if not isfinite(value):
        return "–"
    return text(value).replace("-", "−")


def in_percent(fraction: float | None) -> str:
    """Format a fraction in percent, with a minus sign."""
    return percent(fraction).replace("-", "−")


def signed(fraction: float) -> str:
    """Format a fraction in percent with its sign."""
    return percent(fraction, signed=True).replace("-", "−")


def standardised(column: ColumnEntry, value: float | str | None) -> str | None:
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


def _parsed(value: float | str | None, unit: str) -> float:
    """Read a number, or a number as it is printed now, with or without its unit."""
    if isinstance(value, int | float):
        return float(value)
    marks = current_marks()
    printed = str(value).removesuffix(unit).strip()
    return float(printed.replace(marks.thousands, "").replace(marks.decimal, ".").replace("−", "-"))
