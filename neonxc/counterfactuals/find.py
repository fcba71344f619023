"""The public function :func:`counterfactual`, which finds the nearest points in other clusters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from neonxc.common.arguments import check_number, check_whole
from neonxc.common.types import AnyArray, ArrayLike, Frame, Label, OtherTable, TableLike
from neonxc.counterfactuals.geometry import slopes_of
from neonxc.counterfactuals.pieces import Region, region_of
from neonxc.counterfactuals.reasons import Unreached
from neonxc.counterfactuals.result import ROUNDING, Counterfactual
from neonxc.counterfactuals.rows import ClusterRows, decisions, known_rows
from neonxc.counterfactuals.search import Finder
from neonxc.counterfactuals.task import Bounds, Column, Task, bounds_of, mask, spread_of
from neonxc.data.files.format import column_formats
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.head.competition import Path
from neonxc.inputs.space import Space
from neonxc.network import NeuralizedClustering, check_network

if TYPE_CHECKING:
    import pandas as pd

CURVED_MARGIN = 0.1
"""Default of the margin where borders are curved."""


class Options(TypedDict, total=False):
    """What :func:`counterfactual` takes by name."""

    fixed: Column | Iterable[Column]
    integer: Column | Iterable[Column]
    bounds: Bounds
    columns: int | None
    spread: ArrayLike | TableLike | None
    margin: float | None
    k: int
    apart: float
    categories: Literal["keep", "change"]


Target: TypeAlias = Label | ArrayLike | None


@overload
def counterfactual(
    net: NeuralizedClustering, x: Tensor, target: Target = None, **options: Unpack[Options]
) -> Counterfactual[Tensor, Tensor]: ...
@overload
def counterfactual(
    net: NeuralizedClustering, x: Frame, target: Target = None, **options: Unpack[Options]
) -> Counterfactual[Frame]: ...
@overload
def counterfactual(
    net: NeuralizedClustering, x: OtherTable, target: Target = None, **options: Unpack[Options]
) -> Counterfactual[np.ndarray | pd.DataFrame]: ...
@overload
def counterfactual(
    net: NeuralizedClustering, x: AnyArray, target: Target = None, **options: Unpack[Options]
) -> Counterfactual[np.ndarray]: ...
@torch.no_grad()
@reads_tables
def counterfactual(
    net: NeuralizedClustering,
    x: TableLike,
    target: Label | ArrayLike | None = None,
    fixed: Column | Iterable[Column] = (),
    integer: Column | Iterable[Column] = (),
    bounds: Bounds = None,
    columns: int | None = None,
    spread: ArrayLike | TableLike | None = None,
    margin: float | None = None,
    k: int = 1,
    apart: float = 0.5,
    categories: Literal["keep", "change"] = "keep",
) -> Counterfactual[Any, np.ndarray | Tensor]:
    """Find the nearest points in other clusters: which columns have to change, and by how much.

    Parameters
    ----------
    net : NeuralizedClustering
        From :func:`neonxc.neuralize`, without a feature network.
    x : array, data frame or tensor [N, d]
        The points. In tables that the network encodes, numbers that are encoded in several ways do not change,
        and categories only as `categories` says.
    target : label or sequence of N labels, optional
        The target clusters, among ``net.classes_``; points that are in their target already do not change.
        Default: the cluster with the second largest logit of each point; for noise, the nearest cluster. In
        threshold trees and hierarchies, where these logits are often equal: the other cluster that the smallest
        change reaches.
    fixed : column or sequence of columns
        Names or positions of columns that may not change.
    integer : column or sequence of columns
        Columns that need whole numbers in the result, even if they are fractional in x. Fixed columns keep their
        values.
    bounds : dict or "data", optional
        Maps columns to pairs ``(low, high)``; either may be None. For rows of x outside them, ``found`` is
        False. "data": the least and the greatest value of every column in the X given to
        :func:`~neonxc.neuralize`, ``net.ranges_``. Default: no bounds; ``Counterfactual.outside`` tells which
        columns leave these ranges.
    columns : int, optional
        Largest number of columns of a point that may change. Default: all.
    spread : array [d] or data [n, d], optional
        The unit in which changes of each column are measured, or data whose standard deviations are used. For a
        column that a pipeline passes to a function such as a logarithm, the unit is that of the function's values.
        Default: the standard deviations of the X given to :func:`~neonxc.neuralize`, ``net.spread_``. Without X,
        those of the centers, supports or means of the clustering, or those that a threshold tree stores; 1 for
        columns where these are constant.
    margin : float, optional
        How deep inside the target points shall be, so that they stay there if a fit to other rows moves its
        border: the least distance from every boundary, in standard deviations. Where boundaries are curved: the
        least logit, as a share of the median logit of the target's rows. Default: 0, and 0.1 where boundaries are
        curved. For noise it is 0.
    k : int
        Number of answers for each point, the nearest ones that differ; see `apart`.
    apart : float
        Two answers of a point differ if their distance is at least this times the distance of the first answer
        from the point, or if each of them changes a column that the other one does not.
    categories : {"keep", "change"}
        "change": the categories of a table may become those of a row of the target.

    Returns
    -------
    Counterfactual
        Points with the type of x, `k` for each point of x, their changes, distances in standard deviations, and
        whether they are exact. Every point found was checked with ``net.predict`` in the dtype in which it is
        returned. Where none is found, ``reasons`` tells which of the limits is in the way.

    Raises
    ------
    TypeError
        `net` is not a network from :func:`~neonxc.neuralize`.
    ValueError
        A network with a feature network, invalid x, an unknown label or column, bounds that cross or are not
        known, or standard deviations that are not positive. Curved boundaries, ``k > 1`` or categories that
        change, and a network that knows no rows of the clusters.

    Notes
    -----
    The computation is in float64 on the device of the network.

    The nearest point is exact if the cluster boundaries are linear in the raw columns: nearest centers and
    subcentroids (also after affine pipelines), linear layers, mixtures with one shared covariance, hierarchies.
    Their clusters are unions of polyhedra, and points are projected to each of them by a dual active-set method
    (Goldfarb and Idnani, Mathematical Programming 27, 1983). Whole numbers, a limited number of columns, and the
    choice of the polyhedron are solved by branch and bound (Land and Doig, Econometrica 28, 1960); after 1,000
    projections per point (fewer if clusters times columns exceed 4,000, about 200 for 20 clusters of 1,000
    columns) the search returns the best point so far, with ``exact`` False. In threshold trees, whose clusters
    are unions of boxes, the columns are independent. Points are moved inside the target by the margin and the
    smallest of several slacks at which the network confirms them, as they are returned: rounded and decoded.
    Points that are never confirmed do not change, and ``exact`` is False.

    Across other boundaries (kernel k-means, other mixtures, surrogates, a Normalizer, noise), answers are near
    segments from the point to the nearest rows of the target that are no outliers: bisection finds where a segment
    crosses the border, the crossing moves along the border towards the point, and columns return to their values
    in x where the point remains inside. With a margin of more than 0.25, answers stay on the segments. ``exact``
    is False, and a point may exist even if ``found`` is False. The rows are those of the X given to
    :func:`~neonxc.neuralize` (``net.rows_``), or else the members of a density clustering or the supports of
    kernel k-means and surrogates. Further answers, and those with other categories, are found in this way, too.

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
    check_network(net, "counterfactual")
    table = net.batch(x)
    space = net.inputs.space(table)
    before = table.tensor
    device = before.device
    cluster, logits = decisions(net.head, before)
    goal, targets = _targets(net, target, logits, cluster)
    ranges = net.ranges_
    if ranges is not None and ranges.shape[1] != len(space.names):
        ranges = None
    ends, limits = bounds_of(bounds, space, ranges)
    low, high = ends.to(device)
    if columns is not None:
        check_whole("columns", columns)
    check_whole("k", k)
    check_number("apart", apart)
    if categories not in ("keep", "change"):
        raise ValueError(f'categories needs "keep" or "change", got {categories!r}')
    is_category = space.is_category.to(device)
    immovable = space.is_fixed.to(device)
    if categories == "change":
        immovable = immovable & ~is_category

    region = region_of(net.head)
    if margin is None:
        margin = CURVED_MARGIN if region is None else 0.0
    check_number("margin", margin)
    is_fixed = mask(fixed, space, "fixed").to(device) | immovable
    is_integer = mask(integer, space, "integer").to(device) & ~is_fixed
    margins = torch.full((len(before),), margin, dtype=torch.float64, device=device)
    task = Task(
        x=before.double(),
        dtype=before.dtype,
        targets=targets,
        margin=margins.masked_fill(goal == net.noise_position, 0.0),
        spread=spread_of(spread, net).to(device),
        low=torch.where(is_integer, low.ceil(), low),
        high=torch.where(is_integer, high.floor(), high),
        fixed=is_fixed,
        integer=is_integer,
        max_columns=columns,
        column=torch.as_tensor(space.owner, device=device),
        is_category=is_category,
    )

    # rows of the data are inside its ranges up to the rounding to another dtype
    rounding = ROUNDING if isinstance(bounds, str) else 0.0
    slack = rounding * (before.abs() + task.spread.to(before))
    is_below = before + slack < low.to(before)
    is_above = before - slack > high.to(before)
    outside = (is_below | is_above).any(dim=1)

    rows = _cluster_rows(net, task, space, region, k)
    finder = Finder(region, rows, k, apart)

    def written(after: Tensor, like: Table) -> Any:
        return net.inputs.write(after.to(before.dtype), like, limits)

    def reached(after: Tensor, index: Tensor) -> Tensor:
        like = table.take(index.cpu().numpy())
        return net.head.assign(net.batch(written(after, like)).tensor)

    nearest = finder.answers(task, cluster, outside, reached)

    # one row per answer
    row = np.repeat(np.arange(len(before)), k)
    if k > 1:
        table = net.batch(_repeated(table, row))
        space = net.inputs.space(table)
        before = table.tensor
    y = nearest.points.flatten(0, 1)
    after = y.to(before.dtype)
    points = written(y, table)
    is_found = nearest.found.flatten()
    found = is_found.cpu().numpy()
    size = (y - before.double()) / task.spread
    distance = torch.where(is_found, torch.linalg.vector_norm(size, dim=1), torch.inf)
    start = cluster[row]
    end = torch.where(is_found, goal[row], start)
    if isinstance(net.head.competition, Path):  # any other cluster may be the target
        end = net.head.assign(net.batch(points).tensor)
    labels = net.classes_[end.cpu().numpy()]
    return Counterfactual(
        points=points,
        changes=space.changes(after),
        labels=table.labels(labels),
        distance=distance.cpu().numpy(),
        found=found,
        exact=bool(nearest.exact.all()),
        rows=row,
        target=np.where(found, labels, net.classes_[goal.cpu().numpy()][row]),
        margin=float(task.margin.max()),
        _before=net.classes_[start.cpu().numpy()],
        _values=(space.by_column(space.raw(before)), space.by_column(space.raw(after))),
        _size=space.sizes(size.cpu().numpy()),
        _cells=space.changed_categories(points),
        _names=space.names,
        _ranges=ranges,
        _formats=column_formats(net.table_format, space.names),
        _unreached=Unreached(finder, task, immovable, [*space.names], limits),
        _outlier_factors=None if rows is None else partial(rows.outlier_factors, y, end),
    )


