"""Relevance in the form that the plots of shap take."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from neonxc.carriers import Columns
from neonxc.inputs import as_array
from neonxc.network import NeuralizedClustering
from neonxc.sparse import dense
from neonxc.targets import explained, part


@torch.no_grad()
def to_shap(relevance: Any, net: NeuralizedClustering, X: Any, target: Any = None) -> Any:
    """Relevance as a ``shap.Explanation``, for the plots of shap (beeswarm, bar, waterfall, heatmap).

    The values are the relevance, and the base value of each point is what no column has (:meth:`NEON.residual`),
    so that they sum to the logit, as shap's values and base value sum to a model's output. They are not Shapley
    values, and there is no background data: a base value is 0 where relevance conserves the logit.

    Parameters
    ----------
    relevance : array, frame or Tensor [N, d]
        Of :meth:`NEON.attribute` for X.
    net : NeuralizedClustering
        On points (raw columns, encoded tables, texts behind a vectorizer), without a feature network.
    X : array, frame, tensor, sparse matrix or sequence of str
        What was explained.
    target : int or sequence [N], optional
        As it was given to :meth:`NEON.attribute`; None: each point's own cluster. Relevance with a competitor is
        that of a contrast, and its base values are the rest of the target's logit.

    Returns
    -------
    shap.Explanation
        `values` and `data` [N, d] (of texts the counts of terms), `base_values` [N], `feature_names`.

    Raises
    ------
    ImportError
        shap is not installed: ``pip install "neonxc[shap]"``.
    ValueError
        A network with a feature network, or relevance of another shape.
    """
    try:
        from shap import Explanation
    except ImportError:
        raise ImportError('to_shap needs shap: pip install "neonxc[shap]"') from None
    carrier = net.carrier
    if not isinstance(carrier, Columns):
        raise ValueError(
            "to_shap is for points; this network has a feature network, and its inputs are no columns"
        )
    stored = carrier.stored(X).tensor
    values, names = as_array(relevance), list(carrier.units)
    if values.shape != (len(stored), len(names)):
        raise ValueError(f"relevance needs shape {(len(stored), len(names))}, got {values.shape}")
    logits = []
    for some in carrier.blocks(stored):
        x = dense(stored[some])
        of_clusters = net.head(x)
        own = net.head.assign(x)
        column, _ = explained(part(target, "target", some, len(stored)), own, x, net.head.n_clusters)
        logits.append(of_clusters.gather(1, column[:, None])[:, 0])
    base = as_array(torch.cat(logits)) - values.sum(axis=1)
    return Explanation(values, base_values=base, data=_data(X, stored), feature_names=names)


def _data(X: Any, stored: Any) -> np.ndarray:
    """What stands beside the values: the table as it was given, and of other things the head's columns."""
    return X.to_numpy() if hasattr(X, "iloc") and hasattr(X, "columns") else as_array(dense(stored))
