"""What is read of an AnnData: a matrix of expression with the names of its genes, and groups of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neonxc.common.arguments import check_columns


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
        There is no such layer or no ``adata.raw``, or both are asked for.
    """
    if layer is not None and use_raw:
        raise ValueError(f"pass layer={layer!r} or use_raw=True, not both")
    if layer is not None:
        check_columns("adata.layers", [layer], adata.layers)
        return adata.layers[layer], adata.var_names, f"adata.layers[{layer!r}]"
    raw = getattr(adata, "raw", None)
    if use_raw and raw is None:
        raise ValueError("use_raw=True needs adata.raw, which is missing")
    if raw is None or use_raw is False:
        return adata.X, adata.var_names, "adata.X"
    return raw.X, raw.var_names, "adata.raw"


def groups_of(adata: Any, groupby: Any) -> tuple[pd.Categorical, str]:
    """Return the group of every cell, and the name of the groups.

    Parameters
    ----------
    adata : AnnData
    groupby : str, Series or array-like [cells]
        A column of ``adata.obs``, or the groups themselves; a series goes by the names of the cells.

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
    return pd.Categorical(groupby).remove_unused_categories(), name