def is_curved(net: NeuralizedClustering) -> bool:
    """Whether the boundaries of the clusters are curved, so that counterfactuals are on segments to rows."""
    return slopes_of(net.head) is None


def _cluster_rows(
    net: NeuralizedClustering, task: Task, space: Space, region: Region | None, k: int
) -> ClusterRows | None:
    """Return the rows that the network knows; those whose categories have no value are left out.

    Raises
    ------
    ValueError
        Rows are needed, and the network knows none.
    """
    points = known_rows(net)
    has_categories = bool((task.is_category & ~task.fixed).any())
    if points is not None:
        if has_categories:
            points = points[space.has_values(points).all(dim=1)]
        return ClusterRows(points, net.head, region, task.spread)
    if region is not None and k == 1 and not has_categories:
        return None
    raise ValueError(
        "counterfactual needs rows of the clusters here, and the network has none, as it was made without X or "
        "comes from a file: neonxc.neuralize(model, X), or net.keep_rows(X)"
    )


def _repeated(table: Table, row: np.ndarray) -> Table:
    """Return the rows of a table at some positions, with the type and the index of the results."""
    repeated = table.take(row)
    repeated.library = table.library
    if table.index is not None:
        repeated.index = table.index[row]
    return repeated


def _targets(
    net: NeuralizedClustering, target: Label | ArrayLike | None, logits: Tensor, cluster: Tensor
) -> tuple[Tensor, Tensor]:
    """The positions [n] of the target labels, by default the runner-up, and the mask [n, K] of targets.

    By default, these are all other clusters if the network is a tree, where the logits of runners-up are equal.
    """
    n, K = logits.shape
    if target is None:
        is_other = cluster[:, None] != torch.arange(K, device=cluster.device)
        goal = torch.where(is_other, logits, -torch.inf).argmax(dim=1)
        if isinstance(net.head.competition, Path):
            return goal, is_other
        return goal, one_hot(goal, K).bool()
    labels = as_array(target)
    if labels.shape not in ((), (1,), (n,)):
        raise ValueError(f"target needs one label or one per point ({n}), got shape {list(labels.shape)}")
    goal = torch.as_tensor(net.positions(labels), device=cluster.device).expand(n)
    return goal, one_hot(goal, K).bool()
