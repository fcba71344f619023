"""Concepts of clusters: what a network saw where a heatmap says that it looked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.common.arguments import check_whole
from neonxc.common.cluster_names import is_noise
from neonxc.common.numbers import percent, plural, shares
from neonxc.common.registry import register
from neonxc.common.result import Result
from neonxc.common.types import Label, TableLike
from neonxc.data.kinds import plain
from neonxc.network import NeuralizedClustering, check_network
from neonxc.subspaces.concept_search import ConceptSearch, question_of, start_of
from neonxc.subspaces.references import ConceptReference
from neonxc.subspaces.split_network import Layer

if TYPE_CHECKING:
    from neonxc.lrp import Composite

POOLING: dict[int, Callable[..., Tensor]] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}

# fields of a file
PLAIN = ("classes", "layer", "held_out", "names", "competitor")
ARRAYS = ("relevance", "total", "left", "unchanged")


@dataclass(frozen=True, repr=False)
class Concepts(Result):
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
        the layer, to the mean of the inputs or locations that are not in the cluster (to zero, if X has none); NaN
        if there is no such point.
    unchanged : ndarray [C, k]
        Share of the other held-out points that keep their cluster then. In files of earlier versions NaN.
    held_out : bool
        Whether both are measured on inputs that the directions do not come from.
    references : list of list of list of Reference
        For each cluster and concept, where it is most relevant.
    names : list of list of str
        Names of the concepts.
    """

    classes: list[Label]
    layer: str | None
    directions: Tensor
    relevance: np.ndarray
    total: np.ndarray
    left: np.ndarray
    unchanged: np.ndarray
    held_out: bool
    references: list[list[list[ConceptReference]]]
    names: list[list[str]]
    competitor: Label | None = None

    @overload
    def heatmaps(
        self,
        net: NeuralizedClustering,
        X: Tensor,
        cluster: Label | None = None,
        composite: Composite | None = None,
    ) -> Tensor: ...
    @overload
    def heatmaps(
        self,
        net: NeuralizedClustering,
        X: TableLike,
        cluster: Label | None = None,
        composite: Composite | None = None,
    ) -> np.ndarray: ...
    def heatmaps(
        self,
        net: NeuralizedClustering,
        X: TableLike,
        cluster: Label | None = None,
        composite: Composite | None = None,
    ) -> np.ndarray | Tensor:
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
        c = self.position(cluster)
        layer = Layer(net.inputs, self.layer)
        table = net.inputs.read(X)
        question = question_of(net, self.classes[c], self.competitor)
        maps = []
        for block in net.inputs.blocks(table.tensor):
            halves = layer.halves(table.tensor[block], composite)
            m = halves.upper(start_of(net, halves.features, question, composite))
            axes = self.directions[c].to(m)
            along = (m @ axes.mT).unbind(2)  # u_i m for every concept, [n, P]

            # m is split into (u_i m) u_i for every concept, and the rest
            parts = [coordinate[..., None] * axis for coordinate, axis in zip(along, axes, strict=True)]
            parts.append(m - sum(parts))
            relevance = torch.stack([halves.lower(part) for part in parts], 1)
            if relevance.ndim > 3:  # images: the sum over the channels
                relevance = relevance.sum(2)
            maps.append(relevance)
        return table.restore(torch.cat(maps))

    def coordinates(self, net: NeuralizedClustering, X: TableLike) -> pd.DataFrame:
        """Compute the coordinates of points along the concepts, the columns of a tree on concepts.

        Returns
        -------
        DataFrame [n, columns]
            One row per point of the clustering: an input, whose locations are averaged, or a location of its map.
            The columns are the concepts of all clusters.
        """
        layer = Layer(net.inputs, self.layer)
        x = net.inputs.read(X).tensor
        axes = self.directions.flatten(0, 1)
        blocks = []
        for block in net.inputs.blocks(x):
            values, layer_shape = layer.values(x[block])
            along = values @ axes.to(values).mT  # [n, P, columns]
            shape = net.inputs.features(x[block]).shape[2:]
            if not shape:
                blocks.append(along.mean(1))
                continue

            if len(layer_shape) < len(shape):  # tokens of a square, after those that have no location
                side = math.isqrt(along.shape[1])
                along = along[:, -(side**2) :]
                layer_shape = (side, side)
            pooled = POOLING[len(shape)](along.mT.unflatten(2, layer_shape), shape)  # [n, columns, *shape]
            blocks.append(pooled.flatten(2).mT.flatten(0, 1))
        columns = [
            f"{label}: {name}" for label, names in zip(self.classes, self.names, strict=True) for name in names
        ]
        return pd.DataFrame(torch.cat(blocks).cpu().numpy(), columns=columns)

    def named(self, cluster: Label, names: Mapping[int, str]) -> Concepts:
        """Return these concepts with names for some concepts of a cluster, by their numbers from 1."""
        c = self.position(cluster)
        renamed = list(self.names[c])
        for i in range(1, len(renamed) + 1):
            if i in names:
                renamed[i - 1] = f"concept {i} ({names[i]})"
        return replace(self, names=[*self.names[:c], renamed, *self.names[c + 1 :]])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per concept.

        Returns
        -------
        DataFrame
            Index levels: "cluster" and "concept", its number from 1. Columns: "name"; "relevance"; "share", its
            share of the relevance of all concepts of the cluster and of the other directions together, whatever
            their signs; and "left" and "unchanged", as in the attributes.
        """
        k = self.relevance.shape[1]
        index = pd.MultiIndex.from_tuples(
            [(label, i + 1) for label in self.classes for i in range(k)], names=["cluster", "concept"]
        )
        rest = self.total - self.relevance.sum(1)
        values = {
            "name": [name for names in self.names for name in names],
            "relevance": self.relevance.ravel(),
            "share": shares(np.column_stack([self.relevance, rest]))[:, :-1].ravel(),
            "left": self.left.ravel(),
            "unchanged": self.unchanged.ravel(),
        }
        return pd.DataFrame(values, index)

    def position(self, cluster: Label | None = None) -> int:
        """Return the position of a cluster in `classes`; by default the first."""
        if cluster is None:
            return 0
        if cluster not in self.classes:
            raise ValueError(f"cluster needs one of {self.classes}, got {cluster!r}")
        return self.classes.index(cluster)

    def _remarks(self) -> list[str]:
        clusters = plural(len(self.classes), "cluster")
        concepts = plural(self.relevance.shape[1], "concept")
        lines = [f"{clusters}, {concepts} each at {self.layer or 'the features'}"]
        if not np.isnan(self.left).all():
            left = float(np.nanmean(self.left[:, -1]))
            line = f"Without all of its concepts, {percent(left)} of a cluster is left"
            if not np.isnan(self.unchanged).all():
                unchanged = float(np.nanmean(self.unchanged[:, -1]))
                line += f", and {percent(unchanged)} of the other points keep their cluster"
            lines.append(f"{line}.")
        return lines


def concepts(
    net: NeuralizedClustering,
    X: TableLike,
    layer: str | None = None,
    n_concepts: int = 4,
    cluster: Label | Sequence[Label] | None = None,
    *,
    competitor: Label | None = None,
    shared: bool = False,
    composite: Composite | None = None,
    held_out: TableLike | None = None,
) -> Concepts:
    """Find the concepts of clusters: the directions of a layer on which their relevance lies.

    A heatmap says where a network looks, and concepts what it sees there. The relevance of a direction is the
    product of what the layer's activations and the multipliers of LRP have along it. The most relevant subspace is
    found by principal relevant component analysis, and rotated so that the relevance of a location lies on few
    directions.

    Parameters
    ----------
    net : NeuralizedClustering
        A clustering of the features of a network, or of a sentence encoder.
    X : array, tensor or sequence of str
        Inputs of the feature network: some dozens of images, or texts.
    layer : str, optional
        Name of a layer of the feature network, as in ``named_modules()``. Its output is [N, C, ...], or has the
        channels last. Default: that of a :class:`neonxc.models.FeatureExtractor`, before its features are pooled;
        else the features.
    n_concepts : int, default=4
        Number of directions.
    cluster : label or sequence of labels, optional
        The clusters to explain. Default: all.
    competitor : label, optional
        Explain the clusters against this one only: the concepts of ``f_a - f_b``. Without `cluster`, these are all
        others.
    shared : bool, default=False
        One set of directions for all clusters, instead of one for each.
    composite : neonxc.lrp.Composite, optional
        LRP rules, as for :class:`neonxc.NEON`.
    held_out : as X, optional
        Inputs on which it is measured what is left of the clusters without their concepts, and what the other
        clusters keep. Default: every third row of X, which is then not used for the directions, if X has nine rows
        or more.

    Returns
    -------
    Concepts

    Raises
    ------
    TypeError
        A network without a feature network.
    ValueError
        An unknown layer or label, a cluster that is its own competitor, a layer of which it is unclear where its
        channels are, or more directions than it has channels.

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
    >>> net = neonxc.neuralize(network(X)[1:3].detach(), X, network)
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
    layer = layer or getattr(net.features, "layer", None) or None
    labels = _labels(net, cluster, competitor)
    split = Layer(net.inputs, layer)
    x = net.inputs.read(X).tensor

    rows = np.arange(len(x))
    if held_out is None and len(rows) >= 9:
        held_out = x[::3]
        rows = rows[rows % 3 > 0]
    train = x[torch.from_numpy(rows).to(x.device)]

    present = _present(net, train)
    absent = [label for label in labels if label not in present]
    if cluster is not None and absent:
        raise ValueError(f"cluster {absent[0]!r} has no point among the inputs")
    labels = [label for label in labels if label in present]
    questions = [question_of(net, label, competitor) for label in labels]

    search = ConceptSearch(net, split, train, rows, questions, composite)
    measured = search.measured(search.directions(n_concepts, shared), shared)
    directions, relevance, total, references = zip(*measured, strict=True)
    if net.inputs.in_texts:
        references = tuple(search.words(c, axes) for c, axes in enumerate(directions))
    test = train if held_out is None else net.inputs.read(held_out).tensor
    means = search.means_of_others()
    retained = [search.retained(test, c, axes, means[c]) for c, axes in enumerate(directions)]
    names = [f"concept {i + 1}" for i in range(n_concepts)]
    return Concepts(
        classes=labels,
        layer=layer,
        directions=torch.stack(directions).float().cpu(),
        relevance=np.stack(relevance),
        total=np.array(total),
        left=np.stack([of_cluster.left for of_cluster in retained]),
        unchanged=np.stack([of_cluster.unchanged for of_cluster in retained]),
        held_out=held_out is not None,
        references=list(references),
        names=[list(names) for _ in labels],
        competitor=competitor,
    )


