"""The nearest point that belongs to another cluster."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.blocks import blocks
from neonxc.competition import Path, Rivals
from neonxc.counterfactuals.boxes import Boxes
from neonxc.counterfactuals.curved import Curved
from neonxc.counterfactuals.polyhedra import Polyhedra
from neonxc.counterfactuals.result import Counterfactual
from neonxc.counterfactuals.search import Found
from neonxc.counterfactuals.space import space_of
from neonxc.counterfactuals.task import Task, bounds_of, mask, spread_of
from neonxc.head import Head
from neonxc.inputs import NOISE, as_array
from neonxc.network import NeuralizedClustering
from neonxc.parameters import check_whole

GROWTH, TRIES = 8.0, 14
"""By what the hair grows by which points are inside, until the network agrees that they are."""

Region = Boxes | Polyhedra | Curved


@torch.no_grad()
def counterfactual(
    net: NeuralizedClustering,
    x: Any,
    target: Any = None,
    fixed: Any = (),
    integer: Any = (),
    bounds: Any = None,
    columns: int | None = None,
    spread: Any = None,
) -> Counterfactual:
    """Find the nearest points that belong to other clusters: what would have to change, and by how much.

    Parameters
    ----------
    net : NeuralizedClustering
        From :func:`neonxc.neuralize`, of raw columns: without a feature network.
    x : array, frame or tensor [N, d]
        Points, one or many. In a table with categories, which the network encodes, these stay as they are, and so
        do numbers that it encodes in several ways.
    target : label, or N labels, optional
        Of ``net.classes_``: where points shall belong. Points that do already stay. Default: each point's
        runner-up, the cluster of the second greatest logit; of noise, the nearest cluster.
    fixed : column, or sequence of columns
        Names or positions of columns that don't change.
    integer : column, or sequence of columns
        Columns that are whole numbers, also where x is not; those that are fixed stay as they are.
    bounds : dict, optional
        From columns to pairs ``(low, high)``, either of which may be None; x has to be inside.
    columns : int, optional
        How many columns of a point may change. Default: all.
    spread : array [d], or data [n, d], optional
        What a change of each column is measured in, in the units of the column (of an encoded column, behind its
        functions), or data whose standard deviations are taken. Default: those of the X that
        :func:`~neonxc.neuralize` was given, ``net.spread_``; without it, of the centers, supports or means that
        the clustering consists of, or what a threshold tree remembers, and 1 for columns in which these don't
        differ.

    Returns
    -------
    Counterfactual
        Points of the type of x, their changes, distances in spreads, and whether they are certain. ``net.predict``
        was asked for every point that is found, in the type that it is handed back in.

    Raises
    ------
    TypeError
        No network from :func:`~neonxc.neuralize`.
    ValueError
        A feature network, unusable x, an unknown label or column, bounds that cross or that x is outside of,
        spreads that are not positive.

    Notes
    -----
    It computes in float64 on the device of the network.

    The nearest point is exact where boundaries are flat in the raw columns: nearest centers and subcentroids, also
    behind affine pipelines, linear layers, mixtures with one covariance for all, hierarchies. Their clusters are
    unions of polyhedra, to each of which points are projected by a dual active-set method (Goldfarb and Idnani,
    Mathematical Programming 27, 1983); whole numbers, few columns and the polyhedra are searched by branch and
    bound (Land and Doig, Econometrica 28, 1960), which ends with the best point so far, and ``exact`` False, after
    1,000 projections. In threshold trees, whose clusters are unions of boxes, every column goes its own shortest
    way. Points are then inside by a hair, the least of some sizes at which the network agrees.

    Other boundaries (kernel k-means, other mixtures, surrogates, a Normalizer, noise) are linearised step by step,
    from the point itself and from a known point of the target. What that finds is a local minimum: ``exact`` is
    False, and a point may exist where ``found`` is False.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data.rename(columns=lambda name: name.removesuffix(" (cm)"))
    >>> net = neonxc.neuralize(KMeans(3, n_init=4, random_state=0).fit(X), X)
    >>> cf = neonxc.counterfactual(net, X[100:102], columns=1)
    >>> cf.exact
    True
    >>> bool((net.predict(cf.points) == cf.target).all())
    True
    """
    if not isinstance(net, NeuralizedClustering):
        raise TypeError(f"counterfactual needs a network from neonxc.neuralize, got {type(net).__name__}")
    if net.features is not None:
        raise ValueError("counterfactual changes raw columns, and this network has a feature network before them")
    batch = net.batch(x)
    space = space_of(net, x, batch)
    given, device = batch.tensor, batch.tensor.device
    own = _columns(net, given)
    goal = _targets(net, target, given, own)
    low, high = bounds_of(bounds, space)
    if columns is not None:
        check_whole("columns", columns)
    still = mask(fixed, space, "fixed") | space.still
    task = Task(
        given.double(),
        given.dtype,
        goal,
        spread_of(spread, net).to(device),
        low.to(device),
        high.to(device),
        still.to(device),
        (mask(integer, space, "integer") & ~still).to(device),
        columns,
    )
    found = _nearest(net, task, own)
    after = found.points.to(given.dtype)
    points = space.points(after)
    labels, wanted = net.predict(points), net.classes_[goal.cpu().numpy()]
    there = found.found.cpu().numpy() & (as_array(labels) == wanted)
    classes = np.append(net.classes_, NOISE) if net.noise is not None else net.classes_
    return Counterfactual(
        points,
        space.changes(after),
        labels,
        np.where(there, task.distance(found.points).cpu().numpy(), np.inf),
        there,
        bool(found.exact.all()),
        found.converged.cpu().numpy(),
        wanted,
        classes[own.cpu().numpy()],
        (space.raw(given), space.raw(after)),
        ((found.points - task.x) / task.spread).cpu().numpy(),
        space.encoded_names,
    )


def region_of(net: NeuralizedClustering) -> Region:
    """How the clusters of a network are made up."""
    slopes = net.head.slopes()
    if slopes is None or net.noise is not None:
        return Curved(net.head, net.noise)
    return _region(net.head.competition, net.head, slopes)


@singledispatch
def _region(competition: Rivals | Path, head: Head, slopes: Tensor) -> Region:
    return Polyhedra(head, slopes)


@_region.register
def _(competition: Path, head: Head, slopes: Tensor) -> Region:
    edges = head.detection.edges()
    return Polyhedra(head, slopes) if edges is None else Boxes(head, edges)


def _nearest(net: NeuralizedClustering, task: Task, own: Tensor) -> Found:
    """The nearest points of all points, those that are where they should be already left out."""
    region = region_of(net)
    n, device = len(task.x), task.x.device
    settled = (own == task.target) & ((task.x == task.x.round()) | ~task.integer).all(dim=1)
    result = Found(task.x.clone(), settled.clone(), torch.ones_like(settled), settled.clone())
    open_ = (~settled).nonzero()[:, 0]
    size = max(1, region.room)
    for part in blocks(len(open_), -(-(1 << 27) // size), device) if n else ():
        some = open_[part]
        found = _confirmed(net, region, task.take(some))
        for into, values in zip(
            (result.points, result.found, result.exact, result.converged),
            (found.points, found.found, found.exact, found.converged),
            strict=True,
        ):
            into[some] = values
    return result


def _confirmed(net: NeuralizedClustering, region: Region, task: Task) -> Found:
    """Nearest points that the network itself, in the type of the given points, finds in their targets."""
    n, device = len(task.x), task.x.device
    result = Found(task.x.clone(), *(torch.zeros(n, dtype=torch.bool, device=device) for _ in range(3)))
    open_ = torch.arange(n, device=device)
    size = (task.x.abs() / task.spread).amax(dim=1).clamp(min=1)
    margin = region.first_margin + (4 * torch.finfo(task.dtype).eps * size if region.first_margin else 0 * size)
    for _ in range(TRIES):
        if not len(open_):
            break
        some = task.take(open_)
        found = region.nearest(some, margin[open_])
        rounded = found.points.to(task.dtype)
        right = found.found & (_columns(net, rounded) == some.target)
        result.points[open_[right]] = rounded[right].double()
        result.found[open_[right]] = True
        done = right | ~found.found
        result.exact[open_[done]] = found.exact[done]
        result.converged[open_[done]] = found.converged[done] & right[done]
        open_ = open_[~done]
        margin = (margin * GROWTH).clamp(min=4 * torch.finfo(task.dtype).eps * size)
    return result


def _columns(net: NeuralizedClustering, x: Tensor) -> Tensor:
    """Column of each point's cluster, K for noise."""
    column = net.assign(x)
    return column if net.noise is None else torch.where(net.outside(x), net.head.n_clusters, column)


def _targets(net: NeuralizedClustering, target: Any, x: Tensor, own: Tensor) -> Tensor:
    """Columns [n] of labels, one or one per point; the runner-up by default, of noise the nearest cluster."""
    if target is None:
        parts = [net.head(x[some]) for some in net.carrier.of_points(x)]
        logits = torch.cat(parts)
        logits = torch.cat([logits, logits[:, :1]], dim=1)  # noise has a column, too
        return logits.scatter(1, own[:, None], -torch.inf)[:, :-1].argmax(dim=1)
    labels = as_array(target)
    if labels.shape not in ((), (1,), (len(x),)):
        raise ValueError(f"target needs one label or one per point ({len(x)}), got shape {list(labels.shape)}")
    places = {label: column for column, label in enumerate(net.classes_.tolist())}
    unknown = [label for label in labels.ravel().tolist() if label not in places]
    if unknown:
        raise ValueError(f"target {unknown[0]!r} is no cluster; clusters are {net.classes_.tolist()}")
    found = torch.tensor([places[label] for label in labels.ravel().tolist()], device=x.device)
    return found.expand(len(x))
