"""Interpretability of clusters: how far the points of a cluster have one value of interest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from neonxc.data.inputs import as_labels


def interpretability(labels: Any, foi: Any) -> float:
    """Interpretability of a clustering: the least share that the main value of interest has in a cluster.

    Saisubramanian, Galhotra and Zilberstein, "Balancing the tradeoff between clustering value and
    interpretability", 2020, Definition 1.

    Parameters
    ----------
    labels : array-like [n]
        Clusters; points of label -1 (noise) are left out.
    foi : array-like [n]
        Value of interest of every point: numbers or names. A missing one is a value of its own.

    Returns
    -------
    float
        In (0, 1]; 1 where all points of each cluster have one value.

    Raises
    ------
    ValueError
        Not one label and one value for each point.

    Examples
    --------
    >>> from neonxc.evaluation import interpretability
    >>> interpretability([0, 0, 0, 1, 1], ["cook", "cook", "nurse", "nurse", "nurse"])
    0.6666666666666666
    """
    return float(interpretabilities(labels, foi).min())


def interpretabilities(labels: Any, foi: Any) -> np.ndarray:
    """Share of the most frequent value of interest in each cluster, [K], in the order of the sorted labels.

    Parameters and errors are those of :func:`interpretability`, which is the least of them.
    """
    values = foi.cpu().numpy() if isinstance(foi, Tensor) else foi
    codes, _ = pd.factorize(pd.Series(values), use_na_sentinel=False)
    positions, _, there = as_labels(labels, len(codes), torch.device("cpu"))
    counts = contingency_matrix(positions[there], codes[there])
    return np.asarray(counts.max(1) / counts.sum(1))
