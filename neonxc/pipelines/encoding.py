"""Encoding of tables with categories and missing values as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.registry import Values, register
from neonxc.data.kinds import as_category
from neonxc.data.table import Table
from neonxc.pipelines.parts import Code, Indicator, Number, Part


@dataclass(frozen=True)
class Encoding:
    """A map from the columns of a table to columns of numbers.

    Attributes
    ----------
    columns : tuple of str
        Names of the table's columns.
    parts : tuple of Number or Code
        Definitions of the encoded columns, in order.
    known : dict of int to tuple
        Allowed values of some columns, by the column's position; other values are an error.
    nan_alone : frozenset of int
        Positions of columns in which NaN is a missing value, and None is an error.
    """

    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    known: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    nan_alone: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        """Number of encoded columns D."""
        return len(self.parts)

    @cached_property
    def owner(self) -> Tensor:
        """Position of the table column that each encoded column is computed from, [D] of int64."""
        return torch.tensor([part.column for part in self.parts], dtype=torch.int64)

    @cached_property
    def is_number(self) -> Tensor:
        """Whether each encoded column holds the numbers of a column, [D] of bool; the others code categories."""
        return torch.tensor([isinstance(part, Number) for part in self.parts], dtype=torch.bool)

    @cached_property
    def number_parts(self) -> dict[int, Number]:
        """The encoded columns that hold the numbers of a column, by position."""
        return {place: part for place, part in enumerate(self.parts) if isinstance(part, Number)}

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns, such as ``age`` or ``workclass_Private``."""
        named = [(self.columns[part.column], part) for part in self.parts]
        return [
            f"{name}_{'|'.join('missing' if value is None else str(value) for value in part.values)}"
            if isinstance(part, Indicator)
            else name
            for name, part in named
        ]

    def of(self, positions: Sequence[int]) -> Encoding:
        """Return the encoding with some of the encoded columns only."""
        return replace(self, parts=tuple(self.parts[i] for i in positions))

    def encode(self, X: Any, *, name: str = "X") -> Tensor:
        """Encode a table.

        Parameters
        ----------
        X : data frame, array or tensor [N, d]
        name : str
            Name of the argument in errors.

        Returns
        -------
        Tensor [N, D]
            The encoded columns in float64, on the CPU.

        Raises
        ------
        ValueError
            Other columns, values that are no numbers, numbers outside the domain of a function, missing values
            that the encoding does not fill, or unknown categories. The message names the column.
        """
        frame = Table.read(X, self.columns, name).frame(self.columns)
        for column in self.nan_alone:
            values = frame.iloc[:, column].to_numpy()
            if values.dtype == object and (none := np.equal(values, np.array(None))).any():
                raise ValueError(
                    f"{name} has None in {self._place(column, none)}, where the pipeline takes NaN alone for a "
                    f"missing value: pass {name}.fillna(numpy.nan)"
                )
        numbers = cache(lambda column: self.numbers(frame, column, name))
        codes = cache(lambda column: self._codes(frame, column, name))
        encoded = np.empty((len(frame), self.width))
        for i, part in enumerate(self.parts):
            if isinstance(part, Number):
                encoded[:, i] = self._number(part, numbers(part.column), name)
            else:
                encoded[:, i] = self._looked_up(part, *codes(part.column), name)
        return torch.from_numpy(encoded)

    def collected(self, relevance: Tensor) -> Tensor:
        """Sum the relevance [N, D] of the encoded columns by table column, [N, d]."""
        total = relevance.new_zeros(len(relevance), len(self.columns))
        return total.index_add_(1, self.owner.to(relevance.device), relevance)

    def numbers(self, frame: pd.DataFrame, column: int, name: str = "X") -> np.ndarray:
        """A column of a table in float64, NaN where a value is missing."""
        cells = frame.iloc[:, column]
        place = f"in column {self.columns[column]!r}"
        try:
            values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            bad = cells[cells.notna() & pd.to_numeric(cells, errors="coerce").isna()]
            got = f", got {bad.iloc[0]!r}" if len(bad) else ""
            raise ValueError(f"{name} needs numbers {place}{got}") from None
        if np.isinf(values).any():
            raise ValueError(f"{name} has a value that is not finite {place}: inf")
        return values

    def _number(self, part: Number, values: np.ndarray, name: str) -> np.ndarray:
        """Fill missing values of a numeric column and apply its functions."""
        missing = np.isnan(values)
        if missing.any():
            if part.fill is None:
                raise ValueError(
                    f"{name} has a missing value in {self._place(part.column, missing)}, which had none when the "
                    "clustering was fitted; fill it, or fit a Pipeline with a SimpleImputer"
                )
            values = np.where(missing, part.fill, values)
        numbers: np.ndarray = part.apply(values)
        if part.functions and not (finite := np.isfinite(numbers)).all():
            raise ValueError(
                f"{name} has the value {values[~finite][0]:g} in column {self.columns[part.column]!r}, whose "
                f"{' and '.join(part.functions)} is no finite number"
            )
        return numbers

    def _codes(self, frame: pd.DataFrame, column: int, name: str) -> tuple[np.ndarray, list[Any]]:
        """Codes of a column's values, and the distinct values by their code; missing is the last of them."""
        codes, found = pd.factorize(frame.iloc[:, column])
        listed = [part.values for part in self.parts if isinstance(part, Code) and part.column == column]
        named = {*chain(*listed, self.known.get(column, ()))}
        values = [*(as_category(value, named) for value in found), None]
        codes[codes < 0] = len(found)
        known = self.known.get(column, values)
        unknown = np.array([value not in known for value in values])[codes]
        if unknown.any():
            raise ValueError(
                f"{name} has the value {values[codes[unknown.argmax()]]!r} in {self._place(column, unknown)}; "
                f"the known values are {[*known]}"
            )
        return codes, values

    def _looked_up(self, part: Code, codes: np.ndarray, values: list[Any], name: str) -> np.ndarray:
        """The encoded column of a categorical part, from the codes of its values."""
        table = part.numbers
        numbers: np.ndarray = np.array([table.get(value, part.other) for value in values])[codes]
        if (unknown := np.isnan(numbers)).any():
            raise ValueError(f"{name} has an unknown value in {self._place(part.column, unknown)}")
        return numbers

    def _place(self, column: int, bad: np.ndarray) -> str:
        """The place of the first bad value of a column."""
        return f"row {bad.argmax()}, column {self.columns[column]!r}"


