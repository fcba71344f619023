"""How LRP treats attention weights in vision transformers: by their Taylor rule, or as constants.

python -m tests.benchmarks.attention [--fashion FOLDER] [--only rules|marks] [--json FILE]

A small vision transformer is trained on MNIST, on which a rule is chosen, and one on Fashion-MNIST, for which the
figures are reported. k-means clusters the class tokens of images, and patches of other images are inserted and
removed in the order of their relevance.

Marks: more transformers learn to tell garments with a mark of 4 x 4 pixels from all classes. The mark fills
a patch, or lies across four of them. The mass of positive relevance on its pixels is measured, and patches are
inserted and removed by relevance and by occlusion: the decrease of the logit if one patch is zero.
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
SPOTS = {"a patch": (12, 12), "across four patches": (14, 14)}
CROSS = (torch.eye(SIDE) + torch.eye(SIDE).flip(0)).clamp(max=1)
MARKED = 10  # the label of garments with a mark
TRANSFORMERS = 2
MARK_TRAINED, MARKS_EXPLAINED = 6000, 80
HELD = {torch.softmax: Constant(), F.softmax: Constant()}
COMPOSITES = {
    f"{name}, attention {how}": Composite(rule, functions=functions)
    for name, rule in (("LRP-0", Epsilon(0.0)), ("LRP-γ, γ = 0.1", Gamma(0.1)), ("LRP-γ, γ = 0.25", Gamma(0.25)))
    for how, functions in (("by Taylor's rule", {}), ("constant", HELD))
}


MEANS = "Marks"
CHOSEN = ("LRP-γ, γ = 0.25, attention by Taylor's rule", "LRP-γ, γ = 0.25, attention constant")
"""The rules that are compared on marks."""


def trained(images: Tensor, labels: Tensor, epochs: int, classes: int = 10, seed: int = 0) -> nn.Module:
    """Train a vision transformer of four blocks on patches of 4 x 4 pixels."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(seed)
    network = VisionTransformer(28, SIDE, in_chans=1, num_classes=classes, embed_dim=64, depth=4, num_heads=4)
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


