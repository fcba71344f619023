"""Checks and choices of rows that are distributed over the processes of a group.

Every process, called a rank, passes its own rows, its shard, which may be empty. An error of one rank is raised on
all of them, as the others would wait for it forever.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.common.types import TableLike
from neonxc.data.frames import as_pandas
from neonxc.data.table import Table


def readable(X: TableLike, ranks: Ranks) -> tuple[TableLike, slice]:
    """Return X and a slice of its rows; an empty shard becomes one row of zeros and an empty slice."""
    if not without_rows(X, ranks):
        return X, slice(None)
    table = Table.read(X)
    zeros = torch.zeros(1, *table.shape[1:], dtype=torch.float64)
    if table.names is None:
        return table.restore(zeros), slice(0)
    return pd.DataFrame(zeros, columns=table.columns), slice(0)


def without_rows(X: TableLike, ranks: Ranks) -> bool:
    """Return whether X is an empty shard; without a group there are no shards."""
    if ranks.alone:
        return False
    return not len(Table.read(X))


def common_type(n: int, dtype: torch.dtype, ranks: Ranks) -> torch.dtype:
    """Return the dtype of the rows of all ranks, ignoring ranks without rows.

    Raises
    ------
    ValueError
        On all ranks: the dtypes differ, or no rank has rows.
    """
    text_of_dtype = str(dtype) if n else ""
    texts = ranks.texts(text_of_dtype)
    ranks_of = {text: texts.index(text) for text in texts if text}  # the first rank with each dtype
    if not ranks_of:
        raise ValueError("X is empty: no rank of the group has rows")
    if len(ranks_of) > 1:
        dtypes = ", ".join(f"{text} on rank {rank}" for text, rank in ranks_of.items())
        raise ValueError(f"the dtype of X differs between processes: {dtypes}")
    return getattr(torch, next(iter(ranks_of)).removeprefix("torch."))


def of_all_ranks(
    function: Callable[..., tuple[Tensor, torch.dtype]], X: TableLike, option: str, group: object
) -> Tensor:
    """Sum over the processes of a group what a function returns for the rows of each.

    Parameters
    ----------
    function : callable
        Returns sums, and the dtype of the rows, of X and an option.
    X : array, frame or tensor
        The rows of this process, possibly none.
    option : str
        The same in all processes.
    group : torch.distributed.ProcessGroup

    Raises
    ------
    ValueError
        On all ranks: options or dtypes differ, no rank has rows, or the function raises an error on one of them.
    """
    ranks = Ranks(group)
    with ranks.agreed():
        X = as_pandas(X)
        empty = without_rows(X, ranks)
        if empty:
            sums = torch.zeros(2, 2, dtype=torch.float64)
            dtype = torch.float32
        else:
            sums, dtype = function(X, option)
    ranks.same(contrast=option)
    common_type(int(not empty), dtype, ranks)
    return ranks.sum(sums)


def common_classes(labels: np.ndarray, ranks: Ranks, *, name: str = "labels") -> np.ndarray:
    """Return the distinct labels of all ranks, sorted.

    Parameters
    ----------
    labels : ndarray
        Labels of this rank.
    ranks : Ranks
    name : str
        Name of the argument in errors.

    Raises
    ------
    ValueError
        On all ranks: labels are numbers on one rank and strings on another.
    """
    if ranks.alone:
        return np.unique(labels)
    with ranks.agreed():
        classes = np.unique(labels)
        # ranks exchange texts: the type of the labels, and these
        text = json.dumps([classes.dtype.str, classes.tolist()])
    of_ranks = [np.array(values, dtype) for dtype, values in map(json.loads, ranks.texts(text)) if values]
    if not of_ranks:
        return classes
    are_strings = {isinstance(value, str) for values in of_ranks for value in values.tolist()}
    if len(are_strings) > 1:
        raise ValueError(f"{name} needs whole numbers or names, got both")
    return np.unique(np.concatenate(of_ranks))


def greatest(x: Tensor, score: Tensor, number: int, ranks: Ranks) -> Tensor:
    """Return the `number` rows of all ranks with the largest scores, in descending order."""
    # the best of all ranks are among the best of each
    best = score.argsort(descending=True, stable=True)[:number]
    rows = torch.cat(ranks.gather(x[best]))
    scores = torch.cat(ranks.gather(score[best]))
    return rows[scores.argsort(descending=True, stable=True)[:number]]