def _pack(encoding: Encoding) -> Values:
    parts = [[type(part).__name__, *vars(part).values()] for part in encoding.parts]
    known = list(encoding.known.items())
    alone = sorted(encoding.nan_alone)
    return {"columns": encoding.columns, "parts": parts, "known": known, "nan_alone": alone}


def _unpack(cls: type[Encoding], values: Values) -> Encoding:
    def tuples(x: Any) -> Any:
        return tuple(map(tuples, x)) if isinstance(x, list | tuple) else x

    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Number, Indicator, Code)}
    parts = tuple(kinds[kind](*rest) for kind, *rest in tuples(values["parts"]))
    alone = frozenset(values.get("nan_alone", ()))  # files of version 0.2 have none
    _ = [part.number(0) for part in parts]  # fails for unknown functions and for values of other types
    known = {column: tuple(categories) for column, categories in tuples(values["known"])}
    encoding = cls(tuples(values["columns"]), parts, known, alone)
    used = {*encoding.known, *alone, *encoding.owner.tolist()}
    listed = all(isinstance(values, tuple) for values in encoding.known.values())
    named = all(isinstance(name, str) for name in encoding.columns)
    if not ({*range(len(encoding.columns))} >= used and named and listed):
        raise TypeError("its encoding names columns or values that do not exist")
    return encoding


register(Encoding, _pack, _unpack)
