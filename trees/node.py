"""The nodes of a growing tree, and the cuts that divide them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class Node:
    """A node of a growing tree.

    Attributes
    ----------
    id : int
        Number of the node in the :class:`~neonxc.trees.builder.TreeBuilder`.
    rows : Tensor [points] of int64
        Indices of the points that reach the node, in ascending order.
    centers : Tensor [centers] of int64
        Indices of the reference centers that reach the node; empty if the tree does not separate centers.
    n, mass : int, float
        Number of points over all processes, and their total weight.
    sides : frozenset of (feature, whether to the left)
        Columns and directions of the tests on the path to the node.
    clusters : (Tensor, Tensor) or None
        The reference clusters of the points and the mass of each, if computed.
    state : Any
        Result of :meth:`~neonxc.trees.criterion.Criterion.open`, set when `opened` is True.
    slack : float
        Scores that differ by at most this value are ties, because the difference may be a rounding error.
    statistics, entries, columns : sequence of Statistic or None, SparseEntries or None, and dict
        Sums, sparse entries and columns that the search keeps.
    """

    id: int
    rows: Tensor
    centers: Tensor
    n: int
    mass: float
    sides: frozenset[tuple[int, bool]] = frozenset()
    clusters: tuple[Tensor, Tensor] | None = None
    state: Any = None
    opened: bool = False
    slack: float = 0.0
    statistics: Sequence[Any] = ()
    entries: Any = None
    columns: dict[int, Any] = field(default_factory=dict)

    def without_centers(self) -> Node:
        """A node with the same points but no centers, so that it can be split further."""
        return Node(self.id, self.rows, self.centers[:0], self.n, self.mass, self.sides)


@dataclass(frozen=True)
class Cut:
    """A test of a column, as a code and as a threshold, and which points and centers of the node it sends left.

    If `intervals` has one or two pairs ``(low, high)``, points with ``low < x <= high`` for one of them go left,
    and `threshold` is NaN.
    """

    feature: int
    code: int
    threshold: float
    left: Tensor
    centers_left: Tensor
    intervals: tuple[tuple[float, float], ...] = ()
