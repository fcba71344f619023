"""Carriers: they map inputs to the points that are clustered, and relevance of the points back to the inputs.

There is a carrier for raw columns, which are the points themselves, one for inputs of a feature network, and one
for texts whose words have vectors (:mod:`neonxc.models.words`). Attribution, pixel-flipping and summaries use the
carrier's interface and never its type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, Literal, TypeGuard

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from neonxc.common.memory import blocks, network_bytes
from neonxc.common.modules import check_evaluating
from neonxc.data.sparse import SparseRows, check_room, dense
from neonxc.data.table import Table
from neonxc.head import Decision, Head
from neonxc.head.detection import LinearDetection
from neonxc.pipelines.encoding import Encoding

HeadRule = Literal["midpoint", "linear"]
Decide = Callable[[slice], Decision]
"""Returns the decisions of a slice of the points, in the order of :func:`rows`."""


class Record:
    """A forward pass from inputs to features, through which relevance can be propagated back; here, the identity.

    Attributes
    ----------
    carrier : Carrier
    features : Tensor [N, d] or [N, d, ...]
        Features of the inputs; on a map, every location is a point.
    """

    def __init__(self, carrier: Carrier, x: Tensor) -> None:
        self.carrier, self.features = carrier, x

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        """Yield the relevance of each decision, with the shape of the inputs."""

        def of_one(decide: Decide) -> Tensor:
            return self.carrier.each(self.features, lambda block, x: decide(block).relevance(x))

        return map(of_one, decisions)

    def change(self, decide: Decide, base: Any, x: Tensor) -> Tensor:
        """Relevance of the difference between inputs and a baseline, by the linear rule at the head."""
        return (x - base) * self.slope(decide)

    def slope(self, decide: Decide) -> Tensor:
        """Compute multipliers with the shape of the inputs, by the linear rule at the head."""
        return self.carrier.each(self.features, lambda block, x: decide(block).multiplier(x))


class Carrier(ABC):
    """Base class: the connection between inputs and head.

    Parameters
    ----------
    features : nn.Module or None
        The feature network, or an encoding of inputs.
    head : Head or None
        None if the features are only needed to fit a head.
    names : list of str or None
        Names of the head's columns.
    device : torch.device
        Device of the network.
    """

    missing: Literal["draw", "zero", "word"] = "zero"
    """How pixel-flipping replaces a missing input: by a conditional draw, by zero, or by another word."""
    mask: int | None = None
    """Number of the word that stands for a missing one; None: any other word does."""
    rules: tuple[HeadRule, ...] = ("midpoint",)
    """The head rules that are supported (see :class:`neonxc.NEON`), the default first."""

    head: Head

    def __init__(self, features: Any, head: Head | None, names: list[str] | None, device: torch.device) -> None:
        self.module, self.names, self.device = features, names, device
        if head is not None:
            self.head = head

    def batch(self, X: Any) -> Table:
        """Check inputs and convert them to a tensor on the network's device."""
        table = self.stored(X)
        check_room(table.tensor)
        return table.holding(dense(table.tensor))

    @abstractmethod
    def stored(self, X: Any) -> Table:
        """Check inputs like :meth:`batch`, but keep sparse points as :class:`~neonxc.data.sparse.SparseRows`."""

    def features(self, x: Tensor) -> Tensor:
        """Compute features [N, d], or a map [N, d, ...] whose every location is a point."""
        return x

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Record a forward pass; `several` says whether relevance will be propagated back more than once."""
        return Record(self, x)

    def baseline(self, along: Any, x: Tensor) -> Any:
        """A baseline with the shape of one of the inputs [N, ...]."""
        if along.ndim and along.shape != x.shape[1:]:
            got, needed = list(along.shape), list(x.shape[1:])
            raise ValueError(f"along needs a number or a baseline shaped like one input, {needed}, got {got}")
        return along.to(x).expand(x.shape[1:])

    def between(self, base: Any, x: Tensor, share: float | Tensor) -> Record:
        """Record a forward pass a share of the way (one for all or for each feature) from a baseline to inputs."""
        return self.record(base + share * (x - base))

    def blocks(self, x: Any) -> Iterator[slice]:
        """Slices of the inputs that fit into memory."""
        return blocks(len(x), network_bytes(x), x.device)

    def parts(self, X: Any) -> Iterator[Tensor]:
        """Yield checked inputs, block by block."""
        x = self.stored(X).tensor
        yield from (x[part] for part in self.blocks(x))

    def points(self, X: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield checked inputs, block by block, with their points [n, d] in the space of the head."""
        for x in self.parts(X):
            yield x, rows(self.features(x))

    def columns(self, X: Any) -> Any:
        """Return the table that threshold trees are fitted to, with one column per unit."""
        return X

    def collected(self, relevance: Tensor) -> Tensor:
        """Convert relevance of the head's columns to relevance [n, units] of the units."""
        return relevance

    @property
    def groups(self) -> Tensor | None:
        """The unit [D] that each input column belongs to in pixel-flipping; None: every column is a unit."""
        return None

    def spread(self, relevance: Any) -> Any:
        """Convert relevance of the caller's columns to relevance of the input columns."""
        return relevance

    @property
    def units(self) -> list[str]:
        """Names of the units whose relevance a summary sums up: the head's columns, or words."""
        return self.names or [f"x{i}" for i in range(self.head.n_features)]

    def accumulate(self, x: Tensor, points: Tensor, decide: Decide, column: Tensor, total: Tensor) -> None:
        """Add the relevance of the units to `total` [K + 1, units], in the rows given by `column` [n]."""
        total.index_add_(0, column.cpu(), self.of_units(x, points, decide).cpu().double())

    in_texts = False
    """Whether units are words or terms, whose :meth:`values` tell which texts contain them."""

    @property
    def categories(self) -> list[int]:
        """Positions of the units that hold categories and no numbers."""
        return []

    def values(self, x: Tensor, points: Tensor | SparseRows) -> Tensor | SparseRows:
        """Return the values [n, units] of the units at the points, if they are numbers."""
        return points

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """Return the units as columns of a table, and their values by position; None if :meth:`values` does."""
        return None

    def of_units(self, x: Tensor, points: Tensor | SparseRows, decide: Decide) -> Tensor:
        """Compute the relevance [n, units] of the points of inputs."""
        return self.each(points, lambda block, x: self.collected(decide(block).relevance(dense(x))))

    def of_points(self, points: Tensor | SparseRows) -> Iterator[slice]:
        """Slices of points [n, d] for which the head's values fit into memory."""
        return self.head.blocks(points)

    def each(self, points: Any, function: Callable[[slice, Tensor], Tensor]) -> Tensor:
        """Concatenate the results of a function for blocks of points that fit into memory."""
        parts = [function(block, points[block]) for block in self.of_points(points)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]


