"""Concepts of clusters: what a network saw where a heatmap says that it looked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.common.arguments import check_whole
from neonxc.common.numbers import percent
from neonxc.common.progress import progress_bar
from neonxc.common.registry import register
from neonxc.data.kinds import plain
from neonxc.head.answer import Question, answers
from neonxc.inputs.base import How
from neonxc.network import NeuralizedClustering, check_network, is_noise
from neonxc.subspaces.layer import Layer
from neonxc.subspaces.relevant import principal, separated

REFERENCES = 6  # patches or words of a concept


class Reference(NamedTuple):
    """Where a concept is most relevant.

    Attributes
    ----------
    row : int
        Row of X; -1 for a word.
    y, x : float
        Center of the place, as shares of the height and the width of the input.
    relevance : float
        Relevance of the place, or mean relevance of the word.
    word : str
        The word, of texts.
    """

    row: int
    y: float
    x: float
    relevance: float
    word: str = ""


@dataclass(frozen=True, repr=False)
class Concepts:
    """Concepts of some clusters: orthonormal directions of a layer, and what they do.

    Attributes
    ----------
    classes : list
        Labels of the C clusters that are explained.
    layer : str or None
        Name of the layer; None: the features.
    directions : Tensor [C, k, D]
        Directions of the layer's D channels, the most relevant one first.
    relevance : ndarray [C, k]
        Relevance of the cluster along each direction, mean over the inputs of the cluster, in units of the logit.
    total : ndarray [C]
        Relevance of the cluster at the layer, of which those are parts.
    left : ndarray [C, k]
        Share of the cluster's held-out points that stay in it if the first 1, 2, ... k directions are removed from
        the layer; NaN if there is no such point.
    held_out : bool
        Whether `left` is measured on inputs that the directions do not come from.
    references : list of list of list of Reference
        For each cluster and concept, where it is most relevant.
    names : list of list of str
        Names of the concepts.
    """

    classes: list[Any]
    layer: str | None
    directions: Tensor
    relevance: np.ndarray
    total: np.ndarray
    left: np.ndarray
    held_out: bool
    references: list[list[list[Reference]]]
    names: list[list[str]]
    competitor: Any = None

    def heatmaps(self, net: NeuralizedClustering, X: Any, cluster: Any = None, composite: Any = None) -> Any:
        """Compute the relevance of inputs for a cluster through each concept alone.

        Parameters
        ----------
        net : NeuralizedClustering
            The network that the concepts come from.
        X : array, tensor or sequence of str
            Inputs of its feature network.
        cluster : label, optional
            Default: the first one.
        composite : neonxc.lrp.Composite, optional
            As for :func:`concepts`.

        Returns
        -------
        array or Tensor [N, k + 1, ...]
            A map for every concept, and that of all other directions; they sum to the heatmap of the cluster. For
            images they are summed over the channels.
        """
        c, layer, table = self._place(cluster), Layer(net.inputs, self.layer), net.inputs.read(X)
        question = _question(net, self.classes[c], self.competitor)
        found = []
        for block in net.inputs.blocks(table.tensor):
            halves = layer.halves(table.tensor[block], composite)
            m = halves.upper(_start(net, halves.features, question, composite))
            axes = self.directions[c].to(m)
            along = (m @ axes.mT).unbind(2)
            parts = [one[..., None] * axis for one, axis in zip(along, axes, strict=True)]
            parts.append(m - sum(parts))
            maps = torch.stack([halves.lower(part) for part in parts], 1)
            found.append(maps.sum(2) if maps.ndim > 3 else maps)
        return table.restore(torch.cat(found))

    def coordinates(self, net: NeuralizedClustering, X: Any) -> pd.DataFrame:
        """Compute the coordinates of points along the concepts, the columns of a tree on concepts.

        Returns
        -------
        DataFrame [n, columns]
            One row per point of the clustering: an input, whose places are averaged, or a location of its map. The
            columns are the concepts of all clusters.
        """
        layer, x, found = Layer(net.inputs, self.layer), net.inputs.read(X).tensor, []
        axes = self.directions.flatten(0, 1)
        for block in net.inputs.blocks(x):
            along, places = layer.values(x[block])
            along = along @ axes.to(along).mT  # [n, P, columns]
            shape = net.inputs.features(x[block]).shape[2:]
            if not shape:
                found.append(along.mean(1))
                continue
            maps = F.adaptive_avg_pool2d(along.mT.unflatten(2, places), shape)
            found.append(maps.flatten(2).mT.flatten(0, 1))
        columns = [
            f"{label}: {name}" for label, names in zip(self.classes, self.names, strict=True) for name in names
        ]
        return pd.DataFrame(torch.cat(found).cpu().numpy(), columns=columns)

    def named(self, cluster: Any, names: Mapping[int, str]) -> Concepts:
        """Return these concepts with names for some concepts of a cluster, by their numbers from 1."""
        c = self._place(cluster)
        own = [f"concept {i} ({names[i]})" if i in names else old for i, old in enumerate(self.names[c], 1)]
        return replace(self, names=[*self.names[:c], own, *self.names[c + 1 :]])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per concept: its relevance, its share of the cluster's, and what is left without it."""
        k = self.relevance.shape[1]
        index = pd.MultiIndex.from_tuples(
            [(label, i + 1) for label in self.classes for i in range(k)], names=["cluster", "concept"]
        )
        values = {
            "name": sum(self.names, []),
            "relevance": self.relevance.ravel(),
            "share": (self.relevance / self.total[:, None]).ravel(),
            "left": self.left.ravel(),
        }
        return pd.DataFrame(values, index)

    def _place(self, cluster: Any) -> int:
        if cluster is None:
            return 0
        if cluster not in self.classes:
            raise ValueError(f"cluster needs one of {self.classes}, got {cluster!r}")
        return self.classes.index(cluster)

    def __repr__(self) -> str:
        k = self.relevance.shape[1]
        left = (
            "" if np.isnan(self.left).all() else f", {percent(float(np.nanmean(self.left[:, -1])))} left without"
        )
        return f"Concepts({len(self.classes)} clusters, {k} each at {self.layer or 'the features'}{left})"


