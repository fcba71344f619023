"""Relevance by what networks share that see the same rows: columns, words, or channels of images.

Two feature networks have no feature in common, but they have inputs in common. So relevance is led back to the
inputs of a feature network here, and not only to its features as in summaries.
"""

from __future__ import annotations

import pandas as pd
import torch

from neonxc.attribution.contrasts import mean_relevance
from neonxc.attribution.neon import NEON
from neonxc.common.types import Label
from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.inputs.backbone import Backbone
from neonxc.network import NeuralizedClustering


def own_relevance(net: NeuralizedClustering, X: Table) -> pd.Series:
    """Compute the mean relevance of rows for the clusters that they are assigned to, against all others.

    Parameters
    ----------
    net : NeuralizedClustering
        Network whose inputs the rows are.
    X : Table
        The rows.

    Returns
    -------
    Series
        Mean relevance, in units of the logit, by column or word, or by channel of inputs [N, C, ...].
    """
    if isinstance(net.inputs, Backbone):
        return _of_inputs(NEON(net).attribute(X.data), X)
    return mean_relevance(net, X)


def opposed_relevance(net: NeuralizedClustering, X: Table, target: Label, competitor: Label) -> pd.Series:
    """Compute the mean relevance of rows for one cluster and against another one, like :func:`own_relevance`."""
    if isinstance(net.inputs, Backbone):
        return _of_inputs(NEON(net).attribute(X.data, target, competitor), X)
    return mean_relevance(net, X, net.positions(target), net.positions(competitor))


def _of_inputs(relevance: object, X: Table) -> pd.Series:
    """Average relevance [N, C, ...] over rows, and sum it over locations."""
    values = torch.from_numpy(as_array(relevance)).double()
    locations = [*range(2, values.ndim)]
    if locations:
        values = values.sum(dim=locations)
    return pd.Series(values.mean(dim=0).numpy(), _names(X, values.shape[1], bool(locations)))


def _names(X: Table, n_inputs: int, are_channels: bool) -> list[str]:
    """Return the names of the columns or channels of a feature network's inputs."""
    if X.names is not None:
        return X.names
    kind = "channel " if are_channels else "x"
    return [f"{kind}{i}" for i in range(n_inputs)]
