"""Concepts of clusters of deep features: what they remove, whether planted ones are found, and what they cost.

Everything is held out: directions come from some inputs, and what is left of a cluster without them is measured on
others, as is what the other clusters keep. A mark is planted on half of the garments of one class, beside the
garment (in a corner) or over it; a small VGG is trained to tell them apart, and a cluster is the marked garments.
Rare marks are on other garments, which make up 5% of the cluster of a class.

For marks over a garment and rare ones, three ways to find directions are compared: against all other clusters,
against the unmarked class only (`competitor=`), and from relevance that is whitened by the covariance C of the
layer's activations: with ``z = C^(-1/2) a``, the eigenvectors v of the sum of ``z (C^(1/2) m)'`` give the
directions ``C^(-1/2) v``. The first half of the plants is for choosing, the second half is held out.

    apt-get install dataset-fashion-mnist
    python -m tests.benchmarks.concepts [--quick] [--only PART] [--networks DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn

import neonxc
from neonxc import NEON, NeuralizedClustering
from neonxc.common.progress import hide
from neonxc.models import FeatureExtractor, efficientnet_lite0, vgg_small
from neonxc.subspaces import concept_search as module
from neonxc.subspaces import concepts as concepts_module
from neonxc.subspaces.split_network import Layer
from neonxc.trees import ExShallow
from tests.benchmarks.deep_rows import small_networks
from tests.benchmarks.head_rules import photos
from tests.benchmarks.timing import Report, Table, progress

COUNTS = 1, 4
CORNERS = {"top left": (1, 1), "top right": (1, 23), "bottom left": (23, 1), "bottom right": (23, 23)}
OVER = {"centre": (12, 12), "upper": (8, 12), "lower": (16, 12), "left": (12, 9)}
SPOTS = CORNERS | OVER
CROSS = (torch.eye(4) + torch.eye(4).flip(0)).clamp(max=1)
MARKS = {"square": torch.ones(4, 4), "cross": CROSS}
OTHERS = 300  # garments without a mark
RARE = 0.05  # of a cluster that has a mark
FLOOR = 1e-3  # of the largest variance, below which none is whitened
MARGIN = 2  # pixels around a mark that count as inside
# plants
BESIDE = 20
N_OVER = 6
DOUBLES = 6
N_RARE = 2
HALVES = {False: "for choosing", True: "held out"}
CLASS = 10  # label of the marked garments


class Task(NamedTuple):
    """A clustering of locations, its layer below, photos for the directions and photos for the test."""

    name: str
    net: NeuralizedClustering
    layer: str
    x: Tensor
    test: Tensor


def tasks(options: Any) -> Iterator[Task]:
    """Locations of photos under EfficientNet-Lite0, trained and random, and of garments under small VGGs."""
    counts = (5,) if options.quick else (5, 10)
    pictures = photos(options.quick)
    torch.manual_seed(0)
    for name, weights in (("EfficientNet-Lite0", "default"), ("the same with random weights", None)):
        features = efficientnet_lite0(block=12, weights=weights)
        x = torch.cat([features.preprocess(F.interpolate(photo[None], (224, 320))) for photo in pictures.values()])
        yield Task(name, _clustered(features, x, counts[0]), "blocks.10", x, x.flip(3))
    images, trained = small_networks("Fashion-MNIST", options.fashion, options.networks, options.kinds)
    for kind, vgg, _ in trained:
        features = FeatureExtractor(vgg, "features.block3")
        for K in counts:
            x = images[:200]
            test = images[3000:3200]
            yield Task(f"VGG, {kind}", _clustered(features, x, K), "features.block2", x, test)


def _clustered(features: nn.Module, x: Tensor, K: int) -> NeuralizedClustering:
    with torch.no_grad():
        points = features.points(x)
    return neonxc.neuralize(KMeans(K, n_init=5, random_state=0).fit(points.numpy()), x[:200], features)


def removed(task: Task) -> Table:
    """What is left of every cluster of a task without directions of several kinds."""
    at = Layer(task.net.inputs, task.layer)
    net = task.net
    known = {k: neonxc.concepts(net, task.x, task.layer, k, held_out=task.test) for k in COUNTS}
    values, _ = at.values(task.x)
    rows = values.flatten(0, 1)
    mean = rows.mean(0)
    map_of = net.predict(task.x)[:, None].float()
    nearest = F.interpolate(map_of, _places(at, task.x), mode="nearest").long().flatten()
    clusters = [rows[nearest == c] for c in range(net.head.n_clusters)]
    centers = torch.stack([own.mean(0) if len(own) else mean for own in clusters])
    search = _search(task, known[1].classes)
    means = search.means_of_others()
    before = net.predict(task.test)
    found = []
    for c, label in enumerate(known[1].classes):
        products = _products(task, label)
        others = torch.cat(
            [(centers[label] - mean)[None], centers[label] - centers[np.arange(len(centers)) != label]]
        )
        kinds = {
            "concepts": None,
            "concepts, set to zero": None,
            "channels by relevance": torch.eye(rows.shape[1])[products.argsort(descending=True)],
            "PCA": torch.linalg.eigh(rows.mT @ rows)[1].mT.flip(0),
            "mean differences": torch.linalg.qr(others.mT)[0].mT,
            "random": torch.linalg.qr(torch.randn(rows.shape[1], rows.shape[1]))[0].mT,
        }
        for kind, axes in kinds.items():
            line: dict[str, Any] = {"network": task.name, "K": net.head.n_clusters, "cluster": label, "kind": kind}
            goal = torch.zeros_like(means[c]) if "zero" in kind else means[c]
            largest = axes[: max(COUNTS)] if axes is not None else None
            for k in COUNTS:
                own = known[k].directions[c] if largest is None else largest[:k]
                if len(own) == k:
                    left, unchanged = _retained(task, at, before, label, own, goal)
                    line |= {f"left, {k}": left, f"unchanged, {k}": unchanged}
            found.append(line)
    return [line for line in found if not np.isnan(line["left, 1"])]


def _search(task: Task, labels: list[Any]) -> module.ConceptSearch:
    questions = [module.question_of(task.net, label, None) for label in labels]
    at = Layer(task.net.inputs, task.layer)
    return module.ConceptSearch(task.net, at, task.x, np.arange(len(task.x)), questions, None)


def _places(at: Layer, x: Tensor) -> tuple[int, ...]:
    return at.values(x[:1])[1]


def _products(task: Task, label: Any) -> Tensor:
    """Relevance of the channels for a cluster."""
    at = Layer(task.net.inputs, task.layer)
    total = 0.0
    for block in task.net.inputs.blocks(task.x):
        halves = at.halves(task.x[block], None)
        start = module.start_of(task.net, halves.features, module.question_of(task.net, label, None), None)
        total = total + (halves.values * halves.upper(start)).sum((0, 1))
    return torch.as_tensor(total)


def _retained(task: Task, at: Layer, before: Tensor, label: Any, axes: Tensor, mean: Tensor) -> tuple[float, ...]:
    """Fractions of the points of a cluster that stay in it, and of the others that keep theirs."""
    own = before == label
    positions = task.net.head.assign(at.without(task.test, axes, mean))
    same = torch.as_tensor(task.net.classes_[positions.numpy()]) == before
    return tuple(float(part.float().mean()) if len(part) else float("nan") for part in (same[own], same[~own]))


class Plant(NamedTuple):
    """A network for marked garments: the clustering, all marked garments, the mark of each, and other garments."""

    net: NeuralizedClustering
    x: Tensor
    mark: Tensor
    others: Tensor


def plant(images: Tensor, classes: Tensor, own: int, marks: list[tuple[str, str]], seed: int, file: Path) -> Plant:
    """Mark half of the garments of a class, and train a network to tell each mark and all classes apart.

    Without a label for each mark, the network would need no more than one direction for both of them.
    """
    x = images.clone()
    y = classes.clone()
    mark = torch.full_like(classes, -1)
    half = (y == own).nonzero()[::2, 0]
    for i, (corner, shape) in enumerate(marks):
        rows = half[i :: len(marks)]
        (top, left) = SPOTS[corner]
        x[rows, :, top : top + 4, left : left + 4] = MARKS[shape]
        y[rows] = CLASS + i
        mark[rows] = i
    network = _kept(file, x, y, seed)
    y = y.clamp(max=CLASS)  # one cluster of all marked garments
    others = x[mark < 0][:OTHERS]
    return Plant(_by_class(network, x, y), x[half], mark[half], others)


def rare_plant(images: Tensor, classes: Tensor, own: int, spot: str, seed: int, file: Path) -> Plant:
    """Mark garments of other classes, so many that they are 5% of those that have the label of a class."""
    x = images.clone()
    y = classes.clone()
    mark = torch.full_like(classes, -1)
    n_marked = round(RARE / (1 - RARE) * int((y == own).sum()))
    rows = (y != own).nonzero()[:, 0][:: len(y) // (2 * n_marked)][: 2 * n_marked]
    known = rows[::2]
    unseen = rows[1::2]
    top, left = SPOTS[spot]
    x[rows, :, top : top + 4, left : left + 4] = 1
    mark[rows] = 0
    y[known] = own
    is_known = torch.ones(len(y), dtype=torch.bool).index_fill(0, unseen, False)
    network = _kept(file, x[is_known], y[is_known], seed)
    net = _by_class(network, x[is_known], y[is_known])
    in_cluster = (is_known & (y == own)).nonzero()[:, 0]
    others = (is_known & (y != own)).nonzero()[:OTHERS, 0]
    return Plant(net, x[unseen], mark[in_cluster], torch.cat([x[in_cluster], x[others]]))


def _by_class(network: nn.Sequential, x: Tensor, y: Tensor) -> NeuralizedClustering:
    """Cluster by the means of the features of each label."""
    with torch.no_grad():
        features = torch.cat([network[:-1](part) for part in x.split(500)])
    centers = torch.stack([features[y == label].mean(0) for label in range(int(y.max()) + 1)])
    return neonxc.neuralize(centers, x[:500], network[:-1])


def _kept(file: Path, x: Tensor, y: Tensor, seed: int) -> nn.Sequential:
    """Read a trained network from a file, or train it and write the file."""
    if file.exists():
        network: nn.Sequential = torch.load(file, weights_only=False)
        return network
    network = _trained(x, y, seed)
    torch.save(network, file)
    return network


def _trained(x: Tensor, y: Tensor, seed: int, epochs: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    net = vgg_small(n_classes=int(y.max()) + 1, width=16)
    optimizer = torch.optim.AdamW(net.parameters())
    steps = epochs * -(-len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def inside(corner: str) -> Tensor:
    """The pixels of a mark and around it."""
    region = torch.zeros(28, 28, dtype=torch.bool)
    (top, left) = SPOTS[corner]
    region[max(0, top - MARGIN) : top + 4 + MARGIN, max(0, left - MARGIN) : left + 4 + MARGIN] = True
    return region


def one_mark(found: Plant, corner: str) -> dict[str, float]:
    """Whether the first concept is the mark: of held-out garments, the peak and the mass inside; references."""
    test = found.x[1::2]
    region = inside(corner)
    known = torch.cat([found.x[::2], found.others[::2]])
    held_out = torch.cat([test, found.others[1::2]])
    concepts = neonxc.concepts(found.net, known, "features.block2", cluster=CLASS, held_out=held_out)
    maps = concepts.heatmaps(found.net, test, CLASS)[:, 0].clamp(min=0)
    places = [(int(one.y * 28), int(one.x * 28)) for one in concepts.references[0][0]]
    return {
        "share": float(concepts.relevance[0, 0] / concepts.total[0]),
        "left without it": float(concepts.left[0, 0]),
        "others unchanged": float(concepts.unchanged[0, 0]),
        "peak inside": float(region.flatten()[maps.flatten(1).argmax(1)].float().mean()),
        "mass inside": float((maps[:, region].sum(1) / maps.flatten(1).sum(1)).mean()),
        "references inside": float(np.mean([bool(region[place]) for place in places])),
    }


class Whitened(module.ConceptSearch):
    """The search for directions from relevance that is whitened; see the module's docstring."""

    def directions(self, n: int, shared: bool) -> list[Tensor]:
        sums: list[Any] = [0.0] * len(self.questions)
        for block in self.passes(range(len(sums)), "directions"):
            a, m = (one.flatten(0, 1).double() for one in (block.a, block.m))
            sums[block.cluster] = sums[block.cluster] + a.mT @ m
        second: Any = 0.0
        n_locations = 0
        for rows in self.net.inputs.blocks(self.x):
            values = self.layer.values(self.x[rows])[0].flatten(0, 1).double()
            second = second + values.mT @ values
            n_locations += len(values)
        variances, axes = torch.linalg.eigh(second / n_locations)
        deviations = variances.clamp(min=FLOOR * float(variances.max())).sqrt()
        root = (axes * deviations) @ axes.mT
        inverse = (axes / deviations) @ axes.mT
        found = []
        for total in sums:
            whitened = inverse @ total @ root
            vectors = torch.linalg.eigh((whitened + whitened.mT) / 2)[1].mT.flip(0)[:n]
            found.append(torch.linalg.qr((vectors @ inverse).mT)[0].mT)
        return found


