"""A clustering as a neural network: an optional feature network followed by a head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neonxc.carriers import Carrier, carrier_of, rows, unrows
from neonxc.carriers.terms import Terms
from neonxc.common.numbers import percent, text
from neonxc.common.processes import Ranks
from neonxc.common.registry import LEFT_OUT, Values, can_pack, register
from neonxc.data.distributed import common_type, without_rows
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import NOISE
from neonxc.data.table import Table
from neonxc.head import Head, Noise
from neonxc.pipelines.encoding import Encoding


class NeuralizedClustering(nn.Module):
    """A clustering written as a neural network, as returned by :func:`neonxc.neuralize`.

    Parameters
    ----------
    head : Head
        Computes the logits of the clusters from features [n, d].
    features : nn.Module, optional
        Network from inputs to features [N, d], or to a feature map [N, d, ...], whose locations are the points.
    classes : array [K], optional
        Label of each output of the head; default: ``0 ... K-1``.
    feature_names : sequence of str, optional
        Names of the d columns.
    noise : Noise, optional
        Decides which points are noise; default: none are.
    encoding : Encoding or Terms, optional
        Encoding of texts, or of tables with strings and missing values, as columns of the head. ``net(x)`` takes
        encoded columns, whereas ``net.predict`` and :class:`neonxc.NEON` take the original texts or tables.

    Attributes
    ----------
    classes_ : ndarray [K]
        Label of each output.
    feature_names_ : list of str or None
        Names of the d columns.
    spread_ : ndarray [d] or None
        Standard deviations of the columns of the head in the X passed to :func:`neonxc.neuralize`, 1 for constant
        columns; None without X, and if there is a feature network.
    fidelity_, fidelity_held_out_ : float or None
        Share of points (without noise) to which a surrogate gives their own label, 0 to 1: on the points to which
        it was fitted, and on held-out points. None if the network is equivalent to the clustering.
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

    features: nn.Module | None
    _beta: Tensor
    spread_: np.ndarray | None
    fidelity_: float | None
    fidelity_held_out_: float | None
    stability_: float | None

    def __init__(
        self,
        head: Head,
        features: nn.Module | None = None,
        classes: Sequence[Any] | np.ndarray | None = None,
        feature_names: Sequence[str] | None = None,
        noise: Noise | None = None,
        encoding: Encoding | Terms | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.register_module("features", features)
        self.noise = noise
        self.encoding = encoding
        self.classes_ = np.arange(head.n_clusters) if classes is None else np.asarray(classes)
        self.feature_names_ = None if feature_names is None else list(feature_names)
        self.spread_ = self.fidelity_ = self.fidelity_held_out_ = self.stability_ = None
        self.register_buffer("_beta", torch.tensor(1.0, dtype=torch.float64, device=head.detection.device))

    def __repr__(self) -> str:
        units, named, parts = self.carrier.units, "features", [*self.head.children(), self.noise]
        if self.features is None:
            named = f"columns ({', '.join(units[:4])}{', ...' if len(units) > 4 else ''})"
        lines = [
            f"{len(self.classes_)} clusters of points with {len(units)} {named}, beta={text(self.beta)}",
            f"(head): {', '.join(type(part).__name__ for part in parts if part is not None)}",
        ]
        if self.features is not None:
            lines.append(f"(features): {type(self.features).__name__}")
        if self.fidelity_ is not None:
            lines.append(f"surrogate that gives {percent(self.fidelity_)} of the points their label")
        return "\n  ".join([f"{type(self).__name__}(", *lines]) + "\n)"

    @property
    def beta(self) -> float:
        """Stiffness β of the take-most rule, 0 to inf, in units of 1 / logit (NEON paper, Eq. 2)."""
        return float(self._beta)

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta.fill_(checked_beta(value))

    @property
    def carrier(self) -> Carrier:
        """Carrier of the inputs, which maps them to points of the head."""
        first = self.encoding if self.features is None else self.features
        return carrier_of(first, self.head, self.feature_names_, self._beta.device)

    @property
    def noise_column(self) -> int:
        """Position of noise among the outputs; -1 if it is none of them."""
        return len(self.classes_) - 1 if self.classes_[-1] == NOISE else -1

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
        if not isinstance(x, Tensor):
            given = "torch.as_tensor(numpy.asarray(x))" if self.encoding is None else "net.batch(x).tensor"
            raise TypeError(
                f"net(x) takes a tensor, got {type(x).__name__}: net({given}); "
                "net.predict takes arrays and frames too"
            )
        a = x if self.features is None else self.features(x)
        return unrows(self.head(rows(a)), a)

    def assign(self, x: Tensor) -> Tensor:
        """Return the position of the cluster of each point, [N] (or [N, ...] for a feature map).

        Parameters
        ----------
        x : Tensor
            Input of the network.
        """
        return self._of_points(self.head.assign, x)

    def outside(self, x: Tensor) -> Tensor:
        """Test which points are noise, [N] (or [N, ...] for a feature map).

        Parameters
        ----------
        x : Tensor
            Input of the network.
        """
        return self._of_points(self.is_noise, x)

    def is_noise(self, points: Tensor) -> Tensor:
        """Test which points of the head are noise, [n]; without a noise model, none are.

        Parameters
        ----------
        points : Tensor [n, d]
            Points in the space of the head.
        """
        if self.noise is None:
            return torch.zeros(len(points), dtype=torch.bool, device=points.device)
        return self.noise(self.head, points)

    @torch.no_grad()
    @reads_tables
    def predict(self, X: Any) -> Any:
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
        carrier = self.carrier
        batch = carrier.stored(X)
        labels = []
        for part in carrier.blocks(batch.tensor):
            x = batch.tensor[part]
            found = self.classes_[self.assign(x).cpu().numpy()]
            if self.noise is not None:
                found[self.outside(x).cpu().numpy()] = NOISE
            labels.append(found)
        return batch.labels(np.concatenate(labels))

    def calibrate(self, X: Any, contrast: str = "harmonic", *, group: Any = None) -> NeuralizedClustering:
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
    @reads_tables
    def heuristic_beta(self, X: Any, contrast: str = "harmonic", *, group: Any = None) -> float:
        """Return the beta that :meth:`calibrate` would set.

        Parameters
        ----------
        X, contrast, group
            As for :meth:`calibrate`.

        Returns
        -------
        float
        """
        return typical_stiffness(self, X, contrast, Ranks(group))

    @reads_tables
    def batch(self, X: Any) -> Table:
        """Check inputs and move them to the device of the network.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Tensor or list of str
            Inputs, as for :meth:`predict`.

        Returns
        -------
        Table
            Table whose `tensor` is the input of the network, with functions that convert results back.
        """
        return self.carrier.batch(X)

    def _of_points(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        a = self.carrier.features(x)
        found = self.carrier.each(rows(a), lambda _, points: function(points))
        return found.reshape(a.shape[0], *a.shape[2:])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NeuralizedClustering:
        """Move and cast as usual, but keep everything except the features at least in float32."""

        def widened(before: Tensor) -> Tensor:
            after = fn(before)
            return before.to(after.device, torch.float32) if after.dtype.itemsize < 4 else after

        for child in self.children() if recurse else ():
            child._apply(fn if child is self.features else widened)
        super()._apply(widened, recurse=False)
        return self


PARTS = (
    "head",
    "features",
    "classes_",
    "feature_names_",
    "noise",
    "encoding",
)  # what a network is made of, in order
STATE = (*PARTS, "spread_", "_beta")


def _pack(net: NeuralizedClustering) -> Values:
    values = {name.strip("_"): getattr(net, name) for name in STATE}
    if net.features is not None and not can_pack(net.features):
        values["features"] = LEFT_OUT
    return values | {"fidelity": [net.fidelity_, net.fidelity_held_out_, net.stability_]}


@torch.no_grad()
def _unpack(cls: type[NeuralizedClustering], values: Values) -> NeuralizedClustering:
    if values["features"] == LEFT_OUT:
        raise ValueError("it was saved without its feature network: neonxc.load(path, features=network)")
    net = cls(*(values[name.strip("_")] for name in PARTS))
    net.beta = float(values["beta"])
    net.spread_, net._beta = values["spread"], values["beta"]  # beta in its own precision
    net.fidelity_, net.fidelity_held_out_, net.stability_ = values["fidelity"]
    head, K = net.head, len(net.classes_)
    d = head.n_features if net.encoding is None else len(net.encoding.columns)
    # run the head once, so that inconsistent values raise an error now
    x = torch.zeros(1, head.n_features)
    head.decision(x, torch.tensor([K - 1]), net._beta).relevance(x)
    named = [type(name) for name in net.feature_names_ or [""] * d] == [str] * d
    if not named or head(x).shape != (1, K) or net.is_noise(x).shape != (1,):
        raise TypeError(f"its head does not fit {K} classes and the names of {d} features")
    return net


register(NeuralizedClustering, _pack, _unpack)


def checked_beta(value: float) -> float:
    """Return a stiffness as a float, and reject anything but numbers from 0 to infinity."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number >= 0:
        raise ValueError(f"beta needs a number from 0 to inf, got {value!r}")
    return number


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


def typical_stiffness(net: Any, X: Any, contrast: str, ranks: Ranks) -> float:
    """The inverse of the mean contrast of the points of all ranks, without noise points if there are others."""
    carrier, n, kind = net.carrier, 0, torch.float32
    sums = torch.zeros(2, 2, dtype=torch.float64)  # total and number of points, in clusters and of noise
    with ranks.agreed():
        if not isinstance(contrast, str) or contrast not in _MEANS:
            raise ValueError(f'contrast needs "harmonic", "least" or "median", got {contrast!r}')
        for x, points in () if without_rows(X, ranks) else carrier.points(X):
            n, kind = n + len(x), x.dtype
            for part in carrier.of_points(points):
                values = net.head.values(points[part]).double()
                own = net.head.competition.assign(values)
                contrasts = net.head.competition.evidence(values, own)[0].clamp(min=0)
                found = _MEANS[contrast](contrasts, contrasts.isfinite().sum(dim=1))
                noise = (net.is_noise(points[part]) | (own == net.noise_column)).long()
                sums.index_add_(0, noise.cpu(), torch.stack([found, torch.ones_like(found)], 1).cpu())
    ranks.same(contrast=contrast)
    common_type(n, kind, ranks)
    inside, noise = ranks.sum(sums)
    total, number = (inside if inside[1] else noise).tolist()
    return number / total if total > 0 else math.inf
