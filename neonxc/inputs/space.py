"""The columns of a table that a counterfactual changes: their names and units, and those of the head.

A counterfactual is searched in the columns of the head. A space says what these are for the user: a table without
categories has the same columns. An encoded one has numbers, which may be functions of the user's, and categories,
which do not change.
"""

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
        minima = table.data.min(axis=0).toarray()[0]
        maxima = table.data.max(axis=0).toarray()[0]
        return np.stack([minima, maxima]).astype(np.float64)
    if table.is_tensor:
        return torch.stack(torch.aminmax(table.numbers, dim=0)).double().cpu().numpy()
    frame = as_pandas(table.frame())
    numeric = [i for i, dtype in enumerate(frame.dtypes) if dtype.kind in "iufb"]
    numbers = frame.iloc[:, numeric]
    result = np.full((2, table.width), np.nan)
    result[0, numeric] = numbers.min()
    result[1, numeric] = numbers.max()
    return result


class Space:
    """Numeric columns, which the head uses as they are.

    Parameters
    ----------
    table : Table
        The user's points, and the same points as a tensor of the head's columns.
    names : sequence of str
        Names of the user's columns.
    is_fixed : Tensor [D] of bool
        The head's columns that can't change.

    Attributes
    ----------
    encoded_names : sequence of str
        Names of the head's columns.
    owner : ndarray [D] of int
        Positions of the user's columns that the head's columns are made of.
    """

    def __init__(self, table: Table, names: Sequence[str], is_fixed: Tensor) -> None:
        self.table = table
        self.names = names
        self.is_fixed = is_fixed
        self.encoded_names = names
        self.owner = np.arange(len(is_fixed))

    def positions(self, column: int, name: str) -> list[int]:
        """Return the positions of a user's column among the head's columns."""
        return [column]

    def apply(self, position: int, value: float) -> float:
        """Convert a value of a user's column to one of the head's column."""
        return value

    def raw(self, points: Tensor) -> np.ndarray:
        """Convert points [N, D] of the head's columns to the units of the user's columns."""
        return points.double().cpu().numpy()

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of points from the user's, in the type of the user's points."""
        return self.table.restore(points - self.table.tensor)


class EncodedSpace(Space):
    """A table that is encoded: its numbers can change, and its categories can't."""

    def __init__(self, table: Table, encoding: Encoding, is_fixed: Tensor) -> None:
        super().__init__(table, encoding.columns, is_fixed)
        self.encoding = encoding
        self.encoded_names = encoding.names
        self.owner = encoding.owner.numpy()

    def positions(self, column: int, name: str) -> list[int]:
        """Return the positions of a column among the encoded ones; all but `fixed` need one that can change."""
        positions: list[int] = (self.encoding.owner == column).nonzero()[:, 0].tolist()
        if name == "fixed":
            return positions
        if not positions or bool(self.is_fixed[positions].any()):
            raise ValueError(f"{name} needs numeric columns, column {self.names[column]!r} is encoded otherwise")
        functions = self.encoding.number_parts[positions[0]].functions
        if name == "integer" and functions:
            raise ValueError(
                f"integer can't hold column {self.names[column]!r}: the pipeline takes its "
                f"{' and '.join(functions)}"
            )
        return positions

    def apply(self, position: int, value: float) -> float:
        """Apply the encoding's functions to a number."""
        number = self.encoding.number_parts.get(position)
        return value if number is None else number.clipped(value)

    def raw(self, points: Tensor) -> np.ndarray:
        """Invert the encoding's functions."""
        values = super().raw(points).copy()
        for position, number in self.encoding.number_parts.items():
            values[:, position] = number.undo(values[:, position])
        return values

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of the numbers; 0 for categories."""
        before = self.table.tensor
        is_same = (points == before).cpu().numpy()
        # an inverse may be infinite: equal encoded values have no difference
        difference = np.where(is_same, 0.0, self.raw(points) - self.raw(before))
        return self.table.restore(self.encoding.collected(torch.as_tensor(difference)))
