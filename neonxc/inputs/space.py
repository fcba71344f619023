"""The columns of a table that a counterfactual changes: their names and units, and those of the head.

A counterfactual is searched in the columns of the head. A space says what these are for the user: a table without
categories has the same columns. An encoded one has numbers, which may be functions of the user's, and categories,
whose codes change together if they change at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.numbers import is_missing, text
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
    is_category : Tensor [D] of bool
        The head's columns that are codes of categories, which change together.

    Attributes
    ----------
    owner : ndarray [D] of int
        Positions of the user's columns that the head's columns are made of.
    """

    def __init__(self, table: Table, names: Sequence[str], is_fixed: Tensor) -> None:
        self.table = table
        self.names = names
        self.is_fixed = is_fixed
        self.is_category = torch.zeros_like(is_fixed)
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

    def by_column(self, values: np.ndarray) -> np.ndarray:
        """Return values [N, d] of the user's columns, given those of the head's [N, D]; NaN for categories."""
        numbers = np.full((len(values), len(self.names)), np.nan)
        is_number = ~self.is_category.cpu().numpy()
        numbers[:, self.owner[is_number]] = values[:, is_number]
        return numbers

    def sizes(self, changes: np.ndarray) -> np.ndarray:
        """Return the sizes [N, d] of changes of the user's columns, given those of the head's [N, D]."""
        squares = np.zeros((len(self.names), len(changes)))
        np.add.at(squares, self.owner, changes.T**2)
        return np.sqrt(squares.T)

    def changed_categories(self, points: Any) -> dict[tuple[int, int], str]:
        """Return the values of categories before and after, by row and column, where points have other ones."""
        return {}

    def has_values(self, points: Tensor) -> Tensor:
        """Whether the codes of points [N, D] are those of a known value [N, D]; True for numbers."""
        return torch.ones_like(points, dtype=torch.bool)

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of points from the user's, in the type of the user's points."""
        return self.table.restore(points - self.table.tensor)


class EncodedSpace(Space):
    """A table that is encoded as numbers and codes of categories."""

    def __init__(self, table: Table, encoding: Encoding, is_fixed: Tensor, categories: Sequence[int]) -> None:
        super().__init__(table, encoding.columns, is_fixed)
        self.encoding = encoding
        self.owner = encoding.owner.numpy()
        self.is_category = torch.isin(encoding.owner, torch.tensor([*categories], dtype=torch.int64))

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

    def changed_categories(self, points: Any) -> dict[tuple[int, int], str]:
        """Compare the tables."""
        columns = np.unique(self.owner[self.is_category.numpy()]).tolist()
        before = self.table.frame()
        after = Table.read(points).frame()
        changed = {}
        for column in columns:
            pairs = zip(before.iloc[:, column], after.iloc[:, column], strict=True)
            for row, (old, new) in enumerate(pairs):
                if old != new and not (is_missing(old) and is_missing(new)):
                    changed[row, column] = f"{text(old)} -> {text(new)}"
        return changed

    def has_values(self, points: Tensor) -> Tensor:
        """Look the codes of categories up."""
        known = super().has_values(points)
        for column in np.unique(self.owner[self.is_category.numpy()]).tolist():
            positions = np.flatnonzero(self.owner == column)
            values = self.encoding.categories(column)
            codes = points[:, positions].tolist()
            has_value = torch.tensor([tuple(row) in values for row in codes], dtype=torch.bool)
            known[:, positions] = has_value[:, None].to(known.device)
        return known

    def changes(self, points: Tensor) -> Any:
        """Compute the differences of the numbers; 0 for categories."""
        before = self.table.tensor
        is_same = (points == before).cpu().numpy()
        # an inverse may be infinite: equal encoded values have no difference
        difference = np.where(is_same, 0.0, self.raw(points) - self.raw(before))
        difference[:, self.is_category.numpy()] = 0.0
        return self.table.restore(self.encoding.collected(torch.as_tensor(difference)))
