"""File formats of shards: safetensors, or Parquet with lists of fixed length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from safetensors import SafetensorError, safe_open
from torch import Tensor

from neonxc.common.storage import KEY, staged_file, write_tensors

Columns = dict[str, np.ndarray]
"""Arrays [n, ...] of n rows, by name."""
GROUP = 1 << 23
"""Size in bytes of a row group, which Parquet readers read as a whole."""


class Format(NamedTuple):
    """Functions that write columns with a header text to a file, and read some rows of some columns."""

    write: Callable[[Path, dict[str, Tensor], str], None]
    read: Callable[[Path, list[str], slice], tuple[str | None, Columns]]


def _write_safetensors(path: Path, columns: dict[str, Tensor], header: str) -> None:
    write_tensors(columns, path, {KEY: header})


def _read_safetensors(path: Path, names: list[str], some: slice) -> tuple[str | None, Columns]:
    try:
        with safe_open(path, framework="np") as file:
            return (file.metadata() or {}).get(KEY), {name: file.get_slice(name)[some] for name in names}
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _write_parquet(path: Path, columns: dict[str, Tensor], header: str) -> None:
    arrays = {name: _listed(value.contiguous().numpy()) for name, value in columns.items()}
    shapes = {name: list(value.shape[1:]) for name, value in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({KEY: header, f"{KEY}.shapes": json.dumps(shapes)})
    with staged_file(path) as partial:
        parquet.write_table(table, partial, row_group_size=max(1, GROUP * table.num_rows // table.nbytes))


def _listed(values: np.ndarray) -> Any:
    """Convert rows [n, ...] to an Arrow array of lists of fixed length."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values[0].size)


def _read_parquet(path: Path, names: list[str], some: slice) -> tuple[str | None, Columns]:
    with parquet.ParquetFile(path) as file:
        known = file.schema_arrow.metadata or {}
        shapes = json.loads(known.get(f"{KEY}.shapes".encode(), b"{}"))
        first, last, _ = some.indices(file.metadata.num_rows)
        groups, start, skipped = [], 0, 0
        for group in range(file.metadata.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            if stop <= first:
                skipped = stop
            elif start < last:
                groups.append(group)
            start = stop
        table = file.read_row_groups(groups, columns=names).slice(first - skipped, last - first)
    header = known.get(KEY.encode())
    return None if header is None else header.decode(), {
        name: _array(table[name], shapes[name], table.num_rows) for name in names
    }


def _array(column: Any, shape: list[int], n: int) -> np.ndarray:
    """Convert an Arrow column of lists to an array [n, ...]."""
    values = column.combine_chunks()
    while hasattr(values, "flatten") and hasattr(values.type, "value_type"):
        values = values.flatten()
    return np.asarray(values).reshape(n, *shape)


FORMATS = {
    "safetensors": Format(_write_safetensors, _read_safetensors),
    "parquet": Format(_write_parquet, _read_parquet),
}
"""Formats by file suffix."""
