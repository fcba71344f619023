"""Relevance of a sample of the points, for the columns that a report has room for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution import NEON
from neonxc.carriers import rows
from neonxc.report.subject import Subject

SHOWN = 60  # columns at most


@dataclass
class Relevance:
    """Relevance of the points' own clusters.

    Attributes
    ----------
    index : ndarray [m]
        The points: rows of the inputs.
    values : ndarray [m, shown]
        In units of the logit.
    logit : ndarray [m]
        Of each point's own cluster.
    rival : ndarray [m]
        Its nearest other cluster.
    shown : ndarray
        Positions of the columns that are shown, among all units.
    """

    index: np.ndarray
    values: np.ndarray
    logit: np.ndarray
    rival: np.ndarray
    shown: np.ndarray


@torch.no_grad()
def measure(subject: Subject) -> Relevance:
    """Relevance of a sample of the points for their own clusters."""
    net, index = subject.net, subject.sample
    carrier, neon = net.carrier, NEON(net)
    inputs = subject.inputs(index)
    own = torch.from_numpy(np.maximum(subject.own[index], 0))
    found: list[np.ndarray] = []
    logits: list[Tensor] = []
    first = 0
    for x in carrier.parts(inputs):
        points = rows(carrier.features(x))
        columns = own[first : first + len(points)].to(points.device)
        first += len(points)
        found.append(
            carrier.of_units(x, points, neon.decisions.of_columns(points, columns)).cpu().double().numpy()
        )
        logits += [net.head(points[some]).cpu().double() for some in carrier.of_points(points)]
    values, logit = np.concatenate(found), torch.cat(logits)
    column = own[:, None]
    mine = logit.gather(1, column)[:, 0].numpy()
    rival = logit.scatter(1, column, -torch.inf).argmax(1).numpy()
    shown = _shown(values, subject.own[index])
    return Relevance(index, values[:, shown], mine, rival, shown)


def _shown(values: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The columns that matter: of every cluster the same number of those that say most for or against it."""
    if values.shape[1] <= SHOWN:
        return np.arange(values.shape[1])
    clusters = np.unique(own[own >= 0])
    means = np.stack([np.abs(values[own == cluster].mean(0)) for cluster in clusters])
    best = np.argsort(-means, axis=1, kind="stable").T  # the strongest of every cluster come first
    different = list(dict.fromkeys(best.ravel().tolist()))
    return np.sort(different[:SHOWN])
