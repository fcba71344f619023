"""Weights of rows: a weight of 2 is a repeated row, and a weight of 0 a row that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.common.numbers import plural
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


def weighted_median(values: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """Return the median of values, each as often as its weight; midway between the two middle values."""
    order = np.argsort(values, kind="stable")
    up_to = weight[order].cumsum()
    half = up_to[-1] / 2
    low, high = np.searchsorted(up_to, half, "left"), np.searchsorted(up_to, half, "right")
    return float(values[order[low]] + values[order[min(high, len(values) - 1)]]) / 2


def weight_column(frame: pd.DataFrame, name: str, table: str) -> NDArray[np.float64]:
    """Return the weights [N] in a column of a table, which errors call `table`."""
    check_columns(table, [name], frame.columns)
    values = frame[name]
    if values.dtype.kind not in "iuf" or values.isna().any() or (values < 0).any() or not (values > 0).any():
        raise ValueError(
            f"--weights: the column {name!r} of {table} needs a number >= 0 in every row, and one > 0"
        )
    return values.to_numpy(dtype=np.float64)


def split_weights(
    frame: pd.DataFrame, name: str, table: str
) -> tuple[pd.DataFrame, NDArray[np.float64], list[str]]:
    """Return the rows of a table with a weight > 0, without the column of weights, these weights, and notes."""
    weight = weight_column(frame, name, table)
    there = weight > 0
    rest = frame.loc[there].drop(columns=name)
    rest.attrs = frame.attrs
    notes = [] if there.all() else [f"{plural(int((~there).sum()), 'row')} of weight 0: left out"]
    return rest, weight[there], notes
