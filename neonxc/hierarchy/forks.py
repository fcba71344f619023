"""Forks of a hierarchy: the clusters that fall into several parts.

    name of a part     name of its parent, "/", and the label of the part; the root, which has all rows, is "all"
    code of a row      position of the part that it is in; -1 if it is in none
    kept               fraction of the rows of the parent that are in one of its parts

A cluster with a single part is no fork: the part takes its place, and its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neonxc.common.types import Label

if TYPE_CHECKING:
    from neonxc.network import NeuralizedClustering

ROOT = "all"
"""Name of the root."""

Integers = NDArray[np.int64]


class Parts(NamedTuple):
    """A network with the parts of a fork among its clusters."""

    network: NeuralizedClustering
    labels: Sequence[Label]  # of the parts, in the network


class Origin:
    """Where the parts of a fork are from: what decides about them exactly, and how they are judged.

    Of labels nothing else is known; clusterers have origins of their own.
    """

    def space(self) -> Any | None:
        """Return the columns [N, d] that were clustered; None if these are not known."""
        return None

    def parts(self, fork: Fork) -> Parts | None:
        """Return a network that decides as the clusterer does; None if a surrogate is needed."""
        return None

    def refitted(self, fork: Fork) -> Any | None:
        """Return a clusterer that finds such parts in other rows; None if the labels of the parts suffice."""
        return None


class Fork(NamedTuple):
    """A cluster that falls into several parts."""

    parent: str
    children: list[str]
    rows: Integers  # [n], positions of the rows of the parent, sorted
    codes: Integers  # [n], position of the part of each row, -1: in none
    elsewhere: dict[str, int]  # where the rows are that are in none, and their numbers
    origin: Origin
    labels: list[Label]  # of the parts, as their clusterer calls them; empty if they are of several clusterers

    @property
    def kept(self) -> float:
        """Fraction of the rows that are in one of the parts."""
        return float((self.codes >= 0).mean())


class Hierarchy(NamedTuple):
    """The forks that are explained, the coarsest first, and the number of those that are not."""

    forks: list[Fork]
    n_further: int


def part_name(parent: str, label: str) -> str:
    """Return the name of a part of a cluster."""
    return label if parent == ROOT else f"{parent}/{label}"
