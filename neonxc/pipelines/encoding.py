"""Encoding of tables with categories and missing values as columns of numbers.

An encoded column e_i(x) is a :mod:`part <neonxc.pipelines.parts>` of one column of the table x. The relevance of
the encoded columns that come from one table column is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.registry import Values, register
from neonxc.common.types import TableLike
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
        return {position: part for position, part in enumerate(self.parts) if isinstance(part, Number)}

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns, such as ``age`` or ``workclass_Private``."""
        names = []
        for part in self.parts:
            name = self.columns[part.column]
            if isinstance(part, Indicator):
                values = ["missing" if value is None else str(value) for value in part.values]
                name = f"{name}_{'|'.join(values)}"
            names.append(name)
        return names

    def of(self, positions: Sequence[int]) -> Encoding:
        """Return the encoding with some of the encoded columns only."""
        return replace(self, parts=tuple(self.parts[i] for i in positions))

    def encode(self, X: TableLike | Table, *, name: str = "X") -> Tensor:
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
            Other columns, values that are not numbers, numbers outside the domain of a function, missing values
            that the encoding does not fill, or unknown categories. The message names the column.
        """
        frame = Table.read(X, self.columns, name).frame(self.columns)
        self._check_none(frame, name)
        # several parts may be computed from one column
        numbers = cache(lambda column: self.numbers(frame, column, name))
        codes_and_values = cache(lambda column: self._codes(frame, column, name))
        encoded = np.empty((len(frame), self.width))
        for i, part in enumerate(self.parts):
            if isinstance(part, Number):
                encoded[:, i] = self._number(part, numbers(part.column), name)
            else:
                codes, values = codes_and_values(part.column)
                encoded[:, i] = self._looked_up(part, codes, values, name)
        return torch.from_numpy(encoded)

    def collected(self, relevance: Tensor) -> Tensor:
        """Sum the relevance [N, D] of the encoded columns by table column, [N, d]."""
        total = relevance.new_zeros(len(relevance), len(self.columns))
        return total.index_add_(1, self.owner.to(relevance.device), relevance)

    def numbers(self, frame: pd.DataFrame, column: int, name: str = "X") -> np.ndarray:
        """Return a column of a table in float64, NaN where a value is missing."""
        cells = frame.iloc[:, column]
        location = f"in column {self.columns[column]!r}"
        try:
            values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            is_no_number = cells.notna() & pd.to_numeric(cells, errors="coerce").isna()
            texts = cells[is_no_number]
            example = f", got {texts.iloc[0]!r}" if len(texts) else ""
            raise ValueError(f"{name} needs numbers {location}{example}") from None
        if np.isinf(values).any():
            raise ValueError(f"{name} has a value that is not finite {location}: inf")
        return values

    def categories(self, column: int) -> dict[tuple[float, ...], Any]:
        """Return the values of a column of categories by their codes; of equal codes, the first value's."""
        parts = [part for part in self.parts if part.column == column]
        named = [value for part in parts if isinstance(part, Code) for value in part.values]
        values: dict[tuple[float, ...], Any] = {}
        for value in [*self.known.get(column, ()), *named]:
            codes = tuple(part.number(value) for part in parts)
            values.setdefault(codes, value)
        return values

    def _check_none(self, frame: pd.DataFrame, name: str) -> None:
        """Refuse None in columns where the pipeline takes NaN alone for a missing value."""
        for column in self.nan_alone:
            values = frame.iloc[:, column].to_numpy()
            if values.dtype != object:
                continue
            is_none = np.equal(values, np.array(None))
            if is_none.any():
                raise ValueError(
                    f"{name} has None in {self._location(column, is_none)}, where the pipeline takes NaN alone "
                    f"for a missing value: pass {name}.fillna(numpy.nan)"
                )

    def _number(self, part: Number, values: np.ndarray, name: str) -> np.ndarray:
        """Fill missing values of a numeric column and apply its functions."""
        is_missing = np.isnan(values)
        if is_missing.any():
            if part.fill is None:
                raise ValueError(
                    f"{name} has a missing value in {self._location(part.column, is_missing)}, which had none "
                    "when the clustering was fitted; fill it, or fit a Pipeline with a SimpleImputer"
                )
            values = np.where(is_missing, part.fill, values)
        numbers: np.ndarray = part.apply(values)
        if part.functions:
            is_finite = np.isfinite(numbers)
            if not is_finite.all():
                raise ValueError(
                    f"{name} has the value {values[~is_finite][0]:g} in column {self.columns[part.column]!r}, "
                    f"whose {' and '.join(part.functions)} is not a finite number"
                )
        return numbers

    def _codes(self, frame: pd.DataFrame, column: int, name: str) -> tuple[np.ndarray, list[Any]]:
        """Return codes of a column's values, and the distinct values by their code; the last one is missing."""
        codes, distinct = pd.factorize(frame.iloc[:, column])
        codes[codes < 0] = len(distinct)
        named = {*self.known.get(column, ())}
        for part in self.parts:
            if isinstance(part, Code) and part.column == column:
                named.update(part.values)
        values = [*(as_category(value, named) for value in distinct), None]
        known = self.known.get(column, values)
        is_unknown = np.array([value not in known for value in values])[codes]
        if is_unknown.any():
            raise ValueError(
                f"{name} has the value {values[codes[is_unknown.argmax()]]!r} in "
                f"{self._location(column, is_unknown)}; the known values are {[*known]}"
            )
        return codes, values

    def _looked_up(self, part: Code, codes: np.ndarray, values: list[Any], name: str) -> np.ndarray:
        """Return the encoded column of a categorical part, from the codes of its values."""
        number_of_value = part.numbers
        number_of_code = [number_of_value.get(value, part.unknown_number) for value in values]
        numbers: np.ndarray = np.array(number_of_code)[codes]
        is_unknown = np.isnan(numbers)
        if is_unknown.any():
            raise ValueError(f"{name} has an unknown value in {self._location(part.column, is_unknown)}")
        return numbers

    def _location(self, column: int, is_bad: np.ndarray) -> str:
        """Describe the location of the first bad value of a column."""
        return f"row {is_bad.argmax()}, column {self.columns[column]!r}"


def _pack(encoding: Encoding) -> Values:
    parts = [[type(part).__name__, *vars(part).values()] for part in encoding.parts]
    known = list(encoding.known.items())
    alone = sorted(encoding.nan_alone)
    return {"columns": encoding.columns, "parts": parts, "known": known, "nan_alone": alone}


def _unpack(cls: type[Encoding], values: Values) -> Encoding:
    def tuples(x: object) -> Any:
        return tuple(map(tuples, x)) if isinstance(x, list | tuple) else x

    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Number, Indicator, Code)}
    parts = tuple(kinds[kind](*attributes) for kind, *attributes in tuples(values["parts"]))
    nan_alone = frozenset(values.get("nan_alone", ()))  # files of version 0.2 have none
    for part in parts:
        part.number(0)  # fails for unknown functions and for values of other types
    known = {column: tuple(categories) for column, categories in tuples(values["known"])}
    encoding = cls(tuples(values["columns"]), parts, known, nan_alone)

    used = {*encoding.known, *nan_alone, *encoding.owner.tolist()}
    has_columns = {*range(len(encoding.columns))} >= used
    has_values = all(isinstance(values, tuple) for values in encoding.known.values())
    has_names = all(isinstance(name, str) for name in encoding.columns)
    if not (has_columns and has_names and has_values):
        raise TypeError("its encoding names columns or values that do not exist")
    return encoding


register(Encoding, _pack, _unpack)
