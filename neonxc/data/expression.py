"""Read an AnnData: a matrix of expression with the names of its genes, and groups of cells.

Which matrix is read::

    layer     use_raw          matrix
    a name    None or False    adata.layers[layer]
    None      True             adata.raw
    None      None             adata.raw if there is one, or else adata.X
    None      False            adata.X
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from neonxc.common.arguments import check_columns, kind_of, similar
from neonxc.common.memory import blocks
from neonxc.common.types import ArrayLike
from neonxc.data.frames import as_pandas
from neonxc.data.inputs import as_array
from neonxc.data.labels import is_any_noise
from neonxc.data.sparse import check_room


def expression_of(adata: Any, layer: str | None = None, use_raw: bool | None = None) -> tuple[Any, pd.Index, str]:
    """Return a matrix [cells, genes], the names of the genes, and the name of the matrix.

    Parameters
    ----------
    adata : AnnData
    layer : str, optional
        A layer in place of ``adata.X``.
    use_raw : bool, optional
        Whether ``adata.raw`` is read; default: if it is there and no `layer` is given.

    Raises
    ------
    TypeError
        `adata` is not an AnnData.
    ValueError
        There is no such layer or no ``adata.raw``, or both are asked for; or a value is not finite, whose gene the
        message names.
    """
    if not hasattr(adata, "var_names"):
        raise TypeError(f"adata needs an AnnData, or the path of a .h5ad file; got {kind_of(adata)}")
    if layer is not None and use_raw:
        raise ValueError(f"pass layer={layer!r} or use_raw=True, not both")
    raw = getattr(adata, "raw", None)
    if use_raw and raw is None:
        raise ValueError("use_raw=True needs adata.raw, which is missing")
    if layer is not None:
        if layer not in adata.layers:
            layers = [*adata.layers]
            raise ValueError(f"layer needs one of adata.layers, {layers}, got {layer!r}{similar([layer], layers)}")
        X = adata.layers[layer]
        names = adata.var_names
        source = f"adata.layers[{layer!r}]"
    elif raw is None or use_raw is False:
        X = adata.X
        names = adata.var_names
        source = "adata.X"
    else:
        X = raw.X
        names = raw.var_names
        source = "adata.raw"
    if X is None:
        raise ValueError(f"{source} is missing (None): pass layer=, one of adata.layers, {[*adata.layers]}")
    if sparse.issparse(X):
        X = X.tocsr()
    _check_finite(X, names)
    return X, names, source


def _check_finite(X: Any, names: pd.Index) -> None:
    """Raise a ValueError for values that are not finite, with the name of their gene."""
    for block in blocks(X.shape[0], 8 * X.shape[1]):
        cells = X[block]
        if sparse.issparse(cells):  # entries that are not stored are 0
            entries = cells.tocoo()
            columns = entries.col[~np.isfinite(entries.data)]
        else:
            bad = ~np.isfinite(np.asarray(cells))
            columns = np.flatnonzero(bad.any(axis=0))
        if len(columns):
            gene = names[columns[0]]
            raise ValueError(f"the expression of gene {gene!r} has values that are not finite (NaN or inf)")


def frame_of_cells(adata: Any, name: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return the matrix ``adata.X`` as a data frame, and behind its genes some columns of ``adata.obs``.

    Parameters
    ----------
    adata : AnnData [cells, genes]
    name : str
        Name of the file in errors.
    columns : sequence of str
        Columns of ``adata.obs``.

    Raises
    ------
    ValueError
        A column is missing, or has the name of a gene.
    """
    check_columns(f"adata.obs of {name}", columns, adata.obs.columns)
    frame = as_pandas(adata, name)
    if sparse.issparse(frame):
        check_room(frame, f"{name} is made dense", "use neonxc.markers")
        frame = pd.DataFrame(frame.toarray(), adata.obs_names, adata.var_names)
    for column in columns:
        if column in frame:
            raise ValueError(f"{name} has a gene and a column of adata.obs that are both called {column!r}")
        frame[column] = adata.obs[column]
    return frame


def groups_of(adata: Any, groupby: str | ArrayLike) -> tuple[pd.Categorical, str]:
    """Return the group of every cell, and the name of the groups.

    Parameters
    ----------
    adata : AnnData
    groupby : str, Series or array-like [cells]
        A column of ``adata.obs``, or the groups themselves; a series goes by the names of the cells. Noise (-1) is
        missing.

    Raises
    ------
    ValueError
        There is no such column, another number of groups than of cells, or cells that the series lacks.
    """
    values: Any = groupby
    name = str(getattr(groupby, "name", None) or "groups")
    if isinstance(groupby, str):
        check_columns("adata.obs", [groupby], adata.obs.columns)
        values = adata.obs[groupby]
        name = groupby
    cells = adata.obs.index
    if isinstance(values, pd.Series) and not isinstance(values.index, pd.RangeIndex):
        missing = cells.difference(values.index)
        if len(missing) or not values.index.is_unique:
            raise ValueError(
                f"groupby needs each cell of adata.obs_names once in its index, it lacks {[*missing[:3]]}"
            )
        values = values.reindex(cells)
    if np.shape(values) != (len(cells),):
        raise ValueError(f"groupby needs one group per cell, ({len(cells)},), got shape {np.shape(values)}")
    if not hasattr(values, "dtype"):  # a list, whose labels keep their types
        values = as_array(values)
    groups = pd.Categorical(values)
    noise = [group for group in groups.categories if is_any_noise(group)]
    return groups.remove_categories(noise).remove_unused_categories(), name