class Columns(Carrier):
    """Carrier of raw columns: the inputs are the points themselves."""

    missing = "draw"

    def stored(self, X: Any) -> Table:
        """Check points [N, d]; heads that are not linear get dense blocks of sparse ones."""
        table, detection = Table.read(X), self.head.detection
        x = table.rows(self.device, whole=isinstance(detection, LinearDetection))
        Table.read(table, self.names or self.head.n_features)
        detection.check(x, table.names)
        return table.holding(x)

    def blocks(self, x: Any) -> Iterator[slice]:
        """Slices of the points for which the head's values fit into memory."""
        return self.of_points(x)

    def of_points(self, points: Tensor | SparseRows) -> Iterator[slice]:
        """Slices of points [n, d] for which the head's values fit into memory; sparse points stay sparse."""
        if not _stays_sparse(points):
            return super().of_points(points)
        per_row = 32 * max(self.head.detection.n_neurons, self.head.n_clusters) + 4 * points.bytes_per_row
        return blocks(len(points), per_row, points.device)

    def accumulate(self, x: Tensor, points: Tensor, decide: Decide, column: Tensor, total: Tensor) -> None:
        """Add the relevance of the columns to `total`; for sparse points by a closed form."""
        if not _stays_sparse(points):
            return super().accumulate(x, points, decide, column, total)
        for block in self.of_points(points):
            add_relevance(self.head, decide(block), points[block], column[block], total)


