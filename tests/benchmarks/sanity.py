"""Do heatmaps of whole photos depend on the network and on the cluster, and what does a preset cost that does?

Crops of photos are clustered by the pooled features of EfficientNet-Lite0. The sanity checks shuffle its last
blocks one after the other. Pixel-flipping of the same crops says how faithful the heatmaps are.

    python -m tests.benchmarks.sanity [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse

import torch
from sklearn.cluster import KMeans
from torch import Tensor

from neonxc import NeuralizedClustering, neuralize
from neonxc.evaluation import BlurImputer, Sanity, compare, methods, sanity
from neonxc.inputs.groups import groups_of
from neonxc.lrp import presets
from neonxc.models import efficientnet_lite0
from tests.benchmarks.head_rules import photos
from tests.benchmarks.timing import Report, Table, progress

CLUSTERS, SIDE, PATCH = 4, 224, 28
STAGES = [f"blocks.{block}" for block in (15, 14, 13, 12)]
METHODS = {
    "NEON, LRP-γ (default)": methods.neon,
    "NEON, zero_gamma": methods.neon_with(presets.zero_gamma()),
    "gradient × input": methods.gradient_x_input,
    "gradient": methods.gradient,
}


def clustering(quick: bool) -> tuple[NeuralizedClustering, Tensor]:
    """Cluster the two outermost squares of each photo."""
    squares = [
        photo[:, :SIDE, part] for photo in photos(quick).values() for part in (slice(SIDE), slice(-SIDE, None))
    ]
    features = efficientnet_lite0(block=15, pool="avg")
    x = features.preprocess(torch.stack(squares))
    model = KMeans(min(CLUSTERS, len(x)), n_init=10, random_state=0).fit(features.points(x).numpy())
    return neuralize(model, x, features), x


def table(found: Sanity) -> Table:
    """Rows of the means."""
    return found.frame.rename_axis("method").reset_index().to_dict("records")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two photos")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report, (net, x) = Report("Sanity checks of heatmaps"), clustering(options.quick)
    progress("sanity: pixels")
    note = "Rank correlations: sizes for random centers and blocks. Means over the crops."
    found = sanity(net, x, METHODS, points=None, groups="pixels", stages=STAGES)
    report.table("Pixels", table(found), note)
    progress("sanity: patches")
    occlusion = {"occlusion": methods.pda(groups=groups_of(net, PATCH, x))}
    found = sanity(net, x, METHODS | occlusion, points=None, groups=PATCH, stages=STAGES)
    report.table(f"Patches of {PATCH} × {PATCH} pixels", table(found), note)
    progress("sanity: pixel-flipping")
    flipping = compare(net, x, METHODS, BlurImputer(SIDE / 8), groups=PATCH, points=None, steps=16)
    rows = [{key: row[key] for key in ("method", "AUC", "± AUC", "SRG", "± SRG")} for row in flipping.rows]
    report.table("Pixel-flipping", rows, f"Patches of {PATCH} × {PATCH} pixels, inserted into the blurred crop.")
    report.close(options.json)


if __name__ == "__main__":
    main()
