"""Fonts, colours and line breaks that the drawings of a tree share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from neonxc.trees.tree import ThresholdTree
from neonxc.trees.wording import NodeWords

# In points
FONT, LINE = 8.5, 11.0
THINNEST, THICKEST = 0.8, 6.0  # edges that no point takes, and that all take
GREY = "0.45"
LONGEST = 20  # characters after which a name is broken in any case


def node_colors(tree: ThresholdTree) -> Callable[[NodeWords], tuple[str, str]]:
    """Colours of a node's line and area."""
    from matplotlib.colors import to_hex

    from neonxc.plot.images import cluster_colors

    table = cluster_colors(len(tree.classes))

    def colors(word: NodeWords) -> tuple[str, str]:
        if word.cluster is None:
            return "#737373", "#ffffff"
        red, green, blue, _ = table(word.cluster)
        purity = 1 - word.mistakes / word.samples if word.samples > 0 else 1.0
        strength = 0.08 + 0.42 * purity**2  # never so strong that black text is hard to read
        pale = (1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue))
        return to_hex((red, green, blue)), to_hex(pale)

    return colors


def thickness(child: NodeWords, root: NodeWords) -> float:
    """Width of the edge to a child, by its share of the training points."""
    return max(THINNEST, THICKEST * child.samples / root.samples) if root.samples > 0 else THINNEST


def answers(tree: ThresholdTree, node: int) -> list[tuple[int, str]]:
    """A test's children, and its answer for them."""
    return [(int(tree.left[node]), "yes"), (int(tree.right[node]), "no")] if tree.feature[node] >= 0 else []


@lru_cache(maxsize=10_000)
def text_width(text: str, size: float = FONT, weight: str = "normal") -> float:
    """Width of a line of text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Break a text into lines after spaces and underscores, and inside of names that are too long."""
    tied = re.sub(r"(?<=[≤>]) |(?<= in) (?=[\[(])|(?<=^or) ", "\N{NO-BREAK SPACE}", text)  # bounds and their signs
    lines = [""]
    for part in re.findall(rf"[^ _]{{1,{LONGEST}}}[ _]*|[ _]+", tied):
        if lines[-1] and not fits(lines[-1] + part.rstrip()):
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]
