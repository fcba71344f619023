"""Agreement of an exact network with the clusterer that it was made from.

A reader makes a network from the type of a clusterer; only the clusterer itself can tell whether it decides as its
type says. Both are asked about the same points, while the network is calibrated:

    checked points   every s-th point of X, 2,000 to 4,000 of them (all, if there are fewer)
    clear points     those of them that are not tied: their contrast with the nearest competitor is greater than
                     1e-3 of the median contrast, and than 16 eps |z| (|A| |x| + |b|), its rounding at z = A x + b
    predicted        what the model, with its whole pipeline, predicts for the rows of X
    stored           its ``labels_``, if there are as many as points
    agreement        the fraction of clear points with the clusterer's label; the smaller of the two

Labels of other rows, of which there are as many by chance, are no reason to complain: the agreement with them is
that of two independent labellings with the same sizes of clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from neonxc.clusterings.labels import first_predicted
from neonxc.clusterings.neuralize_arguments import ClusteringArguments
from neonxc.common.numbers import percent
from neonxc.common.sizes import CHECKED_ROWS
from neonxc.common.types import TableLike
from neonxc.data.inputs import as_array
from neonxc.data.labels import NOISE
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.answer import Answer
from neonxc.head.preprocessing import Preprocessing, mapped
from neonxc.network import NeuralizedClustering

if TYPE_CHECKING:
    from neonxc.clusterings.reasons import Reason

Source = Literal["predict", "labels_"]

LOWEST: dict[Source, float] = {"predict": 1.0, "labels_": 0.95}
"""Agreement below which there is a warning: stored labels of online and density clusterers differ for a few."""
TIED = 1e-3
"""Largest contrast of a tie, relative to the median contrast."""
SHOWN = 5
"""Number of rows that a warning lists."""


class Decisions:
    """The network's decisions at the checked points, collected from its answers to all inputs.

    Parameters
    ----------
    n_inputs : int
        Number of inputs that are answered.
    preprocessing : Preprocessing or None
        The map A, b behind which the clusterer compares points.
    keeps_points : bool
        Whether the points are needed to ask the clusterer, as they are features of a network.
    """

    def __init__(self, n_inputs: int, preprocessing: Preprocessing | None, keeps_points: bool) -> None:
        self.n_inputs = n_inputs
        self.preprocessing = preprocessing
        self.keeps_points = keeps_points
        self.n_points = 0
        self.assigned: list[Tensor] = []  # of the checked points, [n] each
        self.contrast: list[Tensor] = []
        self.rounding: list[Tensor] = []
        self.points: list[Tensor] = []  # [n, d] each

    def step(self, points_per_input: int) -> int:
        """Return the distance s between two checked points."""
        return max(1, self.n_inputs * points_per_input // CHECKED_ROWS)

    def add(self, answer: Answer, points_per_input: int) -> None:
        """Keep what is needed of the answer to the next points."""
        step = self.step(points_per_input)
        first = -self.n_points % step  # so that the positions among all points are multiples of the step
        checked = slice(first, None, step)
        self.n_points += len(answer.assigned)

        self.assigned.append(answer.assigned[checked].cpu())
        self.contrast.append(answer.contrasts[checked].amin(1).double().cpu())
        if isinstance(answer.x, SparseRows):  # it has no offset that could cancel
            self.rounding.append(torch.zeros(len(self.assigned[-1]), dtype=torch.float64))
            return
        points = answer.x[checked]
        self.rounding.append(self._rounding(points).cpu())
        if self.keeps_points:
            self.points.append(points.cpu())

    def _rounding(self, x: Tensor) -> Tensor:
        """Bound the rounding [n] of contrasts that a clusterer computes from |z|^2 - 2 z'c + |c|^2."""
        eps = torch.finfo(x.dtype).eps
        x = x.double()
        if self.preprocessing is None:
            return 16 * eps * x.square().sum(1)
        weight = self.preprocessing.weight.to(x)
        bias = self.preprocessing.bias.to(x)
        z = mapped(weight, x) + bias
        summands = mapped(weight.abs(), x.abs()) + bias.abs()
        if self.preprocessing.norm is not None:  # the norms of both are about that of z
            norm = z.norm(dim=1, keepdim=True).clamp(min=torch.finfo(z.dtype).tiny)
            z = z / norm
            summands = summands / norm
        return 16 * eps * z.norm(dim=1) * summands.norm(dim=1)

    def clear(self) -> np.ndarray:
        """Return which checked points are not tied, [n] of bool."""
        contrast = torch.cat(self.contrast)
        rounding = torch.cat(self.rounding)
        finite = contrast[contrast.isfinite()]
        tied = TIED * finite.median() if len(finite) else 0.0
        is_clear: np.ndarray = ((contrast > tied) & (contrast > rounding)).numpy()
        return is_clear

    def positions(self, stride: int) -> np.ndarray:
        """Return the positions [n] of the checked points among those of all inputs; every `stride`-th was run."""
        points_per_input = self.n_points // self.n_inputs
        checked = np.arange(0, self.n_points, self.step(points_per_input))
        inputs = checked // points_per_input * stride
        return inputs * points_per_input + checked % points_per_input


