"""Carriers: how inputs become the points that are clustered, and how relevance finds its way back to the inputs.

Three kinds of inputs are known: raw columns, which are the points themselves; what a feature network takes; and
texts, whose words have vectors (:mod:`neonxc.models.words`). Attribution, pixel-flipping and summaries ask the
carrier, and never what kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from typing import Any, Literal, TypeGuard

import pandas as pd
import torch
from torch import Tensor

from neonxc.blocks import blocks, network_bytes
from neonxc.detection import LinearDetection
from neonxc.head import Decision, Head
from neonxc.inputs import Batch, as_batch, check_names, check_width
from neonxc.modules import check_evaluating
from neonxc.sparse import SparseRows, dense, is_sparse, sparse_batch
from neonxc.sparse_sums import add_relevance

HeadRule = Literal["midpoint", "linear"]
Decide = Callable[[slice], Decision]
"""Decisions of some of the points, in the order of :func:`rows`."""


class Record(ABC):
    """Inputs on their way to the head, which relevance can go back.

    Attributes
    ----------
    features : Tensor [N, d], or [N, d, ...] where every location is a point
    """

    features: Tensor

    @abstractmethod
    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        """For each way to decide, relevance shaped like the inputs."""

    def slope(self, decide: Decide) -> Tensor:
        """Multipliers shaped like the inputs, of the linear rule at the head."""
        raise ValueError("along needs numeric inputs: there are no points between a baseline and a text")


class Carrier(ABC):
    """What stands between inputs and the head.

    Parameters
    ----------
    features : nn.Module or None
    head : Head or None
        None: the points are only needed to fit one.
    names : list of str or None
        Of the head's columns.
    device : torch.device
    """

    missing: Literal["draw", "zero", "word"] = "zero"
    """What usually stands in for a missing input: a draw given the others, zero, or another word."""
    rules: tuple[HeadRule, ...] = ("midpoint",)
    """How relevance may be counted at the head (see :class:`neonxc.NEON`), the default first."""

    head: Head

    def __init__(self, features: Any, head: Head | None, names: list[str] | None, device: torch.device) -> None:
        self.module, self.names, self.device = features, names, device
        if head is not None:
            self.head = head

    @abstractmethod
    def batch(self, X: Any) -> Batch:
        """Checked inputs on the network's own device, with the way back."""

    def stored(self, X: Any) -> Batch:
        """Give the same, but points that are sparse as :class:`~neonxc.sparse.SparseRows`, for parts of them."""
        return self.batch(X)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Features [N, d], or [N, d, ...] where every location is a point."""

    @abstractmethod
    def record(self, x: Tensor, several: bool = False) -> Record:
        """Inputs on their way to the head; `several` tells that relevance will go back more than once."""

    def blocks(self, x: Tensor) -> Iterator[slice]:
        """Parts of the inputs that memory has room for."""
        return blocks(len(x), 4 * x.element_size() * self.head.width, x.device)

    def parts(self, X: Any) -> Iterator[Tensor]:
        """Checked inputs, part by part."""
        x = self.stored(X).tensor
        yield from (x[part] for part in self.blocks(x))

    def columns(self, X: Any) -> Any:
        """What trees cut, one column for each unit: the inputs themselves, if they are columns."""
        return X

    def collected(self, relevance: Tensor) -> Tensor:
        """Relevance [n, units] from that of the head's columns."""
        return relevance

    @property
    def groups(self) -> Tensor | None:
        """Numbers of the units of flipping that the inputs' columns belong to, [D]; None: each is its own."""
        return None

    def spread(self, relevance: Any) -> Any:
        """Relevance of what the caller has, as that of the inputs' columns."""
        return relevance

    @property
    def units(self) -> list[str]:
        """What a summary adds up the relevance of: the head's columns, or words."""
        return self.names or [f"x{i}" for i in range(self.head.n_features)]

    def tally(self, x: Tensor, points: Tensor, decide: Decide, column: Tensor, total: Tensor) -> None:
        """Add the relevance of each unit to the sums [K + 1, units] of the clusters in `column` [n]."""
        for some in self.of_points(points):
            relevance = self.collected(decide(some).relevance(points[some]))
            total.index_add_(0, column[some].cpu(), relevance.cpu().double())

    in_texts = False
    """Whether units are words or terms, whose :meth:`values` tell which texts contain them."""

    @property
    def categories(self) -> list[int]:
        """Positions of the units that hold categories and no numbers."""
        return []

    def values(self, x: Tensor, points: Tensor | SparseRows) -> Tensor | SparseRows:
        """The value of each unit at the points, [n, units], as far as they are numbers."""
        return points

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """The units as columns of a table, and their numbers by position; None where :meth:`values` has them."""
        return None

    def of_units(self, x: Tensor, points: Tensor | SparseRows, decide: Decide) -> Tensor:
        """Relevance [n, units] of the points of inputs."""
        parts = list(self.of_points(points))
        return torch.cat([self.collected(decide(some).relevance(dense(points[some]))) for some in parts])

    def of_points(self, points: Tensor | SparseRows) -> Iterator[slice]:
        """Parts of the points [n, d] that the head has room for."""
        return blocks(len(points), 4 * points.element_size() * self.head.width, points.device)