def _present(net: NeuralizedClustering, x: Tensor) -> set[Any]:
    """The labels of the clusters that have a point among the inputs."""
    positions = [net.head.assign(net.inputs.features(x[block])).unique() for block in net.inputs.blocks(x)]
    return {plain(net.classes_[position]) for position in torch.cat(positions).tolist()}


def _labels(net: NeuralizedClustering, cluster: Any, competitor: Label | None) -> list[Any]:
    """Return the labels of the clusters to explain, by default all but the competitor and noise."""
    excluded = net.positions(competitor, "competitor")
    if cluster is None:
        candidates = [plain(label) for position, label in enumerate(net.classes_) if position != excluded]
        return [label for label in candidates if not is_noise(label)]

    clusters = cluster if np.ndim(cluster) else [cluster]
    labels = [plain(label) for label in clusters]
    if excluded is not None:
        positions = [net.positions(label, "cluster") for label in labels]
        if excluded in positions:
            label = plain(net.classes_[excluded])
            raise ValueError(f"cluster and competitor are both {label}; a cluster does not compete with itself")
    return labels


def _pack(concepts: Concepts) -> dict[str, Any]:
    """Return what a file holds of concepts; arrays are stored as tensors."""
    values = {name: getattr(concepts, name) for name in PLAIN}
    tensors = {name: torch.as_tensor(getattr(concepts, name)) for name in ARRAYS}
    return {**values, **tensors, "directions": concepts.directions, "references": concepts.references}


def _unpack(cls: type[Concepts], values: dict[str, Any]) -> Concepts:
    """Make concepts of what :func:`_pack` returned."""
    arrays = {name: values[name].numpy() for name in ARRAYS if name in values}
    arrays.setdefault("unchanged", np.full_like(arrays["left"], np.nan))
    references = [
        [[ConceptReference(*reference) for reference in of_concept] for of_concept in of_cluster]
        for of_cluster in values["references"]
    ]
    return cls(**{**values, **arrays, "references": references})


register(Concepts, _pack, _unpack)
