"""The columns of a table that a counterfactual changes: their names and units, and those of the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.data.frames import as_pandas
from neonxc.data.table import Table
from neonxc.pipelines.encoding import Encoding


def ranges(table: Table) -> np.ndarray:
    """Least and greatest value [2, d] of every column of a table; NaN for columns that are not numeric."""
    if table.is_sparse:
        ends = (end.toarray()[0] for end in (table.data.min(axis=0), table.data.max(axis=0)))
        return np.stack([*ends]).astype(np.float64)
    if table.is_tensor:
        return torch.stack(torch.aminmax(table.numbers, dim=0)).double().cpu().numpy()
    frame = as_pandas(table.frame())
    numeric = [i for i, dtype in enumerate(frame.dtypes) if dtype.kind in "iufb"]
    found = np.full((2, table.width), np.nan)
    numbers = frame.iloc[:, numeric]
    found[:, numeric] = numbers.min(), numbers.max()
    return found


class Space:
    """Numeric columns, which the head uses as they are.

    Parameters
    ----------
    table : Table
        The user's points, and the same points as a tensor of the head's columns.
    names : sequence of str
        Names of the user's columns.
    still : Tensor [D] of bool
        The head's columns that can't change.

    Attributes
    ----------
    encoded_names : sequence of str
        Names of the head's columns.
    owner : ndarray [D] of int
        Positions of the user's columns that the head's columns are made of.
    """

    def __init__(self, table: Table, names: Sequence[str], still: Tensor) -> None:
        self.table = table
        self.names = names
        self.still = still
        self.encoded_names = names
        self.owner = np.arange(len(still))

    def places(self, column: int, name: str) -> list[int]:
        """Return the positions of a user's column among the head's columns."""
        return [column]

    def apply(self, place: int, value: float) -> float:
        """Convert a value of a user's column to one of the head's column."""
        return value

    def raw(self, points: Tensor) -> np.ndarray:
        """Convert points [N, D] of the head's columns to the units of the user's columns."""
        return points.double().cpu().numpy()

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of points from the given ones, in the type of the user's points."""
        return self.table.restore(points - self.table.tensor)


class EncodedSpace(Space):
    """A table that is encoded: its numbers can change, and its categories can't."""

    def __init__(self, table: Table, encoding: Encoding, still: Tensor) -> None:
        super().__init__(table, encoding.columns, still)
        self.encoding = encoding
        self.encoded_names = encoding.names
        self.owner = encoding.owner.numpy()

    def places(self, column: int, name: str) -> list[int]:
        """Return the positions of a column among the encoded ones; all but `fixed` need one that can change."""
        places: list[int] = (self.encoding.owner == column).nonzero()[:, 0].tolist()
        if name == "fixed":
            return places
        if not places or bool(self.still[places].any()):
            raise ValueError(f"{name} needs numeric columns, column {self.names[column]!r} is encoded otherwise")
        functions = self.encoding.number_parts[places[0]].functions
        if name == "integer" and functions:
            raise ValueError(
                f"integer can't hold column {self.names[column]!r}: the pipeline takes its "
                f"{' and '.join(functions)}"
            )
        return places

    def apply(self, place: int, value: float) -> float:
        """Apply the encoding's functions to a number."""
        numbers = self.encoding.number_parts
        return numbers[place].clipped(value) if place in numbers else value

    def raw(self, points: Tensor) -> np.ndarray:
        """Invert the encoding's functions."""
        values = super().raw(points).copy()
        for place, number in self.encoding.number_parts.items():
            values[:, place] = number.undo(values[:, place])
        return values

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of the numbers; 0 for categories."""
        given = self.table.tensor
        difference = np.where((points == given).cpu().numpy(), 0.0, self.raw(points) - self.raw(given))
        return self.table.restore(self.encoding.collected(torch.as_tensor(difference)))
