"""What is read of an AnnData: a matrix of expression with the names of its genes, and groups of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from neonxc.common.arguments import check_columns, similar
from neonxc.common.memory import blocks
from neonxc.data.inputs import as_array
from neonxc.data.labels import is_any_noise


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
    ValueError
        There is no such layer or no ``adata.raw``, or both are asked for; or a value is not finite, whose gene the
        message names.
    """
    if layer is not None and use_raw:
        raise ValueError(f"pass layer={layer!r} or use_raw=True, not both")
    raw = getattr(adata, "raw", None)
    if use_raw and raw is None:
        raise ValueError("use_raw=True needs adata.raw, which is missing")
    if layer is not None:
        if layer not in adata.layers:
            known = [*adata.layers]
            raise ValueError(f"layer needs one of adata.layers, {known}, got {layer!r}{similar([layer], known)}")
        X, names, source = adata.layers[layer], adata.var_names, f"adata.layers[{layer!r}]"
    elif raw is None or use_raw is False:
        X, names, source = adata.X, adata.var_names, "adata.X"
    else:
        X, names, source = raw.X, raw.var_names, "adata.raw"
    if X is None:
        raise ValueError(f"{source} is missing (None): pass layer=, one of adata.layers, {[*adata.layers]}")
    X = X.tocsr() if sparse.issparse(X) else X
    _check_finite(X, names)
    return X, names, source


def _check_finite(X: Any, names: pd.Index) -> None:
    """Raise a ValueError for values that are not finite, with the name of their gene."""
    for block in blocks(X.shape[0], 8 * X.shape[1]):
        part = X[block]
        values = part.tocoo() if sparse.issparse(part) else None
        bad = ~np.isfinite(np.asarray(part) if values is None else values.data)
        if bad.any():
            first = int(bad.argmax()) if values is not None else int(bad.any(axis=0).argmax())
            gene = names[first if values is None else values.col[first]]
            raise ValueError(f"the expression of gene {gene!r} has values that are not finite (NaN or inf)")


def groups_of(adata: Any, groupby: Any) -> tuple[pd.Categorical, str]:
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
    name = groupby if isinstance(groupby, str) else str(getattr(groupby, "name", None) or "groups")
    if isinstance(groupby, str):
        check_columns("adata.obs", [groupby], adata.obs.columns)
        groupby = adata.obs[groupby]
    cells = adata.obs.index
    if isinstance(groupby, pd.Series) and not isinstance(groupby.index, pd.RangeIndex):
        lacking = cells.difference(groupby.index)
        if len(lacking) or not groupby.index.is_unique:
            raise ValueError(
                f"groupby needs each cell of adata.obs_names once in its index, it lacks {[*lacking[:3]]}"
            )
        groupby = groupby.reindex(cells)
    if np.shape(groupby) != (len(cells),):
        raise ValueError(f"groupby needs one group per cell, ({len(cells)},), got shape {np.shape(groupby)}")
    groups = pd.Categorical(groupby if hasattr(groupby, "dtype") else as_array(groupby))
    groups = groups.remove_categories([group for group in groups.categories if is_any_noise(group)])
    return groups.remove_unused_categories(), name
