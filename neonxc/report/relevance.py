"""Relevance of the columns for a sample of the points.

For column i, and a point x of a cluster or of noise:

    R_i(x)       relevance of the column to the logit of the cluster, or of noise
    share        R_i(x) / sum_j |R_j(x)|
    of cluster   M_i / sum_j |M_j|, with the mean M_i of R_i(x) over the points of the cluster
    shown        the columns with the largest |M_i| of any cluster, about the same number for each
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from neonxc.attribution.typical import Typicality
from neonxc.common.numbers import decimals_by, shares
from neonxc.head.answer import Question
from neonxc.report.clustered import ClusteredData

SHOWN = 60  # maximum number of columns


@dataclass
class Relevance:
    """Relevance of the columns to the cluster of each point of a sample; for a point of noise, to noise.

    Attributes
    ----------
    index : ndarray [m]
        Row numbers of the points in the inputs.
    positions : ndarray [m]
        Position of the cluster of each point; -1 for noise.
    values : ndarray [m, shown]
        Relevance of the shown columns, in units of the logit.
    total : ndarray [m]
        Sum of the absolute relevance of all columns.
    residual : ndarray [m]
        Difference between the logit and the sum of the relevance of all columns.
    of_clusters : ndarray [K, shown]
        Mean relevance over the points of every output of the network (noise is the last one), as a share of that
        of all columns; 0 without points.
    logit : ndarray [m]
        Logit of the cluster of each point, or of noise.
    competitor : ndarray [m]
        Position of the cluster with the next largest logit.
    shown : ndarray
        Positions of the shown columns among all columns.
    table : DataFrame [m, shown]
        The shown columns themselves.
    typicality : Typicality
        Distances of the points from the middle of their clusters.
    weight : ndarray [m] or None
        Weights of the points.
    """

    index: np.ndarray
    positions: np.ndarray
    values: np.ndarray
    total: np.ndarray
    residual: np.ndarray
    of_clusters: np.ndarray
    logit: np.ndarray
    competitor: np.ndarray
    shown: np.ndarray
    table: pd.DataFrame
    typicality: Typicality
    weight: np.ndarray | None = None

    def mean(self, members: np.ndarray) -> np.ndarray:
        """Mean relevance [shown] of the points that are `members`, a mask [m]."""
        return _mean(self.values[members], None if self.weight is None else self.weight[members])

    def typical(self, cluster: int, n: int) -> np.ndarray:
        """Return the positions of the `n` most typical points of a cluster, the most typical first."""
        return self.typicality.order(self.positions, self.logit, cluster, n, self.weight)

    @cached_property
    def shares(self) -> np.ndarray:
        """Relevance as a share of that of all columns, [m, shown]."""
        return self.values / np.maximum(self.total, 1e-300)[:, None]

    @cached_property
    def decimals(self) -> list[int]:
        """Number of decimals of the shown columns: 2 for a pressure of 1013.25 that hardly varies."""
        return [_decimals(values) for _, values in self.table.items()]

    @cached_property
    def shown_positions(self) -> dict[int, int]:
        """Position among the shown columns, by position among all columns."""
        return {column: i for i, column in enumerate(self.shown.tolist())}


@torch.no_grad()
def measure(clustering: ClusteredData) -> Relevance:
    """Compute the relevance of a sample of the points to their own clusters."""
    net = clustering.net
    index = clustering.sample
    positions = clustering.positions[index]
    target = torch.arange(len(net.classes_))[positions]  # -1 is the last output, that of noise
    relevance = []
    logits = []
    typicality = Typicality(net.head)
    for x, answer in net.inputs.answered(clustering.read(index), Question(target), net.beta):
        relevance.append(net.inputs.of_units(x, answer).cpu().double())
        logits.append(answer.logits.cpu().double())
        typicality.add(answer)
    values = torch.cat(relevance).numpy()
    logit = torch.cat(logits)
    of_target = logit.gather(1, target[:, None])[:, 0].numpy()
    competitor = logit.scatter(1, target[:, None], -torch.inf)[:, : clustering.k].argmax(1).numpy()
    total = np.concatenate([np.abs(part).sum(1) for part in np.array_split(values, 64)])  # within little memory
    residual = of_target - np.concatenate([part.sum(1) for part in np.array_split(values, 64)])
    means = np.zeros((len(net.classes_), values.shape[1]))
    for cluster in np.unique(positions):
        members = positions == cluster
        means[cluster] = _mean(values[members], clustering.weights_at(index[members]))
    shown = _shown(means)
    return Relevance(
        index,
        positions,
        values[:, shown],
        total,
        residual,
        shares(means)[:, shown],
        of_target,
        competitor,
        shown,
        clustering.values(index, shown),
        typicality,
        clustering.weights_at(index),
    )


def _decimals(values: pd.Series) -> int:
    """Return how many decimals the numbers of a column need at least; 0 for categories."""
    known = values.dropna()
    if values.dtype == bool or not pd.api.types.is_numeric_dtype(values) or known.empty:
        return 0
    with np.errstate(invalid="ignore"):  # infinite values have no standard deviation
        return decimals_by(float(known.to_numpy(dtype=np.float64).std()))


def _mean(values: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Mean [d] of rows [m, d], which may have weights [m]."""
    if weight is None:
        return values.mean(0)
    return np.average(values, axis=0, weights=weight)


def _shown(means: np.ndarray) -> np.ndarray:
    """Select the most relevant columns, about the same number for each cluster, by mean relevance [k, columns]."""
    if means.shape[1] <= SHOWN:
        return np.arange(means.shape[1])
    means = np.abs(means[means.any(axis=1)])
    best = np.argsort(-means, axis=1, kind="stable").T  # the strongest of every cluster come first
    return np.sort(pd.unique(best.ravel())[:SHOWN])
