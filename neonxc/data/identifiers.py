"""Identifiers of rows, by which two versions of a table are matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.common.numbers import is_missing
from neonxc.data.frames import as_pandas
from neonxc.data.kinds import plain
from neonxc.data.table import Table

EXACT = 2**53  # the least whole number that a float may have in place of another one


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


def match_rows(before: Table, after: Table, ids: Any = None) -> Match:
    """Match rows by identifiers, by the index if both tables have one, or else by their order.

    A missing identifier, or one with a missing part, is that of no row.

    Raises
    ------
    ValueError
        Identifiers are repeated, of another number or of other types than those of the other table; no rows match;
        or the numbers of rows differ, and there are no identifiers.
    """
    sizes = len(before), len(after)
    if ids is not None:
        keys = [as_index(key) for key in ids] if isinstance(ids, tuple | list) else []
        if (*map(len, keys),) != sizes:
            raise ValueError(
                f"ids needs a column, or a pair of {sizes[0]} and {sizes[1]} identifiers, got {[*map(len, keys)]}"
            )
    else:
        keys = [as_index(table.index) for table in (before, after) if table.index is not None]
        if len(keys) < 2 or all(key.equals(pd.RangeIndex(n)) for key, n in zip(keys, sizes, strict=True)):
            return _in_order(sizes, keys)
    known = [np.flatnonzero(~_missing(key)) for key in keys]
    keys = [key[some] for key, some in zip(keys, known, strict=True)]
    for table, key in zip((before, after), keys, strict=True):
        if not key.is_unique:
            twice = plain(key[key.duplicated()][0])
            raise ValueError(f"{table.name} has several rows with the identifier {twice!r}")
    places = keys[0].get_indexer(keys[1]) if keys[0].nlevels == keys[1].nlevels else np.full(len(keys[1]), -1)
    there = places >= 0
    _check_types(keys[0].delete(places[there]), keys[1][~there], bool(there.any()))
    missing = sizes[0] - len(known[0]), sizes[1] - len(known[1])
    return Match(known[0][places[there]], known[1][there], np.asarray(keys[1][there]), missing)


def as_index(values: Any) -> pd.Index:
    """Read identifiers from anything with one per row.

    Raises
    ------
    ValueError
        Several identifiers per row, or floats that are too large to be exact.
    """
    values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    values = values if isinstance(values, pd.Index | pd.Series) else as_pandas(values)
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"ids needs one identifier per row, got shape {list(values.shape)}")
    try:
        index = values if isinstance(values, pd.Index) else pd.Index(values)
    except TypeError:
        raise ValueError(f"ids needs a sequence of identifiers for each table, got {values!r}") from None
    if isinstance(index.dtype, pd.CategoricalDtype):
        index = pd.Index(np.asarray(index))
    if index.nlevels == 1 and len(index) and isinstance(index[0], tuple):
        index = pd.MultiIndex.from_tuples(index)
    if index.dtype.kind == "f" and (large := index[np.abs(index) >= EXACT]).size:
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
    return Match(rows, rows, np.asarray(keys[0]) if keys else rows, (0, 0))


def _missing(key: pd.Index) -> np.ndarray:
    """Mask of identifiers that are missing, or have a missing part."""
    if key.dtype != object:
        return np.asarray(key.isna())
    parts = (part if isinstance(part, tuple) else (part,) for part in key)  # also those of a MultiIndex
    return np.fromiter((any(map(is_missing, part)) for part in parts), bool, len(key))


def _check_types(gone: pd.Index, new: pd.Index, some: bool) -> None:
    """Raise a ValueError if rows do not match because their identifiers have other types, or if no rows match."""
    named = {_printed(key): key for key in gone}
    for key in new if named else ():
        if (other := named.get(_printed(key))) is not None:
            raise ValueError(
                f"the identifier {other!r} of before is of type {type(other).__name__}, and {key!r} of after of "
                f"type {type(key).__name__}; convert one of them"
            )
    if not some:
        first, second = (repr(plain(key[0])) if len(key) else "no identifiers" for key in (gone, new))
        raise ValueError(
            f"no row of after has the identifier of a row of before: before has {first}, after has {second}"
        )


def _printed(key: Any) -> str:
    """An identifier as text, the same for 7, 7.0 and "7"."""
    if isinstance(key, tuple):
        return str([*map(_printed, key)])
    return f"{key:.0f}" if isinstance(key, float) and key.is_integer() else str(key)