def concepts(
    net: NeuralizedClustering,
    X: Any,
    layer: str | None = None,
    n_concepts: int = 4,
    cluster: Any = None,
    *,
    competitor: Any = None,
    shared: bool = False,
    composite: Any = None,
    held_out: Any = None,
) -> Concepts:
    """Find the concepts of clusters: the directions of a layer on which their relevance lies.

    A heatmap says where a network looks, and concepts what it sees there. The relevance of a direction is the product
    of what the layer's activations and the multipliers of LRP have along it. The most relevant subspace is found by
    principal relevant component analysis, and rotated so that the relevance of a place lies on few directions.

    Parameters
    ----------
    net : NeuralizedClustering
        A clustering of the features of a network, or of a sentence encoder.
    X : array, tensor or sequence of str
        Inputs of the feature network: some dozens of images, or texts.
    layer : str, optional
        Name of a layer of the feature network, as in ``named_modules()``. Default: the features.
    n_concepts : int, default=4
        Number of directions.
    cluster : label or sequence of labels, optional
        The clusters to explain. Default: all.
    competitor : label, optional
        Explain the clusters against this one only: the concepts of ``f_a - f_b``.
    shared : bool, default=False
        One set of directions for all clusters, instead of one for each.
    composite : neonxc.lrp.Composite, optional
        LRP rules, as for :class:`neonxc.NEON`.
    held_out : as X, optional
        Inputs on which it is measured what is left of the clusters without their concepts. Default: every third row
        of X, which is then not used for the directions, if X has nine rows or more.

    Returns
    -------
    Concepts

    Raises
    ------
    TypeError
        A network without a feature network.
    ValueError
        An unknown layer or label, or more directions than the layer has channels.

    References
    ----------
    .. [1] P. Chormai et al., "Disentangled explanations of neural network predictions by finding relevant
       subspaces", IEEE TPAMI, 2024.

    Examples
    --------
    >>> import neonxc, torch
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... ).eval()
    >>> X = torch.rand(12, 3, 8, 8)
    >>> net = neonxc.neuralize(torch.rand(2, 8), X, network)
    >>> found = neonxc.concepts(net, X, layer="1", n_concepts=2)
    >>> found.directions.shape
    torch.Size([2, 2, 8])
    """
    check_network(net, "concepts")
    if not net.inputs.propagates:
        raise TypeError(
            "concepts needs a clustering of the features of a network, this one has no feature network"
        )
    check_whole("n_concepts", n_concepts)
    labels = _labels(net, cluster)
    at, x = Layer(net.inputs, layer), net.inputs.read(X).tensor
    rows = np.arange(len(x))
    if held_out is None and len(rows) >= 9:
        held_out, rows = x[::3], rows[rows % 3 > 0]
    task = _Task(net, at, x[rows], rows, [_question(net, label, competitor) for label in labels], composite)
    directions, clusters = task.directions(n_concepts, shared), range(len(labels))
    if shared:
        directions = [task.rotated(clusters, directions[0])] * len(labels)
    else:
        directions = [task.rotated([c], axes) for c, axes in enumerate(directions)]
    relevance, total, references = zip(*map(task.measured, clusters, directions), strict=True)
    if net.inputs.in_texts:
        references = tuple(map(task.words, clusters, directions))
    test = task.x if held_out is None else net.inputs.read(held_out).tensor
    return Concepts(
        labels,
        layer,
        torch.stack(directions).float().cpu(),
        np.stack(relevance),
        np.array(total),
        np.stack([task.left(test, c, directions[c]) for c in clusters]),
        held_out is not None,
        list(references),
        [[f"concept {i + 1}" for i in range(n_concepts)] for _ in labels],
        competitor,
    )


