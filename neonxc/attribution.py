"""NEON: why a point is in its cluster, in terms of what the network was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from neonxc.carriers import Backbone, Carrier, Columns, Decide, HeadRule, rows, unrows
from neonxc.cluster_values import ValueSums
from neonxc.competition import Path, Share
from neonxc.head import Decision, Head
from neonxc.inputs import Batch
from neonxc.lrp import Composite, Epsilon
from neonxc.lrp.engine import only
from neonxc.network import NeuralizedClustering, checked_beta
from neonxc.parameters import check_whole
from neonxc.pooling import slopes_of_most, softmin, take_most
from neonxc.progress_bars import progress_bar
from neonxc.ranks import Ranks
from neonxc.shards import common_type, without_rows
from neonxc.sparse import check_room, dense
from neonxc.summary import ClusterSummary, summarized
from neonxc.targets import competitors, explained, part, some_columns

Take = Callable[[Any, str], Any]
"""Takes from an argument of this name what belongs to a part of the inputs."""

GRADIENT = Composite(Epsilon(0.0))


class NEON(Attribution):
    """Attribute cluster decisions of a neuralized clustering (NEON paper, II-B and IV).

    Parameters
    ----------
    net : NeuralizedClustering
        From :func:`neonxc.neuralize`.
    composite : neonxc.lrp.Composite, optional
        Rules for the feature network, if there is one; default: LRP-gamma with gamma 0.25.
    beta : float, optional
        Stiffness of the take-most rule, 0 ... inf; default: the network's own, ``net.beta``.
    head_rule : {"linear", "midpoint"}, optional
        How a contrast shares its relevance among the features of a feature network. "midpoint" counts from the
        points halfway between centroids, "linear" from zero, by the contrast's slope, with the bias absorbing its
        share. Default: "linear", which pixel-flipping prefers; where contrasts are not linear (kernel k-means,
        surrogates, mixtures) its relevance may be several times the logit, and "midpoint" keeps closer to it.
        Without a feature network it is the mid-point rule (Eq. 4), which conserves: relevance sums to the logit.
    along : float or array shaped like one input, optional
        A baseline that stands in for what is missing, such as 0 for activations of a network. The target is then
        explained against the rivals that it has to beat on the way from there to the input, and not only against
        those at the input; see Notes.
    steps : int
        Points on that way, at t = 1/4 and 3/4 by default.

    Notes
    -----
    With a baseline b, the target is that of x, and the rivals are weighed at ``x_t = b + t (x - b)``.

    - ``head_rule="linear"``, the default with `along`: the relevance is ``(x - b)`` times the mean of the
      multipliers at the points x_t, where the shares of the rivals that beat the target there sum to one. The
      feature network follows its gradient unless a composite is given. It does not conserve the logit: its sum is
      near ``f(x) - f(b)``, as with integrated gradients.
    - ``head_rule="midpoint"``: the soft minimum's weights of the rivals are averaged over the points, and f(x) is
      shared by these weights at x alone (Eqs. 2 and 4): relevance at the head sums to the logit.

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
        beta: float | None = None,
        head_rule: HeadRule | None = None,
        along: Any = None,
        steps: int = 2,
    ) -> None:
        """Explain the decisions of a network; the parameters are those of the class."""
        if not isinstance(net, NeuralizedClustering):
            raise TypeError(f"NEON needs a network from neonxc.neuralize, got {type(net).__name__}")
        if not isinstance(composite, (Composite, type(None))):
            raise TypeError(f"composite needs a neonxc.lrp.Composite, got {type(composite).__name__}")
        if head_rule not in ("linear", "midpoint", None):
            raise ValueError(f"head_rule is 'linear' or 'midpoint', got {head_rule!r}")
        super().__init__(net)
        self.net = net
        self.composite = composite
        self.beta = None if beta is None else checked_beta(beta)
        rules = net.carrier.rules if along is None else ("linear", "midpoint")
        if along is not None and net.carrier.missing == "word":
            raise ValueError("along is for numbers: there are no points on the way from a baseline to a text")
        check_whole("steps", steps)
        self.along, self.steps = None if along is None else _finite(along), steps
        if head_rule is not None and head_rule not in rules:
            raise ValueError(f"head_rule is {rules[0]!r} for this network, got {head_rule!r}")
        if composite is not None and not isinstance(net.carrier, Backbone):
            raise ValueError("composite has rules for a feature network, and this network has none")
        self.head_rule: HeadRule = head_rule or rules[0]

    @property
    def multiplies_by_inputs(self) -> bool:
        """Relevance is a share of the logit, not a slope."""
        return True

    @log_usage(part_of_slo=True)
    def attribute(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """Relevance of cluster decisions.

        Parameters
        ----------
        inputs : array, sparse matrix, frame, tensor [N, ...] or list of N str, or a tuple of one
            Points, or what the feature network takes, or texts where the network has a vectorizer.
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
            in the target, and is shared among the clusters that beat it. Sparse matrices get an array, as
            relevance is not sparse (what is absent speaks, too), and texts behind a vectorizer a data frame.

        Raises
        ------
        ValueError
            Unusable inputs, an unknown target, a target that is its own competitor; sparse points or texts whose
            relevance takes more than 1 GiB.
        """
        if isinstance(inputs, tuple):
            return tuple(self.attribute.__wrapped__(self, x, target, competitor) for x in only(inputs))
        if isinstance(target, tuple) and not isinstance(self.net.carrier, Backbone):
            target = list(target)  # points have no locations
        batch = self.carrier.stored(inputs)
        check_room(batch.tensor)
        relevance = self._in_parts(
            batch, lambda x, take: self._relevance(x, take(target, "target"), take(competitor, "competitor"))
        )
        return batch.restore(batch.collected(relevance))

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
        self._check_alone()
        if not isinstance(self.net.carrier, Columns):
            raise ValueError("residual is for points; on a feature network the bias of every layer has its share")

        def residual(x: Tensor, take: Take) -> Tensor:
            columns = self._columns(x, take(target, "target"))[0]
            logit = self.net.head(x).gather(1, columns[:, None])[:, 0]
            return logit - self._relevance(x, columns, None).sum(1)

        batch = self.carrier.stored(inputs)
        return batch.restore(self._in_parts(batch, residual))

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
        columns = some_columns(clusters, self.net.head.n_clusters)
        return self._maps(inputs, len(columns), lambda a: [self._decide(a, c, None) for c in columns])

    def threshold_heatmaps(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """One heatmap for every test of a threshold tree: its part in the decision.

        Parameters
        ----------
        inputs : array or tensor [N, C, ...]
            What the feature network takes.
        target, competitor : optional
            As in :meth:`attribute`: one for all inputs.

        Returns
        -------
        array or Tensor [N, T, ...]
            For the tests in the order of the tree's inner nodes; they sum to the relevance of the decision, and
            those that are not on an input's path are zero.

        Raises
        ------
        ValueError
            The network is not that of a tree (or a hierarchy), or has no feature network.
        """
        tests, n_tests = _tests(self.net.head)

        def decisions(a: Tensor) -> list[Decide]:
            decide = self._decide(a, target, competitor)
            return [partial(_restricted, decide, tests == test) for test in range(n_tests)]

        return self._maps(inputs, n_tests, decisions)

    @torch.no_grad()
    def thresholds(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """Which tests of a threshold tree mattered: how the tests on a point's path share the logit.

        Parameters
        ----------
        inputs, target, competitor
            As in :meth:`attribute`.

        Returns
        -------
        array or Tensor [N, T], or [N, T, ...] where the features are a map
            For the tests in the order of the tree's inner nodes, in units of the logit, which is the margin to the
            nearest threshold in spreads of its column. They sum to the logit; with a competitor only the test at
            which the ways to the two clusters part has relevance.

        Raises
        ------
        ValueError
            The network is not that of a tree (or a hierarchy).
        """
        self._check_alone()
        (tests, n_tests), head = _tests(self.net.head), self.net.head

        def shares(x: Tensor, take: Take) -> Tensor:
            a = self.carrier.features(x)
            points, decide = rows(a), self._decide(a, take(target, "target"), take(competitor, "competitor"))
            parts = []
            for some in self.carrier.of_points(points):
                evidence = decide(some).weights * head.detection(points[some])
                parts.append(evidence.new_zeros(len(evidence), n_tests).index_add(1, tests, evidence))
            return unrows(torch.cat(parts), a)

        batch = self.carrier.stored(inputs)
        result = batch.restore(self._in_parts(batch, shares))
        return result.to_numpy() if hasattr(result, "iloc") else result  # tests are no columns, however many

    @torch.no_grad()
    def summary(self, X: Any, n_prototypes: int = 5, *, group: Any = None) -> ClusterSummary:
        """Summarize every cluster: its size, the features that speak for it on average, and its typical points.

        Relevance tells how much a feature matters, and not in which direction. The summary therefore also has the
        mean of each feature in the cluster and in all points (for categories: their shares). Noise is counted
        apart.

        Parameters
        ----------
        X : array, sparse matrix, frame, tensor or sequence of str
            Points (sparse ones are not laid out where neurons are linear), or what the feature network takes; then
            the features of the summary are that network's. For texts they are the words or terms: a word's
            relevance is what all its occurrences add to the logit of a cluster's text, on average.
        n_prototypes : int
            Typical points to name per cluster.
        group : torch.distributed.ProcessGroup, optional
            Sum up the rows of all processes of the group: X are those of this process, which may have none. All
            processes call it with the same network, and get the same summary. Prototypes are then numbers among
            all rows, those of rank 0 first (locations of maps are rows, as without a group).

        Raises
        ------
        ValueError
            Unusable X, a number of prototypes that is no whole number. In a group, on all processes: networks or
            types of X that differ, and what is wrong with the rows of one process.
        """
        ranks, net = Ranks(group), self.net
        with ranks.agreed():
            self._check_alone()
            if not isinstance(n_prototypes, (int, np.integer)) or n_prototypes < 0:
                raise ValueError(f"n_prototypes needs a whole number from 0, got {n_prototypes!r}")
        units = self.carrier.units
        ranks.same(classes=net.classes_.tolist(), columns=units, n_prototypes=n_prototypes)
        with ranks.agreed():
            values = ValueSums(net.head.n_clusters, len(units), self.carrier.categories)
            logit, column, total, kind = self._tallied(X, values, ranks)
        common_type(len(logit), kind, ranks)
        typical = values.result(self.carrier.in_texts, ranks)
        return summarized(net.classes_, logit, column, total[:-1], typical, units, n_prototypes, ranks)

    def _tallied(self, X: Any, values: ValueSums, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor, torch.dtype]:
        """The logit [n] and the column [n] (K: noise) of points, their relevance by column, and the type of X."""
        net, carrier, K = self.net, self.carrier, self.net.head.n_clusters
        total = torch.zeros(K + 1, len(carrier.units), dtype=torch.float64)
        table = None if without_rows(X, ranks) else carrier.table(X)
        logits, columns = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.int64)]
        kind = torch.float32
        for x in () if without_rows(X, ranks) else carrier.parts(X):
            a, kind = carrier.features(x), x.dtype
            points = rows(a)
            own = self._columns(a, None)[0]
            column = torch.where(net.is_noise(points), K, own)  # noise: a column beyond all clusters
            carrier.tally(x, points, self._decisions(points, own), column, total)
            if table is None:
                values.add(carrier.values(x, points), column)
            columns.append(column.cpu())
            for some in carrier.of_points(points):
                logits.append(net.head(points[some]).gather(1, own[some, None])[:, 0].cpu().double())
        if table is not None:
            values.add_table(*table, torch.cat(columns))
        return torch.cat(logits), torch.cat(columns), total, kind

    @property
    def carrier(self) -> Carrier:
        """What stands before the head, with the rules that relevance goes back by."""
        carrier = self.net.carrier
        if isinstance(carrier, Backbone):
            on_the_way = self.along is not None and self.head_rule == "linear"
            carrier.composite = GRADIENT if self.composite is None and on_the_way else self.composite
        return carrier

    def _relevance(self, x: Tensor, target: Any, competitor: Any) -> Tensor:
        if self.along is not None:
            return self._on_the_way(x, target, competitor)
        record = self.carrier.record(x)
        return next(record.relevance([self._decide(record.features, target, competitor)], self.head_rule))

    def _on_the_way(self, x: Tensor, target: Any, competitor: Any) -> Tensor:
        """Relevance with the rivals of points on the way from the baseline to x."""
        assert self.along is not None
        carrier, base = self.carrier, _baseline(self.along, x)
        a = carrier.features(x).detach()
        columns, wanted = self._columns(a, target)
        rival = competitors(competitor, target, columns, a, self.net.head.n_clusters)
        way = (base + (i + 0.5) / self.steps * (x - base) for i in range(self.steps))
        if self.head_rule == "linear":
            total = torch.zeros_like(x)
            for point in way:
                record = carrier.record(point)
                points = rows(record.features)
                total += record.slope(self._decisions(points, columns, rival, wanted, slopes_of_most))
            return (x - base) * total / self.steps
        weights = [self._weights(carrier.features(point), columns, rival) for point in way]
        mean = torch.stack(weights).mean(0)
        record = carrier.record(x)
        return next(record.relevance([self._decisions(rows(a), columns, rival, wanted, mean)], "midpoint"))

    @torch.no_grad()
    def _weights(self, a: Tensor, columns: Tensor, rival: Tensor | None) -> Tensor:
        """The soft minimum's weights [n, L] of the contrasts with a target at features `a`."""
        points, head, parts = rows(a), self.net.head, []
        for some in self.carrier.of_points(points):
            values, other = head.values(points[some]), None if rival is None else rival[some]
            contrasts = head.competition.contrasts(values, columns[some], other)
            parts.append(softmin(contrasts, self._stiffness).nan_to_num())
        return torch.cat(parts)

    @property
    def _stiffness(self) -> float | Tensor:
        return self.net._beta if self.beta is None else self.beta

    def _check_alone(self) -> None:
        if self.along is not None:
            raise ValueError("along is for attribute alone")

    def _maps(self, inputs: Any, several: int, decisions: Callable[[Tensor], list[Decide]]) -> Any:
        """Relevance [N, several, ...] of decisions on the features, summed over the inputs' channels."""
        self._check_alone()
        if not isinstance(self.net.carrier, Backbone):
            raise ValueError(
                "heatmaps are for images and need a feature network; attribute is for points and words"
            )

        def maps(x: Tensor, take: Take) -> Tensor:
            record = self.carrier.record(x, several > 1)
            found = record.relevance(decisions(record.features), self.head_rule)
            return torch.stack([relevance.sum(dim=1) for relevance in found], dim=1)

        batch = self.carrier.stored(inputs)
        return batch.restore(self._in_parts(batch, maps))

    def _in_parts(self, batch: Batch, explain: Callable[[Tensor, Take], Tensor]) -> Tensor:
        """Explain inputs part by part; `explain` also gets a function that takes a part of an argument."""
        parts, n = list(self.carrier.blocks(batch.tensor)), len(batch.tensor)
        found = []
        for want in progress_bar(parts, desc="NEON", disable=len(parts) < 2):

            def take(argument: Any, name: str, want: slice = want) -> Any:
                return part(argument, name, want, n)

            found.append(explain(dense(batch.tensor[want]), take))
        return torch.cat(found)

    @torch.no_grad()
    def _decide(self, a: Tensor, target: Any, competitor: Any) -> Decide:
        """How the points of features `a` decide for a target."""
        columns, wanted = self._columns(a, target)
        rival = competitors(competitor, target, columns, a, self.net.head.n_clusters)
        return self._decisions(rows(a), columns, rival, wanted)

    def _decisions(
        self,
        points: Tensor,
        columns: Tensor,
        rival: Tensor | None = None,
        wanted: Tensor | None = None,
        share: Share | Tensor = take_most,
    ) -> Decide:
        """Decisions of points [n, d], as far as they are wanted, for one column each.

        The rivals' shares are those of a function, or by their weights [n, L].
        """

        @torch.no_grad()
        def decide(some: slice) -> Decision:
            x, other = points[some], None if rival is None else rival[some]
            weighed = partial(take_most, weights=share[some]) if isinstance(share, Tensor) else share
            decision = self.net.head.decision(x, columns[some], self._stiffness, other, weighed)
            if wanted is None:
                return decision
            return replace(decision, weights=decision.weights * wanted[some, None])

        return decide

    def _columns(self, a: Tensor, target: Any) -> tuple[Tensor, Tensor | None]:
        """The column to explain at each point of features `a`, [n]; and whether it is to be, unless all are."""
        points, head = rows(a), self.net.head
        own = torch.cat([head.assign(points[some]) for some in self.net.carrier.of_points(points)])
        return explained(target, own, a, head.n_clusters)


def _tests(head: Head) -> tuple[Tensor, int]:
    """The test [M] of a tree or hierarchy that each neuron belongs to, and the number of tests."""
    if not isinstance(head.competition, Path):
        raise ValueError("thresholds are those of a tree: neuralize a ThresholdTree or a fitted tree explainer")
    signs = head.competition.signs
    tests = torch.arange(signs.shape[1], device=signs.device) if head.grouping is None else head.grouping.groups
    return tests, signs.shape[1]


def _restricted(decide: Decide, neurons: Tensor, some: slice) -> Decision:
    """The part that some neurons, a mask [M], have in decisions."""
    decision = decide(some)
    return replace(decision, weights=decision.weights * neurons)


def _finite(along: Any) -> Tensor:
    """A baseline as a tensor."""
    try:
        base = along if isinstance(along, Tensor) else torch.tensor(np.array(along))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"along needs a number or a baseline shaped like one input, got {along!r}") from None
    if base.dtype == torch.bool or base.is_complex() or not bool(base.isfinite().all()):
        raise ValueError(f"along needs finite numbers, got {along!r}")
    return base.detach()


def _baseline(along: Tensor, x: Tensor) -> Tensor:
    """A baseline for inputs [N, ...]."""
    if along.ndim and along.shape != x.shape[1:]:
        got, needed = list(along.shape), list(x.shape[1:])
        raise ValueError(f"along needs a number or a baseline shaped like one input, {needed}, got {got}")
    return along.to(x).expand(x.shape[1:])