class _Points(Record):
    def __init__(self, carrier: Carrier, x: Tensor) -> None:
        self.carrier, self.features = carrier, x

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        for decide in decisions:
            parts = [decide(some).relevance(self.features[some]) for some in self.carrier.of_points(self.features)]
            yield torch.cat(parts)

    def slope(self, decide: Decide) -> Tensor:
        parts = [decide(some).multiplier(self.features[some]) for some in self.carrier.of_points(self.features)]
        return torch.cat(parts)


class Columns(Carrier):
    """Points as they are: the inputs are the columns of the head."""

    missing = "draw"

    def batch(self, X: Any) -> Batch:
        """Points [N, d] with the columns that the clustering was fitted on, of a size that can be squared."""
        return self._checked(as_batch(X, device=self.device))

    def stored(self, X: Any) -> Batch:
        """Points as they are stored; heads that are not linear get parts of sparse ones laid out."""
        if not is_sparse(X):
            return self.batch(X)
        linear = isinstance(self.head.detection, LinearDetection)
        return self._checked(sparse_batch(X, device=self.device, whole=linear))

    def parts(self, X: Any) -> Iterator[Tensor]:
        """Checked points, part by part: as many as the neurons have room for, where they stay sparse."""
        x = self.stored(X).tensor
        yield from (x[part] for part in (self.of_points(x) if _stays_sparse(x) else self.blocks(x)))

    def of_points(self, points: Tensor | SparseRows) -> Iterator[slice]:
        """Parts of the points [n, d] that the head has room for; sparse ones are never laid out."""
        if not _stays_sparse(points):
            return super().of_points(points)
        per_row = 32 * max(self.head.detection.n_neurons, self.head.n_clusters) + 4 * points.bytes_per_row
        return blocks(len(points), per_row, points.device)

    def tally(self, x: Tensor, points: Tensor, decide: Decide, column: Tensor, total: Tensor) -> None:
        """Add the relevance of each column; of sparse points in closed form."""
        if not _stays_sparse(points):
            return super().tally(x, points, decide, column, total)
        for some in self.of_points(points):
            add_relevance(self.head, decide(some), points[some], column[some], total)

    def _checked(self, batch: Batch) -> Batch:
        check_names(batch.names, self.names)
        if batch.tensor.ndim != 2:
            raise ValueError(f"X needs shape [points, features], got {list(batch.tensor.shape)}")
        check_width(batch.tensor.shape[1], self.head.n_features)
        self.head.detection.check(batch.tensor, batch.names)
        return batch

    def features(self, x: Tensor) -> Tensor:
        """Give the points."""
        return x

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Give the points; relevance of the columns is that of the inputs."""
        return _Points(self, x)


def _stays_sparse(x: Tensor | SparseRows) -> TypeGuard[SparseRows]:
    return isinstance(x, SparseRows) and x.whole


class _Propagation(Record):
    def __init__(self, carrier: Backbone, x: Tensor, several: bool) -> None:
        from neonxc.lrp import LRP

        self.carrier = carrier
        self.recording = LRP(carrier.module, carrier.composite).record(x, several)
        self.features = self.recording.output

    def relevance(self, decisions: Sequence[Decide], rule: HeadRule) -> Iterator[Tensor]:
        """Walk back for as many decisions at once as memory has room for."""
        for first in range(0, len(decisions), self.recording.room):
            some = decisions[first : first + self.recording.room]
            yield from self.recording.propagate(torch.stack([self._start(decide, rule) for decide in some]))

    def slope(self, decide: Decide) -> Tensor:
        """Walk back once."""
        return self.recording.multiplier(self._start(decide, "linear"))

    @torch.no_grad()
    def _start(self, decide: Decide, rule: HeadRule) -> Tensor:
        """Multipliers at the features, where the walk back begins."""
        a = self.features
        points = rows(a)

        def multiplier(some: slice) -> Tensor:
            x = points[some]
            if rule == "linear":
                return decide(some).multiplier(x)
            # relevance that lands on an inactive feature has no direction to go, and is let go
            return torch.where(x == 0, 0.0, decide(some).relevance(x) / x)

        return unrows(torch.cat([multiplier(some) for some in self.carrier.of_points(points)]).to(a.dtype), a)


class Backbone(Carrier):
    """A feature network, through which LRP carries relevance on."""

    rules = ("linear", "midpoint")
    composite: Any = None
    """Rules of LRP; see :class:`neonxc.NEON`."""

    def batch(self, X: Any) -> Batch:
        """Inputs in the type of the network's weights; the network needs to be in evaluation mode."""
        check_evaluating(self.module)
        batch = as_batch(X, device=self.device)
        weight = next((p for p in self.module.parameters() if p.is_floating_point()), None)
        tensor = batch.tensor if weight is None else batch.tensor.to(weight.dtype)
        return Batch(tensor, batch.names, batch.restore, batch.labels)

    def columns(self, X: Any) -> pd.DataFrame:
        """Features as a frame, a row for every point."""
        points = torch.cat([rows(self.features(x)) for x in self.parts(X)])
        return pd.DataFrame(points.cpu().numpy(), columns=self.units)

    def features(self, x: Tensor) -> Tensor:
        """Run the network."""
        with torch.no_grad():
            return self.module(x)

    def record(self, x: Tensor, several: bool = False) -> Record:
        """Run the network so that LRP can walk back."""
        return _Propagation(self, x, several)

    def blocks(self, x: Tensor) -> Iterator[slice]:
        """Parts of the inputs; layers are far wider than these."""
        return blocks(len(x), network_bytes(x), x.device)


@singledispatch
def carrier_of(features: Any, head: Head | None, names: list[str] | None, device: torch.device) -> Carrier:
    """Give what stands before the head; register a feature network or an encoding that has its own way back."""
    return (Columns if features is None else Backbone)(features, head, names, device)


def rows(a: Tensor) -> Tensor:
    """Points [n, d] of features [N, d] or of a map [N, d, ...], image by image."""
    return a if a.ndim == 2 else a.movedim(1, -1).flatten(0, -2)


def unrows(values: Tensor, a: Tensor) -> Tensor:
    """Undo :func:`rows`: values [n, K] of points as [N, K, ...], laid out as the features `a` are."""
    if a.ndim == 2:
        return values
    return values.reshape(a.shape[0], *a.shape[2:], -1).movedim(-1, 1)
