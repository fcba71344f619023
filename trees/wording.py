"""How columns, clusters and numbers are worded in rules and drawings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite

from neonxc.trees.tree import ThresholdTree


def feature_texts(tree: ThresholdTree, names: Sequence[str] | None = None) -> list[str]:
    """Names of a tree's columns: those given, else its own, else x[0], x[1], ..."""
    if names is None:
        names = tree.feature_names or [f"x[{i}]" for i in range(tree.n_features)]
    return _as_many(names, tree.n_features, "feature_names", "features")


def cluster_texts(tree: ThresholdTree, names: Sequence[str] | None = None) -> list[str]:
    """Names of a tree's clusters: those given, else their labels; a number is told to be a cluster's."""
    if names is None:
        names = [label if isinstance(label, str) else f"cluster {label}" for label in tree.classes.tolist()]
    return _as_many(names, len(tree.classes), "class_names", "clusters")


def _as_many(names: Sequence[str], needed: int, argument: str, things: str) -> list[str]:
    if isinstance(names, str):  # would pass for a sequence of its letters
        raise ValueError(f"{argument} must be a sequence of names, got the string {names!r}")
    if len(names) != needed:
        raise ValueError(
            f"{argument} has {len(names)} names, the tree needs one for each of its {needed} {things}"
        )
    return [" ".join(str(name).split()) for name in names]  # a line break would tear rules and drawings apart


def readable(values: Iterable[float], precision: int = 4) -> dict[float, str]:
    """Print the finite ones of a column's numbers with few digits, but no two of them alike.

    Parameters
    ----------
    values : iterable of float
    precision : int
        Significant digits of those that no other is close to.
    """
    if precision < 1:
        raise ValueError(f"precision must be at least 1, got {precision}")
    texts: dict[float, str] = {}
    todo = {value for value in values if isfinite(value)}
    while todo:  # 17 digits tell any two apart
        new = {value: readable_number(value, precision) for value in todo}
        often = Counter(new.values())
        texts |= {value: text for value, text in new.items() if often[text] == 1}
        todo -= texts.keys()
        precision += 1
    return texts


def readable_number(value: float, precision: int = 4) -> str:
    """Print a number with few digits: tenths stay, so that 1985.5 still lies between 1985 and 1986."""
    if value == 0 or not 1e-4 <= abs(value) < 1e15:
        return format(value + 0.0, f".{precision}g")  # + 0.0: no sign for -0.0
    exponent = int(f"{value:.{precision - 1}e}".partition("e")[2])
    return f"{value:.{max(precision - 1 - exponent, 1)}f}".rstrip("0").rstrip(".")


def counts(samples: float, mistakes: float | None = None) -> str:
    """Say how many training points there are, and how many of them are mistakes: ``50 samples, 1 mistake``."""
    words = [(samples, "sample")] + ([] if mistakes is None else [(mistakes, "mistake")])
    return ", ".join(f"{readable_number(n)} {noun}{'' if n == 1 else 's'}" for n, noun in words)
