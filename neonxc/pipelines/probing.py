"""Affine maps of steps that have no formula here, read from what their `transform` f returns.

    b   = f(0)                    [p]
    w_i = (f(F e_i) - b) / F      [p], the weights of column i; beside F = 2^100, means are lost in rounding

Every f gives such numbers. It is the map ``W x + b`` if that is what f says about

- the rows of X, all at once and one alone, so that it depends on no other row,
- points between pairs of rows,
- points away from the rows in all directions, as far as f takes them: a Gaussian kernel is constant far away.

Columns of texts stay as they are in X. A step may select them, and columns that it returns as texts are looked for
among them.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from torch import Tensor

from neonxc.pipelines.folding_check import Numbers, difference, transformed, written

FAR = 2.0**100
"""F, which float32 can hold, too."""
ROUNDING = 1e-6
"""Changes that are smaller than this part of b are its rounding in a column that it does not depend on."""
BLOCK = 2**22
"""Number of values of the points that are transformed at once."""
LENGTHS = np.array([[1e-3], [1.0], [-1.0], [30.0], [1e3], [1e6]])
"""Distances of points from the mean of the rows, in standard deviations."""


class Affine(NamedTuple):
    """The map ``W x + b``."""

    weight: Tensor  # [d], if columns stay separate, or [p, d]
    bias: Tensor  # [p]

    @property
    def selection(self) -> list[int] | None:
        """The columns that the map selects, if it does nothing else."""
        has_bias = bool(self.bias.any())
        if self.weight.ndim == 1:
            is_identity = bool((self.weight == 1).all()) and not has_bias
            return [*range(len(self.weight))] if is_identity else None
        is_weight = self.weight != 0
        has_single_weights = bool((is_weight.sum(dim=1) == 1).all())
        if has_bias or not has_single_weights or not bool((self.weight[is_weight] == 1).all()):
            return None
        return list(is_weight.double().argmax(dim=1).tolist())


class NotAffine(ValueError):
    """A step is not an affine map of the rows; the message says what it does."""


def read(step: object, data: Any) -> Affine:
    """Read the affine map of a step from what it returns.

    Parameters
    ----------
    step : fitted transformer
        It is copied, as some steps learn from what they transform.
    data : array, data frame or sparse matrix [n, d]
        Rows as they enter the step.

    Raises
    ------
    NotAffine
        The step is not affine, or fails.
    sklearn.exceptions.NotFittedError
        It is not fitted.
    """
    try:
        return _Probe(deepcopy(step), data).read()
    except (NotFittedError, NotAffine):
        raise
    except Exception as error:  # whatever a class of users raises
        raise NotAffine(f"Its transform fails with {type(error).__name__}: {error}") from None


class _Probe:
    """A step, and points of the kind of some rows.

    Attributes
    ----------
    x : array [n, q]
        The columns of the rows that hold numbers.
    result : Numbers
        What the step returns for the rows.
    """

    def __init__(self, step: Any, data: Any) -> None:
        self.step = step
        self.data = data
        self.n_columns = data.shape[1]
        numbers = Numbers.of(data)
        self.columns = np.flatnonzero(numbers.is_number)
        self.x = numbers.values[:, self.columns]
        self.transformed = transformed(step, data)
        self.result = Numbers.of(self.transformed)

    def read(self) -> Affine:
        """Read the map, and verify it."""
        q = self.x.shape[1]
        at_zero = self._at(np.zeros((1, q))).values[0]
        bias = np.where(self.result.is_number, at_zero, 0.0)
        may_be_separate = len(bias) == q == self.n_columns and bool(self.result.is_number.all())
        if may_be_separate:
            weight = self._weights(np.full((1, q), FAR), bias)[0]
            # a weight of 0 has no inverse, which separate columns need
            if weight.all() and not self._difference(weight, bias):
                return Affine(torch.from_numpy(weight), torch.from_numpy(bias))

        size = max(1, BLOCK // max(1, q))
        blocks = [np.empty((0, len(bias)))]  # without columns there are no others
        for first in range(0, q, size):
            far = FAR * np.eye(min(size, q - first), q, first)
            blocks.append(self._weights(far, bias))
        weight = np.concatenate(blocks).T
        reason = self._difference(weight, bias)
        if reason:
            raise NotAffine(reason)
        return self._with_texts(weight, bias)

    def _at(self, x: np.ndarray, rows: np.ndarray | None = None) -> Numbers:
        """Return what the step makes of points with the numbers x, and the texts of some rows, or of the first."""
        if rows is None:
            rows = np.zeros(len(x), dtype=int)
        if len(x) > 1:
            return Numbers.of(transformed(self.step, self._points(x, rows)))
        # a point alone is asked for twice, as some steps return a single row without its dimension
        points = self._points(x.repeat(2, axis=0), rows.repeat(2))
        numbers = Numbers.of(transformed(self.step, points))
        return numbers._replace(values=numbers.values[:1])

    def _points(self, x: np.ndarray, rows: np.ndarray) -> Any:
        """Return points of the type of the rows, with the numbers x and the texts of some rows."""
        has_only_numbers = len(self.columns) == self.n_columns
        if sparse.issparse(self.data):
            return type(self.data)(x)
        if isinstance(self.data, pd.DataFrame):
            if has_only_numbers:
                return pd.DataFrame(x, columns=self.data.columns)
            frame = self.data.iloc[rows].reset_index(drop=True)
            for i, column in enumerate(self.columns):
                frame.isetitem(column, x[:, i])
            return frame
        if has_only_numbers:
            return x
        points = self.data[rows].copy()
        points[:, self.columns] = x
        return points

    def _weights(self, far: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return the weights [n, p] from points that are F in one column, or in all."""
        with np.errstate(all="ignore"):
            change = np.where(self.result.is_number, self._at(far).values - bias, 0.0)
        is_rounding = np.abs(change) <= ROUNDING * np.abs(bias)
        change[is_rounding] = 0
        weights: np.ndarray = change / FAR
        if not np.isfinite(weights).all():
            raise NotAffine("Its transform overflows for large numbers")
        return weights

    def _difference(self, weight: np.ndarray, bias: np.ndarray) -> str:
        """Describe where the step is not ``W x + b``; an empty text if it is.

        The points are those that the module's docstring lists.
        """
        x = self.x
        n, q = x.shape
        generator = np.random.default_rng(0)

        reason = self._compared(weight, bias, x, self.result)
        if reason:
            return f"For a row of X, {reason}"

        middle = np.array([n // 2])
        reason = self._compared(weight, bias, x[middle], self._at(x[middle], middle))
        if reason:
            return f"For a row of X without the others, {reason}"

        t = generator.random((n, 1))
        between = t * x + (1 - t) * np.roll(x, 1, axis=0)
        reason = self._compared(weight, bias, between, self._at(between, np.arange(n)))
        if reason:
            return f"Between two rows of X, {reason}"

        frame = pd.DataFrame(x)  # whose moments leave out missing values
        mean = frame.mean().fillna(0.0).to_numpy()
        spread = frame.std(ddof=0).fillna(0.0).to_numpy()
        spread = np.where(spread > 0, spread, np.maximum(np.abs(mean), 1.0))
        away = mean + LENGTHS * spread * generator.normal(size=(len(LENGTHS), q))
        numbers = None
        with suppress(Exception):  # of numbers outside of the domain of the step
            numbers = self._at(away)
        if numbers is not None:
            reason = self._compared(weight, bias, away, numbers)
            if reason:
                return f"Away from the rows of X, {reason}"
        return ""

    def _compared(self, weight: np.ndarray, bias: np.ndarray, x: np.ndarray, numbers: Numbers) -> str:
        """Describe where numbers are not ``W x + b`` for points x, in which some are missing."""
        is_missing = np.isnan(x)
        x = np.where(is_missing, 0.0, x)
        size = _product(np.abs(x), np.abs(weight)) + np.abs(bias)
        expected = _product(x, weight) + bias
        n_missing = _product(is_missing.astype(float), (weight != 0).astype(float))
        expected[n_missing > 0] = np.nan
        numbers = numbers._replace(is_number=self.result.is_number)
        return difference(expected, size.max(axis=0, initial=0.0), numbers)

    def _with_texts(self, weight: np.ndarray, bias: np.ndarray) -> Affine:
        """Return the map of all columns, with those that the step returns as texts."""
        full = np.zeros((len(bias), self.n_columns))
        full[:, self.columns] = weight
        texts = np.flatnonzero(~self.result.is_number)
        if len(texts):
            before = pd.DataFrame(self.data)
            after = pd.DataFrame(self.transformed)
            candidates = np.setdiff1d(np.arange(self.n_columns), self.columns)
            column_of_texts = {tuple(written(before.iloc[:, i])): i for i in candidates}
            for column in texts:
                source = column_of_texts.get(tuple(written(after.iloc[:, column])))
                if source is None:
                    raise NotAffine(f"It makes texts of its own in column {column}")
                full[column, source] = 1.0
        return Affine(torch.from_numpy(full), torch.from_numpy(bias))


def _product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Apply weights [d] of separate columns, or [p, d]."""
    product: np.ndarray = x * weight if weight.ndim == 1 else x @ weight.T
    return product
