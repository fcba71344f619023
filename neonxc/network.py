"""A neuralized clustering: features (if any), then a head, as one ordinary differentiable module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neonxc.heads import Head
from neonxc.inputs import NOISE, Batch, as_batch, check_names, check_width

CHUNK = 1 << 14  # points a backbone-free pass handles at once, ...
NEURONS = 1 << 23  # ... and neurons of all of them


def _median_contrast(logits: Tensor) -> Tensor:
    """Median over the competitors, [N]; a competitor's logit is minus its contrast with the assigned cluster."""
    own, k = logits.argmax(dim=1, keepdim=True), logits.shape[1]
    contrasts = (-logits).scatter(1, own, torch.inf).sort(dim=1).values
    return (contrasts[:, (k - 2) // 2] + contrasts[:, (k - 1) // 2]) / 2


_CONTRASTS: dict[str, Callable[[Tensor], Tensor]] = {
    "least": lambda logits: logits.amax(dim=1),
    "median": _median_contrast,
}


class NeuralizedClustering(nn.Module):
    """The network of a clustering; :func:`neonxc.neuralize` makes it.

    Parameters
    ----------
    head : Head
        Cluster decision on features [n, d].
    features : nn.Module, optional
        Maps inputs to features [N, d], or to a map [N, d, ...] whose every location is a point of its own.
    classes : array [K], optional
        The clusterer's own label of each column; default ``0 ... K-1``.
    feature_names : sequence of str, optional
        Names of the d columns.

    Attributes
    ----------
    classes_ : ndarray [K]
    feature_names_ : list of str or None
    fidelity_, fidelity_held_out_ : float or None
        Of a surrogate: share of points (noise aside) that get the explained clustering's label, of those it was
        fitted to, and of points held out from a fit to the others. None where the network is the clustering.

    Notes
    -----
    ``net(x)`` is [N, K] (or [N, K, ...] on a map) and positive exactly for the assigned cluster, ties aside: two
    best distances within 1e-5 relative in float32, 1e-12 in float64. (With a probability threshold: for the
    cluster whose probability is beyond it, if there is one.) It computes in the type of `x`, float32 at
    least, whatever the type the buffers are stored in.
    """

    _beta: Tensor

    def __init__(
        self,
        head: Head,
        features: nn.Module | None = None,
        classes: Sequence[Any] | np.ndarray | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.features = features
        self.classes_ = np.arange(head.n_clusters) if classes is None else np.asarray(classes)
        self.feature_names_ = None if feature_names is None else list(feature_names)
        self.fidelity_: float | None = None
        self.fidelity_held_out_: float | None = None
        self.register_buffer("_beta", torch.tensor(1.0, dtype=torch.float64))

    @property
    def beta(self) -> float:
        """Stiffness of the take-most rule, 0 ... inf, in units of 1 / logit (NEON paper, Eq. 3)."""
        return float(self._beta)

    @beta.setter
    def beta(self, value: float) -> None:
        if not float(value) >= 0:
            raise ValueError(f"beta needs a number from 0 to inf, got {value}")
        self._beta.fill_(float(value))

    def forward(self, x: Tensor) -> Tensor:
        """Logits f of all clusters.

        Parameters
        ----------
        x : Tensor [N, d], or what `features` takes

        Returns
        -------
        Tensor [N, K], or [N, K, ...] where the features are a map.
        """
        if not isinstance(x, Tensor):
            raise TypeError(
                f"net(x) takes a tensor, got {type(x).__name__}; net.predict takes arrays and frames too"
            )
        a = x if self.features is None else self.features(x)
        return unrows(self.head(rows(a)), a)

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] (or [N, ...] on a map) of the cluster each point of a tensor belongs to."""
        a = x if self.features is None else self.features(x)
        return self.by_point(self.head.assign, rows(a)).reshape(a.shape[0], *a.shape[2:])

    @torch.no_grad()
    def predict(self, X: Any) -> Any:
        """The clusterer's own labels.

        Parameters
        ----------
        X : array, frame or tensor [N, d], or what `features` takes

        Returns
        -------
        array or Tensor [N] (or [N, ...] on a map)
            Array for array, tensor for tensor on the same device.

        Raises
        ------
        ValueError
            Wrong number of features, other columns, values that are not finite, no points.
        """
        batch = self.batch(X)
        columns = self.in_chunks(self.assign, batch.tensor)
        labels = self.classes_[columns.cpu().numpy()]
        if getattr(self.head, "radius", None) is not None:
            labels[self.in_chunks(self.outside, batch.tensor).cpu().numpy()] = NOISE
        return batch.labels(labels)

    def outside(self, x: Tensor) -> Tensor:
        """Whether points of a tensor are noise to the clustering, [N] (or [N, ...] on a map)."""
        a = x if self.features is None else self.features(x)
        return self.by_point(self.head.outside, rows(a)).reshape(a.shape[0], *a.shape[2:])

    @torch.no_grad()
    def calibrate(self, X: Any, contrast: str = "least") -> NeuralizedClustering:
        """Set beta to one over the mean contrast of `X` with the assigned cluster, and return the network.

        Noise is in no cluster, and left out, unless there is nothing else.

        Parameters
        ----------
        X : array, frame or tensor
            What the network is called with: points [N, d], or images where it has a feature network.
        contrast : {"least", "median"}
            Which of a point's contrasts: with the nearest competitor, ``1 / E[f]`` (NEON paper, Eq. 3), or the
            median over the competitors. Of many contrasts the least is no typical one, and explains by a few
            competitors what all have a part in; with two clusters there is but one. In a hierarchy a branch
            counts once for each cluster in it.

        Raises
        ------
        ValueError
            Another `contrast`.
        """
        if not isinstance(contrast, str) or contrast not in _CONTRASTS:
            raise ValueError(f'contrast needs "least" or "median", got {contrast!r}')

        def measured(x: Tensor) -> Tensor:
            points = rows(x if self.features is None else self.features(x))
            found = self.by_point(lambda part: _CONTRASTS[contrast](self.head(part)), points)
            return torch.stack([found.double(), self.by_point(self.head.outside, points)], 1)

        found, noise = self.in_chunks(measured, self.batch(X).tensor).unbind(1)
        mean = float((found if bool(noise.all()) else found[noise == 0]).mean())
        self.beta = 1 / mean if mean > 0 else math.inf
        return self

    def batch(self, X: Any) -> Batch:
        """Checked input on the network's own device, with the way back."""
        batch = as_batch(X, device=self._beta.device)
        if self.features is None:
            check_names(batch.names, self.feature_names_)
            if batch.tensor.ndim != 2:
                raise ValueError(f"X needs shape [points, features], got {list(batch.tensor.shape)}")
            check_width(batch.tensor.shape[1], self.head.n_features)
            return batch
        # a network's own weights decide the type its images need
        weight = next((p for p in self.features.parameters() if p.is_floating_point()), None)
        tensor = batch.tensor if weight is None else batch.tensor.to(weight.dtype)
        return Batch(tensor, batch.names, batch.restore, batch.labels)

    def in_chunks(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply a per-point function with bounded memory."""
        return torch.cat([function(chunk) for chunk in x.split(self.chunk if self.features is None else 16)])

    def by_point(self, function: Callable[..., Tensor], *columns: Tensor) -> Tensor:
        """Apply a function of points [n, d] (and of what belongs to each) with bounded memory."""
        parts = zip(*(column.split(self.chunk) for column in columns), strict=True)
        return torch.cat([function(*part) for part in parts])

    @property
    def chunk(self) -> int:
        """Points that the head handles at once."""
        return max(1, min(CHUNK, NEURONS // self.head.n_neurons))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NeuralizedClustering:
        """Move and cast like any module, but keep the head in float32 or better."""
        if recurse and self.features is not None:
            self.features._apply(fn)
        for module in (self.head, *self.head.children()):
            module._apply(lambda t: _widened(t, fn(t)), recurse=False)
        self._beta = _widened(self._beta, fn(self._beta))
        return self


def rows(a: Tensor) -> Tensor:
    """Points [n, d] of features [N, d] or of a map [N, d, ...], image by image."""
    return a if a.ndim == 2 else a.movedim(1, -1).flatten(0, -2)


def unrows(values: Tensor, a: Tensor) -> Tensor:
    """Undo :func:`rows`: values [n, K] of points as [N, K, ...], laid out as the features `a` are."""
    if a.ndim == 2:
        return values
    return values.reshape(a.shape[0], *a.shape[2:], -1).movedim(-1, 1)


def _widened(before: Tensor, after: Tensor) -> Tensor:
    if after.dtype in (torch.float16, torch.bfloat16):
        return before.to(device=after.device, dtype=torch.float32)
    return after
