"""Metrics, which encode points so that their distances can be computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neonxc.data.inputs import check_range

from .columns import Coding, fit_coding
from .distances import (
    NORMS,
    EncodedPoints,
    GowerDistance,
    NormDistance,
    PrecomputedDistance,
    SklearnDistance,
)
from .table import Columns

OWN = (*NORMS, "cosine", "gower", "precomputed")  # metrics that are implemented here and not by scikit-learn


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

    def points(self, table: Columns) -> EncodedPoints:
        """Encode points."""
        if self.name == "precomputed":
            far = table.tensor
            return EncodedPoints(torch.arange(len(far), device=far.device)[:, None], PrecomputedDistance(far))
        if self.name == "gower":
            return self._mixed(table)
        rows = table.some(self.columns)
        if self.name == "cosine":
            rows = torch.nn.functional.normalize(rows, eps=torch.finfo(rows.dtype).tiny)
            # Rows of zeros get a value of 1 in an additional column, which makes their distance to all others 1
            rows = torch.cat([rows, ~rows.any(1, keepdim=True)], dim=1)
            return EncodedPoints(rows, NormDistance(2.0, half_square=True))
        if self.name in NORMS:
            check_range(rows, (torch.finfo(rows.dtype).max / (8 * rows.shape[1])) ** 0.5, names=self._names(table))
            return EncodedPoints(rows, NormDistance(NORMS[self.name]))
        return EncodedPoints(rows, SklearnDistance(self.name, self.params))

    def _mixed(self, table: Columns) -> EncodedPoints:
        columns = []
        for column, coding, spread in zip(self.columns, self.codings, self.scale, strict=True):
            if coding is None:
                columns.append(table.numbers_with_gaps(column) / spread)
            else:
                given = table.column(column)
                columns.append(torch.from_numpy(np.where(given.isna(), np.nan, coding.codes(given))))
        numbers = [j for j, coding in enumerate(self.codings) if coding is None]
        rows = torch.stack(columns).T
        gone = rows.isnan().any(0).tolist()
        return EncodedPoints(
            rows, GowerDistance(numbers, [now or before for now, before in zip(gone, self.gaps, strict=True)])
        )

    def _names(self, table: Columns) -> list[str] | None:
        return None if table.names is None else [table.names[column] for column in self.columns]


def fit_metric(table: Columns, name: Any, params: dict[str, Any] | None, left_out: Sequence[int] = ()) -> Metric:
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
        _check_matrix(table)
        return Metric(name, params, [], [], [], [])
    columns = [column for column in range(table.width) if column not in left_out]
    if not columns:
        raise ValueError("foi_in_distance=False leaves no column of X for the distance")
    if name == "gower":
        return Metric(name, params, columns, *_mixed_columns(table, columns))
    texts = [table.title(column) for column in columns if not table.is_number(column, boolean=True)]
    if texts:
        raise ValueError(f'X has columns that are not numeric: {texts}; encode them, or use metric="gower"')
    if name in ("seuclidean", "mahalanobis"):  # otherwise scikit-learn would estimate V or VI in every call
        rows = table.some(columns).cpu().double().numpy()
        if name == "seuclidean":
            params.setdefault("V", rows.var(axis=0, ddof=1))
        else:
            params.setdefault("VI", np.linalg.pinv(np.atleast_2d(np.cov(rows.T))))
    return Metric(name, params, columns, [], [], [])


def _mixed_columns(table: Columns, columns: Sequence[int]) -> tuple[list[float], list[Coding | None], list[bool]]:
    scale: list[float] = []
    codings: list[Coding | None] = []
    gaps = []
    for column in columns:
        if table.is_number(column, boolean=False):
            values = table.numbers_with_gaps(column)
            there = values[~values.isnan()]
            spread = float(there.amax() - there.amin()) if len(there) else 0.0
            gone, coding = len(there) < len(values), None
        else:
            coding = fit_coding(table.column(column), len(table), table.title(column))
            gone, spread = coding.missing, 1.0
        scale.append(spread or 1.0)
        codings.append(coding)
        gaps.append(gone)
    return scale, codings, gaps


def _check_matrix(table: Columns) -> None:
    far = table.tensor
    if far.shape[0] != far.shape[1]:
        raise ValueError(f'metric="precomputed" needs a square matrix of distances, got shape {list(far.shape)}')
    if bool((far < 0).any()) or bool(far.diagonal().any()):
        raise ValueError('metric="precomputed" needs distances >= 0 and zeros on the diagonal')
    if not torch.allclose(far, far.T, rtol=1e-5, atol=1e-8 * float(far.amax())):
        raise ValueError('metric="precomputed" needs a symmetric matrix of distances')
