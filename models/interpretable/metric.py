"""Metrics, which encode points as rows of numbers, and distances between such rows.

metric                 row r of a point x                            distance of the rows r and s
p-norms (NORMS)        x                                             |r - s|_p
cosine                 x / |x|, and whether x = 0 (0 or 1)           |r - s|^2 / 2 = 1 - cos(x, y)
gower                  x_j / range_j, or the code of a category      mean over the columns j that both have of
min(|r_j - s_j|, 1)
precomputed            the position i of x                           D_ij, the matrix that is passed as X
others                 x                                             sklearn.metrics.pairwise_distances
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.data.inputs import check_range
from neonxc.data.table import Table
from neonxc.pipelines.encoding import Encoding

from .values_of_interest import Coding, fit_coding

NORMS = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0, "chebyshev": inf}


@dataclass(frozen=True)
class EncodedPoints:
    """Points that are encoded as rows of numbers, with their distances."""

    rows: Tensor  # [n, m]
    between: Callable[[Tensor, Tensor], Tensor]  # distances [n, k] between two tables of rows
    codes: list[int] = field(default_factory=list)  # columns that hold codes of categories
    in_matrix: bool = False  # whether rows are positions in a matrix of distances

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Tensor) -> EncodedPoints:
        """Select a subset of the points."""
        # Columns that are contiguous in memory stay so
        if self.rows.is_contiguous():
            rows = self.rows[index]
        else:
            rows = self.rows.T[:, index].T
        return replace(self, rows=rows)

    def distances_to(self, index: int | Tensor) -> Tensor:
        """Compute the distances [n, k] of all points to a subset of them, or [n] to a single one."""
        chosen = self.rows[index].view(-1, self.rows.shape[1])
        distances = self.between(self.rows, chosen)
        return distances[:, 0] if isinstance(index, int) else distances

    def nearest(self, centers: Tensor, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Find the distance and the index of the nearest (`allowed` [n, K]) center of every point, [n] each."""
        minima = []
        for block in blocks(len(self), 16 * len(centers), self.rows.device):
            distances = self.between(self.rows[block], centers.to(self.rows))
            if allowed is not None:
                distances = distances.masked_fill(~allowed[block], inf)
            minima.append(distances.min(1))
        nearest_distances, nearest = map(torch.cat, zip(*minima, strict=True))
        return nearest_distances, nearest

    def outermost(self) -> int:
        """Find the point farthest from the mean (of codes, the most frequent one), or from all others."""
        if self.in_matrix:
            return int(self.sort_key().argmax())
        middle = self.rows.nanmean(0, keepdim=True)
        if self.codes:
            middle[0, self.codes] = self.rows[:, self.codes].mode(0).values
        return int(self.between(self.rows, middle).argmax())

    def sort_key(self) -> Tensor:
        """Compute a number per point, [n], that defines an order: a random projection, or the sum of distances."""
        if self.in_matrix:
            rows = (self.rows[block] for block in blocks(len(self), 16 * len(self), self.rows.device))
            return torch.cat([self.between(block, self.rows).sum(1) for block in rows])

        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(self.rows.shape[1], generator=generator, dtype=torch.float64)
        numbers = self.rows.nan_to_num(nan=-1.5).double()
        return (numbers * weights.to(self.rows.device)).sum(1)


@dataclass(frozen=True)
class Metric:
    """A fitted metric, which encodes points of the same columns."""

    name: str | Callable[..., float]
    params: dict[str, Any]
    columns: Sequence[int] = ()  # columns of X that are used
    scale: Sequence[float] = ()  # for "gower", the range of each numeric column, 1 for the others
    codings: Sequence[Coding | None] = ()  # for "gower", the coding of each column, None for numbers

    def points(self, table: Table) -> EncodedPoints:
        """Encode points."""
        if self.name == "precomputed":
            matrix = table.tensor
            positions = torch.arange(len(matrix), device=matrix.device)[:, None]
            return EncodedPoints(positions, partial(_entries, matrix), in_matrix=True)

        table = _selected(table, self.columns)
        if self.name == "gower":
            columns = _encoded_columns(table.frame(), self.codings) / np.array(self.scale)[:, None]
            rows = torch.from_numpy(columns).T.to(table.device)
            codes = [j for j, coding in enumerate(self.codings) if coding is not None]
            has_missing = bool(rows.isnan().any())
            return EncodedPoints(rows, partial(_gower, has_missing), codes)

        rows = table.tensor
        if self.name == "cosine":
            rows = torch.nn.functional.normalize(rows, eps=torch.finfo(rows.dtype).tiny)
            # Rows of zeros get a value of 1 in an additional column, which makes their distance to all others 1
            is_zero = ~rows.any(1, keepdim=True)
            rows = torch.cat([rows, is_zero], dim=1)
            return EncodedPoints(rows, _cosine)
        if isinstance(self.name, str) and self.name in NORMS:
            limit = (torch.finfo(rows.dtype).max / (8 * rows.shape[1])) ** 0.5
            check_range(rows, limit, names=table.names)
            return EncodedPoints(rows, partial(_norm, p=NORMS[self.name]))
        return EncodedPoints(rows, partial(_by_sklearn, self.name, self.params))


