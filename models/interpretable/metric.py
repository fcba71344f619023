"""Metrics, which encode points as rows of numbers, and distances between such rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import Any

import numpy as np
import torch
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.data.inputs import check_range
from neonxc.data.table import Table
from neonxc.pipelines.encoding import Encoding

from .columns import Coding, fit_coding

NORMS = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0, "chebyshev": inf}
OWN = (*NORMS, "cosine", "gower", "precomputed")  # metrics that are implemented here and not by scikit-learn
# Number of values that Gower's distance processes at a time. 2,000 rows of 125 columns then take a third of the
# time that they take column by column. With more values, torch starts several threads, which costs more than it
# gains.
TOGETHER = 1 << 15


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
        # Table that are contiguous in memory stay so
        rows = self.rows[index] if self.rows.is_contiguous() else self.rows.T[:, index].T
        return EncodedPoints(rows, self.between, self.codes, self.in_matrix)

    def distances_to(self, index: Tensor) -> Tensor:
        """Distances [n, k] of all points to a subset of them."""
        return self.between(self.rows, self.rows[index])

    def distances_to_point(self, point: int) -> Tensor:
        """Distances [n] of all points to one of them."""
        return self.between(self.rows, self.rows[point : point + 1])[:, 0]

    def nearest(self, centers: Tensor) -> tuple[Tensor, Tensor]:
        """Distance to the nearest of the encoded centers, and its index, [n] each."""
        centers = centers.to(self.rows)
        parts = blocks(len(self), 16 * len(centers), self.rows.device)
        far, nearest = zip(*(self.between(self.rows[part], centers).min(1) for part in parts), strict=True)
        return torch.cat(far), torch.cat(nearest)

    def outermost(self) -> int:
        """Index of the point farthest from the mean (of codes, the most frequent one), or from all others."""
        if self.in_matrix:
            return int(self.sort_key().argmax())
        middle = self.rows.nanmean(0, keepdim=True)
        if self.codes:
            middle[0, self.codes] = self.rows[:, self.codes].mode(0).values
        return int(self.between(self.rows, middle).argmax())

    def sort_key(self) -> Tensor:
        """A number for each point, [n], that defines an order: a random projection, or the sum of distances."""
        if self.in_matrix:
            parts = blocks(len(self), 16 * len(self), self.rows.device)
            return torch.cat([self.between(self.rows[part], self.rows).sum(1) for part in parts])
        weights = torch.randn(self.rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return (self.rows.nan_to_num(nan=-1.5).double() * weights.to(self.rows.device)).sum(1)


@dataclass(frozen=True)
class Metric:
    """A fitted metric, which encodes points of the same columns."""

    name: Any
    params: dict[str, Any]
    columns: list[int]  # columns of X that are used
    # The rest is for "gower":
    scale: list[float]  # range of each numeric column, 1 for the others
    codings: list[Coding | None]  # coding of each column, None for numbers
    gaps: list[bool]  # for each column, whether values are missing

    def points(self, table: Table) -> EncodedPoints:
        """Encode points."""
        if self.name == "precomputed":
            far = table.tensor
            places = torch.arange(len(far), device=far.device)[:, None]
            return EncodedPoints(places, partial(_in_matrix, far), in_matrix=True)
        if self.name == "gower":
            columns = [
                _numbers(table, column) / spread
                if coding is None
                else np.where(table.column(column).isna(), np.nan, coding.codes(table.column(column)))
                for column, coding, spread in zip(self.columns, self.codings, self.scale, strict=True)
            ]
            rows = torch.from_numpy(np.stack(columns)).T.to(table.device)
            gaps = [a or b for a, b in zip(self.gaps, rows.isnan().any(0).tolist(), strict=True)]
            codes = [j for j, coding in enumerate(self.codings) if coding is not None]
            return EncodedPoints(rows, partial(_gower, gaps), codes)
        table = _selected(table, self.columns)
        rows = table.tensor
        if self.name == "cosine":
            rows = torch.nn.functional.normalize(rows, eps=torch.finfo(rows.dtype).tiny)
            # Rows of zeros get a value of 1 in an additional column, which makes their distance to all others 1
            return EncodedPoints(torch.cat([rows, ~rows.any(1, keepdim=True)], dim=1), _cosine)
        if self.name in NORMS:
            check_range(rows, (torch.finfo(rows.dtype).max / (8 * rows.shape[1])) ** 0.5, names=table.names)
            return EncodedPoints(rows, partial(_norm, NORMS[self.name]))
        return EncodedPoints(rows, partial(_by_sklearn, self.name, self.params))


def fit_metric(table: Table, name: Any, params: dict[str, Any] | None, left_out: Sequence[int] = ()) -> Metric:
    """Fit a metric to a table. The columns `left_out` are not used.

    Raises
    ------
    ValueError
        If there are categories and the metric is not "gower", if a precomputed matrix does not hold distances, if
        no columns are left, or if `metric_params` are given for a metric that has none.
    """
    params = dict(params or {})
    if params and name in OWN:
        raise ValueError(f"metric_params does not apply to metric={name!r}, got {params!r}")
    if name == "precomputed":
        _check_matrix(table.tensor)
        return Metric(name, params, [], [], [], [])
    columns = [column for column in range(table.width) if column not in left_out]
    if not columns:
        raise ValueError("foi_in_distance=False leaves no column of X for the distance")
    used = _selected(table, columns)
    kinds = [] if used.names is None else [dtype.kind for dtype in used.data.dtypes]
    if name == "gower":
        codings: list[Coding | None] = [None] * len(columns)
        scale, gaps = [1.0] * len(columns), [False] * len(columns)
        for j in range(len(columns)):
            if kinds and kinds[j] not in "fiu":
                coding = codings[j] = fit_coding(used.column(j), len(used), used.names[j])  # type: ignore[index]
                gaps[j] = coding.missing
            else:
                values = _numbers(used, j)
                there = values[~np.isnan(values)]
                gaps[j] = len(there) < len(values)
                scale[j] = float(np.ptp(there)) or 1.0 if len(there) else 1.0
        return Metric(name, params, columns, scale, codings, gaps)
    if texts := [name for name, kind in zip(used.names or (), kinds, strict=True) if kind not in "fiub"]:
        raise ValueError(f'X has columns that are not numeric: {texts}; encode them, or use metric="gower"')
    if name in ("seuclidean", "mahalanobis"):  # otherwise scikit-learn would estimate V or VI in every call
        rows = used.tensor.cpu().double().numpy()
        if name == "seuclidean":
            params.setdefault("V", rows.var(axis=0, ddof=1))
        else:
            params.setdefault("VI", np.linalg.pinv(np.atleast_2d(np.cov(rows.T))))
    return Metric(name, params, columns, [], [], [])


def _selected(table: Table, columns: Sequence[int]) -> Table:
    return table if len(columns) == table.width else table.select(columns)


def _numbers(table: Table, column: int) -> np.ndarray:
    """One column as numbers [n], with NaN for missing values."""
    frame = table.select([column]).frame()
    return Encoding(tuple(frame), ()).numbers(frame, 0)


def _check_matrix(far: Tensor) -> None:
    problem = None
    if far.shape[0] != far.shape[1]:
        problem = f"a square matrix of distances, got shape {list(far.shape)}"
    elif bool((far < 0).any()) or bool(far.diagonal().any()):
        problem = "distances >= 0 and zeros on the diagonal"
    elif not torch.allclose(far, far.T, rtol=1e-5, atol=1e-8 * float(far.amax())):
        problem = "a symmetric matrix of distances"
    if problem:
        raise ValueError(f'metric="precomputed" needs {problem}')


def _norm(p: float, rows: Tensor, others: Tensor) -> Tensor:
    """Norms of differences, computed from these, which keeps float32 accurate far from the origin."""
    return torch.cdist(rows, others, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def _cosine(rows: Tensor, others: Tensor) -> Tensor:
    return _norm(2.0, rows, others).square() / 2  # the cosine distance of unit vectors


def _by_sklearn(metric: Any, params: dict[str, Any], rows: Tensor, others: Tensor) -> Tensor:
    """Distances by a metric of scikit-learn, on the CPU."""
    if not len(rows):
        return rows.new_empty(0, len(others))
    one, two = rows.cpu().numpy(), others.cpu().numpy()
    if metric in PAIRWISE_BOOLEAN_FUNCTIONS:
        one, two = one != 0, two != 0
    return torch.from_numpy(np.asarray(pairwise_distances(one, two, metric=metric, **params))).to(rows)


def _in_matrix(far: Tensor, rows: Tensor, others: Tensor) -> Tensor:
    return far.index_select(1, others[:, 0]).index_select(0, rows[:, 0])


def _gower(gaps: Sequence[bool], rows: Tensor, others: Tensor) -> Tensor:
    """Gower's distance: the mean difference, at most 1 each, over the columns in which both rows have values.

    Gower, "A general coefficient of similarity and some of its properties", Biometrics, 1971. Numbers are scaled
    to ranges of 1; codes of different categories differ by at least 1. Two rows without a common column have
    distance 1. `gaps` tells for each column whether values may be missing (NaN).
    """
    return torch.stack([_gower_of_row(gaps, rows.T, other[:, None]) for other in others], dim=1)


def _gower_of_row(gaps: Sequence[bool], columns: Tensor, other: Tensor) -> Tensor:
    """Distances [n] of all rows, given as columns [m, n], to one row [m, 1]."""
    total, common = torch.zeros_like(columns[0]), torch.full_like(columns[0], len(columns))
    size = max(1, TOGETHER // max(1, len(total)))
    for first, one, two in zip(count(0, size), columns.split(size), other.split(size), strict=False):
        far = (one - two).abs_().clamp_(max=1)
        if any(gaps[first : first + size]):
            gone = far.isnan()
            far, common = far.masked_fill_(gone, 0), common - gone.sum(0)
        total += far.sum(0) if len(far) > 1 else far[0]
    return torch.where(common > 0, total / common.clamp(min=1), 1.0) if any(gaps) else total / common