class EncodedTable(Columns):
    """Carrier of tables with categories and missing values.

    Data frames and arrays [N, d] are tables; tensors [N, D] hold encoded columns, as ``net(x)`` takes them. The
    relevance of a table has its columns, that of a tensor the encoded columns.
    """

    module: Encoding

    def stored(self, X: Any) -> Table:
        """Encode a table as [N, D] of float64, or check a tensor of encoded columns."""
        table, encoding = Table.read(X), self.module
        if not table.is_tensor:
            tensor = encoding.encode(self._frame(table)).to(self.device)
            table = table.holding(tensor, collected=encoding.collected)
        elif table.tensor.shape[1:] != (encoding.width,):
            raise ValueError(
                f"X needs the {encoding.width} encoded columns of net.batch(table).tensor if it is a tensor, got "
                f"shape {list(table.shape)}; pass the table itself as a data frame or an array"
            )
        else:
            table = table.holding(table.rows(self.device))
        self.head.detection.check(table.tensor, encoding.names)
        return table

    def _frame(self, table: Table) -> pd.DataFrame:
        """A table as a frame with the names that the encoding knows; without names, columns go by position."""
        columns = self.module.columns
        return Table.read(table, columns if self.names else len(columns)).frame().set_axis(columns, axis=1)

    @property
    def units(self) -> list[str]:
        """The table's columns."""
        return list(self.module.columns)

    @property
    def categories(self) -> list[int]:
        """Columns of the table that are encoded, and not as numbers."""
        owner, is_number = self.module.owner, self.module.is_number
        return sorted({*owner.tolist()} - {*owner[is_number].tolist()})

    def values(self, x: Tensor, points: Tensor | SparseRows) -> Tensor:
        """Nothing, as NaN: encoded columns do not tell which numbers were missing, :meth:`table` does."""
        return torch.full((len(x), len(self.units)), torch.nan, dtype=torch.float64)

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """The table as it was given; None for a tensor, which holds encoded columns."""
        if (table := Table.read(X)).is_tensor:
            return None
        frame, numbers = self._frame(table), self.module.owner[self.module.is_number].unique().tolist()
        return frame, {column: self.module.numbers(frame, column) for column in numbers}

    @property
    def groups(self) -> Tensor:
        """The unit [D] of each encoded column in pixel-flipping: the index of its table column."""
        return self.module.owner.unique(return_inverse=True)[1]

    def spread(self, relevance: Any) -> Any:
        """Divide the relevance of each table column equally among its encoded columns."""
        table, owner = Table.read(relevance, name="relevance"), self.module.owner
        if table.is_tensor:
            return relevance
        Table.read(table, len(self.module.columns), "relevance")
        return table.tensor[:, owner] / owner.bincount()[owner]

    def collected(self, relevance: Tensor) -> Tensor:
        """Sum the relevance of the encoded columns by table column."""
        return self.module.collected(relevance)


@torch.no_grad()
def add_relevance(head: Head, decision: Decision, x: SparseRows, column: Tensor, total: Tensor) -> None:
    """Add the relevance of sparse points to the sums [K + 1, d] of their clusters; noise points are skipped.

    With ``y = (x - root) / n(x) - origin``, the relevance is ``const(weights, own) - slope(weights) * y``. It is
    linear in x and, for a given `own`, in the weights. The constant parts of all points with the same `own` are
    therefore that of their summed weights, and the rest needs the stored entries only.

    Parameters
    ----------
    head : Head
        A head with linear neurons.
    decision : Decision
        The decisions of the N points for their own clusters.
    x : SparseRows [N, d]
    column : Tensor [N] of int64
        Cluster of each point; K for points in no cluster.
    total : Tensor [K + 1, d] of float64, on the CPU
        The sums, modified in place.
    """
    detection, device = decision.detection, column.device
    assert isinstance(detection, LinearDetection)
    directions = detection.directions.double()
    weights = torch.where((column < len(total) - 1)[:, None], decision.weights.double(), 0.0)
    scaled = weights / detection.row_norm(x)
    own = None
    if decision.own is None:
        membership, cluster = one_hot(column, len(total)).double(), torch.arange(len(total), device=device)
    else:  # sums per neuron of the points' own clusters; a soft minimum shares a point among several
        membership, cluster = decision.own.double(), head.groups
        own = torch.eye(len(cluster), dtype=weights.dtype, device=device)
    # the relevance at x = 0, for weights [R, M] that are summed over the points with the same `own`
    constant, slope = membership.T @ weights, membership.T @ scaled
    for block in blocks(len(constant), 48 * detection.n_features, device):
        zero = constant.new_zeros(len(constant[block]), detection.n_features)
        found = detection.relevance(zero, constant[block], None if own is None else own[block])
        # `found` divides the root by the norm at zero; correct it to each point's own norm
        at_zero = constant[block] / detection.row_norm(zero)
        found += detection.root.double() * ((slope[block] - at_zero) @ directions)
        total.index_add_(0, cluster[block].cpu(), found.cpu())
    # and the slope times the entry, at every stored entry
    scaled, column, directions = scaled.cpu(), column.cpu(), directions.cpu().T.contiguous()
    (rows, columns), entries = x.places(), x.entries.double()
    for block in blocks(len(entries), 32 * scaled.shape[1]):
        slopes = torch.linalg.vecdot(scaled[rows[block]], directions[columns[block]])
        place = column[rows[block]] * total.shape[1] + columns[block]
        total.view(-1).index_add_(0, place, entries[block] * slopes, alpha=-1)