def marked(images: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Put a mark on half of the garments of a class, on and off the grid of patches in turns, with its own label.

    Returns
    -------
    images, labels, spots
        The spot of every image; -1 without a mark.
    """
    x = images.clone()
    y = labels.clone()
    spots = torch.full_like(labels, -1)
    rows = (labels == 3 * seed % 10).nonzero()[::2, 0]
    for i, (top, left) in enumerate(SPOTS.values()):
        chosen = rows[i :: len(SPOTS)]
        x[chosen, :, top : top + SIDE, left : left + SIDE] = CROSS
        y[chosen] = MARKED
        spots[chosen] = i
    return x, y, spots


def by_occlusion(net: Any, x: Tensor, target: Tensor) -> Tensor:
    """Return the decrease of the logit if a patch is zero, at every pixel of the patch."""
    relevance = torch.zeros_like(x)
    rows = torch.arange(len(x))
    with torch.no_grad():
        logit = net(x)[rows, target]
        for top in range(0, x.shape[2], SIDE):
            for left in range(0, x.shape[3], SIDE):
                without = x.clone()
                without[:, :, top : top + SIDE, left : left + SIDE] = 0
                decrease = logit - net(without)[rows, target]
                relevance[:, :, top : top + SIDE, left : left + SIDE] = decrease[:, None, None, None]
    return relevance / SIDE**2


def on_marks(images: Tensor, labels: Tensor, seed: int, epochs: int) -> Table:
    """Measure rules on garments with marks that a transformer did not see."""
    x, y, spots = marked(images[: MARK_TRAINED + 6000], labels[: MARK_TRAINED + 6000], seed)
    network = trained(x[:MARK_TRAINED], y[:MARK_TRAINED], epochs, classes=MARKED + 1, seed=seed)
    features = FeatureExtractor(network, "norm", pool="class")
    known = x[MARK_TRAINED - 3000 : MARK_TRAINED]
    points = features.points(known).detach()
    of_known = y[MARK_TRAINED - 3000 : MARK_TRAINED]
    centers = torch.stack([points[of_known == label].mean(0) for label in range(MARKED + 1)])
    net = neonxc.neuralize(centers, known[:500], features)

    rows = []
    for i, spot in enumerate(SPOTS):
        unseen = (spots[MARK_TRAINED:] == i).nonzero()[:MARKS_EXPLAINED, 0] + MARK_TRAINED
        test = x[unseen]
        found = torch.as_tensor(net.predict(test)) == MARKED
        test = test[found]
        target = torch.full((len(test),), MARKED)
        relevance = {"occlusion": by_occlusion(net, test, target)}
        for name in CHOSEN:
            relevance[name] = torch.as_tensor(NEON(net, COMPOSITES[name]).attribute(test, target=MARKED))
        for name, values in relevance.items():
            row: dict[str, Any] = {"transformer": seed, "mark": spot, "rule": name, "images": len(test)}
            row["mass"] = _mass(values, spot)
            for mode in ("insert", "remove"):
                row[mode] = pixel_flipping(net, test, values, ZeroImputer(), groups=SIDE, mode=mode).auc
            rows.append(row)
            progress(str(row))
    return rows


def _mass(relevance: Tensor, spot: str) -> float:
    """Return the share of positive relevance that is on the mark, in the mean over the images."""
    top, left = SPOTS[spot]
    positive = relevance.sum(1).clamp(min=0)
    on_mark = positive[:, top : top + SIDE, left : left + SIDE].sum((1, 2))
    return float((on_mark / positive.sum((1, 2))).mean())


def means_of_marks(rows: Table) -> Table:
    """Return means over the transformers, by the place of the mark and the rule."""
    keys = dict.fromkeys((row["mark"], row["rule"]) for row in rows)
    means = []
    for mark, rule in keys:
        same = [row for row in rows if (row["mark"], row["rule"]) == (mark, rule)]
        numbers = {name: sum(row[name] for row in same) / len(same) for name in ("mass", "insert", "remove")}
        means.append({"mark": mark, "rule": rule, **numbers, "transformers": len(same)})
    return means


def figures(report: dict[str, Any]) -> str:
    """Return a table of all rules, with a column per clustering, for the guide."""
    tables = {
        heading: {row["rule"]: row for row in table["rows"]}
        for heading, table in report["tables"].items()
        if "clusters" in heading
    }
    lines = ["| rule | " + " | ".join(tables) + " |", "|---" * (len(tables) + 1) + "|"]
    for rule in next(iter(tables.values())):
        cells = [
            f"{rows[rule]['insert']:.1f} ± {rows[rule]['± insert']:.1f} / {rows[rule]['remove']:.1f} "
            f"({rows[rule]['sum / logit, median']:.2f})"
            for rows in tables.values()
        ]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figures_of_marks(report: dict[str, Any]) -> str:
    """Return a table of the rules on marks for the guide."""
    lines = ["| the mark is on | rule | mass on the mark | insertion | removal |", "|---|---|---|---|---|"]
    for row in report["tables"][MEANS]["rows"]:
        cells = f"{row['mass']:.2f} | {row['insert']:.1f} | {row['remove']:.1f}"
        lines.append(f"| {row['mark']} | {row['rule']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Train, explain and flip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--only", choices=("rules", "marks"), help="measure one half, and keep what is in the file"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hide()
    report = Report("Attention of vision transformers")
    if options.only != "marks":
        _rules(report, options)
    if options.only != "rules":
        *_, (_, images, labels) = data(options.fashion)
        rows = [row for seed in range(TRANSFORMERS) for row in on_marks(images, labels, seed, options.epochs)]
        report.table(
            MEANS, means_of_marks(rows), f"Means over {TRANSFORMERS} transformers, on images they did not see."
        )
        report.table("Marks, every transformer", rows)
    report.close(options.json, keep=options.only is not None)


def _rules(report: Report, options: argparse.Namespace) -> None:
    """Compare all rules on clusters of images."""
    for name, images, labels in data(options.fashion):
        network = trained(images[:TRAINED], labels[:TRAINED], options.epochs)
        with torch.no_grad():
            right = (network(images[-2000:]).argmax(1) == labels[-2000:]).float().mean()
        for k in CLUSTERS:
            note = f"The transformer classifies {right:.1%} of held-out images."
            report.table(f"{name}, {k} clusters", measured(images, network, k), note)


if __name__ == "__main__":
    main()