class Difference(NamedTuple):
    """Labels of the clusterer that the network does not give."""

    source: Source  # where the clusterer has them
    message: str  # of how many points, and of which
    reason: Reason


class LabelAgreement(NamedTuple):
    """How far a network agrees with its clusterer."""

    fraction: float | None  # of the clear points; None if the clusterer has no labels of any
    difference: Difference | None = None


def agreement(
    net: NeuralizedClustering, arguments: ClusteringArguments, X: Table, decisions: Decisions, stride: int = 1
) -> LabelAgreement:
    """Compare the decisions of a network with the labels of its clusterer.

    Parameters
    ----------
    net : NeuralizedClustering
    arguments : ClusteringArguments
        What the network was made from.
    X : Table
        The inputs, as the network has read them.
    decisions : Decisions
        Those about every `stride`-th input.
    stride : int
    """
    if not decisions.assigned:
        return LabelAgreement(None)
    points_per_input = decisions.n_points // decisions.n_inputs
    checked = decisions.positions(stride)
    inputs = checked // points_per_input
    assigned = net.classes_[torch.cat(decisions.assigned).numpy()]
    is_clear = decisions.clear()
    weight = np.ones(len(assigned))
    if arguments.weight is not None:
        weight = arguments.weight[inputs]

    lowest = None
    difference = None
    for source, labels in _labels(arguments, decisions, checked, len(X) * points_per_input):
        is_compared = is_clear & _is_decided(arguments.final, source, assigned, labels, checked) & (weight > 0)
        if not is_compared.any():
            continue
        differs = is_compared & (assigned != labels)
        fraction = float(1 - weight[differs].sum() / weight[is_compared].sum())
        is_low = fraction < LOWEST[source]
        if is_low and source == "labels_" and _of_other_rows(assigned[is_compared], labels[is_compared], fraction):
            continue
        if lowest is None or fraction < lowest:
            lowest = fraction
        if is_low and difference is None:
            rows = inputs[differs][:SHOWN].tolist()
            message = (
                f"the network gives {percent(fraction)} of {is_compared.sum()} points of X the label that the "
                f"{type(arguments.final).__name__} has in {source}; others have the rows {rows}"
            )
            cause = _reason(net, arguments, X, source, checked, labels)
            difference = Difference(source, message, cause)
    return LabelAgreement(lowest, difference)


def _reason(
    net: NeuralizedClustering,
    arguments: ClusteringArguments,
    X: Table,
    source: Source,
    checked: np.ndarray,
    labels: np.ndarray,
) -> Reason:
    """Find what X lacks, or say what may be the reason of a difference."""
    from neonxc.clusterings import reasons  # of differences, which are rare

    if source == "predict":  # it predicts X as it is
        return reasons.OF_MODEL
    if arguments.features is not None:
        return reasons.OF_FEATURES
    if not isinstance(X.tensor, Tensor) or arguments.encoding is not None:
        return reasons.NOT_TRIED
    points = X.tensor.double().cpu().numpy()

    def predict(rows: np.ndarray) -> np.ndarray:
        return as_array(net.predict(torch.from_numpy(rows).to(X.tensor.device)))

    return reasons.reason(predict, points, getattr(arguments.final, "cluster_centers_", None), checked, labels)


