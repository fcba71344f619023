"""Metrics, which encode points as rows of numbers, and distances between such rows."""

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
        return replace(self, rows=self.rows[index] if self.rows.is_contiguous() else self.rows.T[:, index].T)

    def distances_to(self, index: Any) -> Tensor:
        """Distances [n, k] of all points to a subset of them, or [n] to a single one."""
        far = self.between(self.rows, self.rows[index].view(-1, self.rows.shape[1]))
        return far[:, 0] if isinstance(index, int) else far

    def nearest(self, centers: Tensor, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Distance to the nearest of the centers, or of those `allowed` [n, K], and its index, [n] each."""
        least = []
        for block in blocks(len(self), 16 * len(centers), self.rows.device):
            far = self.between(self.rows[block], centers.to(self.rows))
            least.append((far if allowed is None else far.masked_fill(~allowed[block], inf)).min(1))
        far, nearest = map(torch.cat, zip(*least, strict=True))
        return far, nearest

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
            rows = (self.rows[block] for block in blocks(len(self), 16 * len(self), self.rows.device))
            return torch.cat([self.between(block, self.rows).sum(1) for block in rows])
        weights = torch.randn(self.rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return (self.rows.nan_to_num(nan=-1.5).double() * weights.to(self.rows.device)).sum(1)


@dataclass(frozen=True)
class Metric:
    """A fitted metric, which encodes points of the same columns."""

    name: Any
    params: dict[str, Any]
    columns: Sequence[int] = ()  # columns of X that are used
    scale: Sequence[float] = ()  # for "gower", the range of each numeric column, 1 for the others
    codings: Sequence[Coding | None] = ()  # for "gower", the coding of each column, None for numbers

    def points(self, table: Table) -> EncodedPoints:
        """Encode points."""
        if self.name == "precomputed":
            far = table.tensor
            places = torch.arange(len(far), device=far.device)[:, None]
            return EncodedPoints(places, lambda rows, others: far[rows, others[:, 0]], in_matrix=True)
        table = _selected(table, self.columns)
        if self.name == "gower":
            columns = _columns(table.frame(), self.codings) / np.array(self.scale)[:, None]
            rows = torch.from_numpy(columns).T.to(table.device)
            codes = [j for j, coding in enumerate(self.codings) if coding is not None]
            return EncodedPoints(rows, partial(_gower, bool(rows.isnan().any())), codes)
        rows = table.tensor
        if self.name == "cosine":
            rows = torch.nn.functional.normalize(rows, eps=torch.finfo(rows.dtype).tiny)
            # Rows of zeros get a value of 1 in an additional column, which makes their distance to all others 1
            rows = torch.cat([rows, ~rows.any(1, keepdim=True)], dim=1)
            return EncodedPoints(rows, lambda rows, others: _norm(rows, others).square() / 2)
        if self.name in NORMS:
            check_range(rows, (torch.finfo(rows.dtype).max / (8 * rows.shape[1])) ** 0.5, names=table.names)
            return EncodedPoints(rows, partial(_norm, p=NORMS[self.name]))
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
    if params and name in (*NORMS, "cosine", "gower", "precomputed"):
        raise ValueError(f"metric_params does not apply to metric={name!r}, got {params!r}")
    if name == "precomputed":
        far = table.tensor
        if (
            far.shape[0] != far.shape[1]
            or ((far < 0).any() | far.diagonal().any())
            or not torch.allclose(far, far.T, rtol=1e-5, atol=1e-8 * float(far.amax()))
        ):
            needed = "a square, symmetric matrix of distances >= 0 with zeros on the diagonal"
            raise ValueError(f'metric="precomputed" needs {needed}, got shape {list(far.shape)}')
        return Metric(name, params)
    columns = [column for column in range(table.width) if column not in left_out]
    if not columns:
        raise ValueError("foi_in_distance=False leaves no column of X for the distance")
    table = _selected(table, columns)
    if name == "gower":
        frame = table.frame()
        codings = [
            None if column.dtype.kind in "fiu" else fit_coding(column, len(frame))[0]
            for _, column in frame.items()
        ]
        fitted = pd.DataFrame(_columns(frame, codings).T)
        spreads = fitted.max() - fitted.min()
        scale = spreads.where(pd.Series(codings).isna() & (spreads > 0), 1.0)
        return Metric(name, params, columns, scale.tolist(), codings)
    if table.names and (texts := [*table.data.select_dtypes(exclude=["number", "bool"])]):
        raise ValueError(f'X has columns that are not numeric: {texts}; encode them, or use metric="gower"')
    if name in ("seuclidean", "mahalanobis"):  # otherwise scikit-learn would estimate V or VI in every call
        rows = table.tensor.cpu().double().numpy()
        if name == "seuclidean":
            params.setdefault("V", rows.var(axis=0, ddof=1))
        else:
            params.setdefault("VI", np.linalg.pinv(np.atleast_2d(np.cov(rows.T))))
    return Metric(name, params, columns)


def _selected(table: Table, columns: Sequence[int]) -> Table:
    return table if len(columns) == table.width else table.select(columns)


def _columns(frame: pd.DataFrame, codings: Sequence[Coding | None]) -> np.ndarray:
    """Numbers and codes [m, n] of the columns of a frame, with NaN for missing values."""
    encoding = Encoding(tuple(frame), ())
    return np.stack(
        [
            encoding.numbers(frame, j)
            if coding is None
            else np.where(frame.iloc[:, j].isna(), np.nan, coding.codes(frame.iloc[:, j]))
            for j, coding in enumerate(codings)
        ]
    )


# Norms of differences, computed from these, which keeps float32 accurate far from the origin
_norm = partial(torch.cdist, compute_mode="donot_use_mm_for_euclid_dist")


def _by_sklearn(metric: Any, params: dict[str, Any], rows: Tensor, others: Tensor) -> Tensor:
    """Distances by a metric of scikit-learn, on the CPU."""
    if not len(rows):
        return rows.new_empty(0, len(others))
    arrays = [points.cpu().numpy() for points in (rows, others)]
    if metric in PAIRWISE_BOOLEAN_FUNCTIONS:
        arrays = [array != 0 for array in arrays]
    return torch.from_numpy(np.asarray(pairwise_distances(*arrays, metric=metric, **params))).to(rows)


def _gower(gaps: bool, rows: Tensor, others: Tensor) -> Tensor:
    """Gower's distance: the mean difference, at most 1 each, over the columns in which both rows have values.

    Gower, "A general coefficient of similarity and some of its properties", Biometrics, 1971. Numbers are scaled
    to ranges of 1; codes of different categories differ by at least 1. Two rows without a common column have
    distance 1. `gaps` tells whether values of `rows` are missing (NaN).
    """
    mean = torch.nanmean if gaps or others.isnan().any() else torch.mean
    far = [mean((rows - other).abs_().clamp_(max=1), 1) for other in others]
    return torch.stack(far, dim=1).nan_to_num_(nan=1.0)
