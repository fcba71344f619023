"""File formats of shards: safetensors, or Parquet with lists of fixed length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from safetensors import safe_open
from torch import Tensor

from neonxc.common.storage import KEY, staged_file, write_tensors

Columns = dict[str, np.ndarray]
"""Arrays [n, ...] of n rows, by name."""
GROUP = 1 << 23
"""Size in bytes of a row group, which Parquet readers read as a whole."""


FORMATS = ("safetensors", "parquet")
"""Formats, which are the suffixes of the files."""


def write_columns(path: Path, columns: dict[str, Tensor], header: str) -> None:
    """Write columns [n, ...] with a header text to a file, atomically."""
    if path.suffix == ".safetensors":
        write_tensors(columns, path, {KEY: header})
        return
    arrays = {name: _listed(value.contiguous().numpy()) for name, value in columns.items()}
    shapes = {name: list(value.shape[1:]) for name, value in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({KEY: header, f"{KEY}.shapes": json.dumps(shapes)})
    with staged_file(path) as partial:
        parquet.write_table(table, partial, row_group_size=max(1, GROUP * table.num_rows // table.nbytes))


def read_columns(path: Path, names: list[str], some: slice) -> tuple[str, Columns]:
    """Read the header text of a file ("null" if there is none), and some rows of some columns."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np") as file:
            columns = {name: file.get_slice(name)[some] for name in names}
            return (file.metadata() or {}).get(KEY, "null"), columns
    with parquet.ParquetFile(path) as file:
        known = {key.decode(): value.decode() for key, value in (file.schema_arrow.metadata or {}).items()}
        shapes = json.loads(known.get(f"{KEY}.shapes", "{}"))
        sizes = np.array([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
        stops = np.cumsum(sizes)
        first, last, _ = some.indices(file.metadata.num_rows)
        groups = np.flatnonzero((stops > first) & (stops - sizes < last))
        skipped = sizes[: groups[0]].sum()
        table = file.read_row_groups(groups.tolist(), columns=names).slice(first - skipped, last - first)
    return known.get(KEY, "null"), {name: _array(table[name], shapes[name]) for name in names}


def _listed(values: np.ndarray) -> Any:
    """Convert rows [n, ...] to an Arrow array of lists of fixed length."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values[0].size)


def _array(column: Any, shape: list[int]) -> np.ndarray:
    """Convert an Arrow column of n numbers or lists to an array [n, ...]."""
    values = column.combine_chunks()
    flat = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    return np.asarray(flat).reshape(len(values), *shape)