def fit_metric(
    table: Table,
    name: str | Callable[..., float],
    params: dict[str, Any] | None,
    left_out: Sequence[int] = (),
) -> Metric:
    """Fit a metric to a table, of which the columns `left_out` are not used.

    Raises
    ------
    ValueError
        If there are categories and the metric is not "gower", if a precomputed matrix does not hold distances, if
        no columns are left, or if `metric_params` are given for a metric that has none.
    """
    params = dict(params or {})
    if params and name in (*NORMS, "cosine", "gower", "precomputed"):
        raise ValueError(f"metric_params does not apply to metric={name!r}, got {params!r}")
    if name == "precomputed":
        _check_distances(table.tensor)
        return Metric(name, params)

    columns = [column for column in range(table.width) if column not in left_out]
    if not columns:
        raise ValueError("foi_in_distance=False leaves no column of X for the distance")
    table = _selected(table, columns)
    if name == "gower":
        return _fit_gower(table.frame(), columns)

    texts: list[str] = []
    if table.names:
        texts.extend(table.data.select_dtypes(exclude=["number", "bool"]))
    if texts:
        raise ValueError(f'X has columns that are not numeric: {texts}; encode them, or use metric="gower"')
    if name in ("seuclidean", "mahalanobis"):  # otherwise scikit-learn would estimate V or VI in every call
        rows = table.tensor.cpu().double().numpy()
        if name == "seuclidean":
            params.setdefault("V", rows.var(axis=0, ddof=1))
        else:
            covariance = np.atleast_2d(np.cov(rows.T))
            params.setdefault("VI", np.linalg.pinv(covariance))
    return Metric(name, params, columns)


def _check_distances(matrix: Tensor) -> None:
    """Raise a ValueError if a matrix does not hold the distances of all pairs of some points."""
    is_square = matrix.shape[0] == matrix.shape[1]
    if not (is_square and _is_distances(matrix)):
        needed = "a square, symmetric matrix of distances >= 0 with zeros on the diagonal"
        raise ValueError(f'metric="precomputed" needs {needed}, got shape {list(matrix.shape)}')


def _is_distances(matrix: Tensor) -> bool:
    """Tell whether a square matrix is symmetric and >= 0, with zeros on the diagonal."""
    if (matrix < 0).any() | matrix.diagonal().any():
        return False
    return torch.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-8 * float(matrix.amax()))


def _fit_gower(frame: pd.DataFrame, columns: Sequence[int]) -> Metric:
    """Fit Gower's metric to a frame, which holds these columns of X."""
    codings: list[Coding | None] = []
    for _, column in frame.items():
        if column.dtype.kind in "fiu":
            codings.append(None)
        else:
            coding, _ = fit_coding(column, len(frame))
            codings.append(coding)
    encoded = pd.DataFrame(_encoded_columns(frame, codings).T)
    ranges = encoded.max() - encoded.min()
    is_number = pd.Series(codings).isna()
    scale = ranges.where(is_number & (ranges > 0), 1.0)
    return Metric("gower", {}, columns, scale.tolist(), codings)


def _selected(table: Table, columns: Sequence[int]) -> Table:
    return table if len(columns) == table.width else table.select(columns)


def _encoded_columns(frame: pd.DataFrame, codings: Sequence[Coding | None]) -> np.ndarray:
    """Encode the columns of a frame as numbers and codes [m, n], with NaN for missing values."""
    encoding = Encoding(tuple(frame), ())
    encoded = []
    for j, coding in enumerate(codings):
        if coding is None:
            encoded.append(encoding.numbers(frame, j))
        else:
            column = frame.iloc[:, j]
            encoded.append(np.where(column.isna(), np.nan, coding.codes(column)))
    return np.stack(encoded)


# Norms of differences, computed from these, which keeps float32 accurate far from the origin
_norm = partial(torch.cdist, compute_mode="donot_use_mm_for_euclid_dist")


def _cosine(rows: Tensor, centers: Tensor) -> Tensor:
    """Compute the cosine distances of rows of norm 1: |r - s|^2 = 2 - 2 cos(r, s)."""
    return _norm(rows, centers).square() / 2


def _entries(matrix: Tensor, rows: Tensor, centers: Tensor) -> Tensor:
    """Select the distances [n, k] of a matrix, from positions [n, 1] and [k, 1]."""
    return matrix[rows, centers[:, 0]]


def _by_sklearn(
    metric: str | Callable[..., float], params: dict[str, Any], rows: Tensor, centers: Tensor
) -> Tensor:
    """Compute the distances by a metric of scikit-learn, on the CPU."""
    if not len(rows):
        return rows.new_empty(0, len(centers))
    arrays = [points.cpu().numpy() for points in (rows, centers)]
    if metric in PAIRWISE_BOOLEAN_FUNCTIONS:
        arrays = [array != 0 for array in arrays]
    distances = pairwise_distances(*arrays, metric=metric, **params)
    return torch.from_numpy(np.asarray(distances)).to(rows)


def _gower(has_missing: bool, rows: Tensor, centers: Tensor) -> Tensor:
    """Compute Gower's distance: the mean difference, at most 1 each, in the columns that both rows have.

    Gower, "A general coefficient of similarity and some of its properties", Biometrics, 1971. Numbers are scaled
    to ranges of 1; codes of different categories differ by at least 1. Two rows without a common column have
    distance 1. `has_missing` tells whether values of `rows` are missing (NaN).
    """
    mean = torch.nanmean if has_missing or centers.isnan().any() else torch.mean
    distances = []
    for center in centers:
        differences = (rows - center).abs_().clamp_(max=1)
        distances.append(mean(differences, 1))
    return torch.stack(distances, dim=1).nan_to_num_(nan=1.0)
