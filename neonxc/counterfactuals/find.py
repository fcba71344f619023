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
from neonxc.counterfactuals.task import Task, bounds_of, mask, spread_of
from neonxc.head import Head
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
    """Find the nearest points that belong to other clusters."""
    if not isinstance(net, NeuralizedClustering):
        raise TypeError(f"counterfactual needs a network from neonxc.neuralize, got {type(net).__name__}")
    if net.features is not None:
        raise ValueError("counterfactual changes raw columns, and this network has a feature network before them")
    batch = net.batch(x)
    given = batch.tensor
    d, device = given.shape[1], given.device
    names = net.feature_names_ or batch.names or [f"x{i}" for i in range(d)]
    points = given.double()
    own = _columns(net, given)
    goal = _targets(net, target, given, own)
    low, high = bounds_of(bounds, names, points)
    if columns is not None:
        check_whole("columns", columns)
    default = net.head.detection.units() if net.spread_ is None else torch.as_tensor(net.spread_)
    still = mask(fixed, names, "fixed")
    task = Task(
        points,
        given.dtype,
        goal,
        spread_of(spread, names, default).to(device),
        low.to(device),
        high.to(device),
        still.to(device),
        (mask(integer, names, "integer") & ~still).to(device),
        columns,
    )
    found = _nearest(net, task, own)
    after = found.points.to(given.dtype)
    distance = torch.where(found.found, task.distance(found.points), torch.inf)
    classes = np.append(net.classes_, -1) if net.noise is not None else net.classes_
    return Counterfactual(
        batch.restore(after),
        batch.restore(after - given),
        net.predict(batch.restore(after)),
        distance.cpu().numpy(),
        found.found.cpu().numpy(),
        bool(found.exact.all()),
        found.converged.cpu().numpy(),
        net.classes_[goal.cpu().numpy()],
        classes[own.cpu().numpy()],
        (points.cpu().numpy(), found.points.cpu().numpy()),
        names,
        task.spread.cpu().numpy(),
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
    labels = np.asarray(target.cpu() if isinstance(target, Tensor) else target)
    if labels.shape not in ((), (1,), (len(x),)):
        raise ValueError(f"target needs one label or one per point ({len(x)}), got shape {list(labels.shape)}")
    places = {label: column for column, label in enumerate(net.classes_.tolist())}
    unknown = [label for label in labels.ravel().tolist() if label not in places]
    if unknown:
        raise ValueError(f"target {unknown[0]!r} is no cluster; clusters are {net.classes_.tolist()}")
    found = torch.tensor([places[label] for label in labels.ravel().tolist()], device=x.device)
    return found.expand(len(x))
