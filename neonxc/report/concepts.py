"""The concepts of a report: a picture per cluster of what the network saw."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from neonxc.plot import concepts as drawn
from neonxc.report.clustered import ClusteredData
from neonxc.subspaces.concepts import concepts

INPUTS = 100  # images or texts that the concepts are found on
CLUSTERS = 8  # that are drawn


def pictures(clustering: ClusteredData, names: list[str]) -> list[tuple[str, Image.Image]]:
    """Draw the concepts of clusters, by the names of the clusters; clusters without an input are left out."""
    X = clustering.table
    rows = np.linspace(0, len(X) - 1, min(INPUTS, len(X))).astype(int).tolist()
    chosen = X.take(rows).data
    net = clustering.whole
    found = concepts(net, chosen)
    return [
        (names[int(net.positions(label))], _picture(drawn(found, net, chosen, label)))
        for label in found.classes[:CLUSTERS]
    ]


def _picture(figure: Figure) -> Image.Image:
    png = BytesIO()
    figure.savefig(png, format="png", dpi=130)
    return Image.open(png).convert("RGB")