def predicts_otherwise(model: Any, final: object, X: TableLike, labels: np.ndarray) -> str:
    """Say how far a fitted clusterer predicts other labels of X than it stores; "" if it does not.

    Parameters
    ----------
    model : estimator
        The clusterer, or a pipeline that ends in it.
    final : estimator
        The clusterer.
    X : array, frame or sparse matrix [N, d]
        What `model` takes.
    labels : ndarray [N]
        What it predicts.
    """
    stored = getattr(final, "labels_", None)
    if stored is None or np.shape(stored) != np.shape(labels) or has_own_predict(model):
        return ""
    stored = as_array(stored)
    # what MeanShift predicts a cluster may be noise where it is stored
    is_same = (labels == stored) | (stored == NOISE)
    fraction = float(is_same.mean())
    if fraction >= LOWEST["labels_"] or _of_other_rows(labels, stored, fraction):
        return ""

    def predict(rows: np.ndarray) -> np.ndarray:
        return as_array(model.predict(rows))

    from neonxc.clusterings import reasons  # as above

    table = Table.read(X)
    cause = reasons.NOT_TRIED
    if final is model and not table.is_sparse and not table.is_mixed:
        points = table.numbers.double().cpu().numpy()
        checked = np.arange(0, len(points), max(1, len(points) // CHECKED_ROWS))
        cause = reasons.reason(predict, points, getattr(final, "cluster_centers_", None), checked, stored[checked])
    rows = np.flatnonzero(~is_same)[:SHOWN].tolist()
    return (
        f"the {type(final).__name__} predicts its labels_ for {percent(fraction)} of {len(labels)} rows of X, and "
        f"others for the rows {rows}: {cause.text}"
    )


# --- what the clusterer says -------------------------------------------------------------------------------------


def _labels(
    arguments: ClusteringArguments, decisions: Decisions, checked: np.ndarray, n_points: int
) -> Iterator[tuple[Source, np.ndarray]]:
    """Yield the labels of the checked points that the model predicts, and those that it stores.

    Both are compared with the network, each against a bound of its own, so that neither replaces the other.
    """
    labels = _predicted(arguments, decisions, checked)
    if labels is not None:
        yield "predict", labels
    stored = getattr(arguments.final, "labels_", None)
    if labels is not None and has_own_predict(arguments.model):  # which may merge or rename what is stored
        return
    if stored is not None and np.size(stored) == n_points:
        yield "labels_", as_array(stored).ravel()[checked]


def _predicted(arguments: ClusteringArguments, decisions: Decisions, checked: np.ndarray) -> np.ndarray | None:
    """Predict the labels [n] of the checked points; None if the model does not predict any."""
    if not hasattr(arguments.model, "predict"):
        return None
    forms: list[TableLike]
    if decisions.keeps_points:
        points = as_array(torch.cat(decisions.points))
        forms = [points.astype(np.float64), points.astype(np.float32)]
    else:
        assert arguments.raw is not None
        rows = arguments.raw.take(checked)
        forms = [rows.for_sklearn, rows.data]
    return first_predicted(arguments.model, forms, len(checked))


def _is_decided(
    final: object, source: Source, assigned: np.ndarray, labels: np.ndarray, checked: np.ndarray
) -> np.ndarray:
    """Return for which points the rule of the clusterer decides alone, [n] of bool.

    DBSCAN and OPTICS give a row on the border of two clusters to the one that they visit first; only core points,
    and the noise of DBSCAN, follow from distances. `predict` of MeanShift knows no noise.
    """
    every_point: np.ndarray = np.ones(len(labels), bool)
    if source == "predict":
        knows_noise = (labels == NOISE).any()
        return every_point if knows_noise else assigned != NOISE
    core_rows = getattr(final, "core_sample_indices_", None)
    if core_rows is not None:
        return np.isin(checked, core_rows) | (labels == NOISE)
    core_distances = getattr(final, "core_distances_", None)
    if core_distances is not None:
        is_core: np.ndarray = core_distances[checked] <= getattr(final, "eps", np.inf)
        return is_core
    return every_point


def _of_other_rows(assigned: np.ndarray, labels: np.ndarray, fraction: float) -> bool:
    """Whether labels are those of other rows: the agreement is that of chance, and clusters have similar sizes."""
    names = {*assigned.tolist(), *labels.tolist()}
    # [K, 2], the sizes of a cluster in both as fractions of the rows
    sizes = np.array([[np.mean(assigned == name), np.mean(labels == name)] for name in names])
    chance = sizes.prod(1).sum()
    distance = np.abs(sizes[:, 0] - sizes[:, 1]).sum() / 2
    tolerance = 0.05 + (len(names) / len(labels)) ** 0.5
    return bool(abs(fraction - chance) < tolerance and distance < tolerance)


def has_own_predict(model: object) -> bool:
    """Whether a pipeline predicts otherwise than by its last step."""
    # not opened(): the class of the pipeline itself is asked
    return isinstance(model, Pipeline) and type(model).predict is not Pipeline.predict