WAYS: dict[str, tuple[bool, type]] = {  # against the unmarked class only, search
    "all competitors": (False, module.ConceptSearch),
    "competitor=": (True, module.ConceptSearch),
    "whitened": (False, Whitened),
    "whitened, competitor=": (True, Whitened),
}


def ways_to(found: Plant, known: Tensor, test: Tensor, cluster: int, own: int, spot: str) -> dict[str, float]:
    """Mass on a mark of the first concept, and of the one with the most, by several ways to find them."""
    region = inside(spot)
    plain = torch.as_tensor(NEON(found.net).heatmaps(test, [cluster]))[:, 0].clamp(min=0)
    line: dict[str, float] = {"heatmap": _mass(plain, region)}
    for name, (against_class, search) in WAYS.items():
        competitor = own if against_class and own != cluster else None
        if against_class and competitor is None:
            continue
        with mock.patch.object(concepts_module, "ConceptSearch", search):
            concepts = neonxc.concepts(found.net, known, "features.block2", cluster=cluster, competitor=competitor)
        maps = concepts.heatmaps(found.net, test, cluster)[:, :-1].clamp(min=0)
        masses = [_mass(maps[:, i], region) for i in range(maps.shape[1])]
        line |= {f"{name}, first": masses[0], f"{name}, most": max(masses)}
        line |= {f"{name}, rank": 1 + int(np.argmax(masses)), f"{name}, left": float(concepts.left[0, 0])}
        line |= {f"{name}, unchanged": float(concepts.unchanged[0, 0])}
    return line


