"""How LRP treats attention weights in vision transformers: by their Taylor rule, or as constants.

python -m tests.benchmarks.attention [--only clusters|marks] [--fashion FOLDER] [--json FILE]

clusters  A small vision transformer is trained on MNIST, on which a rule is chosen, and one on Fashion-MNIST, for
          which the figures are reported. k-means clusters the class tokens of images, and patches of other images
          are inserted and removed in the order of their relevance.
marks     Three transformers are trained further on images of which one in eleven has a cross of 4 x 4 pixels at a
          random place; these are a class of their own. The cross is within a patch in one run, and across the
          corner of four patches in another. Held-out images of the cluster of the crosses are explained, and
          others without a cross. Nothing is chosen on them. Means and standard errors over images of

    mass       share of the positive relevance that is on the cross
    insertion  area under the curve if the most relevant groups of 4 x 4 pixels come in first (larger is better)
    removal    area if they go out first (smaller is better)
    occlusion  rank correlation, over the groups, of relevance with the decrease of the logit without a group
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from sklearn.cluster import KMeans
from torch import Tensor, nn

import neonxc
from neonxc import NEON, NeuralizedClustering
from neonxc.common.progress import hide
from neonxc.evaluation import ZeroImputer, methods, pixel_flipping
from neonxc.inputs.groups import groups_of
from neonxc.lrp import Composite, Constant, Epsilon, Gamma
from neonxc.models import FeatureExtractor
from tests.benchmarks.concepts import CLASS, CROSS
from tests.benchmarks.pooled import by_patch
from tests.benchmarks.timing import Report, Table, progress

SIDE = 4  # of a patch, of a group of pixels and of a cross, in pixels
CLUSTERS = 10, 30
TRAINED = 20_000
EXPLAINED = 200
HELD = {torch.softmax: Constant(), F.softmax: Constant()}
COMPOSITES = {
    f"{name}, attention {how}": Composite(rule, functions=functions)
    for name, rule in (("LRP-0", Epsilon(0.0)), ("LRP-γ, γ = 0.1", Gamma(0.1)), ("LRP-γ, γ = 0.25", Gamma(0.25)))
    for how, functions in (("by Taylor's rule", {}), ("constant", HELD))
}
TAYLOR, CONSTANT = (f"LRP-γ, γ = 0.25, attention {how}" for how in ("by Taylor's rule", "constant"))
DIFFERENCE = "constant minus Taylor's rule"
MEASURES = "mass", "insertion", "removal", "occlusion"
PLACES = "within a patch", "across four patches"
WITH = "with a cross"
WITHOUT = "without"
IN_ELEVEN = 11  # one image in so many has a cross
K_CROSSES = 16
HELD_OUT = 250  # images with a cross, and as many without
# share of the crosses to learn, and the number of epochs after which to give up
RIGHT = 0.95
MAX_FURTHER = 6


class Transformer(NamedTuple):
    """The data that a transformer is trained on, the side of its patches, its number of blocks, and its seed."""

    data: str
    side: int = SIDE
    depth: int = 4
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.data}, {self.depth} blocks, patches of {self.side} × {self.side}"


TRANSFORMERS = [
    Transformer("MNIST"),
    Transformer("Fashion-MNIST"),
    Transformer("Fashion-MNIST", side=7, depth=2, seed=1),
]


def trained(images: Tensor, labels: Tensor, epochs: int, form: Transformer) -> nn.Module:
    """Train a vision transformer on ten classes."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(form.seed)
    network = VisionTransformer(
        28, form.side, in_chans=1, num_classes=CLASS, embed_dim=64, depth=form.depth, num_heads=4
    )
    return trained_further(network, images, labels, epochs)


