"""Distances between points, a few columns of the matrix at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from torch import Tensor

from neonxc.blocks import blocks
from neonxc.inputs import check_range

from .columns import Coding, coded
from .table import Table

NORMS = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0, "chebyshev": inf}
# How many numbers Gower's distance handles at once: 2,000 rows of 125 columns then take a third of the time they
# take column by column; longer runs are shared out among threads, which costs more than it gains
TOGETHER = 1 << 15
OWN = (*NORMS, "cosine", "gower", "precomputed")  # what scikit-learn is not asked for


class Space(Protocol):
    """What tells distances between encoded rows."""

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Distances [n, k] between two tables of rows."""
        ...

    def outermost(self, rows: Tensor) -> int:
        """A row far from the middle of all; which one does not depend on their order."""
        ...

    def key(self, rows: Tensor) -> Tensor:
        """A number [n] for each row, by which they can be sorted."""
        ...


@dataclass(frozen=True)
class Points:
    """Encoded points and their distances."""

    rows: Tensor  # [n, m]
    space: Space

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, index: Tensor) -> Points:
        """Some of the points."""
        if self.rows.is_contiguous():
            return Points(self.rows[index], self.space)
        return Points(self.rows.T[:, index].T, self.space)  # columns stay together in memory

    def to(self, index: Tensor) -> Tensor:
        """Distances [n, k] of all points to some of them."""
        return self.space.between(self.rows, self.rows[index])

    def column(self, point: int) -> Tensor:
        """Distances [n] of all points to one of them."""
        return self.space.between(self.rows, self.rows[point : point + 1])[:, 0]

    def nearest(self, centers: Tensor) -> tuple[Tensor, Tensor]:
        """Distance to the nearest of some encoded rows, and which one it is, [n] each."""
        centers = centers.to(self.rows)
        parts = blocks(len(self), 16 * len(centers), self.rows.device)
        found = [self.space.between(self.rows[part], centers).min(1) for part in parts]
        return torch.cat([one.values for one in found]), torch.cat([one.indices for one in found])


