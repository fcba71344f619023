"""Tables of numbers from CSV files, and back."""

from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def read_csv(path: str | os.PathLike[str], ignore: Sequence[str] = ()) -> tuple[np.ndarray, list[str]]:
    """Read numeric columns with their names.

    Parameters
    ----------
    path : path-like
        Separated by comma, semicolon or tab; ``.gz`` is unpacked. A first line of numbers alone is data, and the
        columns are then called x0, x1, ...
    ignore : sequence of str
        Columns to leave out.

    Returns
    -------
    X : ndarray [n, d], float64
    names : list of d str

    Raises
    ------
    ValueError
        No such file, nothing in it, a column that is not numeric, a missing value, a ragged line, an unknown
        column to ignore; the message names the file and the place.
    """
    rows = _lines(Path(path))
    if not rows:
        raise ValueError(f"{path} is empty")
    named = not all(map(_is_number, rows[0][1]))
    names = [cell.strip() for cell in rows[0][1]] if named else [f"x{i}" for i in range(len(rows[0][1]))]
    rows = rows[1:] if named else rows
    if not rows:
        raise ValueError(f"{path} has a header and no data")
    for line, cells in rows:
        if len(cells) != len(names):
            raise ValueError(f"{path}, line {line}: {len(cells)} cells, the first line has {len(names)}")
    unknown = [name for name in ignore if name not in names]
    if unknown:
        raise ValueError(f"{path} has no column {unknown}; its columns are {names}")
    keep = [i for i, name in enumerate(names) if name not in ignore]
    if not keep:
        raise ValueError(f"{path} has no column left to cluster by")
    columns = [_column(path, names[i], [(line, cells[i]) for line, cells in rows]) for i in keep]
    return np.stack(columns, axis=1), [names[i] for i in keep]


def write_csv(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table; floats with as many digits as tell them apart."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Rows with cells, and the lines they end on."""
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    unpack: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with unpack(path, "rt", newline="", encoding="utf-8-sig") as file:
            sample = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=sample.count))
            return [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, OSError, csv.Error) as error:
        raise ValueError(f"{path} can't be read as a table: {error}") from None


def _column(path: str | os.PathLike[str], name: str, cells: list[tuple[int, str]]) -> np.ndarray:
    for line, cell in cells:
        if not (_is_number(cell) and math.isfinite(float(cell))):
            what = f"{cell!r} is not a finite number" if cell.strip() else "a value is missing"
            raise ValueError(f"{path}, line {line}, column {name!r}: {what}; --ignore leaves a column out")
    return np.array([float(cell) for _, cell in cells])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
