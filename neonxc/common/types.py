"""Types of the arguments that users pass; once these are read, values have the types that reading gives them.

Fitted clusterers, pipelines and trees are `object`: they are known by their attributes, since clusterers of other
libraries have no common base class.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse
    from torch import Tensor


class SupportsArray(Protocol):
    """Arrays of other libraries, and images of Pillow."""

    def __array__(self) -> np.ndarray: ...


class SupportsArrow(Protocol):
    """Data frames of other libraries, such as polars, and tables of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class SupportsExpression(Protocol):
    """Annotated matrices of cells, such as AnnData."""

    @property
    def X(self) -> object:
        """The matrix [cells, genes]."""

    @property
    def obs(self) -> object:
        """The table of the cells."""


ArrayLike: TypeAlias = Union[
    np.ndarray, "pd.Series", "pd.Index", "Tensor", Sequence[object], SupportsArray, SupportsArrow
]
"""Numbers or labels, one per row, before they are read."""

TableLike: TypeAlias = Union[
    np.ndarray,
    "pd.DataFrame",
    "Tensor",
    "sparse.spmatrix",
    "sparse.sparray",
    Sequence[object],
    Mapping[str, object],
    SupportsArray,
    SupportsArrow,
    SupportsExpression,
    str,
    os.PathLike[str],
]
"""N inputs before they are read: a table, an array, images, texts, or the path of a file that holds them."""

Label: TypeAlias = Hashable
"""The label of a cluster: a number, a name or a tuple."""

RandomState: TypeAlias = int | np.integer | np.random.RandomState | None
"""Seed of random choices, as scikit-learn takes it."""
