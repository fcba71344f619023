"""Neurons of threshold trees: how far a column is on the inner side of an edge."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.detection import Detection
from neonxc.inputs import check_width, compute_dtype
from neonxc.registry import storable


@storable
class EdgeDetection(Detection):
    """Neurons of one column each: by how many spreads of its column a point is on the inner side of an edge.

    ``a_m(x) = sign_m (edge_m - x_i) / spread_m`` for the column i of neuron m. The sign is 1 for an upper edge,
    to which a point on it belongs, and -1 for a lower one, to which it does not: a neuron is never zero, so that a
    threshold tree's decisions are its own also on the edges.

    Parameters
    ----------
    column : Tensor [M] of int64
    edge : Tensor [M] of float64
        In the units of the columns.
    sign : Tensor [M]
        1 or -1.
    spread : Tensor [M] of float64
        Positive, in the units of the columns.
    columns : int
        Number of raw columns d.
    """

    PLAIN = ("columns",)
    column: Tensor
    edge: Tensor
    sign: Tensor
    spread: Tensor

    def __init__(self, column: Tensor, edge: Tensor, sign: Tensor, spread: Tensor, columns: int) -> None:
        super().__init__()
        self.columns = columns
        for name, value in (("column", column), ("edge", edge), ("sign", sign), ("spread", spread)):
            self.register_buffer(name, value)

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.columns

    @property
    def n_neurons(self) -> int:
        """Number of neurons M."""
        return len(self.column)

    @property
    def references(self) -> Tensor:
        """None: edges are no points."""
        return self.edge.new_zeros(0, self.columns)

    def units(self) -> Tensor:
        """Spreads [d] of the columns that are tested, 1 for the others."""
        return self.spread.double().new_ones(self.columns).index_copy(0, self.column, self.spread.double())

    def slopes(self) -> Tensor | None:
        """Slopes [M, d] of the neurons."""
        slope = -self.sign.to(self.spread) / self.spread
        return slope.new_zeros(self.n_neurons, self.columns).scatter(1, self.column[:, None], slope[:, None])

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Column, edge and sign [M] of the neurons."""
        return self.column, self.edge, self.sign

    def scaled(self, factor: float) -> EdgeDetection:
        """Give the same neurons multiplied by a factor."""
        return EdgeDetection(self.column, self.edge, self.sign, self.spread / factor, self.columns)

    def forward(self, x: Tensor) -> Tensor:
        """Neurons [N, M] of raw points [N, d], in float32 or better."""
        check_width(x.shape[1], self.n_features, name="x")
        dtype = compute_dtype(x.dtype)
        # a tree compares in float64, and so do its neurons
        inside = (self.edge.double() - x[:, self.column].double()) * self.sign
        neurons = (inside / self.spread.double()).to(dtype)
        least = torch.full_like(neurons, torch.finfo(dtype).tiny)
        belongs = (inside > 0) | ((inside == 0) & (self.sign > 0))
        return torch.where(neurons == 0, torch.where(belongs, least, -least), neurons)

    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Relevance [N, d] of a weighted sum: all of a neuron's is its column's."""
        return self._by_column(weights * self(x))

    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Slope [N, d] of a weighted sum."""
        return self._by_column(-weights * (self.sign / self.spread).to(weights))

    def _by_column(self, values: Tensor) -> Tensor:
        return values.new_zeros(len(values), self.n_features).index_add(1, self.column, values)
