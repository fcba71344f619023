"""Time of heatmaps of deep features, compared with a forward pass, plain gradients, zennit and captum.

python -m tests.benchmarks.heatmaps [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

import torch
from captum.attr import LRP as CaptumLRP
from captum.attr._utils.lrp_rules import GammaRule
from skimage import data
from sklearn.cluster import KMeans
from torch import Tensor, nn
from zennit.canonizers import AttributeCanonizer, SequentialMergeBatchNorm
from zennit.composites import LayerMapComposite, layer_map_base
from zennit.layer import Sum
from zennit.rules import Gamma as ZennitGamma
from zennit.types import Linear

from neonxc import NEON, NeuralizedClustering, neuralize
from neonxc.head.answer import Answer, rows
from neonxc.lrp import LRP, Composite, Gamma, presets
from neonxc.models import backbone, efficientnet_lite0, to_tensor
from neonxc.models.backbones.architectures import InvertedResidual
from tests.benchmarks.timing import ROUNDS, Report, Table, race, results

CLUSTERS = 4
GAMMA = 0.25
GRADIENT = "plain gradient"
OURS = "neonxc, LRP-gamma"
PAPER = "neonxc, the paper's preset"


class Residuals(AttributeCanonizer):
    """Replace the sums in inverted residual blocks by modules, because zennit only sees modules."""

    def __init__(self) -> None:
        super().__init__(self._attributes)

    @staticmethod
    def _attributes(name: str, module: nn.Module) -> dict | None:
        if not (isinstance(module, InvertedResidual) and module.residual):
            return None
        return {"forward": Residuals._forward.__get__(module), "canonizer_sum": Sum()}

    @staticmethod
    def _forward(self: InvertedResidual, features: Tensor) -> Tensor:
        out = self.project(self.depthwise(self.expand(features)))
        return self.canonizer_sum(torch.stack([features, out], dim=-1))


class ExactMerge(SequentialMergeBatchNorm):
    """Make merged BatchNorms the identity: zennit's keep their eps, which is 0.05% per layer in this network."""

    @staticmethod
    def merge_batch_norm(modules: tuple[nn.Module, ...], batch_norm: nn.Module) -> None:
        SequentialMergeBatchNorm.merge_batch_norm(modules, batch_norm)
        batch_norm.running_var.data -= batch_norm.eps


def zennit_composite() -> LayerMapComposite:
    """Return LRP-gamma for all linear layers, as in neonxc's default."""
    rules = [*layer_map_base(), (Linear, ZennitGamma(GAMMA))]
    return LayerMapComposite(rules, canonizers=[ExactMerge(), Residuals()])


