"""A detection layer for threshold trees: the signed distance of a column from a threshold."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.data.inputs import check_width, compute_dtype
from neonxc.head.detection import Detection


@storable
class EdgeDetection(Detection):
    """Neurons that measure how far one column is inside an edge of an interval, in spreads of the column.

    ``a_m(x) = sign_m (edge_m - x_i) / spread_m`` for the column i of neuron m. The sign is 1 for an upper edge and
    -1 for a lower one. A point on an upper edge is inside, one on a lower edge is not. A neuron is never exactly
    zero, so that its sign agrees with the tree's decision on the edges too.

    Parameters
    ----------
    column : Tensor [M] of int64
        Column of each neuron.
    edge : Tensor [M] of float64
        Thresholds in the units of the columns.
    sign : Tensor [M]
        1 for upper edges, -1 for lower ones.
    spread : Tensor [M] of float64
        Positive scales in the units of the columns, such as standard deviations.
    columns : int
        Number of raw columns d.
    """

    PLAIN = ("columns",)
    column: Tensor
    edge: Tensor
    sign: Tensor
    spread: Tensor

    def __init__(self, column: Tensor, edge: Tensor, sign: Tensor, spread: Tensor, columns: int) -> None:
        super().__init__(column=column, edge=edge, sign=sign, spread=spread)
        self.columns = columns

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.columns

    def units(self) -> Tensor:
        """Return the spreads [d] of the columns that are tested, and 1 for the others."""
        return self.spread.double().new_ones(self.columns).index_copy(0, self.column, self.spread.double())

    def slopes(self) -> Tensor | None:
        """Return the gradients [M, d] of the neurons."""
        slope = -self.sign.to(self.spread) / self.spread
        return slope.new_zeros(self.n_neurons, self.columns).scatter(1, self.column[:, None], slope[:, None])

    def edges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the column, the edge and the sign [M] of the neurons."""
        return self.column, self.edge, self.sign

    def forward(self, x: Tensor) -> Tensor:
        """Compute neurons [N, M] from raw points [N, d], in float32 or float64."""
        check_width(x.shape[1], self.n_features, name="x")
        dtype = compute_dtype(x.dtype)
        # compared in float64, as the tree does
        inside = (self.edge.double() - x[:, self.column].double()) * self.sign
        neurons = (inside / self.spread.double()).to(dtype)
        least = torch.full_like(neurons, torch.finfo(dtype).tiny)
        belongs = (inside > 0) | ((inside == 0) & (self.sign > 0))
        return torch.where(neurons == 0, torch.where(belongs, least, -least), neurons)

    def relevance(self, x: Tensor, weights: Tensor, own: Tensor | None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum: a neuron's column gets all of its value."""
        return self._by_column(weights * self(x))

    def multiplier(self, x: Tensor, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum."""
        return self._by_column(-weights * (self.sign / self.spread).to(weights))

    def _by_column(self, values: Tensor) -> Tensor:
        return values.new_zeros(len(values), self.n_features).index_add(1, self.column, values)
