"""Fonts, colours and line breaks of the drawings of trees."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.rules.wording import NodeWords

# In points
FONT, LINE = 8.5, 11.0
THINNEST, THICKEST = 0.8, 6.0  # width of edges that no point takes, and that all points take
GREY = "0.45"
LONGEST = 20  # maximum number of characters of a name in a line


def node_colors(tree: ThresholdTree) -> Callable[[NodeWords], tuple[str, str]]:
    """Return a function for the line and fill colours of a node."""
    from matplotlib.colors import to_hex

    from neonxc.plot.images import cluster_colors

    table = cluster_colors(len(tree.classes))

    def colors(word: NodeWords) -> tuple[str, str]:
        if word.cluster is None:
            return "#737373", "#ffffff"
        red, green, blue, _ = table(word.cluster)
        purity = 1 - word.mistakes / word.samples if word.samples > 0 else 1.0
        strength = 0.08 + 0.42 * purity**2  # pale enough for black text
        pale = (1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue))
        return to_hex((red, green, blue)), to_hex(pale)

    return colors


def thickness(child: NodeWords, root: NodeWords) -> float:
    """Return the width of the edge to a child, from its share of the training points."""
    return max(THINNEST, THICKEST * child.samples / root.samples) if root.samples > 0 else THINNEST


def answers(tree: ThresholdTree, node: int) -> list[tuple[int, str]]:
    """Return the children of a test, and the answers that lead to them."""
    return [(int(tree.left[node]), "yes"), (int(tree.right[node]), "no")] if tree.feature[node] >= 0 else []


@lru_cache(maxsize=10_000)
def text_width(text: str, size: float = FONT, weight: str = "normal") -> float:
    """Return the width of a line of text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Break a text into lines after spaces and underscores, and within names that are too long."""
    tied = re.sub(r"(?<=[≤>]) |(?<= in) (?=[\[(])|(?<=^or) ", "\N{NO-BREAK SPACE}", text)  # bounds and their signs
    lines = [""]
    for part in re.findall(rf"[^ _]{{1,{LONGEST}}}[ _]*|[ _]+", tied):
        if lines[-1] and not fits(lines[-1] + part.rstrip()):
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]
