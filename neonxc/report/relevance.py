"""Relevance of the columns for a sample of the points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neonxc.head.answer import Question
from neonxc.report.clustering import Clustering

SHOWN = 60  # maximum number of columns


@dataclass
class Relevance:
    """Relevance of the columns to the cluster of each point.

    Attributes
    ----------
    index : ndarray [m]
        Row numbers of the points in the inputs.
    values : ndarray [m, shown]
        Relevance of the shown columns, in units of the logit.
    logit : ndarray [m]
        Logit of the cluster of each point.
    rival : ndarray [m]
        Position of the cluster with the next largest logit.
    shown : ndarray
        Positions of the shown columns among all columns.
    """

    index: np.ndarray
    values: np.ndarray
    logit: np.ndarray
    rival: np.ndarray
    shown: np.ndarray


@torch.no_grad()
def measure(clustering: Clustering) -> Relevance:
    """Compute the relevance of a sample of the points to their own clusters."""
    net, index = clustering.net, clustering.sample
    own = torch.from_numpy(np.maximum(clustering.own[index], 0))
    found: list[np.ndarray] = []
    logits: list[Tensor] = []
    for x, answer in net.inputs.answered(clustering.inputs(index), Question(own), net.beta):
        found.append(net.inputs.of_units(x, answer).cpu().double().numpy())
        logits.append(answer.logits[:, : clustering.k].cpu().double())
    values, logit = np.concatenate(found), torch.cat(logits)
    column = own[:, None]
    mine = logit.gather(1, column)[:, 0].numpy()
    rival = logit.scatter(1, column, -torch.inf).argmax(1).numpy()
    shown = _shown(values, clustering.own[index])
    return Relevance(index, values[:, shown], mine, rival, shown)


def _shown(values: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Select the most relevant columns, about the same number for each cluster."""
    if values.shape[1] <= SHOWN:
        return np.arange(values.shape[1])
    clusters = np.unique(own[own >= 0])
    means = np.stack([np.abs(values[own == cluster].mean(0)) for cluster in clusters])
    best = np.argsort(-means, axis=1, kind="stable").T  # the strongest of every cluster come first
    different = list(dict.fromkeys(best.ravel().tolist()))
    return np.sort(different[:SHOWN])
