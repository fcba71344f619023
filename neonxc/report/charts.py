"""Bars, distributions and curves as inline SVG, coloured by the style sheet, and numbers as they are printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

from markupsafe import Markup

from neonxc.common.numbers import percent, text
from neonxc.report.contents import Column, Curve, Statement

WIDTH, HEIGHT = 120, 32  # size of the plot of a distribution, in pixels
SHOWN = 10  # maximum number of categories in a distribution


def bar(value: float, least: float, most: float) -> Markup:
    """Draw a bar from 0 to `value`, on a scale from `least` (<= 0) to `most` (>= 0)."""
    value = value if isfinite(value) else 0.0
    span = (most - least) or 1.0
    zero, end = -least / span * 100, (value - least) / span * 100
    return Markup(
        '<svg class=bar aria-hidden=true><rect class={} x="{:.0f}%" width="{:.0f}%"/>'
        '<line x1="{:.0f}%" x2="{:.0f}%" y2="100%"/></svg>'
    ).format("for" if value >= 0 else "against", min(zero, end), abs(end - zero), zero, zero)


def distribution(statement: Statement) -> Markup:
    """Draw the distributions inside (filled) and outside (outlined) a cluster, as histograms or bars."""
    inside, outside = statement.inside, statement.outside
    if not inside or not outside:
        return Markup("")
    top = max(*inside, *outside, 1e-12)
    if len(statement.bins) == len(inside) + 1:
        places = _edges(statement.bins)
        shapes = _histogram(places, [x / top for x in inside], [x / top for x in outside])
    else:
        kept = sorted(sorted(range(len(inside)), key=lambda at: -(inside[at] + outside[at]))[:SHOWN])
        shapes = _categories(
            [(statement.bins[at], inside[at], outside[at], inside[at] / top, outside[at] / top) for at in kept]
        )
    return Markup(
        '<svg class="distribution" viewBox="0 -1 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "{}</svg>"
    ).format(WIDTH, HEIGHT + 2, summary(statement), shapes)


def summary(statement: Statement) -> str:
    """Describe a distribution in words."""
    inside, outside = number(statement.inside_typical), number(statement.outside_typical)
    return f"typically {inside} inside the cluster, {outside} outside" if inside or outside else "distribution"


def _edges(bins: Sequence[float]) -> list[float]:
    span = (bins[-1] - bins[0]) or 1.0
    return [(edge - bins[0]) / span * WIDTH for edge in bins]


def _histogram(places: list[float], inside: list[float], outside: list[float]) -> Markup:
    drawn = []
    for kind, heights in (("in", inside), ("out", outside)):
        steps = "".join(
            f"V{HEIGHT * (1 - height):.0f}H{right:.0f}"
            for height, (_, right) in zip(heights, pairwise(places), strict=True)
        )
        drawn.append(Markup('<path class="{}" d="M0 {}{}V{}"/>').format(kind, HEIGHT, steps, HEIGHT))
    return Markup("").join(drawn)


def _categories(rows: list[tuple[str, float, float, float, float]]) -> Markup:
    wide = WIDTH / max(len(rows), 3)
    rect = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
    return Markup("").join(
        Markup("<g><title>{}: {} inside, {} outside</title>{}{}</g>").format(
            name,
            share(inside),
            share(outside),
            rect.format("in", at * wide + 1, HEIGHT * (1 - high), wide / 2 - 2, HEIGHT * high),
            rect.format("out", (at + 0.5) * wide - 1, HEIGHT * (1 - low), wide / 2 - 2, HEIGHT * low),
        )
        for at, (name, inside, outside, high, low) in enumerate(rows)
    )


PLOT_WIDTH, PLOT_HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 40, 308, 12, 214  # edges of the plot area; the names are right of it
STEP = 38  # vertical distance between two names

Place = Callable[[float, float], tuple[float, float]]


def curves(lines: Sequence[Curve], x_label: str, y_label: str, shares: bool) -> Markup:
    """Draw curves, on axes from 0 to 100% for shares and otherwise from the smallest to the largest value."""
    (x0, x1), (y0, y1) = ((0.0, 1.0), (0.0, 1.0)) if shares else (_span(lines, "x"), _span(lines, "y"))

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - x0) / (x1 - x0) * (RIGHT - LEFT), TOP + (y1 - y) / (y1 - y0) * (BOTTOM - TOP)

    ticks = [(x0 + part * (x1 - x0), y0 + part * (y1 - y0)) for part in (0.0, 0.5, 1.0)]
    heights = _apart([place(line.x[-1], line.y[-1])[1] for line in lines])
    drawn = [_tick(x, y, place, share if shares else number) for x, y in ticks]
    drawn += [_line(line, at, height, place) for at, (line, height) in enumerate(zip(lines, heights, strict=True))]
    summary = "; ".join(f"{line.name} {line.text}".strip() for line in lines)
    return Markup(
        '<svg class=curves viewBox="0 0 {} {}" role=img aria-label="{} against {}: {}">'
        '<text x="{}" y="{}" text-anchor=middle>{}</text>{}</svg>'
    ).format(
        PLOT_WIDTH,
        PLOT_HEIGHT,
        y_label,
        x_label,
        summary,
        (LEFT + RIGHT) / 2,
        PLOT_HEIGHT - 2,
        x_label,
        Markup("").join(drawn),
    )


def _tick(x: float, y: float, place: Place, printed: Callable[[float], str]) -> Markup:
    across, down = place(x, y)
    level = Markup(
        '<line class=grid x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
        '<text x="{}" y="{:.1f}" text-anchor=end>{}</text>'
    ).format(LEFT, RIGHT, down, down, LEFT - 6, down + 4, printed(y))
    return level + Markup('<text x="{:.1f}" y="{}" text-anchor=middle>{}</text>').format(
        across, BOTTOM + 18, printed(x)
    )


def _line(line: Curve, at: int, height: float, place: Place) -> Markup:
    """Draw a curve with its legend: a line sample, the name (in full as a tooltip) and the text below it."""
    way = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(line.x, line.y, strict=True))
    name = line.name if len(line.name) <= 16 else line.name[:15] + "…"
    key, text = RIGHT + 10, RIGHT + 34
    return Markup(
        '<g class="curve n{}"><polyline points="{}"/><path d="M{} {:.1f}h18"/>'
        '<text class=name x="{}" y="{:.1f}">{}<title>{}</title></text><text x="{}" y="{:.1f}">{}</text></g>'
    ).format(at % 6, way, key, height, text, height + 4, name, line.name, text, height + 19, line.text)


def _span(lines: Sequence[Curve], axis: str) -> tuple[float, float]:
    values = [value for line in lines for value in getattr(line, axis)]
    least, most = min(values), max(values)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _apart(places: list[float]) -> list[float]:
    """Move the heights of names until neighbours are at least STEP apart and none is below the plot area."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    moved, above, below = list(places), float("-inf"), BOTTOM - 8.0 + STEP
    for at in order:
        above = moved[at] = max(places[at], above + STEP)
    for at in reversed(order):
        below = moved[at] = min(moved[at], below - STEP)
    return moved


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