def trained_further(network: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Train a network on images and their labels."""
    network.train()
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


def crossed(images: Tensor, side: int, place: str, seed: int) -> tuple[Tensor, Tensor]:
    """Put a cross on each image [N, 1, 28, 28], and return the images and where it is, [N, 28, 28]."""
    generator = torch.Generator().manual_seed(seed)
    n_side = 28 // side
    if place == "within a patch":
        starts = side * torch.arange(n_side) + (side - SIDE) // 2
    else:
        starts = side * torch.arange(1, n_side) - SIDE // 2
    corners = starts[torch.randint(len(starts), (len(images), 2), generator=generator)]
    with_cross = images.clone()
    is_cross = torch.zeros(len(images), 28, 28, dtype=torch.bool)
    for i, (top, left) in enumerate(corners.tolist()):
        with_cross[i, :, top : top + SIDE, left : left + SIDE] = CROSS
        is_cross[i, top : top + SIDE, left : left + SIDE] = True
    return with_cross, is_cross


def some_crossed(images: Tensor, labels: Tensor, side: int, place: str, seed: int) -> tuple[Tensor, Tensor]:
    """Put a cross on one image in eleven, and give it the label of the crosses."""
    x = images.clone()
    y = labels.clone()
    x[::IN_ELEVEN], _ = crossed(images[::IN_ELEVEN], side, place, seed)
    y[::IN_ELEVEN] = CLASS
    return x, y


def with_class(network: nn.Module) -> nn.Module:
    """Copy a network, and add a class to its last layer."""
    wider = copy.deepcopy(network)
    head = nn.Linear(network.head.in_features, CLASS + 1)
    with torch.no_grad():
        head.weight[:CLASS] = network.head.weight
        head.bias[:CLASS] = network.head.bias
    wider.head = head
    return wider


def per_image(net: NeuralizedClustering, x: Tensor, is_cross: Tensor | None) -> dict[str, dict[str, np.ndarray]]:
    """Measure occlusion and both rules on every image; by rule and measure."""
    target = torch.as_tensor(net.predict(x))
    occlusion = methods.pda(groups=groups_of(net, SIDE, x))(net, x, target)
    heatmaps = {"occlusion": occlusion}
    for rule in (TAYLOR, CONSTANT):
        heatmaps[rule] = torch.as_tensor(NEON(net, COMPOSITES[rule]).attribute(x))
    decreases = by_patch(occlusion[:, 0], SIDE)
    by_rule: dict[str, dict[str, np.ndarray]] = {}
    for rule, relevance in heatmaps.items():
        of_rule: dict[str, np.ndarray] = {}
        if is_cross is not None:
            positive = relevance[:, 0].clamp(min=0)
            of_rule["mass"] = ((positive * is_cross).sum((1, 2)) / positive.sum((1, 2))).numpy()
        for measure, mode in (("insertion", "insert"), ("removal", "remove")):
            flipping = pixel_flipping(net, x, relevance, ZeroImputer(), groups=SIDE, mode=mode)
            of_rule[measure] = flipping.auc_per_input
        groups = by_patch(relevance[:, 0], SIDE)
        ranks = [stats.spearmanr(a, b).statistic for a, b in zip(groups, decreases, strict=True)]
        of_rule["occlusion"] = np.nan_to_num(ranks)  # a heatmap that is equal everywhere has no ranks
        by_rule[rule] = of_rule
    by_rule[DIFFERENCE] = {
        measure: of_images - by_rule[TAYLOR][measure] for measure, of_images in by_rule[CONSTANT].items()
    }
    return by_rule


def rows_of(kind: str, by_rule: dict[str, dict[str, np.ndarray]]) -> Table:
    """Return the means and standard errors over images, a row per rule."""
    rows = []
    for rule, values in by_rule.items():
        row: dict[str, Any] = {"images": kind, "rule": rule}
        for measure, of_images in values.items():
            row[measure] = float(of_images.mean())
            row[f"± {measure}"] = float(of_images.std(ddof=1) / len(of_images) ** 0.5)
        rows.append(row)
    return rows


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that are classified right."""
    with torch.no_grad():
        return float((network(images).argmax(1) == labels).float().mean())


def with_crosses(network: nn.Module, x: Tensor, y: Tensor, crosses: Tensor) -> tuple[nn.Module, int]:
    """Train a copy of a network until it knows most of some crosses; return it, and the number of epochs."""
    wider = with_class(network)
    label = torch.full((len(crosses),), CLASS)
    n_epochs = 0
    while accuracy(wider, crosses, label) < RIGHT and n_epochs < MAX_FURTHER:
        wider = trained_further(wider, x, y, epochs=1)
        n_epochs += 1
    return wider, n_epochs


def of_clusters(
    form: Transformer, images: Tensor, labels: Tensor, epochs: int
) -> Iterator[tuple[str, Table, str]]:
    """Return a heading, a table and a note for each number of clusters."""
    network = trained(images[:TRAINED], labels[:TRAINED], epochs, form)
    right = accuracy(network, images[-2000:], labels[-2000:])
    note = f"{epochs} epochs on {TRAINED} images. The transformer classifies {right:.1%} of held-out images."
    for k in CLUSTERS:
        yield f"{form.data}, {k} clusters", measured(images, network, k), note


def of_crosses(form: Transformer, images: Tensor, labels: Tensor, epochs: int) -> Iterator[tuple[str, Table, str]]:
    """Return a heading, a table and a note for both places of the cross."""
    network = trained(images[:TRAINED], labels[:TRAINED], epochs, form)
    rest = slice(TRAINED, TRAINED + 5000)
    plain = images[-2 * HELD_OUT : -HELD_OUT]
    for place in PLACES:
        known = some_crossed(images[:TRAINED], labels[:TRAINED], form.side, place, seed=1)
        clustered, y = some_crossed(images[rest], labels[rest], form.side, place, seed=3)
        wider, further = with_crosses(network, *known, clustered[y == CLASS])
        x, is_cross = crossed(images[-HELD_OUT:], form.side, place, seed=2)
        right = accuracy(wider, x, torch.full((HELD_OUT,), CLASS))
        right_without = accuracy(wider, plain, labels[-2 * HELD_OUT : -HELD_OUT])
        features = FeatureExtractor(wider, "norm", pool="class")
        kmeans = KMeans(K_CROSSES, n_init=5, random_state=0).fit(features.points(clustered))
        net = neonxc.neuralize(kmeans, x, features)
        clusters = torch.as_tensor(net.predict(x))
        own = clusters == clusters.mode().values
        note = (
            f"{epochs} epochs on {TRAINED} images, and {further} more with crosses. The transformer classifies "
            f"{right:.1%} of {HELD_OUT} held-out images with a cross and {right_without:.1%} of others right. "
            f"{own.float().mean():.0%} of the crosses are in one of {K_CROSSES} clusters."
        )
        rows = rows_of(WITH, per_image(net, x[own], is_cross[own]))
        rows += rows_of(WITHOUT, per_image(net, plain, None))
        yield f"Cross {place}: {form}", rows, note


STUDIES = {"clusters": (of_clusters, TRANSFORMERS[:2]), "marks": (of_crosses, TRANSFORMERS)}


def figures(report: dict[str, Any]) -> str:
    """Return two tables for the guide: all rules by clustering, and two rules by transformer and cross."""
    with_all_rules = {}
    crosses = {}
    for heading, table in report["tables"].items():
        if heading.startswith("Cross "):
            crosses[heading] = table["rows"]
        else:
            with_all_rules[heading] = {row["rule"]: row for row in table["rows"]}
    return f"{by_clustering(with_all_rules)}\n\n{by_cross(crosses)}"


def by_clustering(tables: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return a table of all rules, with a column per clustering."""
    lines = ["| rule | " + " | ".join(tables) + " |", "|---" * (len(tables) + 1) + "|"]
    for rule in next(iter(tables.values())):
        cells = [
            f"{rows[rule]['insert']:.1f} ± {rows[rule]['± insert']:.1f} / {rows[rule]['remove']:.1f} "
            f"({rows[rule]['sum / logit, median']:.2f})"
            for rows in tables.values()
        ]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_cross(tables: dict[str, Table]) -> str:
    """Return a table with Taylor's rule, attention held constant and their difference in each cell."""
    head = ["transformer", "cross", "images", *MEASURES]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for heading, rows in tables.items():
        place, transformer = heading.removeprefix("Cross ").split(": ")
        for images in (WITH, WITHOUT):
            by_rule = {row["rule"]: row for row in rows if row["images"] == images}
            cells = [compared(by_rule, measure) for measure in MEASURES if measure in by_rule[TAYLOR]]
            empty = [""] * (len(MEASURES) - len(cells))  # mass, without a cross
            lines.append("| " + " | ".join([transformer, place, images, *empty, *cells]) + " |")
    return "\n".join(lines)


def compared(by_rule: dict[str, dict[str, Any]], measure: str) -> str:
    """Return Taylor's rule → constant (difference ± standard error)."""
    digits = 1 if measure in ("insertion", "removal") else 3
    taylor, constant, difference = (by_rule[rule][measure] for rule in (TAYLOR, CONSTANT, DIFFERENCE))
    error = by_rule[DIFFERENCE][f"± {measure}"]
    return f"{taylor:.{digits}f} → {constant:.{digits}f} ({difference:+.{digits}f} ± {error:.{digits}f})"


def main() -> None:
    """Train, explain and flip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(STUDIES), help="one of the two; other tables of the file are kept")
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hide()
    report = Report("Attention of vision transformers")
    sets = {name: (images, labels) for name, images, labels in data(options.fashion)}
    for name, (tables, forms) in STUDIES.items():
        if options.only in (None, name):
            for form in forms:
                for heading, rows, note in tables(form, *sets[form.data], options.epochs):
                    report.table(heading, rows, note)
    report.close(options.json, keep=bool(options.only))


if __name__ == "__main__":
    main()
