"""Types of the arguments that users pass, and of the results that depend on these.

Once arguments are read, values have the types that reading gives them. What a function returns for which argument,
its overloads say:

    rows in, rows out          tensors and data frames to their class, arrays to arrays, others to one of the two
    rows in, a value per row   tensors to tensors, everything else to arrays

Fitted clusterers, pipelines and trees are `object`: they are known by their attributes, since clusterers of other
libraries have no common base class.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import numpy as np
from typing_extensions import TypeVar  # that of Python 3.11 and 3.12 has no default

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


class SupportsColumns(SupportsArrow, Protocol):
    """Data frames of pandas and other libraries, in contrast to their columns."""

    @property
    def columns(self) -> Any:
        """The columns, or their names."""


class SupportsSparse(Protocol):
    """Sparse matrices and arrays of SciPy."""

    def tocsr(self) -> Any:
        """Return the matrix in the format of compressed rows."""


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

AnyArray: TypeAlias = np.ndarray | SupportsArray
"""Arrays of NumPy and of other libraries."""

Points: TypeAlias = Union[np.ndarray, "sparse.spmatrix", "sparse.sparray"]
"""Rows that a clusterer takes, behind the preprocessing."""

OtherTable: TypeAlias = (
    SupportsSparse
    | SupportsArrow
    | SupportsExpression
    | Sequence[object]
    | Mapping[str, object]
    | str
    | os.PathLike[str]
)
"""Inputs as in `TableLike` that are neither arrays, tensors nor data frames.

It names no class of SciPy or pandas: where their types are not installed these are `Any`, which arrays match, too.
"""

Item = TypeVar("Item")
"""The one input in a tuple, as captum passes it."""

Frame = TypeVar("Frame", bound=SupportsColumns)
"""A data frame of any library, for functions that return one of the same class."""

TensorOrFrame = TypeVar("TensorOrFrame", bound="Tensor | SupportsColumns")
"""A tensor or a data frame, for functions that return one of the same class."""

Rows = TypeVar("Rows", default=Any, covariant=True)
"""What a result holds in the type of the rows it is about."""

RowLabels = TypeVar("RowLabels", default=np.ndarray, covariant=True)
"""The labels of rows: a tensor for tensors, else an array."""
