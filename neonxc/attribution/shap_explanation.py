"""Conversion of relevance to explanations of shap, for its plots.

The relevance R_j of a point's columns and the base value b sum to the logit f, as the values of shap sum to a
model's output: b = f - sum_j R_j.
"""

from __future__ import annotations

from typing import Any

import torch

from neonxc.common.arguments import installed_by
from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array
from neonxc.data.sparse import dense
from neonxc.data.table import Table
from neonxc.head.answer import Question
from neonxc.network import NeuralizedClustering


@torch.no_grad()
@reads_tables
def to_shap(
    relevance: TableLike, net: NeuralizedClustering, X: TableLike, target: Label | ArrayLike = None
) -> Any:
    """Convert relevance to a ``shap.Explanation``, for the plots of shap (beeswarm, bar, waterfall, heatmap).

    The values are the relevance, and the base value of each point is the part of the logit that belongs to no
    column (:meth:`NEON.residual`). Values and base value sum to the logit, as those of shap sum to a model's
    output. They are no Shapley values and need no background data; the base value is 0 if the relevance conserves
    the logit.

    Parameters
    ----------
    relevance : array, data frame or Tensor [N, d]
        The result of :meth:`NEON.attribute` for X.
    net : NeuralizedClustering
        The network that was explained, without a feature network (raw columns, encoded tables, or texts behind a
        vectorizer).
    X : array, data frame, tensor, sparse matrix or sequence of str
        The points that were explained.
    target : label or sequence [N] of labels, optional
        The `target` given to :meth:`NEON.attribute`. Default: each point's own cluster. With a competitor, the
        relevance is that of a contrast, and the base values are the rest of the target's logit.

    Returns
    -------
    shap.Explanation
        With `values` and `data` [N, d] (for texts, the counts of terms), `base_values` [N] and `feature_names`.

    Raises
    ------
    ImportError
        shap is not installed: ``pip install -e ".[shap]"``.
    ValueError
        The network has a feature network, or the relevance another shape.
    """
    try:
        from shap import Explanation
    except ImportError:
        raise ImportError(f"to_shap needs shap: {installed_by('shap')}") from None
    if net.features is not None:
        raise ValueError("to_shap needs a network without feature network, whose inputs are columns of a table")
    table = net.inputs.read(X)
    names = list(net.inputs.units)
    relevance_table = Table.read(relevance, name="relevance")
    values = as_array(relevance_table.aligned(table.column_names or net.inputs.names, table).data)
    shape = (len(table.tensor), len(names))
    if values.shape != shape:
        raise ValueError(f"relevance needs shape {shape}, got {values.shape}")

    answers = net.inputs.answers(table, Question(net.positions(target)))
    logits = torch.cat([answer.logit for answer in answers]).cpu().numpy()
    base = logits - values.sum(axis=1)
    # the values of the user's table are shown, or for other inputs the columns of the head
    data = table.data if table.names else dense(table.tensor)
    return Explanation(values, base_values=base, data=as_array(data), feature_names=names)