def zennit_relevance(net: nn.Module, x: Tensor, relevance: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
    """Propagate several relevances at the output to the input after one forward pass."""
    leaf = x.clone().requires_grad_()
    with zennit_composite().context(net) as modified:
        output = modified(leaf)
        starts = relevance(output.detach())
        return [torch.autograd.grad(output, leaf, start, retain_graph=True)[0] for start in starts]


def multipliers(net: NeuralizedClustering, features: Tensor) -> list[Tensor]:
    """Return the starting point of each cluster's backward pass (relevance / features)."""
    points = rows(features)
    own = net.head.assign(points)
    m = Answer(net.head, points, own, beta=net.beta).multiplier().to(features.dtype)
    parts = [m * (own == cluster)[:, None] for cluster in range(CLUSTERS)]
    return [part.reshape(len(features), *features.shape[2:], -1).movedim(-1, 1) for part in parts]


def gradients(net: NeuralizedClustering, x: Tensor) -> Tensor:
    """Compute the gradients of all clusters' starting points after one forward pass."""
    leaf = x.clone().requires_grad_()
    output = net.features(leaf)
    starts = multipliers(net, output.detach())
    return torch.cat([torch.autograd.grad(output, leaf, m, retain_graph=True)[0] for m in starts])


def clusters_of_a_photo(rounds: int) -> tuple[Table, str]:
    features = efficientnet_lite0(10, normalize=True)
    raw = efficientnet_lite0(10)
    x = features.preprocess(to_tensor(data.chelsea()[:, 75:375], 320))[None]
    model = KMeans(CLUSTERS, n_init=10, random_state=0).fit(features.points(x).numpy())
    net = neuralize(model, x, features=features)
    neon = NEON(net, Composite(Gamma(GAMMA)))

    def zennit() -> Tensor:
        def relevance(a: Tensor) -> list[Tensor]:
            unit = nn.functional.normalize(a, dim=1)
            return [unit * m for m in multipliers(net, unit)]

        return torch.cat(zennit_relevance(raw, x, relevance)).sum(dim=1)[None]

    contestants = {
        "forward pass": torch.no_grad()(lambda: features(x)),
        GRADIENT: lambda: gradients(net, x),
        OURS: lambda: neon.heatmaps(x),
        "zennit, Gamma": zennit,
    }
    table = results(race(contestants, rounds), base=GRADIENT)
    table[3]["relative difference to neonxc"] = distance(zennit(), neon.heatmaps(x))
    return [{**dict.fromkeys(table[3], ""), **row} for row in table], captum_on(raw, x)


def captum_on(net: nn.Module, x: Tensor) -> str:
    try:
        CaptumLRP(net).attribute(x, target=(0, 0, 0))
    except (TypeError, AssertionError, RuntimeError, NotImplementedError) as error:
        return f"captum's LRP does not take this network: {type(error).__name__}: {shorten(str(error), 130)}"
    return "captum's LRP takes this network"


def vgg(rounds: int) -> Table:
    net = backbone("vgg16", layer="", weights=None).net
    x = torch.rand(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    target = net(x).argmax(dim=1)
    chosen = nn.functional.one_hot(target, 1000).float()
    ours = LRP(net, Composite(Gamma(GAMMA)))
    paper = LRP(net, presets.paper())
    for module in net.modules():  # captum stores its rules on the modules
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.rule = GammaRule(gamma=GAMMA)
        elif isinstance(module, nn.ReLU):
            module.inplace = False

    def gradient() -> Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(net(leaf), leaf, chosen)[0]

    contestants = {
        "forward pass": torch.no_grad()(lambda: net(x)),
        GRADIENT: gradient,
        OURS: lambda: ours.attribute(x, target),
        PAPER: lambda: paper.attribute(x, target),
        "zennit, Gamma": lambda: zennit_relevance(net, x, lambda logits: [logits * chosen])[0],
        "captum, GammaRule": lambda: CaptumLRP(net).attribute(x, target=target),
    }
    found = {name: run().detach() for name, run in contestants.items() if name not in ("forward pass", GRADIENT)}
    peaks = {name: peak_memory(run) for name, run in contestants.items()}
    table = results(race(contestants, rounds), base=GRADIENT)
    for row in table:
        known = row["what"] in found and row["what"] not in (OURS, PAPER)
        row["relative difference to neonxc"] = distance(found[row["what"]], found[OURS]) if known else ""
        row["peak MB"] = peaks[row["what"]]
    return table


def peak_memory(run: Callable[[], object]) -> float | str:
    """Return the megabytes that a call adds to the peak memory of the process (Linux only)."""
    if not os.path.exists("/proc/self/clear_refs"):
        return ""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that earlier calls have freed must not be reused
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def distance(a: Tensor, b: Tensor) -> float:
    """‖a - b‖ / ‖b‖."""
    return float((a - b).norm() / b.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    report = Report("Heatmaps")
    rounds = 3 if options.quick else ROUNDS
    table, note = clusters_of_a_photo(rounds)
    heading = f"{CLUSTERS} clusters of a photo, EfficientNet-Lite0 block 10, 320 x 320"
    report.table(heading, table, f"Ratio: time over that of {CLUSTERS} plain gradients; one forward pass. {note}")
    heading = "One class of 4 images each, VGG-16 with random weights, 224 x 224"
    report.table(heading, vgg(rounds), "Ratio: time over that of one plain gradient.")
    report.close(options.json)


if __name__ == "__main__":
    main()
