"""Bars and distributions as inline SVG, coloured by the style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from markupsafe import Markup

from neonxc.report.contents import Statement
from neonxc.report.printing import number, share

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
