"""Weights of rows: a weight of 2 is a repeated row, and a weight of 0 a row that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neonxc.data.frames import as_pandas, in_order_of
from neonxc.data.inputs import as_weights
from neonxc.data.table import Table


def weights_of(sample_weight: Any, X: Table) -> NDArray[np.float64] | None:
    """Return weights [N] of the rows of a table, by index if both have one; None for None.

    Raises
    ------
    ValueError
        Another number of weights, weights that are negative or not finite, or no weight > 0.
    """
    if sample_weight is None:
        return None
    weight = as_weights(as_pandas(in_order_of(sample_weight, X, "sample_weight")), len(X), torch.device("cpu"))
    if not bool(weight.any()):
        raise ValueError("sample_weight needs a weight > 0, got zeros alone")
    return weight.numpy()


def counted_weights(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale weights up to a mean of 1 if it is less: effect sizes count rows, and shares have no scale."""
    return weight * max(1.0, len(weight) / weight.sum())


def point_weights(weight: NDArray[np.float64] | None, first: int, n: int, device: torch.device) -> Tensor | None:
    """Return the weights [n] of a block of points that begins at row `first`; None without weights."""
    if weight is None:
        return None
    return torch.from_numpy(weight[first : first + n]).to(device)
