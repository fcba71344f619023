"""Do heatmaps depend on the network and on the cluster, and what does a preset cost that does?

Crops of photos are clustered by the pooled features of EfficientNet-Lite0, and garments by those of small VGGs,
trained with and without labels, and with random weights. The sanity checks shuffle the last blocks one after the
other, three times. The pixel-flipping of the same inputs says how faithful the heatmaps are. Nothing is chosen by
these figures; the first half of the garments and the second one have tables of their own.

    apt-get install dataset-fashion-mnist
    python -m tests.benchmarks.sanity [--quick] [--only NAME] [--networks FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from neonxc import NeuralizedClustering, neuralize
from neonxc.evaluation import BlurImputer, Sanity, compare, methods, sanity
from neonxc.inputs.groups import groups_of
from neonxc.lrp import presets
from neonxc.models import efficientnet_lite0
from tests.benchmarks.deep_rows import small_networks
from tests.benchmarks.head_rules import photos
from tests.benchmarks.timing import Report, Table, progress

SIDE = 224


class Task(NamedTuple):
    """A clustering, inputs that are explained, the blocks to shuffle, and the side of patches in pixels."""

    name: str
    net: NeuralizedClustering
    x: Tensor
    blocks: list[str]
    patch: int


NOTE = "Rank correlations: sizes for random centers and blocks. Means and standard errors over inputs and draws."
SHOWN = "method", "AUC", "removal", "SRG", "± SRG"
METHODS = {
    "NEON, LRP-γ (default)": methods.neon,
    "NEON, zero_gamma": methods.neon_with(presets.zero_gamma()),
    "gradient × input": methods.gradient_x_input,
    "gradient": methods.gradient,
}


def tasks(fashion: Path, folder: Path, quick: bool, only: str, kinds: int) -> Iterator[Task]:
    """Cluster the two outermost squares of each photo, and garments."""
    if "EfficientNet-Lite0".startswith(only):
        yield _of_photos(quick)
    if "VGG".startswith(only):
        yield from _of_garments(fashion, folder, quick, kinds)


def _of_photos(quick: bool) -> Task:
    squares = [
        photo[:, :SIDE, part] for photo in photos(quick).values() for part in (slice(SIDE), slice(-SIDE, None))
    ]
    features = efficientnet_lite0(block=15, pool="avg")
    x = features.preprocess(torch.stack(squares))
    model = KMeans(min(4, len(x)), n_init=10, random_state=0).fit(features.points(x).numpy())
    blocks = [f"blocks.{block}" for block in (15, 14, 13, 12)]
    return Task("EfficientNet-Lite0", neuralize(model, x, features), x, blocks, 28)


def _of_garments(fashion: Path, folder: Path, quick: bool, kinds: int) -> Iterator[Task]:
    garments, trained = small_networks("Fashion-MNIST", fashion, folder, kinds)
    networks = [(kind, vgg) for kind, vgg, _ in trained]
    networks.append(("random weights", _randomized(networks[0][1], garments[:500])))
    for kind, vgg in networks:
        encoder = vgg[:-1]
        known = garments[:3000]
        unseen = garments[3000 : 3004 if quick else 3032]
        with torch.no_grad():
            model = KMeans(10, n_init=3, random_state=0).fit(encoder(known).numpy())
        yield Task(
            f"VGG, {kind}",
            neuralize(model, known[:500], encoder),
            unseen,
            ["features.block3", "features.block2", "features.block1"],
            4,
        )


def _randomized(network: nn.Sequential, images: Tensor) -> nn.Sequential:
    """Return a copy of a network with the weights that it has before training, normalized for some images."""
    torch.manual_seed(0)
    random: nn.Sequential = copy.deepcopy(network)
    for module in random.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    with torch.no_grad():
        random.train()(images)
    return random.eval()


def table(found: Sanity) -> Table:
    """Rows of the means, with errors over inputs and draws."""
    rows = []
    for line in found.to_markdown().splitlines():
        cells = [cell.strip().replace("\\_", "_") for cell in line.strip("|").split("|")]
        if line.startswith("|") and not line.startswith("|--"):
            rows.append(cells)
    header, *values = rows
    return [dict(zip(header, row, strict=True)) for row in values]


def draws(found: Sanity) -> Table:
    """Rows of how far one draw is from the mean of three, at most."""
    return [
        {"method": name, **{check: float((per - per.mean()).abs().max()) for check, per in of.items()}}
        for name, of in found.per_draw.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", help="the network whose name begins so; the rest of the file is kept"
    )
    parser.add_argument("--kinds", type=int, default=2, help="1: without the VGG that is trained without labels")
    parser.add_argument("--quick", action="store_true", help="two photos")
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--networks", type=Path, default=Path("networks"), help="where trained networks are kept")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    options.networks.mkdir(exist_ok=True)
    report = Report("Sanity checks of heatmaps")
    for name, net, x, blocks, patch in tasks(
        options.fashion, options.networks, options.quick, options.only, options.kinds
    ):
        progress(name)
        occlusion = {"occlusion": methods.pda(groups=groups_of(net, patch, x))}
        found = sanity(net, x, METHODS | occlusion, points=None, groups=patch, stages=blocks)
        report.table(f"{name}, patches of {patch} × {patch} pixels", table(found), NOTE)
        report.table(f"{name}, one draw and the mean of three", draws(found), "The largest difference.")
        for half, rows in (("first half", slice(0, None, 2)), ("second half", slice(1, None, 2))):
            found = sanity(net, x[rows], {"NEON": methods.neon}, points=None, groups=patch, stages=blocks)
            report.table(f"{name}, {half} of the inputs", table(found), NOTE)
        missing = BlurImputer(x.shape[-1] / 8)
        flipping = compare(net, x, METHODS, missing, groups=patch, points=None, steps=16)
        rows = flipping.to_frame().reset_index()[list(SHOWN)].to_dict("records")
        report.table(f"{name}, pixel-flipping", rows, "The same patches, inserted into the blurred input.")
    report.close(options.json, keep=bool(options.only))


if __name__ == "__main__":
    main()
