"""A clustering as a neural network: inputs, whose features are the points, followed by a head.

points        a = features(x), or the columns of a table or encoding; the locations of a feature map are points
logits        f_k(a), of every cluster k, by the head
assigned      c = argmax_k f_k
contrasts     f of c against each competitor alone, which are positive
beta          1 / mean of the contrasts in X, each point's being the harmonic mean, minimum or median over its
              competitors; the stiffness of the take-most rule (NEON paper, Eqs. 2 and 3)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from neonxc.common.cluster_names import is_noise
from neonxc.common.numbers import percent, plural, text
from neonxc.common.registry import LEFT_OUT, Values, can_pack, register
from neonxc.common.shortening import shortened
from neonxc.common.sizes import KEPT_NUMBERS, KEPT_ROWS
from neonxc.common.types import AnyArray, ArrayLike, Label, SupportsArrow, TableLike
from neonxc.data.distributed import of_all_ranks
from neonxc.data.inputs import as_array
from neonxc.data.kinds import plain
from neonxc.data.labels import NOISE, is_any_noise
from neonxc.data.sparse import SparseRows, dense
from neonxc.data.table import Table
from neonxc.head import Head
from neonxc.head.answer import Answer, answers, rows, unrows
from neonxc.inputs import make_inputs

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from neonxc.inputs.terms import Terms
    from neonxc.pipelines.encoding import Encoding


class NeuralizedClustering(nn.Module):
    """A clustering written as a neural network, as returned by :func:`neonxc.neuralize`.

    Parameters
    ----------
    head : Head
        Computes the logits of the clusters from features [n, d].
    features : nn.Module, Encoding or Terms, optional
        Network from inputs to features [N, d], or to a feature map [N, d, ...], whose locations are the points; or
        an encoding of texts, or of tables with strings and missing values, as columns of the head. Then ``net(x)``
        takes encoded columns, whereas ``net.predict`` and :class:`neonxc.NEON` take the texts or tables.
    classes : array [K], optional
        Label of each output of the head; default: ``0 ... K-1``. The label of noise is -1, and the last one.
    feature_names : sequence of str, optional
        Names of the d columns.

    Attributes
    ----------
    inputs : Inputs
        What the network takes: ``inputs.read(X)`` is the way from what a user passes to what the network computes
        on, and ``inputs.write(x, like=X)`` the way back.
    head : Head
        Detection, grouping and competition.
    classes_ : ndarray [K]
        Label of each output.
    feature_names_ : list of str or None
        Names of the d columns.
    spread_ : ndarray [d] or None
        Standard deviations of the columns of the head in the X passed to :func:`neonxc.neuralize`, 1 for constant
        columns; None without X, and if there is a feature network.
    ranges_ : ndarray [2, columns] or None
        Lowest and highest value of every column of that X, NaN for columns that are not numeric. None: as above.
    rows_ : Tensor [R, d] or None
        Rows of that X in the columns of the head, at most 1,000 of each cluster, towards which counterfactuals are
        searched; see :meth:`keep_rows`. They are not saved in files.
    agreement_ : float or None
        Fraction of the points of X, 0 to 1, to which the network gives the clusterer's label: that which it
        predicts and, if it stores as many labels as X has points, that which it stores; the smaller of the two.
        2,000 to 4,000 points are compared (all, if there are fewer), without ties and, for DBSCAN, without border
        points. None without X, for a surrogate, and if there are no labels to compare with, as of given centers.
    fidelity_, fidelity_held_out_ : float or None
        Fraction of points (without noise) to which a surrogate gives their label, 0 to 1: on the points to which
        it was fitted, and on held-out points. Behind a map, noise counts as well, and the vote of the nearest rows
        is measured. None if the network is equivalent to the clustering.
    noise_held_out_ : float or None
        Fraction of held-out points, 0 to 1, that a surrogate takes for noise if they have its label, and for
        clustered otherwise. None if there is no noise, and as above.
    stability_ : float or None
        Stability of the explanations of a surrogate, 0 to 1: ``1 - |R' - R| / |R|``, where R is the relevance of
        points for their clusters, and R' the relevance computed by a surrogate that is fitted without 5% of the
        points, averaged over three fits. None if the network is equivalent to the clustering, or if a cluster has
        too few points.

    Notes
    -----
    ``net(x)`` has shape [N, K] (or [N, K, ...] for a feature map). It is positive exactly for the assigned
    cluster, except for ties, where the two smallest distances differ by less than 1e-5 (float32) or 1e-12
    (float64), relatively. With a probability threshold it is positive for the cluster whose probability exceeds
    the threshold, if there is one. It is computed in the dtype of `x`, but at least in float32, independently of
    the dtype of the buffers.
    """

    classes_: np.ndarray
    _beta: Tensor
    spread_: np.ndarray | None
    ranges_: np.ndarray | None
    rows_: Tensor | None
    agreement_: float | None
    fidelity_: float | None
    fidelity_held_out_: float | None
    stability_: float | None
    noise_held_out_: float | None

    def __init__(
        self,
        head: Head,
        features: nn.Module | Encoding | Terms | None = None,
        classes: Sequence[Any] | np.ndarray | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.inputs = make_inputs(features, head, feature_names)
        self.classes_ = np.arange(head.n_clusters) if classes is None else np.asarray(classes)
        self.spread_ = None
        self.ranges_ = None
        self.rows_ = None
        self.agreement_ = None
        self.fidelity_ = None
        self.fidelity_held_out_ = None
        self.stability_ = None
        self.noise_held_out_ = None
        self.register_buffer("_beta", torch.tensor(1.0, dtype=torch.float64, device=self.inputs.device))

    def __repr__(self) -> str:
        clusters = plural(self.n_clusters, "cluster")
        if self.noise_position >= 0:
            clusters = f"{clusters} and noise"
        if self.features is None:
            names = self.inputs.units
            listed = ", ".join(names[:4])
            if len(names) > 4:
                listed = f"{listed}, ..."
            features = f"{plural(len(names), 'column')} ({listed})"
        else:
            features = f"{self.head.n_features} features"
        layers = ", ".join(type(layer).__name__ for layer in self.head.children())

        lines = [f"{clusters} of points with {features}, beta={text(self.beta)}", f"(head): {layers}"]
        if self.features is not None:
            lines.append(f"(features): {type(self.features).__name__}")
        if self.agreement_ is not None:
            lines.append(f"{percent(self.agreement_)} of the points checked have the clusterer's label")
        if self.fidelity_ is not None:
            lines.append(
                f"{self.head.detection.stand_in} that gives {percent(self.fidelity_)} of the points their label"
            )
        return "\n  ".join([f"{type(self).__name__}(", *lines]) + "\n)"

    @property
    def features(self) -> nn.Module | None:
        """The feature network; None if the columns of a table or encoding are the points."""
        return self.inputs.module

    @property
    def feature_names_(self) -> list[str] | None:
        """Names of the d columns, or None."""
        return self.inputs.names

    @feature_names_.setter
    def feature_names_(self, names: Sequence[str] | None) -> None:
        self.inputs.names = None if names is None else [*map(str, names)]

    @property
    def table_format(self) -> str | None:
        """How the table in X was read from a file, by which :func:`neonxc.data.files.read_table` reads others."""
        return self.inputs.table_format

    @property
    def beta(self) -> float:
        """Stiffness β of the take-most rule, 0 to inf, in units of 1 / logit (NEON paper, Eq. 2)."""
        return float(self._beta)

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta.fill_(checked_beta(value))

    @property
    def noise_position(self) -> int:
        """Position of noise among the outputs, the last one; -1 if no point is noise."""
        if is_noise(self.classes_[-1]):
            return len(self.classes_) - 1
        return -1

    @property
    def n_clusters(self) -> int:
        """Number of clusters, without noise."""
        return len(self.classes_) - (self.noise_position >= 0)

    @overload
    def positions(self, labels: None, name: str = "target") -> None: ...
    @overload
    def positions(self, labels: AnyArray | list[Any] | tuple[Any, ...], name: str = "target") -> Tensor: ...
    @overload
    def positions(self, labels: Label, name: str = "target") -> int: ...
    @overload
    def positions(self, labels: Sequence[object] | SupportsArrow, name: str = "target") -> int | Tensor: ...
    def positions(self, labels: ArrayLike | Label | None, name: str = "target") -> int | Tensor | None:
        """Return the positions of labels among the outputs: a number for one label, a tensor for several.

        Parameters
        ----------
        labels : label, sequence or Tensor of labels, or None
            Labels as :meth:`predict` returns them. None stays None. For a network with noise, the other labels of
            noise (NaN, and HDBSCAN's -2 and -3) are -1.
        name : str
            Name of the argument in errors.

        Raises
        ------
        ValueError
            A label that no output has; the message lists the labels.
        """
        if labels is None:
            return None
        array = as_array(labels)
        known = self.classes_.tolist()
        position_of_label = {label: position for position, label in enumerate(known)}
        if array.dtype.kind == "b" and self.classes_.dtype.kind != "b":  # True is equal to 1
            position_of_label = {}
        positions = np.array(
            [position_of_label.get(plain(label), -1) for label in array.ravel().tolist()], dtype=np.int64
        )
        if self.noise_position >= 0:
            for i in np.flatnonzero(positions < 0):
                if is_any_noise(array.flat[i]):
                    positions[i] = self.noise_position
        if (positions < 0).any():
            unknown = plain(array.ravel()[positions.argmin()])
            raise ValueError(f"{name} needs labels among {shortened(str(known), 200)}, got {unknown!r}")
        if array.ndim == 0:
            return int(positions[0])
        return torch.from_numpy(positions.reshape(array.shape))

    if TYPE_CHECKING:  # nn.Module calls `forward`, and says of it nothing but `Any`

        def __call__(self, x: Tensor) -> Tensor:
            """Compute the logits of all clusters."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits f of all clusters.

        Parameters
        ----------
        x : Tensor [N, d], or what `features` takes
            Input; with an encoding, the encoded columns ``net.batch(table).tensor``.

        Returns
        -------
        Tensor [N, K], or [N, K, ...] for a feature map.
        """
        self._check_tensor(x)
        a = self.inputs.through(x)
        return unrows(self.head(rows(a)), a)

    def _check_tensor(self, x: object) -> None:
        """Raise a TypeError that shows the call, unless x is a tensor."""
        if isinstance(x, Tensor):
            return
        argument = "torch.as_tensor(numpy.asarray(x))"
        if self.inputs.encoding is not None or isinstance(x, SparseRows) or sparse.issparse(x):
            argument = "net.batch(x).tensor"
        raise TypeError(
            f"net(x) takes a tensor, got {type(x).__name__}: net({argument}); net.predict takes arrays and frames "
            "too"
        )

    @torch.no_grad()
    def assign(self, x: Tensor) -> Tensor:
        """Return the position of the cluster of each point, [N] (or [N, ...] for a feature map).

        Parameters
        ----------
        x : Tensor
            Input of the network.
        """
        self._check_tensor(x)
        return self.head.assign(self.inputs.through(x))

    @overload
    def predict(self, X: Tensor) -> Tensor: ...
    @overload
    def predict(self, X: TableLike) -> np.ndarray: ...
    @torch.no_grad()
    def predict(self, X: TableLike) -> np.ndarray | Tensor:
        """Predict the label of each point.

        Parameters
        ----------
        X : array, sparse matrix, frame or tensor [N, d], or what `features` or an encoding takes

        Returns
        -------
        array or Tensor [N] (or [N, ...] for a feature map)
            Labels, -1 for noise: an array, or for a tensor a tensor on the same device.

        Raises
        ------
        ValueError
            If the columns do not match, if values are not finite, or if there are no points.
        """
        table, labels, _ = self.decided(X)
        return table.labels(labels)

    @torch.no_grad()
    def decided(self, X: TableLike, logits: bool = False) -> tuple[Table, np.ndarray, np.ndarray | None]:
        """Predict labels, and the logits of these.

        Parameters
        ----------
        X : array, sparse matrix, frame or tensor [N, d], or what `features` or an encoding takes
        logits : bool
            Whether logits are wanted.

        Returns
        -------
        table : Table
            The inputs, as :attr:`inputs` read them.
        labels : ndarray [N] (or [N, ...] for a feature map)
            Labels of the points, -1 for noise.
        logits : ndarray like `labels`, of float64, or None
            The logits of these labels, which are the largest.
        """
        table = self.inputs.read(X)
        labels = []
        logits_of_labels = []
        for block in self.inputs.blocks(table.tensor):
            a = self.inputs.features(table.tensor[block])
            block_answers = [*answers(self.head, a)]
            shape = (a.shape[0], *a.shape[2:])
            assigned = torch.cat([answer.assigned for answer in block_answers])
            labels.append(self.classes_[assigned.cpu().numpy()].reshape(shape))
            if logits:
                logit = torch.cat([answer.logit for answer in block_answers])
                logits_of_labels.append(logit.double().cpu().numpy().reshape(shape))
        if not logits:
            return table, np.concatenate(labels), None
        return table, np.concatenate(labels), np.concatenate(logits_of_labels)

    def calibrate(
        self, X: TableLike, contrast: str = "harmonic", *, group: ProcessGroup | None = None
    ) -> NeuralizedClustering:
        """Set beta to one over the mean contrast of `X` with the assigned cluster, and return the network.

        Noise is ignored, unless all points are noise.

        Parameters
        ----------
        X : array, frame or tensor
            Inputs of the network: points [N, d], or images if it has a feature network.
        contrast : {"harmonic", "least", "median"}
            How the contrasts of a point with its competitors (in hierarchies and trees, the evidence on its path)
            are summarised: by their harmonic mean, their minimum (``1 / E[f]``; NEON paper, Eq. 3), or their
            median. With two clusters there is only one contrast. With many clusters the minimum is not typical of
            the contrasts, so that "least" attributes the decision to a few competitors only.
        group : torch.distributed.ProcessGroup, optional
            Process group over whose rows the mean is taken. X contains the rows of this process, possibly none.
            All processes must pass the same network, and get the same beta.

        Raises
        ------
        ValueError
            If `contrast` is unknown. In a group, all processes raise an error if `contrast` or the type of X
            differs between processes, or if the rows of one process are invalid.
        """
        self.beta = self.heuristic_beta(X, contrast, group=group)
        return self

    @torch.no_grad()
    def heuristic_beta(
        self, X: TableLike, contrast: str = "harmonic", *, group: ProcessGroup | None = None
    ) -> float:
        """Return the beta that :meth:`calibrate` would set.

        Parameters
        ----------
        X, contrast, group
            As for :meth:`calibrate`.

        Returns
        -------
        float
        """
        if group is None:
            sums, _ = self._mean_contrasts(X, contrast)
            return _beta_of(sums)
        return _beta_of(of_all_ranks(self._mean_contrasts, X, contrast, group))

    @torch.no_grad()
    def _calibrate(
        self,
        X: TableLike | Table,
        observe: Callable[[Answer, int], None] | None = None,
        weight: np.ndarray | None = None,
    ) -> None:
        """Calibrate as :meth:`calibrate` does, and pass every answer on to `observe`, so that X is run once.

        The inputs may have weights [N].
        """
        sums, _ = self._mean_contrasts(X, "harmonic", observe, weight)
        self.beta = _beta_of(sums)

    def _mean_contrasts(
        self,
        X: TableLike | Table,
        contrast: str,
        observe: Callable[[Answer, int], None] | None = None,
        weight: np.ndarray | None = None,
    ) -> tuple[Tensor, torch.dtype]:
        """Add up the points' mean contrasts and their number, [2, 2] of clusters and noise; also return the dtype.

        `observe` is called with every answer, in the order of the points, and the number of points per input. With
        weights [N] of the inputs, the contrasts and numbers are those of repeated inputs.
        """
        if not isinstance(contrast, str) or contrast not in _MEANS:
            raise ValueError(f'contrast needs "harmonic", "least" or "median", got {contrast!r}')
        sums = torch.zeros(2, 2, dtype=torch.float64)
        dtype = torch.float32
        first = 0  # position of the first point of an answer among those of X
        for x in self.inputs.parts(X):
            a = self.inputs.features(x)
            points_per_input = a.shape[2:].numel() if a.ndim > 2 else 1
            for answer in answers(self.head, a):
                if observe is not None:
                    observe(answer, points_per_input)
                dtype = answer.x.dtype
                contrasts = answer.contrasts.double().clamp(min=0)
                n_competitors = contrasts.isfinite().sum(dim=1)
                mean = _MEANS[contrast](contrasts, n_competitors)
                numbers = torch.ones_like(mean)
                if weight is not None:
                    inputs = np.arange(first, first + len(mean)) // points_per_input
                    numbers = torch.from_numpy(weight[inputs]).to(mean)
                    mean = torch.where(numbers > 0, numbers * mean, 0.0)
                first += len(mean)
                is_noise_point = (answer.assigned == self.noise_position).long()
                sums.index_add_(0, is_noise_point.cpu(), torch.stack([mean, numbers], 1).cpu())
        return sums, dtype

    @torch.no_grad()
    def keep_rows(self, X: TableLike) -> NeuralizedClustering:
        """Keep rows of `X`, towards which :func:`neonxc.counterfactual` searches, and return the network.

        :func:`neonxc.neuralize` does so with its X; a network from a file has none.

        Parameters
        ----------
        X : array, frame or tensor
            Rows of the clusters, as for :meth:`predict`. At most 1,000 of each cluster are kept, evenly spaced.

        Raises
        ------
        ValueError
            The network has a feature network or takes texts, or X is invalid.
        """
        if self.features is not None or self.inputs.in_texts:
            raise ValueError("rows are kept of tables alone, not of the inputs of a feature network or of texts")
        table = self.inputs.read(X)
        assigned = [answer.assigned for answer in answers(self.head, table.tensor)]
        self._keep_rows(table, torch.cat(assigned))
        return self

    def _keep_rows(self, table: Table, assigned: Tensor) -> None:
        """Keep rows of a table that :attr:`inputs` read, and whose clusters [N] are known."""
        index: Any = self._some_of_each(assigned)
        if isinstance(table.tensor, SparseRows):
            index = index.cpu().numpy()
        self.rows_ = dense(table.tensor[index]).double()

    def _some_of_each(self, assigned: Tensor) -> Tensor:
        """Choose rows of every cluster, evenly spaced among those assigned to it [N]."""
        n_kept = min(KEPT_ROWS, KEPT_NUMBERS // (self.head.n_clusters * self.head.n_features))
        chosen = []
        for cluster in range(self.head.n_clusters):
            rows = (assigned == cluster).nonzero()[:, 0]
            even = torch.linspace(0, len(rows) - 1, min(n_kept, len(rows)))
            chosen.append(rows[even.round().long().to(rows.device)])
        return torch.cat(chosen)

    def batch(self, X: TableLike) -> Table:
        """Read inputs as :attr:`inputs` does, as a dense tensor.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Tensor or list of str
            Inputs, as for :meth:`predict`.

        Returns
        -------
        Table
            Table whose `tensor` is the input of the network, with functions that convert results back.
        """
        return self.inputs.dense(X)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NeuralizedClustering:
        """Move and cast as usual, but keep floating-point numbers of the head at least in float32."""

        def widened(before: Tensor) -> Tensor:
            after = fn(before)
            if after.is_floating_point() and after.dtype.itemsize < 4:
                return before.to(after.device, torch.float32)
            return after

        if recurse:
            for child in self.children():
                child._apply(fn if child is self.inputs else widened)
        super()._apply(widened, recurse=False)
        return self


STATE = (
    "head",
    "features",
    "classes_",
    "feature_names_",
    "spread_",
    "ranges_",
    "agreement_",
    "_beta",
    "table_format",
)
FIDELITY = ("fidelity_", "fidelity_held_out_", "stability_", "noise_held_out_")


def _pack(net: NeuralizedClustering) -> Values:
    values = {name.strip("_"): getattr(net, name) for name in STATE}
    if net.inputs.encoding is not None:
        values["features"] = net.inputs.encoding
    elif net.features is not None and not can_pack(net.features):
        values["features"] = LEFT_OUT
    return values | {"fidelity": [getattr(net, name) for name in FIDELITY]}


@torch.no_grad()
def _unpack(cls: type[NeuralizedClustering], values: Values) -> NeuralizedClustering:
    if values["features"] == LEFT_OUT:
        raise ValueError("it was saved without its feature network: neonxc.load(path, features=network)")
    head = values["head"]
    features = values["features"]
    classes = values["classes"]
    if values.get("encoding") is not None:  # files of version 4
        features = values["encoding"]
    if values.get("noise") is not None:  # as well
        head = values["noise"].beside(head)
        classes = with_noise_label(classes)
    net = cls(head, features, classes, values["feature_names"])
    net.beta = float(values["beta"])
    # beta in its own precision
    net.spread_ = values["spread"]
    net._beta = values["beta"]
    # files of earlier versions do not have these
    net.ranges_ = values.get("ranges")
    net.agreement_ = values.get("agreement")
    for name, value in zip(FIDELITY, values["fidelity"], strict=False):  # the last is not in earlier files
        setattr(net, name, value)
    net.inputs.table_format = values.get("table_format")
    _check_consistent(net)
    return net


def _check_consistent(net: NeuralizedClustering) -> None:
    """Run the head once, so that inconsistent values of a file raise an error when it is read."""
    head = net.head
    n_classes = len(net.classes_)
    encoding = net.inputs.encoding
    d = head.n_features if encoding is None else len(encoding.columns)
    x = torch.zeros(1, head.n_features)
    Answer(head, x, torch.tensor([n_classes - 1]), beta=net.beta).relevance()
    names = net.feature_names_ or [""] * d
    has_names = len(names) == d and all(type(name) is str for name in names)
    if not has_names or head(x).shape != (1, n_classes):
        raise TypeError(f"its head does not fit {n_classes} classes and the names of {d} features")


register(NeuralizedClustering, _pack, _unpack)


def with_noise_label(classes: ArrayLike) -> np.ndarray:
    """Append the label of noise to the labels of clusters; beside names, it stays a number."""
    labels = np.asarray(classes)
    if labels.dtype.kind not in "iuf":
        labels = labels.astype(object)
    return np.append(labels, NOISE)


def _beta_of(sums: Tensor) -> float:
    """Compute 1 / mean contrast from the sums [2, 2] of contrasts and their numbers, in clusters and of noise."""
    in_clusters, of_noise = sums
    total, number = (in_clusters if in_clusters[1] else of_noise).tolist()
    return number / total if total > 0 else math.inf


def checked_beta(value: float) -> float:
    """Return a stiffness as a float, and reject anything but numbers from 0 to infinity."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number >= 0:
        raise ValueError(f"beta needs a number from 0 to inf, got {value!r}")
    return number


def clusters_of(net: NeuralizedClustering, X: TableLike) -> dict[str, np.ndarray]:
    """Compute the ``cluster`` of every row, and its ``logit``, which is the largest."""
    _, labels, logits = net.decided(X, logits=True)
    assert logits is not None
    return {"cluster": labels, "logit": logits}


def check_network(net: object, name: str, advice: str = "") -> None:
    """Raise a TypeError if `net` is not a network from :func:`neonxc.neuralize`, which `name` needs."""
    if not isinstance(net, NeuralizedClustering):
        raise TypeError(f"{name} needs a network from neonxc.neuralize, got {type(net).__name__}{advice}")


_MEANS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "harmonic": lambda contrasts, number: number / contrasts.reciprocal().sum(dim=1),
    "least": lambda contrasts, number: contrasts.amin(dim=1),
    "median": lambda contrasts, number: contrasts.masked_fill(contrasts.isinf(), torch.nan).nanquantile(
        0.5, dim=1
    ),
}
"""Means over each point's contrasts [n, L], which are infinite without a competitor, given their number [n]."""