@dataclass(frozen=True)
class Norm:
    """A norm of the difference of two rows, or half its square: the cosine distance of unit vectors."""

    p: float
    half_square: bool = False

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Differences are taken column by column, as float32 far from the origin needs it."""
        far = torch.cdist(rows, others, p=self.p, compute_mode="donot_use_mm_for_euclid_dist")
        return far.square() / 2 if self.half_square else far

    def outermost(self, rows: Tensor) -> int:
        """The row farthest from the mean."""
        return int(self.between(rows, rows.mean(0, keepdim=True)).argmax())

    def key(self, rows: Tensor) -> Tensor:
        """A random projection."""
        return _projected(rows)


@dataclass(frozen=True)
class Library:
    """A metric of scikit-learn."""

    metric: str | Callable[..., float]
    params: dict[str, Any]

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """On the CPU."""
        if not len(rows):
            return rows.new_empty(0, len(others))
        one, two = rows.cpu().numpy(), others.cpu().numpy()
        if self.metric in PAIRWISE_BOOLEAN_FUNCTIONS:
            one, two = one != 0, two != 0
        params = {
            name: np.array(value) if isinstance(value, list) else value for name, value in self.params.items()
        }
        far = pairwise_distances(one, two, metric=self.metric, **params)
        return torch.from_numpy(np.asarray(far)).to(rows)

    def outermost(self, rows: Tensor) -> int:
        """The row farthest from the mean."""
        return int(self.between(rows, rows.mean(0, keepdim=True)).argmax())

    def key(self, rows: Tensor) -> Tensor:
        """A random projection."""
        return _projected(rows)


@dataclass(frozen=True)
class Gower:
    """The mean, over those columns that two rows both have, of their difference, which counts 1 at most.

    Gower, "A general coefficient of similarity and some of its properties", Biometrics, 1971. Numbers are scaled
    to ranges of 1; the codes of two categories differ by 1 at least.
    """

    numbers: list[int]  # columns that hold no codes
    gaps: list[bool]  # whether a row may have no value (NaN) in each column

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Of two rows that have no column in common, the distance is 1."""
        return torch.stack([self._column(rows.T, other[:, None]) for other in others], dim=1)

    def _column(self, columns: Tensor, other: Tensor) -> Tensor:
        """Distances [n] of all rows, given by their columns [m, n], to one [m, 1]."""
        total, common = torch.zeros_like(columns[0]), torch.full_like(columns[0], len(columns))
        size = max(1, TOGETHER // max(1, len(total)))
        for first, one, two in zip(count(0, size), columns.split(size), other.split(size), strict=False):
            far = (one - two).abs_().clamp_(max=1)
            if any(self.gaps[first : first + size]):
                gone = far.isnan()
                far, common = far.masked_fill_(gone, 0), common - gone.sum(0)
            total += far.sum(0) if len(far) > 1 else far[0]
        return torch.where(common > 0, total / common.clamp(min=1), 1.0) if any(self.gaps) else total / common

    def outermost(self, rows: Tensor) -> int:
        """The row farthest from the means of numbers and the most frequent codes."""
        middle = rows[:1].clone()
        for j in range(rows.shape[1]):
            values = rows[:, j][~rows[:, j].isnan()]
            if len(values):
                middle[0, j] = values.mean() if j in self.numbers else values.mode().values
        return int(self.between(rows, middle).argmax())

    def key(self, rows: Tensor) -> Tensor:
        """A random projection."""
        return _projected(rows.nan_to_num(nan=-1.5))


@dataclass(frozen=True)
class Matrix:
    """Given distances [n, m]; the rows are positions in the matrix."""

    far: Tensor

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """A part of the matrix."""
        return self.far.index_select(1, others[:, 0]).index_select(0, rows[:, 0])

    def outermost(self, rows: Tensor) -> int:
        """The point with the greatest sum of distances."""
        return int(self.key(rows).argmax())

    def key(self, rows: Tensor) -> Tensor:
        """Sums of distances."""
        parts = blocks(len(rows), 16 * len(rows), rows.device)
        return torch.cat([self.between(rows[part], rows).sum(1) for part in parts])


@dataclass(frozen=True)
class Metric:
    """A metric with what it learned of the columns, by which any points of the same columns are encoded."""

    name: Any
    params: dict[str, Any]
    columns: list[int]  # of X that count
    # for "gower":
    scale: list[float]  # the range of each column of numbers
    codings: list[Coding | None]  # of each column, None for numbers
    gaps: list[bool]  # of each column, whether values were missing

    def points(self, table: Table) -> Points:
        """Encode points."""
        if self.name == "precomputed":
            far = table.numbers(range(table.width))
            return Points(torch.arange(len(far), device=far.device)[:, None], Matrix(far))
        if self.name == "gower":
            return self._mixed(table)
        rows = table.numbers(self.columns)
        if self.name == "cosine":
            length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
            # one more column where rows of zeros lie, far from all directions
            rows = torch.cat([rows / length.masked_fill(length == 0, 1), (length == 0).to(rows)], dim=1)
            return Points(rows, Norm(2.0, half_square=True))
        if isinstance(self.name, str) and self.name in NORMS:
            check_range(rows, (torch.finfo(rows.dtype).max / (8 * rows.shape[1])) ** 0.5, names=self._names(table))
            return Points(rows, Norm(NORMS[self.name]))
        return Points(rows, Library(self.name, self.params))

    def _mixed(self, table: Table) -> Points:
        columns = []
        for column, coding, spread in zip(self.columns, self.codings, self.scale, strict=True):
            if coding is None:
                columns.append(table.gapped(column) / spread)
            else:
                given = table.column(column)
                codes = torch.from_numpy(coding.codes(given).astype(np.float64))
                columns.append(codes.masked_fill_(torch.tensor(given.isna().to_numpy()), torch.nan))
        numbers = [j for j, coding in enumerate(self.codings) if coding is None]
        rows = torch.stack(columns).T
        gone = rows.isnan().any(0).tolist()
        return Points(rows, Gower(numbers, [now or before for now, before in zip(gone, self.gaps, strict=True)]))

    def _names(self, table: Table) -> list[str] | None:
        return None if table.names is None else [table.names[column] for column in self.columns]


def metric_of(table: Table, name: Any, params: dict[str, Any] | None, left_out: Sequence[int] = ()) -> Metric:
    """Learn of the points what a metric needs to know; some columns do not count.

    Raises
    ------
    ValueError
        Categories with another metric than "gower", a matrix that is none of distances, no column that counts,
        `metric_params` for a metric that has none.
    """
    params = dict(params or {})
    own = isinstance(name, str) and name in OWN
    if params and own:
        raise ValueError(f"metric_params does not apply to metric={name!r}, got {params!r}")
    if name == "precomputed":
        _check_matrix(table)
        return Metric(name, params, [], [], [], [])
    columns = [column for column in range(table.width) if column not in left_out]
    if not columns:
        raise ValueError("foi_in_distance=False leaves no column of X that counts in the distance")
    if name == "gower":
        return Metric(name, params, columns, *_mixed_columns(table, columns))
    texts = [table.name(column) for column in columns if not table.is_number(column, boolean=True)]
    if texts:
        raise ValueError(f'X has columns that are not numeric: {texts}; encode them, or use metric="gower"')
    if name in ("seuclidean", "mahalanobis"):  # what scikit-learn would compute of every pair of tables anew
        rows = table.numbers(columns).cpu().double().numpy()
        if name == "seuclidean":
            params.setdefault("V", rows.var(axis=0, ddof=1))
        else:
            params.setdefault("VI", np.linalg.pinv(np.atleast_2d(np.cov(rows.T))))
    return Metric(name, params, columns, [], [], [])


def _projected(rows: Tensor) -> Tensor:
    weights = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (rows.double() * weights.to(rows.device)).sum(1)


def _mixed_columns(table: Table, columns: Sequence[int]) -> tuple[list[float], list[Coding | None], list[bool]]:
    scale: list[float] = []
    codings: list[Coding | None] = []
    gaps = []
    for column in columns:
        if table.is_number(column, boolean=False):
            values = table.gapped(column)
            there = values[~values.isnan()]
            spread = float(there.amax() - there.amin()) if len(there) else 0.0
            gone, coding = len(there) < len(values), None
        else:
            coding = coded(table.column(column), len(table), table.name(column))
            gone, spread = coding.missing, 1.0
        scale.append(spread or 1.0)
        codings.append(coding)
        gaps.append(gone)
    return scale, codings, gaps


def _check_matrix(table: Table) -> None:
    far = table.numbers(range(table.width))
    if far.shape[0] != far.shape[1]:
        raise ValueError(f'metric="precomputed" needs a square matrix of distances, got shape {list(far.shape)}')
    if bool((far < 0).any()) or bool(far.diagonal().any()):
        raise ValueError('metric="precomputed" needs distances >= 0, and 0 from every point to itself')
    if not torch.allclose(far, far.T, rtol=1e-5, atol=1e-8 * float(far.amax())):
        raise ValueError('metric="precomputed" needs a symmetric matrix of distances')