def _mass(maps: Tensor, region: Tensor) -> float:
    """The share of relevance in a region, in the mean over maps that have any."""
    total = maps.flatten(1).sum(1)
    shares = maps[:, region].sum(1) / total
    return float(shares[total > 0].mean())


def two_marks(found: Plant, corners: list[str]) -> dict[str, float]:
    """How much of the concept of each mark lies on the other mark, with and without rotation."""
    half = torch.arange(len(found.x)) // len(corners) % 2 == 0  # the marks take turns
    known = found.x[half]
    test = found.x[~half]
    mark = found.mark[~half]
    line = {}
    rotation = module.separated
    for name in ("concepts", "PRCA, not rotated"):
        if name != "concepts":
            module.separated = lambda a, m: torch.eye(a.shape[1]).to(a)
        concepts = neonxc.concepts(found.net, known, "features.block2", cluster=CLASS, held_out=test)
        module.separated = rotation
        maps = concepts.heatmaps(found.net, test, CLASS).clamp(min=0)
        on = np.array(
            [
                [float(maps[mark == i][:, j][:, inside(corner)].sum(1).mean()) for i, corner in enumerate(corners)]
                for j in range(concepts.relevance.shape[1])
            ]
        )
        own = on.argmax(0)  # the concept of each mark
        line[f"mixing, {name}"] = float((on[own].min(1) / on[own].sum(1)).max())
        line[f"two concepts, {name}"] = float(own[0] != own[1])
    return line


