"""Identifiers of rows, by which two versions of a table are matched.

Rows are matched by the first of these that there is:

1. the identifiers that are passed;
2. the indexes of both tables, unless both only number the rows;
3. the order of the rows, if both tables have the same number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.common.numbers import is_missing
from neonxc.common.types import ArrayLike
from neonxc.data.frames import as_pandas
from neonxc.data.kinds import plain
from neonxc.data.table import Table

EXACT = 2**53  # the smallest integer that float64 may hold in place of another one


class Match(NamedTuple):
    """Rows that are in two tables.

    Attributes
    ----------
    before, after : ndarray [m] of int
        Positions of the rows in both tables, in the order of the second one.
    ids : ndarray [m]
        Their identifiers.
    unidentified : tuple of int
        Numbers of rows of both tables that have no identifier.
    """

    before: np.ndarray
    after: np.ndarray
    ids: np.ndarray
    unidentified: tuple[int, int]


def match_rows(before: Table, after: Table, ids: Sequence[ArrayLike] | None = None) -> Match:
    """Match rows by identifiers, by the index if both tables have one, or else by their order.

    A missing identifier, or one with a missing part, is that of no row.

    Raises
    ------
    ValueError
        Identifiers are repeated, of another number or of other types than those of the other table; no rows match;
        or the numbers of rows differ, and there are no identifiers.
    """
    sizes = (len(before), len(after))
    if ids is not None:
        is_pair = isinstance(ids, tuple | list)
        keys = [as_index(key) for key in ids] if is_pair else []
        lengths = [*map(len, keys)]
        if lengths != [*sizes]:
            raise ValueError(
                f"ids needs a column, or a pair of {sizes[0]} and {sizes[1]} identifiers, got {lengths}"
            )
    else:
        keys = [as_index(table.index) for table in (before, after) if table.index is not None]
        if len(keys) < 2 or all(key.equals(pd.RangeIndex(n)) for key, n in zip(keys, sizes, strict=True)):
            return _in_order(sizes, keys)

    identified = [np.flatnonzero(~_missing(key)) for key in keys]  # the rows with an identifier
    keys = [key[rows] for key, rows in zip(keys, identified, strict=True)]
    for table, key in zip((before, after), keys, strict=True):
        if not key.is_unique:
            repeated = plain(key[key.duplicated()][0])
            raise ValueError(f"{table.name} has several rows with the identifier {repeated!r}")

    rows_before, rows_after = identified
    keys_before, keys_after = keys
    if keys_before.nlevels == keys_after.nlevels:
        positions = keys_before.get_indexer(keys_after)
    else:
        positions = np.full(len(keys_after), -1)
    is_matched = positions >= 0
    matched = positions[is_matched]
    _check_types(keys_before.delete(matched), keys_after[~is_matched], bool(is_matched.any()))

    unidentified = (sizes[0] - len(rows_before), sizes[1] - len(rows_after))
    return Match(rows_before[matched], rows_after[is_matched], np.asarray(keys_after[is_matched]), unidentified)


def as_index(values: ArrayLike) -> pd.Index:
    """Read identifiers from anything with one per row.

    Raises
    ------
    ValueError
        Several identifiers per row, or floats that are too large to be exact.
    """
    keys: Any = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    if not isinstance(keys, pd.Index | pd.Series):
        keys = as_pandas(keys)
    if getattr(keys, "ndim", 1) != 1:
        raise ValueError(f"ids needs one identifier per row, got shape {list(keys.shape)}")
    try:
        index = keys if isinstance(keys, pd.Index) else pd.Index(keys)
    except TypeError:
        raise ValueError(f"ids needs a sequence of identifiers for each table, got {keys!r}") from None
    if isinstance(index.dtype, pd.CategoricalDtype):
        index = pd.Index(np.asarray(index))
    if index.nlevels == 1 and len(index) and isinstance(index[0], tuple):
        index = pd.MultiIndex.from_tuples(index)
    if index.dtype.kind == "f":
        large = index[np.abs(index) >= EXACT]
        if large.size:
            raise ValueError(f"ids has the float {large[0]:.0f}, which is not exact; pass whole numbers or texts")
    return index


def _in_order(sizes: tuple[int, int], keys: Sequence[pd.Index]) -> Match:
    """Match rows by their order; the index of one table, if it has one, names them."""
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"before and after have {sizes[0]} and {sizes[1]} rows, and no index: pass ids, the column that "
            "identifies rows"
        )
    rows = np.arange(sizes[0])
    ids = np.asarray(keys[0]) if keys else rows
    return Match(rows, rows, ids, (0, 0))


def _missing(key: pd.Index) -> np.ndarray:
    """Mask of identifiers that are missing, or have a missing part."""
    if key.dtype != object:
        return np.asarray(key.isna())
    return np.fromiter(map(_is_missing, key), bool, len(key))


def _is_missing(identifier: object) -> bool:
    """Whether an identifier is missing, or has a missing part; those of a MultiIndex are tuples."""
    if isinstance(identifier, tuple):
        return any(map(is_missing, identifier))
    return is_missing(identifier)


def _check_types(unmatched_before: pd.Index, unmatched_after: pd.Index, any_matched: bool) -> None:
    """Raise a ValueError if rows do not match because their identifiers have other types, or if no rows match."""
    if len(unmatched_before):
        by_text = {_printed(key): key for key in unmatched_before}
        for key in unmatched_after:
            same = by_text.get(_printed(key))
            if same is not None:
                raise ValueError(
                    f"the identifier {same!r} of before is of type {type(same).__name__}, and {key!r} of after of "
                    f"type {type(key).__name__}; convert one of them"
                )
    if not any_matched:
        raise ValueError(
            "no row of after has the identifier of a row of before: before has "
            f"{_example(unmatched_before)}, after has {_example(unmatched_after)}"
        )


def _example(keys: pd.Index) -> str:
    """Write the first of some identifiers."""
    if not len(keys):
        return "no identifiers"
    return repr(plain(keys[0]))


def _printed(key: object) -> str:
    """Return an identifier as text, the same for 7, 7.0 and "7"."""
    if isinstance(key, tuple):
        return str([*map(_printed, key)])
    if isinstance(key, float) and key.is_integer():
        return f"{key:.0f}"
    return str(key)
