"""NEON: explains cluster decisions in terms of the inputs of a neuralized clustering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from neonxc.attribution.along import Estimate, Way, as_baseline
from neonxc.attribution.decisions import Decisions, restricted, tree_tests
from neonxc.attribution.permutation import permuted
from neonxc.attribution.summary import ClusterSummary, summarized
from neonxc.carriers import Backbone, Carrier, Columns, Decide, HeadRule, rows, unrows
from neonxc.carriers.groups import groups_of
from neonxc.common.arguments import check_whole
from neonxc.common.modules import takes_tokens
from neonxc.common.progress import progress_bar
from neonxc.common.targets import part, some_columns
from neonxc.data.frames import reads_tables
from neonxc.data.sparse import check_room, dense
from neonxc.data.table import Table
from neonxc.lrp import Composite, Epsilon
from neonxc.lrp.engine import only
from neonxc.network import NeuralizedClustering, check_network, checked_beta

GRADIENT = Composite(Epsilon(0.0))


class NEON(Attribution):
    """Attribute the cluster decisions of a neuralized clustering to its inputs (NEON paper, II-B and IV).

    Parameters
    ----------
    net : NeuralizedClustering
        The network to explain, from :func:`neonxc.neuralize`.
    composite : neonxc.lrp.Composite, optional
        LRP rules of the feature network, if there is one. Default: LRP-gamma with gamma 0.25.
    beta : float, optional
        Stiffness >= 0 of the take-most rule, which shares relevance among the competitors: 0 shares it equally,
        and inf gives all to the nearest one. Default: the network's own, ``net.beta``.
    head_rule : {"linear", "midpoint"}, optional
        How the contrast with a competitor is shared among the features. "midpoint" measures the features from the
        point halfway between two centroids (NEON paper, Eq. 4), and conserves: relevance sums to the logit.
        "linear" multiplies the features by the slope of the contrast; the bias absorbs its share. Default:
        "linear" with a feature network, as pixel-flipping prefers it, and "midpoint" without. Where contrasts are
        not linear (kernel k-means, surrogates, mixtures), the sum of "linear" relevance may be several times the
        logit.
    along : float, array with the shape of one input, or "mask", optional
        A baseline, such as 0 for the activations of a network, and "mask" for texts of a sentence encoder, whose
        words are then masked. The target is then explained against the competitors that it has to beat on the way
        from the baseline to the input, and not only against those at the input; see Notes. :meth:`attribute` and
        :meth:`estimate` support it.
    steps : int
        Number of points on the way from the baseline, each of which takes a pass through the network; at least 1.
    groups : "pixels", "channels", int or array of int, optional
        Features that are missing together on the way, as in :func:`neonxc.evaluation.pixel_flipping`: all channels
        of a place (the default for images), all places of a channel, patches of so many pixels squared, or group
        numbers. By default columns and words are groups of their own. Only for the linear head rule.

    Raises
    ------
    TypeError
        `net` is no network from :func:`neonxc.neuralize`, or `composite` no composite.
    ValueError
        A parameter outside its range, or one that does not apply to the network: a composite without a feature
        network, a head rule that it does not support, a baseline for texts.

    Notes
    -----
    With a baseline b, the target is that of x.

    - ``head_rule="linear"``, the default with `along`: the relevance is ``(x - b)`` times the mean of the
      multipliers at `steps` points ``b + t (x - b)``. The first two have t = 1/4 and 3/4. At all others, each
      group of features has its own t, ``sigmoid(10 (s - rank))``: the groups fade in one after the other, that of
      the largest relevance so far first (rank 0) and that of the least last (rank 1), and s is spread over 0 to 1.
      The multipliers are those of a soft minimum of stiffness ``1 / |f(x)|`` (unless `beta` is given), times
      ``|f(x)| / (|f(x)| + |f|)`` with the logit f at the point, so that points far from a decision weigh little.
      LRP in the feature network is the gradient unless a composite is given. Nothing is drawn at random. The
      relevance does not sum to the logit; :meth:`estimate` tells how much is missing to ``f(x) - f(b)``.
    - ``head_rule="midpoint"``: the soft minimum's weights of the competitors are averaged over `steps` points on
      the straight line from b to x, and share the logit f(x) (Eqs. 2 and 4). The relevance at the head sums to
      the logit.

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", IEEE TNNLS, 2022.

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
        steps: int = 20,
        groups: Any = None,
    ) -> None:
        """Explain the decisions of a network; the parameters are those of the class."""
        check_network(net, "NEON")
        if not isinstance(composite, (Composite, type(None))):
            raise TypeError(f"composite needs a neonxc.lrp.Composite, got {type(composite).__name__}")
        if head_rule not in ("linear", "midpoint", None):
            raise ValueError(f"head_rule needs 'linear' or 'midpoint', got {head_rule!r}")
        super().__init__(net)
        self.net = net
        self.composite = composite
        self.beta = None if beta is None else checked_beta(beta)
        words = net.carrier.missing == "word"
        rules = net.carrier.rules if along is None else ("linear",) if words else ("linear", "midpoint")
        masked = net.carrier.mask is not None and isinstance(along, str) and along == "mask"
        if along is not None and words and not masked:
            raise ValueError(
                "along needs numeric inputs: there are no points between a baseline and a text, except for a "
                'sentence encoder with a mask token, which takes "mask"'
            )
        check_whole("steps", steps)
        if groups is not None and along is None:
            raise ValueError("groups needs along: without a baseline, no features are missing")
        self.groups = groups
        self.along, self.steps = along if words or along is None else as_baseline(along), steps
        if head_rule is not None and head_rule not in rules:
            raise ValueError(f"head_rule needs {rules[0]!r} for this network, got {head_rule!r}")
        if composite is not None and not isinstance(net.carrier, Backbone):
            raise ValueError("composite sets the rules of a feature network, and this network has none")
        self.head_rule: HeadRule = head_rule or rules[0]

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: relevance is a share of the logit, not a gradient."""
        return True

    @log_usage(part_of_slo=True)
    @reads_tables
    def attribute(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """Compute the relevance of the inputs for a cluster decision.

        Parameters
        ----------
        inputs : array, sparse matrix, data frame, tensor [N, ...] or list of N str, or a tuple of one of these
            Points, or inputs of the feature network, or texts if the network has a vectorizer.
        target : int, sequence or Tensor [N], or tuple of int, optional
            Column of the cluster to explain, from 0 to K - 1 (the position of its label in ``net.classes_``): one
            for all inputs or one for each. Default: the cluster that each point is assigned to, a documented
            deviation from captum. If the features are a map, a column explains all locations that are assigned to
            this cluster, and the default the own cluster of every location; a tuple ``(column, row, column, ...)``
            explains one location.
        competitor : int, sequence or Tensor [N], optional
            Column of a second cluster: explain why a point is in the target rather than in this cluster. Default:
            explain why it is in the target rather than in any other cluster. Points whose own cluster is the
            competitor get zeros.

        Returns
        -------
        array, data frame or tensor with the shape of `inputs`, or a tuple of one
            Relevance in units of the logit. On raw columns it sums to the target's logit (to the contrast if there
            is a competitor), up to :meth:`residual`. If the logit is negative, the point is not in the target, and
            the logit is shared among the clusters that beat the target. The type, dtype and device are those of
            `inputs`; sparse matrices get a dense array, as relevance is not sparse, and texts behind a vectorizer
            get a data frame.

        Raises
        ------
        ValueError
            Invalid inputs, an unknown target, a target that is its own competitor, or sparse points or texts whose
            relevance takes more than 1 GiB.
        """
        if isinstance(inputs, tuple):
            return tuple(self.attribute.__wrapped__(self, x, target, competitor) for x in only(inputs))
        return self._explained(inputs, self._relevance, target, competitor)

    @reads_tables
    def estimate(self, inputs: Any, target: Any = None, competitor: Any = None) -> Estimate:
        """Compute relevance with a baseline, its standard error over the passes, and the rest of the decision.

        Parameters
        ----------
        inputs, target, competitor
            As in :meth:`attribute`.

        Returns
        -------
        Estimate

        Raises
        ------
        ValueError
            Invalid arguments, as in :meth:`attribute`, or an explainer without a baseline or of the midpoint rule.
        """
        if self.along is None or self.head_rule == "midpoint":
            raise ValueError("estimate needs a baseline, along=..., and the linear head rule")
        parts = []

        def explain(x: Tensor, **asked: Any) -> Tensor:
            way = self._way(x, **asked)
            relevance, stderr = way.in_order(self.steps)
            parts.append((stderr, way.residual(relevance)))
            return relevance

        relevance = self._explained(inputs, explain, target, competitor)
        stderr, residual = (torch.cat(some) for some in zip(*parts, strict=True))
        return Estimate(relevance, stderr, residual)

    @torch.no_grad()
    @reads_tables
    def residual(self, inputs: Any, target: Any = None) -> Any:
        """Compute the part of the logit that belongs to no column: the logit minus the sum of the relevance.

        It is zero if the distance to a cluster is the distance to one of its centers. For kernel k-means with
        weights w of the supports it is ``sum_k s_k [KL(q_k | w_k) - KL(p | w_c)] / gamma``, where p and q_k are
        the soft minima over the supports of the target c and of a competitor k. For mixtures it is the
        contribution of the priors; with a probability threshold it is that of the threshold, plus the difference
        between the soft minimum over the competitors and their mean.

        Parameters
        ----------
        inputs : array, data frame or tensor [N, d]
        target : int, sequence or Tensor [N], optional
            As in :meth:`attribute`.

        Returns
        -------
        array or Tensor [N]
            Signed, in units of the logit.

        Raises
        ------
        ValueError
            The network has a feature network, or the explainer a baseline.
        """
        self._check_alone()
        if not isinstance(self.net.carrier, Columns):
            raise ValueError(
                "residual needs a network without feature network: there every layer's bias has a share"
            )

        def residual(x: Tensor, target: Any) -> Tensor:
            columns = self.decisions.columns(x, target)[0]
            return self.decisions.logit(x, columns) - self._relevance(x, columns).sum(1)

        batch = self.carrier.stored(inputs)
        return batch.restore(self._in_blocks(batch, residual, target=target))

    def heatmaps(self, inputs: Any, clusters: Sequence[int] | None = None) -> Any:
        """Compute one heatmap per cluster: the relevance summed over the input channels.

        All clusters share one forward pass.

        Parameters
        ----------
        inputs : array or tensor [N, C, ...]
            Inputs of the feature network.
        clusters : sequence of int, optional
            Columns of the clusters. Default: all.

        Returns
        -------
        array or Tensor [N, clusters, ...]
            Relevance in units of the logit; `target` of :meth:`attribute` describes what a cluster's map explains.

        Raises
        ------
        ValueError
            Invalid inputs, unknown clusters, or a network without a feature network.
        """
        columns = some_columns(clusters, self.net.head.n_clusters)
        decisions = self.decisions
        return self._maps(inputs, len(columns), lambda a: [decisions.of_target(a, c, None) for c in columns])

    def threshold_heatmaps(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """Compute one heatmap per test of a threshold tree: the test's contribution to the decision.

        Parameters
        ----------
        inputs : array or tensor [N, C, ...]
            Inputs of the feature network.
        target, competitor : int, optional
            As in :meth:`attribute`, one for all inputs.

        Returns
        -------
        array or Tensor [N, T, ...]
            One map per test, in the order of the tree's inner nodes. The maps sum to the relevance of the
            decision; those of tests that are not on an input's path are zero.

        Raises
        ------
        ValueError
            The clustering is no tree or hierarchy, or there is no feature network.
        """
        tests, n_tests = tree_tests(self.net.head)

        def decisions(a: Tensor) -> list[Decide]:
            decide = self.decisions.of_target(a, target, competitor)
            return [partial(restricted, decide, tests == test) for test in range(n_tests)]

        return self._maps(inputs, n_tests, decisions)

    @torch.no_grad()
    @reads_tables
    def thresholds(self, inputs: Any, target: Any = None, competitor: Any = None) -> Any:
        """Compute the relevance of the tests of a threshold tree: how the tests on a point's path share the logit.

        Parameters
        ----------
        inputs, target, competitor
            As in :meth:`attribute`.

        Returns
        -------
        array or Tensor [N, T], or [N, T, ...] if the features are a map
            Relevance of the tests, in the order of the tree's inner nodes. It sums to the logit, which is the
            distance to the nearest threshold in standard deviations of its column. With a competitor, only the
            test at which the paths to the two clusters separate has relevance.

        Raises
        ------
        ValueError
            The clustering is no tree or hierarchy.
        """
        self._check_alone()
        (tests, n_tests), head = tree_tests(self.net.head), self.net.head

        def shares(x: Tensor, target: Any, competitor: Any) -> Tensor:
            a = self.carrier.features(x)
            decide = self.decisions.of_target(a, target, competitor)

            def of_block(block: slice, points: Tensor) -> Tensor:
                evidence = decide(block).weights * head.detection(points)
                return evidence.new_zeros(len(evidence), n_tests).index_add(1, tests, evidence)

            return unrows(self.carrier.each(rows(a), of_block), a)

        batch = self.carrier.stored(inputs)
        result = batch.restore(self._in_blocks(batch, shares, target=target, competitor=competitor))
        return result.to_numpy() if hasattr(result, "iloc") else result  # a frame's columns are no tests

    @reads_tables
    def summary(
        self,
        X: Any,
        n_prototypes: int = 5,
        *,
        method: Literal["lrp", "permute"] = "lrp",
    ) -> ClusterSummary:
        """Summarize every cluster: its size, the mean relevance and the mean of its features, and its prototypes.

        Relevance says how much a feature matters, but not in which direction. The summary therefore also
        contains the mean of each feature in the cluster and over all points (for categories: their shares).
        Noise points are counted separately.

        Parameters
        ----------
        X : array, sparse matrix, data frame, tensor or sequence of str
            Points, inputs of the feature network, or texts. Sparse points stay sparse if the head is linear. With
            a feature network the features of the summary are the network's. For texts they are the words or terms:
            the relevance of a word is the sum over its occurrences in a text, averaged over the texts of a
            cluster.
        n_prototypes : int
            Number of prototypes per cluster, the points with the largest logits; at least 0.
        method : {"lrp", "permute"}
            With "permute", the relevance of a column is the share of a cluster's points, 0 to 1, that leave it if
            the values of the column are permuted among all points: a second opinion on tables that asks nothing
            but the decisions. It is computed on at most 2,000 points.

        Returns
        -------
        ClusterSummary

        Raises
        ------
        ValueError
            Invalid X or `n_prototypes`, or an explainer with a baseline.
        """
        self._check_alone()
        if not isinstance(n_prototypes, (int, np.integer)) or n_prototypes < 0:
            raise ValueError(f"n_prototypes needs a whole number >= 0, got {n_prototypes!r}")
        if method not in ("lrp", "permute"):
            raise ValueError(f'method needs "lrp" or "permute", got {method!r}')
        found = summarized(self.carrier, self.decisions, X, n_prototypes)
        return found if method == "lrp" else replace(found, relevance=permuted(self.net, X), method=method)

    @property
    def carrier(self) -> Carrier:
        """The carrier between inputs and head, with this explainer's composite."""
        carrier = self.net.carrier
        if isinstance(carrier, Backbone):
            by_gradient = self.along is not None and self.head_rule == "linear" and carrier.missing != "word"
            carrier.composite = GRADIENT if self.composite is None and by_gradient else self.composite
        return carrier

    def _relevance(self, x: Tensor, target: Any, competitor: Any = None, **grouped: Any) -> Tensor:
        """Relevance of a block of inputs."""
        if self.along is not None:
            way = self._way(x, target=target, competitor=competitor, **grouped)
            return way.in_order(self.steps)[0] if self.head_rule == "linear" else way.straight(self.steps)
        decisions, record = self.decisions, self.carrier.record(x)
        return next(record.relevance([decisions.of_target(record.features, target, competitor)], self.head_rule))

    def _way(self, x: Tensor, **asked: Any) -> Way:
        return Way(self.carrier, self.decisions, x, self.along, **asked)

    def _explained(self, inputs: Any, explain: Callable[..., Tensor], target: Any, competitor: Any) -> Any:
        """Relevance of inputs, of their type; `explain` also gets the groups [N, D] of features on a way."""
        if isinstance(target, tuple) and not isinstance(self.net.carrier, Backbone):
            target = list(target)  # points have no locations
        batch = self.carrier.stored(inputs)
        check_room(batch.tensor)
        asked: dict[str, Any] = {"target": target, "competitor": competitor}
        if self.along is not None:
            groups = groups_of(self.net, self.groups, batch.tensor)
            asked |= {"groups": groups.expand(len(batch.tensor), -1), "n_groups": int(groups.max()) + 1}
        return batch.restore(batch.collected(self._in_blocks(batch, explain, **asked)))

    @property
    def decisions(self) -> Decisions:
        """The decisions of the head, with the stiffness of this explainer."""
        return Decisions(self.net, self.beta)

    def _check_alone(self) -> None:
        if self.along is not None:
            raise ValueError("along is supported by attribute and estimate only; use a NEON without it")

    def _maps(self, inputs: Any, several: int, decisions: Callable[[Tensor], list[Decide]]) -> Any:
        """Relevance [N, several, ...] of several decisions, summed over the inputs' channels."""
        self._check_alone()
        carrier = self.net.carrier
        if not isinstance(carrier, Backbone) or carrier.missing == "word":
            raise ValueError(
                "heatmaps need a network with a feature network of images; for points and words use attribute"
            )

        def maps(x: Tensor) -> Tensor:
            record = self.carrier.record(x, several > 1)
            found = record.relevance(decisions(record.features), self.head_rule)
            return torch.stack([relevance.sum(dim=1) for relevance in found], dim=1)

        batch = carrier.stored(inputs)
        if takes_tokens(carrier.module, batch.tensor):
            raise ValueError(
                f"heatmaps need inputs [N, C, ...], and the network takes tokens, {list(batch.shape)}: sum "
                "attribute(inputs) over the dimensions; for texts, neonxc.models.SentenceEncoder does"
            )
        return batch.restore(self._in_blocks(batch, maps))

    def _in_blocks(self, batch: Table, explain: Callable[..., Tensor], **per_input: Any) -> Tensor:
        """Explain inputs block by block, with the entries of other arguments that belong to each block."""
        blocks, n = list(self.carrier.blocks(batch.tensor)), len(batch.tensor)
        found = []
        shown = progress_bar(blocks, desc="NEON") if len(blocks) > 1 else blocks  # a bar takes 5% of 300 x 10
        for block in shown:
            given = {name: part(value, name, block, n) for name, value in per_input.items()}
            found.append(explain(dense(batch.tensor[block]), **given))
        return torch.cat(found) if len(found) > 1 else found[0]
