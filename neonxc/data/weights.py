"""Weights of rows: a weight of 2 is a repeated row, and a weight of 0 a row that is not there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.common.numbers import plural
from neonxc.common.types import ArrayLike
from neonxc.data.frames import as_pandas, in_order_of
from neonxc.data.inputs import as_weights
from neonxc.data.table import Table


def weights_of(sample_weight: ArrayLike | None, X: Table) -> NDArray[np.float64] | None:
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
    low = np.searchsorted(up_to, half, "left")
    high = np.searchsorted(up_to, half, "right")
    return float(values[order[low]] + values[order[min(high, len(values) - 1)]]) / 2


def weighted_quantile(
    values: NDArray[np.float64], q: Sequence[float], weight: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return quantiles of values, each as often as its weight, as :func:`numpy.quantile` interpolates them."""
    if weight is None or (weight == 1).all():
        return np.quantile(values, q)
    order = np.argsort(values, kind="stable")
    up_to = counted_weights(weight)[order].cumsum()
    position = np.asarray(q) * (up_to[-1] - 1)  # from 0, in the sorted values with their repetitions
    low, high = (
        values[order[np.searchsorted(up_to[:-1], rank, "right")]]
        for rank in (np.floor(position), np.floor(position) + 1)
    )
    return low + (position % 1) * (high - low)


def as_count(sum_of_weights: float) -> int | float:
    """Return a sum of weights as a number of rows if it is whole."""
    return int(sum_of_weights) if float(sum_of_weights).is_integer() else float(sum_of_weights)


def drawn(
    rows: NDArray[np.int64], most: int, weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Return rows [m] with their weights [m], or a sorted random sample of them that stands for `most` rows.

    With weights [m] of the rows, a row is drawn about as often as it would be among the repeated rows: the
    expected number is ``most * weight / sum(weight)``, and the weight in the sample is the number times
    ``sum(weight) / most``. So the sample has the sum of the weights of all rows, and heavy rows are always in it.
    """
    if len(rows) <= most:
        return rows, weight
    generator = np.random.default_rng(0)
    if weight is None or np.ptp(weight) == 0:
        places = np.sort(generator.permutation(len(rows))[:most])
        if weight is None:
            return rows[places], None
        return rows[places], weight[places] * (len(rows) / most)
    order = generator.permutation(len(rows))
    total = weight.sum()
    up_to = most * weight[order].cumsum() / total
    up_to[-1] = most
    times = np.empty(len(rows))
    times[order] = np.diff(np.floor(up_to + generator.random()), prepend=0.0)  # systematic sampling
    chosen = np.flatnonzero(times)
    return rows[chosen], times[chosen] * (total / most)


def repeated_rows(rows: NDArray[np.int64], most: int, weight: NDArray[np.float64] | None) -> NDArray[np.int64]:
    """Return rows [m], each as often as its weight [m], if these are whole; at most `most`, drawn by weight."""
    if weight is None:
        return rows
    if weight.sum() <= most and not (weight % 1).any():
        return np.repeat(rows, weight.astype(np.int64))
    up_to = np.floor(most * weight.cumsum() / weight.sum() + 0.5)
    return np.repeat(rows, np.diff(up_to, prepend=0).astype(np.int64))


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
