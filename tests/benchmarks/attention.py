"""How LRP treats attention weights in vision transformers: by their Taylor rule, or as constants.

python -m tests.benchmarks.attention [--fashion FOLDER] [--json FILE]

A small vision transformer is trained on MNIST, on which a rule is chosen, and one on Fashion-MNIST, for which the
figures are reported. k-means clusters the class tokens of images, and patches of other images are inserted and
removed in the order of their relevance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn

import neonxc
from neonxc import NEON
from neonxc.common.progress import hide
from neonxc.evaluation import ZeroImputer, methods, pixel_flipping
from neonxc.lrp import Composite, Constant, Epsilon, Gamma
from neonxc.models import FeatureExtractor
from tests.benchmarks.timing import Report, Table, progress

SIDE = 4  # of a patch, in pixels
CLUSTERS = 10, 30
TRAINED, EXPLAINED = 20_000, 200
HELD = {torch.softmax: Constant(), F.softmax: Constant()}
COMPOSITES = {
    f"{name}, attention {how}": Composite(rule, functions=functions)
    for name, rule in (("LRP-0", Epsilon(0.0)), ("LRP-γ, γ = 0.1", Gamma(0.1)), ("LRP-γ, γ = 0.25", Gamma(0.25)))
    for how, functions in (("by Taylor's rule", {}), ("constant", HELD))
}


def trained(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Train a vision transformer of four blocks on patches of 4 x 4 pixels."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    network = VisionTransformer(28, SIDE, in_chans=1, num_classes=10, embed_dim=64, depth=4, num_heads=4)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs * (len(images) // 128 + 1))
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(128):
            loss = F.cross_entropy(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def data(fashion: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Return the name, images and labels of both halves of the benchmark."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))
    from flipping_deep import images_of

    for name in ("MNIST", "Fashion-MNIST"):
        images, labels = images_of(name, fashion, "train")
        yield name, images, torch.as_tensor(labels).long()


def measured(images: Tensor, network: nn.Module, k: int) -> Table:
    """Return the areas of insertion and removal, the sum of relevance over the logit, and the time of a rule."""
    features = FeatureExtractor(network, "norm", pool="class")
    kmeans = KMeans(k, n_init=5, random_state=0).fit(features.points(images[TRAINED : TRAINED + 5000]))
    x = images[-EXPLAINED:]
    net = neonxc.neuralize(kmeans, x, features)
    target = torch.as_tensor(net.predict(x))
    relevance = {"gradient × input": lambda: methods.gradient_x_input(net, x, target)}
    for name, composite in COMPOSITES.items():
        relevance[name] = lambda composite=composite: NEON(net, composite).attribute(x)
    rows = []
    for name, explain in relevance.items():
        start = time.perf_counter()
        found = torch.as_tensor(explain())
        seconds = time.perf_counter() - start
        logits = net(x).detach()[torch.arange(len(x)), target]
        ratio = (found.flatten(1).sum(1) / logits).double()
        row = {"rule": name}
        for mode in ("insert", "remove"):
            flipped = pixel_flipping(net, x, found, ZeroImputer(), groups=SIDE, mode=mode)
            row |= {mode: flipped.auc, f"± {mode}": flipped.auc_stderr}
        rows.append({**row, "sum / logit, median": float(ratio.median()), "seconds": seconds})
        progress(str(rows[-1]))
    return rows


def figures(report: dict[str, Any]) -> str:
    """Return a table of all rules, with a column per clustering, for the guide."""
    tables = {heading: {row["rule"]: row for row in table["rows"]} for heading, table in report["tables"].items()}
    lines = ["| rule | " + " | ".join(tables) + " |", "|---" * (len(tables) + 1) + "|"]
    for rule in next(iter(tables.values())):
        cells = [
            f"{rows[rule]['insert']:.1f} ± {rows[rule]['± insert']:.1f} / {rows[rule]['remove']:.1f} "
            f"({rows[rule]['sum / logit, median']:.2f})"
            for rows in tables.values()
        ]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Train, explain and flip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hide()
    report = Report("Attention of vision transformers")
    for name, images, labels in data(options.fashion):
        network = trained(images[:TRAINED], labels[:TRAINED], options.epochs)
        with torch.no_grad():
            right = (network(images[-2000:]).argmax(1) == labels[-2000:]).float().mean()
        for k in CLUSTERS:
            note = f"The transformer classifies {right:.1%} of held-out images."
            report.table(f"{name}, {k} clusters", measured(images, network, k), note)
    report.close(options.json)


if __name__ == "__main__":
    main()
