"""Conversion of relevance to explanations of shap, for its plots."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from neonxc.common.extras import installed_by
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array
from neonxc.data.sparse import dense
from neonxc.data.table import Table
from neonxc.head.answer import Question
from neonxc.network import NeuralizedClustering


@torch.no_grad()
@reads_tables
def to_shap(relevance: Any, net: NeuralizedClustering, X: Any, target: Any = None) -> Any:
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
    values = as_array(Table.read(relevance, name="relevance").aligned(table.names or net.inputs.names, table).data)
    if values.shape != (len(table.tensor), len(names)):
        raise ValueError(f"relevance needs shape {(len(table.tensor), len(names))}, got {values.shape}")
    answers = net.inputs.answers(table, Question(net.positions(target)))
    base = torch.cat([answer.logit for answer in answers]).cpu().numpy() - values.sum(axis=1)
    return Explanation(values, base_values=base, data=_data(table), feature_names=names)


def _data(table: Table) -> np.ndarray:
    """The data of the explanation: the user's table, or the head's columns for other inputs."""
    return as_array(table.data if table.names else dense(table.tensor))