def stability(tasks: list[Task]) -> Table:
    """|cos| between the first directions that two halves of the inputs give, and the angle of their subspaces."""
    found = []
    for task in tasks:
        halves = [neonxc.concepts(task.net, task.x[i::2], task.layer, held_out=task.test) for i in (0, 1)]
        both = [label for label in halves[0].classes if label in halves[1].classes]
        for label in both:
            one, other = (half.directions[half.classes.index(label)] for half in halves)
            cosines = one @ other.mT
            found.append(
                {
                    "network": task.name,
                    "first": float(cosines[0].abs().max()),
                    "subspace": float(torch.linalg.svdvals(cosines).square().mean()),
                }
            )
    names = dict.fromkeys(line["network"] for line in found)
    return [_means([line for line in found if line["network"] == name], ["network"]) for name in names]


def on_trees(tasks: list[Task]) -> Table:
    """Agreement of trees with the clusters on held-out locations: on concepts, and on channels."""
    return [_on_trees(task) for task in tasks]


def _on_trees(task: Task) -> dict[str, Any]:
    net = task.net
    K = task.net.head.n_clusters
    at = Layer(task.net.inputs, task.layer)
    concepts = neonxc.concepts(net, task.x, task.layer, held_out=task.test)
    train, test = (np.asarray(net.predict(x)).ravel() for x in (task.x, task.test))
    size = tuple(net.predict(task.x[:1]).shape[1:])

    def channels(x: Tensor) -> np.ndarray:
        values, places = at.values(x)
        maps = F.adaptive_avg_pool2d(values.mT.unflatten(2, places), size)
        return maps.flatten(2).mT.flatten(0, 1).numpy()

    line: dict[str, Any] = {"network": task.name, "K": K}
    for name, of in (("concepts", lambda x: concepts.coordinates(net, x)), ("channels", channels)):
        for leaves in (K, 2 * K):
            tree = ExShallow(K, max_leaves=leaves).fit(of(task.x), labels=train)
            agrees = np.asarray(tree.predict(of(task.test))) == test
            line[f"{name}, {leaves // K} K leaves"] = float(agrees.mean())
    return line


