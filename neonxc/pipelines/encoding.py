"""Encoding of tables with categories and missing values as columns of numbers."""

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
from neonxc.data.inputs import plain
from neonxc.data.table import Table
from neonxc.pipelines.parts import FUNCTIONS, Code, Indicator, Number, Part


@dataclass(frozen=True)
class Encoding:
    """A map from the columns of a table to columns of numbers.

    Attributes
    ----------
    columns : tuple of str
        Names of the table's columns.
    parts : tuple of Number, Indicator or Code
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
    def names(self) -> list[str]:
        """Names of the encoded columns, such as ``age`` or ``workclass_Private``."""
        return [self._name(part) for part in self.parts]

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
                    f"{name} has None in row {int(none.argmax())}, column {self.columns[column]!r}, where the "
                    f"pipeline takes NaN alone for a missing value: pass {name}.fillna(numpy.nan)"
                )
        result = np.empty((len(frame), self.width))
        numbers = cache(lambda column: self.numbers(frame, column, name))
        codes = cache(lambda column: self._codes(frame, column, name))
        for i, part in enumerate(self.parts):
            if isinstance(part, Number):
                result[:, i] = self._number(part, numbers(part.column), name)
            else:
                result[:, i] = self._looked_up(part, codes(part.column), name)
        return torch.from_numpy(result)

    def collected(self, relevance: Tensor) -> Tensor:
        """Sum the relevance [N, D] of the encoded columns by table column, [N, d]."""
        result = relevance.new_zeros(len(relevance), len(self.columns))
        return result.index_add_(1, self.owner.to(relevance.device), relevance)

    def _name(self, part: Part) -> str:
        own = self.columns[part.column]
        if not isinstance(part, Indicator):
            return own
        return f"{own}_{'|'.join('missing' if value is None else str(value) for value in part.values)}"

    def numbers(self, frame: pd.DataFrame, column: int, name: str = "X") -> np.ndarray:
        """A column of a table in float64, NaN where a value is missing."""
        given = frame.iloc[:, column]
        try:
            values = given.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            values = pd.to_numeric(given, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
            bad = given[np.isnan(values) & given.notna().to_numpy()]
            place = f"{name} needs numbers in column {self.columns[column]!r}"
            raise ValueError(f"{place}, got {bad.iloc[0]!r}" if len(bad) else place) from None
        if np.isinf(values).any():
            raise ValueError(f"{name} has a value that is not finite in column {self.columns[column]!r}: inf")
        return values

    def _number(self, part: Number, values: np.ndarray, name: str) -> np.ndarray:
        """Fill missing values of a numeric column and apply its functions."""
        column = self.columns[part.column]
        missing = np.isnan(values)
        if missing.any():
            if part.fill is None:
                raise ValueError(
                    f"{name} has a missing value in row {int(missing.argmax())}, column {column!r}, which had "
                    "none when the clustering was fitted; fill it, or fit a Pipeline with a SimpleImputer"
                )
            values = np.where(missing, part.fill, values)
        given = values
        values = part.apply(values)
        if part.functions and not np.isfinite(values).all():
            bad = given[~np.isfinite(values)][0]
            raise ValueError(
                f"{name} has the value {bad:g} in column {column!r}, whose {' and '.join(part.functions)} is no "
                "finite number"
            )
        return values

    @cached_property
    def _vocabulary(self) -> dict[int, dict[Any, int]]:
        """Codes of the distinct values of every categorical column, by its position; missing values come last."""
        found: dict[int, dict[Any, None]] = {}
        for part in self.parts:
            if not isinstance(part, Number):
                found.setdefault(part.column, {}).update(dict.fromkeys(part.values))
        for column, values in self.known.items():
            found.setdefault(column, {}).update(dict.fromkeys(values))
        return {
            column: {value: i for i, value in enumerate([*(v for v in values if v is not None), None])}
            for column, values in found.items()
        }

    def _codes(self, frame: pd.DataFrame, column: int, name: str) -> np.ndarray:
        """Codes of a column's values in the vocabulary; -1 for unknown values."""
        given, vocabulary = frame.iloc[:, column], self._vocabulary[column]
        codes = pd.Index(list(vocabulary)[:-1], dtype=object).get_indexer(given.astype(object)).astype(np.int64)
        missing = given.isna().to_numpy()
        codes[missing] = vocabulary[None]
        if column in self.known:
            unknown = np.ones(len(vocabulary) + 1, dtype=bool)  # the last entry belongs to code -1
            unknown[[vocabulary[value] for value in self.known[column]]] = False
            if (bad := unknown[codes]).any():
                value = category(given.iloc[int(bad.argmax())])
                raise ValueError(
                    f"{name} has the value {value!r} in row {int(bad.argmax())}, column {self.columns[column]!r}; "
                    f"the known values are {list(self.known[column])}"
                )
        return codes

    def _looked_up(self, part: Indicator | Code, codes: np.ndarray, name: str) -> np.ndarray:
        """The encoded column of a categorical part, from the codes of its values."""
        vocabulary, numbers = self._vocabulary[part.column], part.numbers
        table = np.full(len(vocabulary) + 1, part.other)  # the last entry belongs to code -1, unknown values
        table[[vocabulary[value] for value in numbers]] = list(numbers.values())
        found = table[codes]
        if np.isnan(table).any() and np.isnan(found).any():
            row = int(np.isnan(found).argmax())
            raise ValueError(f"{name} has an unknown value in row {row}, column {self.columns[part.column]!r}")
        return found


def category(value: Any) -> Any:
    """Convert a category to a JSON value: None for a missing one, or a number, truth value or string of Python.

    Raises
    ------
    ValueError
        The category is another object.
    """
    value = plain(value)
    if not isinstance(value, bool | int | float | str | None):
        raise ValueError(f"a category needs to be a string, a number or a truth value, got {value!r}")
    return value


def _pack(encoding: Encoding) -> Values:
    parts = [[type(part).__name__, *vars(part).values()] for part in encoding.parts]
    return {
        "columns": encoding.columns,
        "parts": parts,
        "known": list(encoding.known.items()),
        "nan_alone": sorted(encoding.nan_alone),
    }


def _unpack(cls: type[Encoding], values: Values) -> Encoding:
    kinds, columns = {"Number": Number, "Indicator": Indicator, "Code": Code}, tuple(values["columns"])
    described = [[tuple(x) if isinstance(x, list) else x for x in part] for part in values["parts"]]
    parts = tuple(kinds[str(kind)](*rest) for kind, *rest in described)
    known = {column: tuple(allowed) for column, allowed in values["known"]}
    hash((*known.values(), *((part, *getattr(part, "values", ())) for part in parts)))  # fails for other types
    alone = values.get("nan_alone", [])  # files of version 0.2 have none
    exist = all(0 <= column < len(columns) for column in [*known, *alone, *(part.column for part in parts)])
    functions = {name for part in parts for name in getattr(part, "functions", ())}
    if not (exist and all(isinstance(name, str) for name in columns) and functions <= FUNCTIONS.keys()):
        raise TypeError("its encoding names columns that do not exist, or unknown functions")
    return cls(columns, parts, known, frozenset(alone))


register(Encoding, _pack, _unpack)
