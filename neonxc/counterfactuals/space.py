"""The columns that change: raw ones, or those that tables are encoded by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.encoding import Encoding, as_frame
from neonxc.encoding.parts import Number
from neonxc.inputs import Batch
from neonxc.network import NeuralizedClustering


class Space:
    """Columns of numbers as they are.

    Parameters
    ----------
    x : array, frame or Tensor
        What the user gave.
    batch : Batch
    names : sequence of str
        Of the columns that the user gave.
    """

    def __init__(self, x: Any, batch: Batch, names: Sequence[str]) -> None:
        self.x, self.batch, self.names = x, batch, names
        self.encoded_names = names

    @property
    def still(self) -> Tensor:
        """Columns [D] of the head that never change."""
        return torch.zeros(self.batch.tensor.shape[1], dtype=torch.bool)

    def place(self, column: int, name: str) -> int:
        """Position of a column among the head's."""
        return column

    def apply(self, place: int, value: float) -> float:
        """A number of the user's as one of the head's."""
        return value

    def raw(self, points: Tensor) -> np.ndarray:
        """Numbers [N, D] as the user knows them."""
        return points.double().cpu().numpy()

    def points(self, points: Tensor) -> Any:
        """Points [N, D] as the user gave them."""
        return self.batch.restore(points)

    def changes(self, points: Tensor) -> Any:
        """By how much points differ from those that were given."""
        return self.batch.restore(points - self.batch.tensor)


class Codes(Space):
    """Encoded columns that were given as a tensor: those of categories never change."""

    def __init__(self, x: Any, batch: Batch, encoding: Encoding) -> None:
        super().__init__(x, batch, encoding.names)
        self.encoding = encoding

    @property
    def still(self) -> Tensor:
        """Columns of categories, and those that a column of the table shares with others."""
        alone = self.encoding.owner.bincount()[self.encoding.owner] == 1
        numbers = [isinstance(part, Number) for part in self.encoding.parts]
        return ~(torch.tensor(numbers) & alone)


class Table(Codes):
    """A table by its encoding: numbers change, categories stay."""

    def __init__(self, x: Any, batch: Batch, encoding: Encoding) -> None:
        super().__init__(x, batch, encoding)
        self.names = encoding.columns

    def place(self, column: int, name: str) -> int:
        """Position of a column among the encoded ones, if it may change."""
        own = (self.encoding.owner == column).nonzero()[:, 0].tolist()
        if len(own) != 1 or bool(self.still[own[0]]):
            if name == "fixed":
                return -1
            raise ValueError(f"{name}: column {self.names[column]!r} is no number that can change")
        part = self.encoding.parts[own[0]]
        if name == "integer" and isinstance(part, Number) and part.functions:
            raise ValueError(f"integer: the clustering sees {part.functions} of column {self.names[column]!r}")
        return own[0]

    def apply(self, place: int, value: float) -> float:
        """A number as the encoding has it."""
        part = self.encoding.parts[place]
        return part.clipped(value) if isinstance(part, Number) else value

    def raw(self, points: Tensor) -> np.ndarray:
        """Encoded numbers before the functions."""
        values = points.double().cpu().numpy().copy()
        for i, part in enumerate(self.encoding.parts):
            if isinstance(part, Number):
                values[:, i] = part.undo(values[:, i])
        return values

    def points(self, points: Tensor) -> Any:
        """The table with the numbers that changed."""
        table = as_frame(self.x, self.encoding.columns if not hasattr(self.x, "iloc") else None).copy()
        after, moved = self.raw(points), (points != self.batch.tensor).cpu().numpy()
        for i, part in enumerate(self.encoding.parts):
            if isinstance(part, Number) and moved[:, i].any():
                column = table.iloc[:, part.column]
                values = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
                there = moved[:, i] & np.isfinite(after[:, i])  # exp(x) is never 0
                values[there] = after[there, i]
                table.isetitem(part.column, pd.Series(values, index=table.index))
        return self._like_x(table)

    def changes(self, points: Tensor) -> Any:
        """Differences of the numbers, 0 for categories."""
        difference = self.raw(points) - self.raw(self.batch.tensor)
        difference = np.where((points == self.batch.tensor).cpu().numpy(), 0.0, difference)
        return self.batch.restore(self.encoding.collected(torch.as_tensor(difference)))

    def _like_x(self, table: pd.DataFrame) -> Any:
        if hasattr(self.x, "iloc"):
            return table.set_axis(self.x.columns, axis=1)
        return table.to_numpy(dtype=np.asarray(self.x).dtype)


def space_of(net: NeuralizedClustering, x: Any, batch: Batch) -> Space:
    """What changes where this network is given x.

    Raises
    ------
    ValueError
        A network that counts the terms of texts.
    """
    if net.encoding is None:
        names = net.feature_names_ or batch.names or [f"x{i}" for i in range(batch.tensor.shape[1])]
        return Space(x, batch, names)
    if not isinstance(net.encoding, Encoding):
        raise ValueError(
            "counterfactual changes the numbers of tables, and this network counts the terms of texts"
        )
    return (Codes if isinstance(x, Tensor) else Table)(x, batch, net.encoding)