def costs(task: Task) -> Table:
    """Seconds in units of a heatmap of one cluster on the same inputs."""
    label = task.net.predict(task.x).flatten().mode().values.item()
    x = task.x

    def timed(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    unit = min(timed(lambda: NEON(task.net).heatmaps(x, [label])) for _ in range(3))
    found = neonxc.concepts(task.net, x, task.layer, cluster=label)
    return [
        {
            "network": task.name,
            "concepts of one cluster": timed(lambda: neonxc.concepts(task.net, x, task.layer, cluster=label))
            / unit,
            "heatmaps of its four concepts": timed(lambda: found.heatmaps(task.net, x, label)) / unit,
        }
    ]


def _means(lines: Table, keys: list[str]) -> dict[str, Any]:
    numbers = [key for key in lines[0] if key not in keys]
    return (
        {key: lines[0][key] for key in keys}
        | {key: float(np.nanmean([line[key] for line in lines])) for key in numbers}
        | {"of": len(lines)}
    )


def figures(report: dict[str, Any]) -> str:
    """Return the guide's tables."""
    tables = report["tables"]
    lines = ["| without k directions | k = 1 | 4 |", "|---|---|---|"]
    for heading, table in tables.items():
        if "locations left" in heading:
            name = heading.partition(":")[0]
            lines.append(f"| **{name}**, {table['rows'][0]['of']} clusters | | |")
            for row in table["rows"]:
                cells = [f"{row[f'left, {k}']:.2f} / {row[f'unchanged, {k}']:.2f}" for k in COUNTS]
                lines.append(f"| {row['kind']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two photos, K = 5 and two plants")
    parser.add_argument("--kinds", type=int, default=2, help="1: without the VGG that is trained without labels")
    parser.add_argument("--only", choices=[*PARTS], help="and keep the rest of the file")
    parser.add_argument("--fashion", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--networks", type=Path, default=Path("networks"), help="where trained networks are kept")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    options.networks.mkdir(exist_ok=True)
    hide()
    report = Report("Concepts of clusters")
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(report, options)
    report.close(options.json, keep=options.only is not None)


def removal(report: Report, options: argparse.Namespace) -> None:
    """What the removal of directions leaves."""
    lines: Table = []
    for task in tasks(options):
        progress(f"{task.name}, K = {task.net.head.n_clusters}")
        lines += removed(task)
    for name in dict.fromkeys(line["network"] for line in lines):
        own = [line for line in lines if line["network"] == name]
        rows = []
        for kind in dict.fromkeys(line["kind"] for line in own):
            same = [line for line in own if line["kind"] == kind]
            rows.append(_means([_without(line, "network", "K", "cluster") for line in same], ["kind"]))
        note = "Mean over the clusters of all numbers of clusters: what is left of them, and what the others keep."
        report.table(f"{name}: share of a cluster's held-out locations left", rows, note)


def agreement(report: Report, options: argparse.Namespace) -> None:
    """Whether two halves of the inputs have the same directions, trees on them, and what they cost."""
    known = [*tasks(options)]
    trained = [task for task in known if "random" not in task.name]
    progress("stability, trees and costs")
    report.table(
        "Directions of two halves of the inputs",
        stability(known),
        "|cos| of the first concept and the nearest one of the other half; mean squared cosine of subspaces.",
    )
    report.table("Agreement of trees on held-out locations", on_trees(trained))
    report.table("Seconds over those of a heatmap", costs(known[0]))


def _without(line: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in keys}


def _garments(options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Read the garments that networks are trained on, and their classes."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))
    from flipping_deep import images_of

    images, classes = images_of("Fashion-MNIST", options.fashion, "train")
    return images[:6000], classes[:6000]


def marks_beside(report: Report, options: argparse.Namespace) -> None:
    """Whether marks in corners are found."""
    images, classes = _garments(options)
    rows = []
    for i in range(2 if options.quick else BESIDE):
        corner = [*CORNERS][i % 4]
        shape = [*MARKS][i // 10]
        progress(f"mark {i}")
        found = plant(images, classes, i % 10, [(corner, shape)], i, options.networks / f"beside{i}.pt")
        rows.append({"plant": i, "class": i % 10, "mark": f"{shape}, {corner}", **one_mark(found, corner)})
    report.table("One mark", [_means(rows, ["plant", "class", "mark"])], "The first concept on held-out garments.")
    report.table("Every plant", rows)


def marks_over(report: Report, options: argparse.Namespace) -> None:
    """Whether marks over a garment are found, by several ways to find directions."""
    images, classes = _garments(options)
    n = 2 if options.quick else N_OVER
    rows = []
    for i in range(n):
        spot = [*OVER][i % 4]
        shape = [*MARKS][i // 4 % 2]
        own = (3 * i + 1) % 10
        progress(f"mark over a garment {i}")
        found = plant(images, classes, own, [(spot, shape)], i, options.networks / f"over{i}.pt")
        known = torch.cat([found.x[::2], found.others])
        line = ways_to(found, known, found.x[1::2], CLASS, own, spot)
        rows.append({"plant": i, "mark": f"{shape}, {spot}", "half": HALVES[i >= n // 2], **line})
    _by_half(report, "A mark over the garment", rows)


def marks_in_two_corners(report: Report, options: argparse.Namespace) -> None:
    """Whether two marks have a concept each."""
    images, classes = _garments(options)
    corners = [*CORNERS]
    rows = []
    for i in range(1 if options.quick else DOUBLES):
        two = [(corners[i % 4], "square"), (corners[(i + 2) % 4], "cross")]
        progress(f"two marks {i}")
        found = plant(images, classes, i, two, i, options.networks / f"two{i}.pt")
        rows.append({"plant": i, **two_marks(found, [corner for corner, _ in two])})
    note = "Mixing: the share of the concept of a mark that lies on the other mark."
    report.table("Two marks", rows, note)


def rare_marks(report: Report, options: argparse.Namespace) -> None:
    """Whether marks are found that a small part of a cluster has."""
    images, classes = _garments(options)
    n = 2 if options.quick else N_RARE
    rows = []
    for i in range(n):
        spot = [*CORNERS][i % 4]
        own = (3 * i + 2) % 10
        progress(f"rare mark {i}")
        found = rare_plant(images, classes, own, spot, i, options.networks / f"rare{i}.pt")
        line = ways_to(found, found.others, found.x, own, own, spot)
        in_cluster = float((found.net.predict(found.x) == own).float().mean())
        rows.append({"plant": i, "half": HALVES[i >= n // 2], "in the cluster": in_cluster, **line})
    _by_half(report, "A mark in 5% of a cluster", rows)


def _by_half(report: Report, heading: str, lines: Table) -> None:
    """Add tables of the means of both halves by the way to find directions, and of every plant."""
    rows = []
    for half in dict.fromkeys(line["half"] for line in lines):
        same = [line for line in lines if line["half"] == half]
        for way in WAYS:
            if f"{way}, first" not in same[0]:
                continue
            columns = {name: [line[f"{way}, {name}"] for line in same] for name in ("first", "most", "rank")}
            row: dict[str, Any] = {"half": half, "directions": way}
            row["mass of the heatmap"] = float(np.mean([line["heatmap"] for line in same]))
            row["mass of concept 1"] = float(np.mean(columns["first"]))
            row["greatest mass of a concept"] = float(np.mean(columns["most"]))
            row["concept 1 has it"] = f"{columns['rank'].count(1)} of {len(same)}"
            for name in ("left", "unchanged"):
                row[name] = float(np.nanmean([line[f"{way}, {name}"] for line in same]))
            rows.append(row)
    report.table(heading, rows, "Shares of the positive relevance that lie on the mark, on garments not searched.")
    report.table(f"{heading}, every plant", [_without(line, "half") for line in lines])


PARTS: dict[str, Callable[[Report, argparse.Namespace], None]] = {
    "removal": removal,
    "agreement": agreement,
    "beside": marks_beside,
    "over": marks_over,
    "two": marks_in_two_corners,
    "rare": rare_marks,
}


if __name__ == "__main__":
    main()
