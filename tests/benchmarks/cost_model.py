"""A model of the cost of fits and attributions: operation counts from the sizes of the data, and seconds.

The counts follow the implementation: which pass goes over which entries. A machine is described by a few
throughputs. docs/cost.md explains both.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import log


@dataclass(frozen=True)
class Size:
    """The sizes on which the cost depends.

    Attributes
    ----------
    n, d, k : int
        Rows, columns and clusters.
    leaves : int
        Leaves of the tree; 0 for one per cluster.
    bins : int
        Number of codes per column.
    balance : float
        The share of a node's points in its smaller child, on average over points; at most 1/2.
    supports : int
        Supports per cluster of kernel k-means.
    whole : bool
        Whether columns contain whole numbers of a small range, which are coded without sorting.
    """

    n: int
    d: int
    k: int
    leaves: int = 0
    bins: int = 256
    balance: float = 0.5
    supports: int = 1
    whole: bool = True


@dataclass(frozen=True)
class Work:
    """Counts of operations.

    Attributes
    ----------
    scattered : float
        Entries that are added to a histogram.
    gathered : float
        Entries that are selected by a mask or an index.
    streamed : float
        Bytes that are read or written in order.
    multiplied : float
        Multiplications of matrix products.
    sorted, ordered : float
        Entries that are sorted, and entries that are sorted together with their indices.
    operators : float
        Operators that are launched.
    reduced, calls : float
        Bytes that are summed over the processes of a group, and the number of calls: one for all nodes of a level
        in trees with a leaf per center, one per node otherwise.
    """

    scattered: float = 0.0
    gathered: float = 0.0
    streamed: float = 0.0
    multiplied: float = 0.0
    sorted: float = 0.0
    ordered: float = 0.0
    operators: float = 0.0
    reduced: float = 0.0
    calls: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Machine:
    """Seconds per operation of each kind; sums over a group take no time in a single process."""

    scattered: float
    gathered: float
    streamed: float
    multiplied: float
    sorted: float
    ordered: float
    operators: float
    reduced: float = 0.0
    calls: float = 0.0

    def parts(self, work: Work) -> dict[str, float]:
        """Return the seconds of each kind of operation."""
        return {f.name: getattr(self, f.name) * getattr(work, f.name) for f in fields(Work)}

    def seconds(self, work: Work) -> float:
        """Return the total seconds."""
        return sum(self.parts(work).values())


# --- trees ---------------------------------------------------------------------------------------------------


def depth(leaves: int, balance: float) -> float:
    """Return the average depth of a point in a tree with leaves of equal size and cuts of equal balance.

    A cut gives ``H(b) = -b ln b - (1 - b) ln (1 - b)`` of the ``ln leaves`` nats that determine the leaf of a
    point.
    """
    entropy = -balance * log(balance) - (1 - balance) * log(1 - balance)
    return log(leaves) / entropy


def tree(algorithm: str, size: Size, operators: tuple[float, float] = (0.0, 0.0)) -> Work:
    """Count the operations of fitting a tree to given centers.

    Parameters
    ----------
    algorithm : {"IMM", "ExShallow", "CART", "SpExClique", "ExKMC"}
        ExKMC expands an IMM tree.
    size : Size
    operators : tuple of float
        Number of operators per fit, and per cut.
    """
    leaves = size.leaves or size.k
    start, per_cut = operators
    work = _around(size, leaves) + Work(operators=start + per_cut * (leaves - 1))
    if algorithm == "ExKMC":
        return work + _of_centers(size) + _surrogate(size, leaves)
    if algorithm == "IMM":
        return work + _of_centers(size)
    return work + (_of_costs(size) if algorithm == "ExShallow" else _of_clusters(size, leaves, algorithm))


def _around(size: Size, leaves: int) -> Work:
    """Count the operations before and after growth: codes, nearest centers, means, and the tested columns."""
    n = size.n
    d = size.d
    k = size.k
    tested = min(d, leaves - 1)
    codes = Work(streamed=66 * n * d)
    if not size.whole:  # a sample is sorted for its quantiles, and every value is searched in them
        codes = Work(ordered=min(n, SAMPLE) * d, gathered=10 * n * d, streamed=400 * n * d)
    nearest = Work(streamed=n * (50 * d + 48 * k), multiplied=n * d * k)
    finish = Work(streamed=n * (90 * d + 350 * tested), multiplied=n * d * k, sorted=n * tested)
    return codes + nearest + finish


def _cuts(size: Size, rows: float, cuts: int) -> Work:
    """Count the operations of cutting nodes: thresholds, sides, and the rows of the children."""
    return Work(gathered=4 * rows, streamed=100 * rows + 2 * size.n * cuts)


def _histogram(size: Size, rows: float) -> Work:
    """Count the operations of the histograms of all columns."""
    return Work(scattered=rows * size.d, gathered=3 * rows, streamed=6 * rows * size.d)


def _of_centers(size: Size) -> Work:
    """IMM: the sums of the root are kept by center, and only the mistakes are subtracted."""
    n = size.n
    d = size.d
    k = size.k
    far = depth(k, size.balance)
    kept = d * size.bins * k * far
    work = _cuts(size, n * far, k - 1) + _histogram(size, n) + Work(gathered=8 * n * far, streamed=40 * kept)
    return work + Work(reduced=4 * kept, calls=3 * far)


def _of_clusters(size: Size, leaves: int, algorithm: str) -> Work:
    """CART and SpEx-Clique: points by cluster; the smaller child is summed, the larger one is the difference."""
    n = size.n
    d = size.d
    k = size.k
    far = depth(leaves, size.balance)
    summed = 1 + size.balance * far
    groups = DIVIDED * k * far + 2 * (leaves - k)  # rows of all nodes
    passes = 140 if algorithm == "CART" else 160  # SpEx-Clique scores both children of every cut
    work = _cuts(size, n * far, leaves - 1) + _histogram(size, n * summed)
    kept = d * size.bins * groups
    return work + Work(streamed=passes * kept, reduced=4 * kept, calls=3 * (leaves - 1))


def _of_costs(size: Size) -> Work:
    """ExShallow: every node is swept once by a bound, and a few cuts are scored exactly."""
    n = size.n
    d = size.d
    k = size.k
    b = size.balance
    far = depth(k, b)
    pairs = n * k / (2 * b * (1 - b))  # rows times centers, of all nodes
    swept = _histogram(size, n * far) + Work(streamed=40 * d * size.bins * k * far)
    points = _histogram(size, n * (1 + b * far))
    scored = Work(streamed=PARTS * 36 * pairs + CUTS * 30 * n * far, scattered=CUTS * n * far)
    estimated = Work(gathered=10 * d * size.bins * k * far)  # the depth below a cut, center by center
    opened = Work(streamed=60 * pairs, gathered=pairs)
    reduced = d * size.bins * (8 + 4) * (k - 1)
    work = _cuts(size, n * far, k - 1) + swept + points + scored + estimated + opened
    return work + Work(reduced=reduced, calls=10 * far)


SAMPLE = 1 << 16  # number of rows from which bins are made
DIVIDED = 2.5  # nodes with points of a cluster, divided by its depth: adjacent clusters are cut through
# cuts that ExShallow scores exactly, per node, and the parts of centers that these separate
CUTS = 25
PARTS = 15
CHANNELS = 3  # share of the centers considered by ExKMC that may be the best of a side


def _surrogate(size: Size, leaves: int) -> Work:
    """ExKMC after its base tree: sums of gains at the few centers that may be the best of a side."""
    n = size.n
    d = size.d
    k = size.k
    far = 1 + (depth(leaves / k, size.balance) if leaves > k else 0.0)  # every leaf of the base tree is considered
    m = min(k, CHANNELS)
    cuts = _cuts(size, n * (far - 1), leaves - k)
    opened = Work(gathered=n * k * far, streamed=64 * n * k * far, multiplied=n * k * k / 2 * far)
    sums_ = Work(scattered=n * far * d * m, streamed=6 * n * far * d)
    bins = d * size.bins * m * (leaves - k)
    return cuts + opened + sums_ + Work(streamed=60 * bins, reduced=8 * bins, calls=6 * (leaves - k))


# --- attributions and EM -------------------------------------------------------------------------------------


def attribution(size: Size, operators: tuple[float, float] = (0.0, 0.0)) -> Work:
    """Count the operations of NEON.attribute on float32 rows, of kernel k-means if there are several supports."""
    n = size.n
    d = size.d
    k = size.k
    p = size.supports
    start, per_cluster = operators
    soft = 80 * n * k if p > 1 else 0  # soft minima over a few supports each, row by row
    streamed = 4 * n * (28 * d + 25 * k) + (4 * n * 75 * k * p if p > 1 else 0)
    masked = n * d + 7 * n * k + soft  # on the CPU, a mask is as slow as an index
    products = 4 * n * d * k * p
    return Work(gathered=masked, streamed=streamed, multiplied=products, operators=start + per_cluster * k)


def em_iteration(size: Size, operators: tuple[float, float] = (0.0, 0.0)) -> Work:
    """Count the operations of an EM iteration on float32 rows: distances to supports, responsibilities, and
    sums."""
    n = size.n
    d = size.d
    k = size.k
    p = size.supports
    start, per_cluster = operators
    streamed = 4 * n * (8 * d + 16 * k * p + 16 * p)
    return Work(
        gathered=n * (d + 4 * k),
        streamed=streamed,
        multiplied=n * d * p * (k + 1),
        sorted=n,
        operators=start + per_cluster * k,
        reduced=4 * k * p * (d + 1),
        calls=1,
    )


# --- memory ------------------------------------------------------------------------------


def held(algorithm: str, size: Size) -> float:
    """Return the peak bytes of a fit besides the table: codes by column and by row, and the values per row."""
    code = 1 if size.bins <= 256 else 2
    per_row = 2 * code * size.d + 2.5 * size.d + 8 * size.k + 190
    if algorithm == "ExShallow":  # distances by center, and those of the parts that are scored
        per_row += 8 * size.k + 4 * 8 * (PARTS + 1)
    return size.n * per_row