def _stays_sparse(x: Tensor | SparseRows) -> TypeGuard[SparseRows]:
    return isinstance(x, SparseRows) and x.whole


class _Propagation(Record):
    """A forward pass through a feature network, recorded by LRP."""

    carrier: Backbone

    def __init__(self, carrier: Backbone, x: Tensor, several: bool) -> None:
        from neonxc.lrp import LRP  # loads captum, which networks of tables do without

        self.carrier = carrier
        self.recording = LRP(carrier.module, carrier.composite).record(x, several)
        self.features = self.recording.output

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        """Propagate as many decisions at once as fit into memory."""
        for first in range(0, len(decisions), self.recording.room):
            block = decisions[first : first + self.recording.room]
            starts = [self.carrier.multiplier(self.features, decide, rule) for decide in block]
            yield from self.recording.propagate(torch.stack(starts))

    def propagated(self, start: Tensor) -> Tensor:
        """Propagate multipliers of the features to relevance of the inputs."""
        return self.recording.propagate(start)

    def slope(self, decide: Decide) -> Tensor:
        """Propagate the multipliers of one decision."""
        return self.recording.multiplier(self.carrier.multiplier(self.features, decide, "linear"))


class Backbone(Carrier):
    """Carrier of a feature network: LRP propagates relevance from the features to the inputs."""

    rules = ("linear", "midpoint")
    composite: Any = None
    """LRP rules of the feature network; see :class:`neonxc.NEON`."""

    def stored(self, X: Any) -> Table:
        """Check inputs and convert them to the dtype of the weights; raise if the network is in training mode."""
        check_evaluating(self.module)
        table = Table.read(X)
        dtype = next((p.dtype for p in self.module.parameters() if p.is_floating_point()), table.tensor.dtype)
        return table.holding(table.tensor.to(self.device, dtype))

    def columns(self, X: Any) -> pd.DataFrame:
        """Return the features as a data frame with one row per point."""
        points = torch.cat([points for _, points in self.points(X)])
        return pd.DataFrame(points.cpu().numpy(), columns=self.units)

    @torch.no_grad()
    def multiplier(self, a: Tensor, decide: Decide, rule: HeadRule) -> Tensor:
        """The multipliers at the features, where propagation starts."""

        def multiplier(block: slice, x: Tensor) -> Tensor:
            if rule == "linear":
                return decide(block).multiplier(x)
            # relevance of an inactive feature cannot be propagated, as its multiplier is infinite
            return torch.where(x == 0, 0.0, decide(block).relevance(x) / x)

        return unrows(self.each(rows(a), multiplier).to(a.dtype), a)

    def features(self, x: Tensor) -> Tensor:
        """Run the feature network."""
        with torch.no_grad(), _hint_at_embeddings():
            return self.module(x)

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Run the feature network under LRP."""
        with _hint_at_embeddings():
            return _Propagation(self, x, several)


@contextmanager
def _hint_at_embeddings() -> Iterator[None]:
    """Replace PyTorch's error about the type of an Embedding's inputs, which are never passed as integers."""
    try:
        yield
    except RuntimeError as error:
        if "embedding" not in str(error):
            raise
        raise ValueError(
            "the network looks its inputs up in an Embedding, through which no relevance passes: leave the "
            "Embedding out of the network, and pass X as embedding(X)"
        ) from error


@singledispatch
def carrier_of(features: Any, head: Head | None, names: list[str] | None, device: torch.device) -> Carrier:
    """Return the carrier of a network; register a handler for features with a carrier of their own."""
    kind = EncodedTable if isinstance(features, Encoding) else Columns if features is None else Backbone
    return kind(features, head, names, device)


def rows(a: Tensor) -> Tensor:
    """Return the points [n, d] of features [N, d] or of a map [N, d, ...], image by image."""
    return a if a.ndim == 2 else a.movedim(1, -1).flatten(0, -2)


def unrows(values: Tensor, a: Tensor) -> Tensor:
    """Invert :func:`rows`: reshape values [n, K] of points to [N, K, ...], like the features `a`."""
    if a.ndim == 2:
        return values
    return values.reshape(a.shape[0], *a.shape[2:], -1).movedim(-1, 1)
