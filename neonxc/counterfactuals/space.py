"""Conversion between the user's columns and those of the head, which counterfactuals change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.data.table import Table
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Number


class Space:
    """Numeric columns, which the head uses as they are.

    Parameters
    ----------
    batch : Table
        The user's points, and the same points as a tensor of the head's columns.
    names : sequence of str
        Names of the user's columns.
    still : Tensor [D] of bool
        The head's columns that can't change.
    """

    def __init__(self, batch: Table, names: Sequence[str], still: Tensor) -> None:
        self.batch, self.names, self.still = batch, names, still
        self.encoded_names = names
        self.bounds: dict[int, tuple[float, float]] = {}  # of the user's columns

    def places(self, column: int, name: str) -> list[int]:
        """Return the positions of a user's column among the head's columns."""
        return [column]

    def apply(self, place: int, value: float) -> float:
        """Convert a value of a user's column to one of the head's column."""
        return value

    def raw(self, points: Tensor) -> np.ndarray:
        """Convert points [N, D] of the head's columns to the units of the user's columns."""
        return points.double().cpu().numpy()

    def points(self, points: Tensor) -> Any:
        """Convert points [N, D] of the head's columns to the type of the user's points."""
        return self.batch.restore(points)

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of points from the given ones, in the type of the user's points."""
        return self.batch.restore(points - self.batch.tensor)


class EncodedColumns(Space):
    """A table that is encoded: its numbers can change, and its categories can't."""

    def __init__(self, batch: Table, encoding: Encoding, still: Tensor) -> None:
        super().__init__(batch, encoding.columns, still)
        self.encoding, self.encoded_names = encoding, encoding.names
        self.numbers = {i: part for i, part in enumerate(encoding.parts) if isinstance(part, Number)}

    def places(self, column: int, name: str) -> list[int]:
        """Return the positions of a column among the encoded ones; all but `fixed` need one that can change."""
        own: list[int] = (self.encoding.owner == column).nonzero()[:, 0].tolist()
        if name == "fixed":
            return own
        if not own or bool(self.still[own].any()):
            raise ValueError(f"{name} needs numeric columns, column {self.names[column]!r} is encoded otherwise")
        functions = self.numbers[own[0]].functions
        if name == "integer" and functions:
            raise ValueError(
                f"integer can't hold column {self.names[column]!r}: the pipeline takes its "
                f"{' and '.join(functions)}"
            )
        return own

    def apply(self, place: int, value: float) -> float:
        """Apply the encoding's functions to a number."""
        return self.numbers[place].clipped(value) if place in self.numbers else value

    def raw(self, points: Tensor) -> np.ndarray:
        """Invert the encoding's functions."""
        values = super().raw(points).copy()
        for i, part in self.numbers.items():
            values[:, i] = part.undo(values[:, i])
        return values

    def points(self, points: Tensor) -> Any:
        """Return the table with the changed numbers."""
        table = self.batch.frame(self.encoding.columns).copy()
        raw, moved = self.raw(points), (points != self.batch.tensor).cpu().numpy()
        for i, part in self.numbers.items():
            if moved[:, i].any():
                column = table.iloc[:, part.column]
                dtype = column.dtype if column.dtype.kind == "f" else np.dtype(float)
                values = column.to_numpy(dtype=dtype, na_value=np.nan, copy=True)
                after = raw[:, i].clip(*self.bounds.get(part.column, (None, None))).astype(dtype)
                valid = moved[:, i] & np.isfinite(part.apply(after))  # a function's inverse may be infinite
                values[valid] = after[valid]
                table.isetitem(part.column, pd.Series(values, index=table.index))
        if self.batch.names is not None:
            return table.set_axis(self.batch.columns, axis=1)
        given = self.batch.data.dtype
        return table.to_numpy(dtype=np.float64 if given.kind in "iub" else given)

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of the numbers; 0 for categories."""
        difference = self.raw(points) - self.raw(self.batch.tensor)
        difference = np.where((points == self.batch.tensor).cpu().numpy(), 0.0, difference)
        return self.batch.restore(self.encoding.collected(torch.as_tensor(difference)))


def space_of(net: NeuralizedClustering, batch: Table) -> Space:
    """Return the columns that counterfactuals can change.

    Raises
    ------
    ValueError
        The inputs of the network are texts.
    """
    encoding, still = net.encoding, torch.zeros(batch.tensor.shape[1], dtype=torch.bool)
    if encoding is None:
        return Space(batch, net.feature_names_ or batch.names or [f"x{i}" for i in range(len(still))], still)
    if not isinstance(encoding, Encoding):
        raise ValueError("counterfactual needs a network on tables, the inputs of this one are texts")
    # categories, and columns that encode the same table column
    still = ~encoding.is_number | (encoding.owner.bincount()[encoding.owner] > 1)
    return Space(batch, encoding.names, still) if batch.is_tensor else EncodedColumns(batch, encoding, still)
