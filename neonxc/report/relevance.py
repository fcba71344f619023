"""Relevance of the columns for a sample of the points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from neonxc.head.answer import Question
from neonxc.report.clustering import Clustering

SHOWN = 60  # maximum number of columns


@dataclass
class Relevance:
    """Relevance of the columns to the cluster of each point of a sample.

    Attributes
    ----------
    index : ndarray [m]
        Row numbers of the points in the inputs.
    positions : ndarray [m]
        Position of the cluster of each point; -1 for noise.
    values : ndarray [m, shown]
        Relevance of the shown columns, in units of the logit.
    logit : ndarray [m]
        Logit of the cluster of each point.
    rival : ndarray [m]
        Position of the cluster with the next largest logit.
    shown : ndarray
        Positions of the shown columns among all columns.
    table : DataFrame [m, shown]
        The shown columns themselves.
    """

    index: np.ndarray
    positions: np.ndarray
    values: np.ndarray
    logit: np.ndarray
    rival: np.ndarray
    shown: np.ndarray
    table: pd.DataFrame

    @cached_property
    def shares(self) -> np.ndarray:
        """Relevance as a share of the logit, [m, shown]."""
        return self.values / np.maximum(np.abs(self.logit), 1e-300)[:, None]

    @cached_property
    def shown_positions(self) -> dict[int, int]:
        """Position among the shown columns, by position among all columns."""
        return {column: i for i, column in enumerate(self.shown.tolist())}


@torch.no_grad()
def measure(clustering: Clustering) -> Relevance:
    """Compute the relevance of a sample of the points to their own clusters."""
    net, index = clustering.net, clustering.sample
    positions = clustering.positions[index]
    target = torch.from_numpy(positions.clip(0))
    relevance, logits = [], []
    for x, answer in net.inputs.answered(clustering.inputs(index), Question(target), net.beta):
        relevance.append(net.inputs.of_units(x, answer).cpu().double())
        logits.append(answer.logits[:, : clustering.k].cpu().double())
    values, logit = torch.cat(relevance).numpy(), torch.cat(logits)
    of_target = logit.gather(1, target[:, None])[:, 0].numpy()
    rival = logit.scatter(1, target[:, None], -torch.inf).argmax(1).numpy()
    shown = _shown(values, positions)
    return Relevance(index, positions, values[:, shown], of_target, rival, shown, clustering.values(index, shown))


def _shown(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Select the most relevant columns, about the same number for each cluster."""
    if values.shape[1] <= SHOWN:
        return np.arange(values.shape[1])
    clusters = np.unique(positions[positions >= 0])
    means = np.stack([np.abs(values[positions == cluster].mean(0)) for cluster in clusters])
    best = np.argsort(-means, axis=1, kind="stable").T  # the strongest of every cluster come first
    return np.sort(pd.unique(best.ravel())[:SHOWN])
