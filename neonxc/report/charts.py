"""Small charts as inline SVG; their colours are the style sheet's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from neonxc.report.contents import Curve, Statement
from neonxc.report.printing import number, share

WIDTH, HEIGHT = 120, 32  # of a distribution
SHOWN = 10  # categories of a distribution


def bar(value: float, least: float, most: float) -> Markup:
    """A bar from 0, on the scale from `least` (<= 0) to `most` (>= 0)."""
    span = (most - least) or 1.0
    zero, end = -least / span * 100, (value - least) / span * 100
    return Markup(
        '<svg class=bar aria-hidden=true><rect class={} x="{:.0f}%" width="{:.0f}%"/>'
        '<line x1="{:.0f}%" x2="{:.0f}%" y2="100%"/></svg>'
    ).format("for" if value >= 0 else "against", min(zero, end), abs(end - zero), zero, zero)


def distribution(statement: Statement) -> Markup:
    """Inside (filled) against outside (a line): a histogram, or categories side by side."""
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
    ).format(WIDTH, HEIGHT + 2, said(statement), shapes)


def said(statement: Statement) -> str:
    """What a distribution shows, in words."""
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


def curves(lines: Sequence[Curve], x_label: str, y_label: str, percent: bool) -> Markup:
    """Curves with their names at their ends, on axes with the least and the greatest value."""
    wide, high, left, bottom, right = 440, 250, 40, 36, 132
    xs, ys = ([v for line in lines for v in getattr(line, axis)] for axis in "xy")
    (x0, x1), (y0, y1) = ((0.0, 1.0), (0.0, 1.0)) if percent else (_span(xs), _span(ys))
    printed = share if percent else number

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (x - x0) / (x1 - x0) * (wide - left - right)
        return across, 12 + (y1 - y) / (y1 - y0) * (high - bottom - 12)

    parts = []
    for tick in (0.0, 0.5, 1.0):
        x, y = x0 + tick * (x1 - x0), y0 + tick * (y1 - y0)
        across, down = place(x, y)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
                '<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>'
            ).format(
                left,
                wide - right,
                down,
                down,
                left - 6,
                down + 4,
                printed(y),
                across,
                high - bottom + 18,
                printed(x),
            )
        )
    ends = _apart([place(line.x[-1], line.y[-1])[1] for line in lines], 38)
    for at, (line, end) in enumerate(zip(lines, ends, strict=True)):
        way = [place(x, y) for x, y in zip(line.x, line.y, strict=True)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in way)
        parts.append(
            Markup(
                '<g class="curve n{}"><polyline points="{}"/><path d="M{} {:.1f}h18"/>'
                '<text class="name" x="{}" y="{:.1f}">{}<title>{}</title></text>'
                '<text x="{}" y="{:.1f}">{}</text></g>'
            ).format(
                at % 6, drawn, wide - right + 10, end,
                wide - right + 34, end + 4, _short(line.name), line.name, wide - right + 34, end + 19, line.text,
            )
        )  # fmt: skip
    middle = left + (wide - left - right) / 2
    return Markup(
        '<svg class="curves" viewBox="0 0 {} {}" role="img" aria-label="{}"><text x="{}" y="{}" '
        'text-anchor="middle">{}</text>{}</svg>'
    ).format(wide, high, _told(lines, x_label, y_label), middle, high - 2, x_label, Markup("").join(parts))


def _told(lines: Sequence[Curve], x_label: str, y_label: str) -> str:
    return f"{y_label} against {x_label}: " + "; ".join(f"{line.name} {line.text}".strip() for line in lines)


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"


def _span(values: Sequence[float]) -> tuple[float, float]:
    least, most = min(values), max(values)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _apart(places: list[float], gap: float) -> list[float]:
    """Heights of labels, in the order of what they stand beside, at least `gap` apart."""
    moved = list(places)
    order = sorted(range(len(places)), key=lambda at: places[at])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    over = max([0.0, *(place - 205 for place in moved)])
    for after, before in pairwise(order[::-1]):
        moved[after] = min(moved[after], 205) if after == order[-1] else moved[after]
        moved[before] = min(moved[before], moved[after] - gap) if over else moved[before]
    return moved