class _Pass(NamedTuple):
    """The inputs of a cluster: values and multipliers [n, P, D] of the layer, and what leads the latter back."""

    cluster: int
    block: slice
    index: np.ndarray
    a: Tensor
    m: Tensor
    shape: tuple[int, ...]
    lower: Any


class _Task:
    """The network, the layer and the inputs that concepts are found on, with their rows in X."""

    def __init__(
        self,
        net: NeuralizedClustering,
        at: Layer,
        x: Tensor,
        rows: np.ndarray,
        questions: list[Question],
        rules: Any,
    ) -> None:
        self.net, self.layer, self.x, self.rows = net, at, x, rows
        self.questions, self.composite = questions, rules

    def passes(self, clusters: Sequence[int], name: str) -> Iterator[_Pass]:
        """Run the inputs of each cluster."""
        blocks = self.net.inputs.blocks(self.x)
        for block in progress_bar(blocks, desc=name, disable=len(blocks) < 2):
            halves = self.layer.halves(self.x[block], self.composite)
            for c in clusters:
                start = _start(self.net, halves.features, self.questions[c], self.composite)
                own = start.flatten(1).any(1)
                if own.any():
                    index = self.rows[block][own.cpu().numpy()]
                    yield _Pass(
                        c, block, index, halves.values[own], halves.upper(start)[own], halves.shape, halves.lower
                    )

    def directions(self, n: int, shared: bool) -> list[Tensor]:
        """The most relevant directions [n, D] of every cluster."""
        sums: list[Any] = [None] * len(self.questions)
        for c, *_, a, m, _, _ in self.passes(range(len(sums)), "directions"):
            if n > a.shape[2]:
                raise ValueError(f"n_concepts needs at most {a.shape[2]}, the channels of the layer, got {n}")
            products = a.flatten(0, 1).double().mT @ m.flatten(0, 1).double()
            sums[c] = products if sums[c] is None else sums[c] + products
        for question, total in zip(self.questions, sums, strict=True):
            if total is None:
                raise ValueError(
                    f"cluster {plain(self.net.classes_[question.target])!r} has no point among the inputs"
                )
        return [principal(total, n) for total in ([sum(sums)] * len(sums) if shared else sums)]

    def rotated(self, clusters: Sequence[int], axes: Tensor) -> Tensor:
        """The directions [k, D], rotated so that the relevance of a place lies on few of them."""
        found = [
            (one.a @ axes.to(one.a).mT, one.m @ axes.to(one.m).mT) for one in self.passes(clusters, "rotation")
        ]
        a, m = (torch.cat([part.flatten(0, 1) for part in parts]) for parts in zip(*found, strict=True))
        used = (m != 0).any(1)
        rotation = separated(a[used], m[used]).to(axes)
        order = ((a @ rotation.to(a).mT) * (m @ rotation.to(m).mT)).sum(0).argsort(descending=True)
        return rotation[order] @ axes

    def measured(self, c: int, axes: Tensor) -> tuple[np.ndarray, float, list[list[Reference]]]:
        """Mean relevance of the directions [k, D] of a cluster and of all directions, and references."""
        n, total, sums = 0, 0.0, torch.zeros(len(axes), dtype=torch.float64)
        best: list[list[Reference]] = [[] for _ in axes]
        for one in self.passes([c], "relevance"):
            along = (one.a @ axes.to(one.a).mT) * (one.m @ axes.to(one.m).mT)
            n, total = n + len(along), total + float((one.a * one.m).sum())
            sums += along.sum((0, 1)).double().cpu()
            for own, of_places in zip(best, along.unbind(2), strict=True):
                value, place = of_places.max(1)
                for row, i, size in zip(one.index.tolist(), place.tolist(), value.tolist(), strict=True):
                    own.append(Reference(row, *_center(i, of_places.shape[1], one.shape), size))
        best = [sorted(own, key=lambda one: -one.relevance)[:REFERENCES] for own in best]
        return (sums / n).numpy(), total / n, best

    def words(self, c: int, axes: Tensor) -> list[list[Reference]]:
        """The words of the highest mean relevance through each direction."""
        inputs: Any = self.net.inputs
        sums: list[Any] = []
        for one in self.passes([c], "words"):
            x = self.x[one.block]
            for axis in axes.to(one.m):
                along = one.m @ axis
                whole = along.new_zeros(len(x), *one.m.shape[1:])
                whole[torch.from_numpy(np.isin(self.rows[one.block], one.index))] = along[..., None] * axis
                sums.append((x, one.lower(whole)))
        return [_best_words(inputs, sums[i :: len(axes)]) for i in range(len(axes))]

    def left(self, x: Tensor, c: int, axes: Tensor) -> np.ndarray:
        """Share of the points of a cluster that stay in it without the first 1, 2, ... directions."""
        stay, n, target = np.zeros(len(axes)), 0, self.questions[c].target
        for block in self.net.inputs.blocks(x):
            own = _assigned(self.net, self.net.inputs.features(x[block])) == target
            n += int(own.sum())
            for i in range(len(axes) if own.any() else 0):
                without = _assigned(self.net, self.layer.without(x[block], axes[: i + 1]))
                stay[i] += int((without[own] == target).sum())
        return stay / n if n else np.full(len(axes), np.nan)


