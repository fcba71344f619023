"""Counts of distinct points, and explanations of why clusters have the same center."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd

from neonxc.data.inputs import as_array
from neonxc.data.preparation import listed
from neonxc.data.sparse import canonical, is_sparse


def n_distinct(X: Any) -> int:
    """Return the number of distinct points in a data frame, array, tensor, sparse matrix or list of texts."""
    if is_sparse(X):
        rows = canonical(X)
        places = pairwise(rows.indptr)
        return len({(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in places})
    if hasattr(X, "iloc"):
        return len(X.drop_duplicates())
    points = as_array(X)
    points = points.reshape(len(points), -1)
    if points.dtype.kind not in "fiub":
        return len(pd.DataFrame(points).drop_duplicates())
    return len({row.tobytes() for row in points + 0})  # + 0 makes -0.0 and 0.0 the same


def why_identical(X: Any, clusters: int) -> str:
    """Return the end of an error about clusters with the same center: its probable cause in the data."""
    if X is None:
        return "; fit fewer clusters"
    n, different = X.shape[0] if hasattr(X, "shape") else len(X), n_distinct(X)
    if different == 1 < n:
        return f": all {n} points of X are the same{_constant(X)}"
    if different < clusters:
        return f": X has only {different} different points; fit at most {different} clusters"
    return "; fit fewer clusters"


def _constant(X: Any) -> str:
    if not hasattr(X, "columns"):
        return " (every column is constant)" if getattr(X, "ndim", 0) == 2 else ""
    return f" (constant columns: {listed([str(name) for name in X.columns])})"
