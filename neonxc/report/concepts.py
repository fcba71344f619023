"""The concepts of a report: a picture per cluster of what the network saw."""

from __future__ import annotations

import numpy as np
from PIL import Image

from neonxc.plot import concepts as concepts_of
from neonxc.report.clustered import ClusteredData
from neonxc.report.pictures import drawn
from neonxc.subspaces.concepts import concepts

INPUTS = 100  # images or texts that the concepts are found on
CLUSTERS = 8  # that are drawn


def pictures(clustering: ClusteredData, names: list[str]) -> list[tuple[str, Image.Image]]:
    """Draw the concepts of clusters, by the names of the clusters; clusters without an input are left out."""
    X = clustering.table
    rows = np.linspace(0, len(X) - 1, min(INPUTS, len(X))).astype(int).tolist()
    chosen = X.take(rows).data
    net = clustering.whole
    of_net = concepts(net, chosen)
    return [
        (names[int(net.positions(label))], drawn(concepts_of(of_net, net, chosen, label)))
        for label in of_net.classes[:CLUSTERS]
    ]
