"""Tables of numbers from CSV files."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def read_csv(path: str | os.PathLike[str], ignore: Sequence[str] = ()) -> pd.DataFrame:
    """Read numeric columns.

    Parameters
    ----------
    path : path-like
        The columns are separated by comma, semicolon or tab; ``.gz`` is unpacked. If the first line holds nothing
        but numbers it is data, and the columns are called x0, x1, ...
    ignore : sequence of str
        Columns to leave out.

    Returns
    -------
    DataFrame [n, d] of float64

    Raises
    ------
    ValueError
        The file is missing, damaged or empty; a line is longer or shorter than the first one; a column to ignore
        is unknown; a value is missing or no finite number. The message names the file and the place.
    """
    lines, cells = _cells(Path(path))
    named = not cells.iloc[0].map(_is_number).all()
    names = [str(cell).strip() if named else f"x{i}" for i, cell in enumerate(cells.iloc[0])]
    if named:
        lines, cells = lines[1:], cells[1:]
    if cells.empty:
        raise ValueError(f"{path} has a header and no data")
    filled = cells.notna().sum(axis=1).to_numpy()
    if (short := np.flatnonzero(filled < len(names))).size:
        raise ValueError(
            f"{path}, line {lines[short[0]]}: {filled[short[0]]} cells, the first line has {len(names)}"
        )
    if unknown := [name for name in ignore if name not in names]:
        raise ValueError(f"{path} has no column {unknown}; its columns are {names}")
    kept = [i for i, name in enumerate(names) if name not in ignore]
    if not kept:
        raise ValueError(f"{path} has no column left to cluster by")
    cells = cells.iloc[:, kept]
    X = cells.map(lambda cell: float(cell) if _is_number(cell) else np.nan).to_numpy()
    for row, column in np.argwhere(~np.isfinite(X)):
        cell = cells.iat[row, column]
        what = f"{cell!r} is not a finite number" if cell.strip() else "a value is missing"
        place = f"{path}, line {lines[row]}, column {names[kept[column]]!r}"
        raise ValueError(f"{place}: {what}; --ignore leaves a column out")
    return pd.DataFrame(X, columns=[names[i] for i in kept])


def _cells(path: Path) -> tuple[list[int], pd.DataFrame]:
    """Numbers of the lines that are not blank, and their cells as text: NaN where a line has none."""
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    unpack: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with unpack(path, "rt", encoding="utf-8-sig") as file:
            text = file.read()
        if not text.strip():
            raise ValueError("it is empty")
        separator = max(",;\t", key=text.strip().partition("\n")[0].count)
        lines = [i for i, line in enumerate(text.split("\n"), 1) if line.strip() or separator in line]
        # Only the Python engine tells a cell that is empty from one that is not there.
        options: Any = {"header": None, "dtype": str, "keep_default_na": False, "engine": "python"}
        return lines, pd.read_csv(StringIO(text), sep=separator, **options)
    except (EOFError, OSError, ValueError, zlib.error) as error:  # ValueError: no UTF-8, or a line too long
        raise ValueError(f"{path} can't be read as a table: {error}") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