def _start(net: NeuralizedClustering, features: Tensor, question: Question, composite: Any) -> Tensor:
    """The multipliers of the features, for the points of the cluster alone."""
    start = net.inputs.start(features, question, How("linear", float(net._beta), composite))
    own = _assigned(net, features) == question.target
    return torch.where(own.view(len(features), 1, *features.shape[2:]), start, 0.0)


def _assigned(net: NeuralizedClustering, features: Tensor) -> Tensor:
    """The cluster [N, ...] of the points of features [N, d, ...]."""
    assigned = torch.cat([answer.assigned for answer in answers(net.head, features)])
    return assigned.view(features.shape[0], *features.shape[2:])


def _question(net: NeuralizedClustering, label: Any, competitor: Any) -> Question:
    return Question(int(net.positions(label, "cluster")), net.positions(competitor, "competitor"))


def _labels(net: NeuralizedClustering, cluster: Any) -> list[Any]:
    """The labels that are asked for."""
    if cluster is None:
        return [label for label in map(plain, net.classes_) if not is_noise(label)]
    given = cluster if isinstance(cluster, Sequence) and not isinstance(cluster, str) else [cluster]
    return [plain(label) for label in given]


def _center(place: int, places: int, shape: tuple[int, ...]) -> tuple[float, float]:
    """Center of a place as shares of height and width; tokens before those of a square are the whole input."""
    if len(shape) != 2:
        side = math.isqrt(places)
        place, shape = place - (places - side**2), (side, side)
    if place < 0 or shape == (1, 1):
        return 0.5, 0.5
    i, j = divmod(place, shape[1])
    return (i + 0.5) / shape[0], (j + 0.5) / shape[1]


def _best_words(inputs: Any, found: list[tuple[Tensor, Tensor]]) -> list[Reference]:
    """Words by the mean of their relevance, over the texts of the cluster that contain them."""
    names = np.array(inputs.units, dtype=object)
    words = torch.cat([inputs.words(x)[x >= 0] for x, _ in found]).cpu().numpy()
    values = torch.cat([relevance[x >= 0] for x, relevance in found]).cpu().numpy()
    means = pd.Series(values).groupby(names[words]).agg(["mean", "size"])
    means = means[means["size"] >= min(2, means["size"].max())]["mean"].nlargest(REFERENCES)
    return [Reference(-1, 0.5, 0.5, float(value), str(word)) for word, value in means.items()]


def _pack(found: Concepts) -> dict[str, Any]:
    plain_values = {name: getattr(found, name) for name in ("classes", "layer", "held_out", "names", "competitor")}
    tensors = {name: torch.as_tensor(getattr(found, name)) for name in ARRAYS}
    return {**plain_values, **tensors, "directions": found.directions, "references": found.references}


def _unpack(cls: type[Concepts], values: dict[str, Any]) -> Concepts:
    arrays = {name: values[name].numpy() for name in ARRAYS}
    references = [[[Reference(*one) for one in own] for own in of] for of in values["references"]]
    return cls(**{**values, **arrays, "references": references})


ARRAYS = "relevance", "total", "left"
register(Concepts, _pack, _unpack)
