"""The smallest changes of points of the map that move them to other clusters.

Changed values are printed with as few significant digits as still move the point: they are rounded away from the
old value, so that the boundary between the clusters stays crossed, and the network decides whether it is.
"""

from __future__ import annotations

from copy import copy
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
import pandas as pd

from neonxc.attribution.contrasts import some_of
from neonxc.common.locales import printed_like
from neonxc.common.numbers import percent, rounded, text
from neonxc.counterfactuals import counterfactual
from neonxc.counterfactuals.find import CURVED_MARGIN, is_curved
from neonxc.data.table import Table
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Change
from neonxc.report.relevance import Relevance
from neonxc.report.statements import is_category

POINTS = 200  # maximum number of points whose changes are searched
COLUMNS = 3  # maximum number of columns that change
MARGIN = 0.25  # standard deviations inside the other cluster, so that a change holds if its border moves a little
# maximum number of points, and of columns of the data, where the search takes long
SLOW = 100
FEW = 12
DIGITS = (4, 6, 9, 17)  # numbers of significant digits tried for changed values


def margin_text(clustering: ClusteredData) -> str:
    """Say how far inside the other cluster the smallest changes end."""
    if is_curved(clustering.net):
        share = percent(CURVED_MARGIN)
        return f"Smallest changes end where logits are at least {share} of the median of the cluster's rows."
    return (
        f"Smallest changes end {text(MARGIN)} standard deviations inside the other cluster: they hold if its "
        "border moves by so much."
    )


def n_searched(clustering: ClusteredData) -> int:
    """Maximum number of points of which the smallest change is searched; 0 without columns that can change."""
    if not clustering.has_columns_to_change:
        return 0
    if not _is_slow(clustering):
        return POINTS
    return SLOW if len(clustering.columns) <= FEW else 0


def _is_slow(clustering: ClusteredData) -> bool:
    """Whether clusters have curved boundaries or several components."""
    return is_curved(clustering.net) or clustering.net.head.grouping is not None


def smallest_changes(
    clustering: ClusteredData, relevance: Relevance, index: np.ndarray, first: np.ndarray, n_max: int
) -> list[Change | None]:
    """Find the smallest changes, in the range of the data, that move points [m] to other clusters.

    They are searched for at most `n_max` of the points, first for those at the positions `first`. At most
    `COLUMNS` of the shown columns change, or any number of columns where the search takes long.
    """
    changes: list[Change | None] = [None] * len(index)
    first = first[:n_max]
    remaining = np.setdiff1d(np.arange(len(index)), first)
    sample = np.union1d(first, some_of(remaining, n_max - len(first)))
    net = clustering.net
    if net.rows_ is None:  # it comes from a file
        net = copy(net).keep_rows(clustering.inputs(index))
    d = len(clustering.columns)
    before = clustering.split_columns(index[sample]).frame(clustering.columns)
    inputs = clustering.inputs(index[sample])
    space = net.inputs.space(net.inputs.read(inputs))
    movable = {*space.owner[~space.is_fixed.cpu().numpy()].tolist()}
    # of the columns that are not shown, which stay as they are, neither bounds nor whole numbers matter
    shown = [(i, before.iloc[:, i]) for i in relevance.shown.tolist() if i in movable]
    numbers = {i: values for i, values in shown if not is_category(values)}
    parts = getattr(net.inputs.encoding, "number_parts", {}).values()
    curved = {part.column for part in parts if part.functions}  # which no search can hold at whole numbers
    integers = [i for i, values in numbers.items() if _are_whole(values) and i not in curved]
    hidden = np.setdiff1d(np.arange(d), relevance.shown).tolist()
    n_columns = None if _is_slow(clustering) else min(COLUMNS, d)
    nearest = counterfactual(
        net,
        inputs,
        columns=n_columns,
        fixed=hidden,
        integer=integers,
        bounds={i: (values.min(), values.max()) for i, values in numbers.items()},
        margin=None if is_curved(net) else MARGIN,
    )
    after = Table.read(nearest.points).frame(list(before.columns))
    old = before.to_numpy()
    new = after.to_numpy()
    is_changed = (old != new) & (pd.notna(old) | pd.notna(new))
    texts = _shortest_texts(clustering, before, after, is_changed, nearest.target)
    targets = net.positions(nearest.target).numpy()
    targets = np.where(targets < clustering.k, targets, -1).tolist()
    for i in np.flatnonzero(nearest.found).tolist():
        values = [(relevance.shown_positions[column], printed) for column, printed in texts[i].items()]
        changes[sample[i]] = Change(targets[i], rounded([nearest.distance[i]])[0], values)
    return changes


def _are_whole(values: pd.Series) -> bool:
    """Whether all known numbers are whole: counts with a missing value are floats, too."""
    known = values.dropna().to_numpy(dtype=np.float64)
    return bool((known % 1 == 0).all())


def _shortest_texts(
    clustering: ClusteredData, before: pd.DataFrame, after: pd.DataFrame, moved: np.ndarray, target: np.ndarray
) -> list[dict[int, str]]:
    """Print changed values by column, with as few digits as still move the point to the target cluster."""
    formats = clustering.net.inputs.formats
    texts: list[dict[int, str]] = [{} for _ in range(len(after))]
    unsettled = np.arange(len(after))
    for digits in DIGITS:
        if not len(unsettled):
            break
        rounded_points = after.iloc[unsettled].copy()
        for i, row in enumerate(unsettled.tolist()):
            for column in np.flatnonzero(moved[row]).tolist():
                value = after.iat[row, column]
                if isinstance(value, float) and np.isfinite(value):
                    value = rounded_points.iat[i, column] = _rounded_away(value, before.iat[row, column], digits)
                with printed_like(formats[column].marks):
                    texts[row][column] = text(value, digits)
        points = rounded_points
        if clustering.rule_names is not None:  # the network knows no names of columns
            points = rounded_points.to_numpy()
        predicted = np.asarray(clustering.net.predict(points))
        unsettled = unsettled[predicted != target[unsettled]]
    return texts


def _rounded_away(value: float, before: float, digits: int) -> float:
    """Round a changed value to significant digits, away from the old value, so that boundaries stay crossed."""
    rounding = ROUND_CEILING if value > before else ROUND_FLOOR
    return float(Context(prec=digits, rounding=rounding).create_decimal_from_float(value))
