"""NEON: why a point is in its cluster, in terms of what the network was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn

from neonxc.heads import DetectionHead
from neonxc.lrp import LRP, Composite, Recording
from neonxc.lrp.engine import chunks, only
from neonxc.network import NeuralizedClustering, rows, unrows
from neonxc.summary import ClusterSummary, summarized
from neonxc.targets import at_places, check_columns, part, some_columns

HeadRule = Literal["linear", "midpoint"]


class NEON(Attribution):
    """Attribute cluster decisions of a neuralized clustering (NEON paper, II-B and IV).

    Parameters
    ----------
    net : NeuralizedClustering
        From :func:`neonxc.neuralize`.
    composite : neonxc.lrp.Composite, optional
        Rules for the feature network, if there is one; default: LRP-gamma with gamma 0.25.
    head_rule : {"linear", "midpoint"}, optional
        How a contrast shares its relevance among the features of a feature network. "midpoint" counts from the
        points halfway between centroids, "linear" from zero, by the contrast's slope, with the bias absorbing its
        share. Default: "linear", which pixel-flipping prefers; where contrasts are not linear (kernel k-means,
        surrogates, mixtures) its relevance may be several times the logit, and "midpoint" keeps closer to it.
        Without a feature network it is always the mid-point rule (Eq. 4), which conserves: relevance sums to the
        logit.

    Examples
    --------
    >>> import neonxc, torch, numpy as np
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> net = neonxc.neuralize(KMeans(3, random_state=0).fit(X), X)
    >>> relevance = neonxc.NEON(net).attribute(X)  # the assigned cluster's logit ...
    >>> logit = net(torch.as_tensor(X)).amax(1).numpy()
    >>> bool(np.allclose(relevance.sum(1), logit))  # ... shared among the four columns
    True
    """

    def __init__(
        self,
        net: NeuralizedClustering,
        composite: Composite | None = None,
        *,
        head_rule: HeadRule | None = None,
    ) -> None:
        if not isinstance(net, NeuralizedClustering):
            raise TypeError(f"NEON needs a network from neonxc.neuralize, got {type(net).__name__}")
        if not isinstance(composite, (Composite, type(None))):
            raise TypeError(f"composite needs a neonxc.lrp.Composite, got {type(composite).__name__}")
        if head_rule not in ("linear", "midpoint", None):
            raise ValueError(f"head_rule is 'linear' or 'midpoint', got {head_rule!r}")
        super().__init__(net)
        self.net = net
        self.composite = composite
        own: HeadRule = "midpoint" if net.features is None else "linear"
        self.head_rule: HeadRule = head_rule or own
        if of_words(net) and (composite is not None or head_rule is not None):
            raise ValueError("words are merged with the clustering's own layer: no composite or head_rule applies")
        if net.features is None and self.head_rule == "linear":
            raise ValueError(
                "head_rule='linear' is for networks with features; on raw columns use the mid-point rule"
            )

    @property
    def multiplies_by_inputs(self) -> bool:
        """Relevance is a share of the logit, not a slope."""
        return True

    @log_usage(part_of_slo=True)
    def attribute(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """Relevance of cluster decisions.

        Parameters
        ----------
        inputs : array, frame or tensor [N, ...], or a tuple of one
            Points, or what the feature network takes.
        target : int, sequence or Tensor [N], or tuple of int, optional
            Column of the cluster to explain; None (a documented deviation from captum) is each point's own.
            Where features are a map, a column means: all locations assigned to that cluster; None: every
            location's own cluster; a tuple ``(column, row, column, ...)`` one location.
        competitor : int, sequence or Tensor [N], optional
            Explain "why the target and not this one" instead of "why not any other": the relevance of a single
            contrast. Points whose own cluster is the competitor get zeros.

        Returns
        -------
        Like `inputs`
            In units of the logit. On raw columns it sums to the target's logit (to the contrast where there is a
            competitor), up to what no column has (:meth:`residual`). A negative logit says that the point is not
            in the target, and is shared among the clusters that beat it.

        Raises
        ------
        ValueError
            Unusable inputs, an unknown target, a target that is its own competitor.
        """
        if isinstance(inputs, tuple):
            return tuple(self.attribute.__wrapped__(self, x, target, competitor) for x in only(inputs))
        batch = self.net.batch(inputs)
        n, parts = len(batch.tensor), []
        for x, first in self._chunks(batch.tensor):
            want = slice(first, first + len(x))
            parts.append(
                self._attribute(x, part(target, "target", want, n), part(competitor, "competitor", want, n))
            )
        return batch.restore(torch.cat(parts))

    @torch.no_grad()
    def residual(self, inputs: Any, target: Any = None) -> Any:
        """What of the logit no column has: the logit minus the sum of its relevance.

        Zero where a cluster's distance is one of its centers'. With a kernel and weights w of its supports it is
        ``sum_k s_k [KL(q_k | w_k) - KL(p | w_c)] / gamma``: how far the soft minima p and q_k, over the supports
        of the target and of its competitors, are from the weights. With mixtures it is what the priors contribute,
        with a threshold what its bias does, and how far the soft minimum over competitors is from a mean.

        Parameters
        ----------
        inputs : array, frame or tensor [N, d]
        target : int, sequence or Tensor [N], optional
            As in :meth:`attribute`.

        Returns
        -------
        array or Tensor [N]
            Signed, in units of the logit.
        """
        if self.net.features is not None:
            raise ValueError("residual is for points; on a feature network the bias of every layer has its share")
        batch = self.net.batch(inputs)
        n, parts = len(batch.tensor), []
        for x, first in self._chunks(batch.tensor):
            some = part(target, "target", slice(first, first + len(x)), n)
            _, columns, _ = self._columns(x, some)
            logit = self.net.head(x).gather(1, columns[:, None])[:, 0]
            parts.append(logit - self._attribute(x, columns, None).sum(1))
        residual = torch.cat(parts)
        return residual.to(inputs.device) if isinstance(inputs, Tensor) else residual.cpu().numpy()

    def heatmaps(self, inputs: Any, clusters: Sequence[int] | None = None) -> Any:
        """One heatmap for every cluster: relevance summed over the channels.

        A forward pass is shared by all clusters.

        Parameters
        ----------
        inputs : array or tensor [N, C, ...]
            What the feature network takes.
        clusters : sequence of int, optional
            Columns; default: all.

        Returns
        -------
        array or Tensor [N, clusters, ...]
            See `target` of :meth:`attribute` for what a cluster's heatmap explains.
        """
        if self.net.features is None:
            raise ValueError("heatmaps need a network with features; use attribute for points")
        if of_words(self.net):
            raise ValueError("heatmaps are for images; attribute gives the relevance of words")
        batch = self.net.batch(inputs)
        columns = some_columns(clusters, self.net.head.n_clusters)
        parts = []
        for x, _ in self._chunks(batch.tensor):
            recording = self._record(x, several=len(columns) > 1)
            starts = torch.stack([self._multiplier(recording.output, c, None) for c in columns])
            maps = [recording.propagate(some).sum(dim=2) for some in starts.split(recording.room)]
            parts.append(torch.cat(maps).transpose(0, 1))
        return batch.restore(torch.cat(parts))

    @torch.no_grad()
    def summary(self, X: Any, n_prototypes: int = 5) -> ClusterSummary:
        """Per cluster: its size, what speaks for it on average, and its most typical points.

        Noise is counted apart.

        Parameters
        ----------
        X : array, frame or tensor
            Points, or what the feature network takes; then the features of the summary are that network's.
        n_prototypes : int
            Typical points to name per cluster.
        """
        if not isinstance(n_prototypes, (int, np.integer)) or n_prototypes < 0:
            raise ValueError(f"n_prototypes needs a whole number from 0, got {n_prototypes!r}")
        net, batch = self.net, self.net.batch(X)
        K, d = net.head.n_clusters, net.head.n_features
        total = torch.zeros(K, d, dtype=torch.float64)
        logits, columns = [], []
        for x, _ in self._chunks(batch.tensor):
            for a in rows(x if net.features is None else net.features(x)).split(net.chunk):
                own = net.head.assign(a)
                logits.append(net.head(a).gather(1, own[:, None])[:, 0])
                own = torch.where(net.head.outside(a), K, own)  # noise: a column beyond all clusters
                columns.append(own)
                inside = own < K
                relevance = net.head.relevance(a[inside], own[inside], net._beta)
                total.index_add_(0, own[inside].cpu(), relevance.cpu().double())
        names = net.feature_names_ or [f"x{i}" for i in range(d)]
        logit, column = torch.cat(logits).cpu().numpy(), torch.cat(columns).cpu().numpy()
        return summarized(net.classes_, logit, column, total.numpy(), names, n_prototypes)

    def _attribute(self, x: Tensor, target: Any, competitor: Any) -> Tensor:
        net = self.net
        if net.features is None:
            with torch.no_grad():
                _, columns, _ = self._columns(x, target)
                return net.head.relevance(x, columns, net._beta, self._competitor(competitor, target, x, columns))
        if of_words(net):
            return self._attribute_tokens(x, target, competitor)
        recording = self._record(x, several=False)
        return recording.propagate(self._multiplier(recording.output, target, competitor))

    @torch.no_grad()
    def _attribute_tokens(self, x: Tensor, target: Any, competitor: Any) -> Tensor:
        """Relevance [N, T] of words whose mean vector is clustered (VI-A): both linear layers are merged."""
        features: Any = self.net.features
        head, a = self.net.head, features(x)
        if not isinstance(head, DetectionHead) or head.detection.norm is not None:
            raise ValueError(
                "this clustering is not linear in the mean of word vectors: words have no shares of it"
            )
        _, columns, _ = self._columns(a, target)
        rival = self._competitor(competitor, target, a, columns)
        coefficients, _ = head.coefficients(head.detection(a), columns, self.net._beta, rival)
        return features.attribute_tokens(x, head.detection, coefficients)

    def _record(self, x: Tensor, several: bool) -> Recording:
        assert self.net.features is not None
        return LRP(self.net.features, self.composite).record(x, several)

    def _chunks(self, x: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Parts of a batch, with their first index, that memory has room for."""
        if self.net.features is not None:
            yield from chunks(x, "NEON")
            return
        size = self.net.chunk
        for first in range(0, len(x), size):
            yield x[first : first + size], first

    @torch.no_grad()
    def _multiplier(self, a: Tensor, target: Any, competitor: Any) -> Tensor:
        """Multipliers at the features, where the walk back through the feature network starts."""
        head, points = self.net.head, rows(a)
        _, columns, wanted = self._columns(a, target)
        rival = self._competitor(competitor, target, a, columns)

        def multiplier(x: Tensor, column: Tensor, *other: Tensor) -> Tensor:
            if self.head_rule == "linear":
                return head.multiplier(x, column, self.net._beta, *other)
            # relevance that lands on an inactive feature has no direction to go, and is let go
            relevance = head.relevance(x, column, self.net._beta, *other)
            return torch.where(x == 0, torch.zeros_like(x), relevance / x)

        m = self.net.by_point(multiplier, points, columns, *([] if rival is None else [rival]))
        return unrows((m * wanted[:, None]).to(a.dtype), a)

    def _columns(self, a: Tensor, target: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Each point's own column, the one to explain, and whether it is to be explained, [n] each."""
        K = self.net.head.n_clusters
        own = self.net.by_point(self.net.head.assign, rows(a))
        if target is None:
            return own, own, torch.ones_like(own)
        if isinstance(target, tuple) and a.ndim > 2 and len(target) == a.ndim - 1:
            column, *place = target
            check_columns(torch.as_tensor(column), K, "target")
            if any(not 0 <= i < n for i, n in zip(place, a.shape[2:], strict=True)):
                raise ValueError(f"target {target} is outside the feature map of shape {list(a.shape[2:])}")
            wanted = torch.zeros(a.shape[0], *a.shape[2:], dtype=torch.long, device=a.device)
            wanted[(slice(None), *place)] = 1
            return own, torch.full_like(own, int(column)), wanted.flatten()
        columns = at_places(target, a, K, "target")
        return own, columns, (own == columns).long() if a.ndim > 2 else torch.ones_like(own)

    def _competitor(self, competitor: Any, target: Any, a: Tensor, columns: Tensor) -> Tensor | None:
        if competitor is None:
            return None
        rival = at_places(competitor, a, self.net.head.n_clusters, "competitor")
        same = rival[rival == columns]
        if target is not None and len(same):
            k = int(same[0])
            raise ValueError(f"target and competitor are both {k}; a cluster does not compete with itself")
        return rival


def of_words(net: nn.Module) -> bool:
    """Whether the features are means of word vectors, such as :class:`neonxc.models.WordVectors`."""
    return hasattr(getattr(net, "features", None), "attribute_tokens")
