"""NEON: explains cluster decisions in terms of the inputs of a neuralized clustering.

The head writes the decision for a cluster as a weighted sum of its neurons (NEON paper, Eq. 2), and divides it
among its columns (Eq. 4). LRP divides it further among the inputs of a feature network. What a NEON computes:

    attribute             the relevance of the inputs, with a baseline on the path from it
    estimate              the same with a baseline, with its standard error
    residual              what is missing to the logit
    heatmaps              the relevance of images for every cluster, summed over the channels
    thresholds            the relevance of the tests of a tree
    threshold_heatmaps    one heatmap for every test of a tree
    summary               means over the points of every cluster
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from neonxc.attribution.paths import Estimate, PathAttribution
from neonxc.attribution.permutation import permuted
from neonxc.attribution.questions import Labels, in_blocks, question_of
from neonxc.attribution.summary import ClusterSummary, summarized
from neonxc.common.arguments import check_whole
from neonxc.common.types import AnyArray, ArrayLike, Item, Label, OtherTable, TableLike, TensorOrFrame
from neonxc.common.warnings import deprecated
from neonxc.data.inputs import as_array
from neonxc.data.sparse import check_room
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import weights_of
from neonxc.head.answer import Question, answers, unrows
from neonxc.head.competition import Path
from neonxc.inputs.base import HeadRule, How
from neonxc.inputs.groups import groups_of
from neonxc.inputs.layout import reading
from neonxc.lrp import Composite
from neonxc.lrp.engine import only
from neonxc.network import NeuralizedClustering, check_network, checked_beta

if TYPE_CHECKING:
    import pandas as pd


class NEON(Attribution):
    """Attribute the cluster decisions of a neuralized clustering to its inputs (NEON paper, II-B and IV).

    Parameters
    ----------
    net : NeuralizedClustering
        The network to explain, from :func:`neonxc.neuralize`.
    composite : neonxc.lrp.Composite, optional
        LRP rules of the feature network, if there is one. Default: LRP-gamma with gamma 0.25 (LRP-epsilon in
        sentence encoders), and every softmax, such as attention weights, held constant.
    beta : float, optional
        Stiffness >= 0 of the take-most rule, which divides relevance among the competitors: 0 divides it equally,
        and inf gives all to the nearest one. Default: that of the network, ``net.beta``.
    head_rule : {"linear", "midpoint"}, optional
        How the contrast with a competitor is divided among the features. "midpoint" measures the features from the
        point halfway between two centroids (NEON paper, Eq. 4), and conserves: relevance sums to the logit.
        "linear" multiplies the features by the slope of the contrast; the bias absorbs the rest. Default:
        "linear" with a feature network, as pixel-flipping prefers it, and "midpoint" without. Where contrasts are
        not linear (kernel k-means, surrogates, mixtures), the sum of "linear" relevance may be several times the
        logit.
    baseline : float, one input, or "mask", optional
        What stands for missing features: a number such as 0 for the activations of a network, an array with the
        shape of one input, a row of the table as a series or a data frame, and "mask" for texts of a sentence
        encoder, whose words are then masked. It is read as the inputs are: of a tensor, the columns are those that
        the network computes on. The target is then explained against the competitors that it has to beat on the
        path from the baseline to the input, and not only against those at the input; see Notes. :meth:`attribute`
        and :meth:`estimate` support it.
    steps : int
        Number of points on the path from the baseline, each of which takes a pass through the network; at least 1.
    groups : "pixels", "channels", int or array of int, optional
        Features that are missing together on the path, as in :func:`neonxc.evaluation.pixel_flipping`: all
        channels of a pixel (the default for images), all pixels of a channel, patches of so many pixels squared,
        or group numbers. By default every column and every word is a group. Only for the linear head rule.
    along : float, one input, or "mask", optional
        The former name of `baseline`.

        .. deprecated:: 0.4.0
           Use `baseline`.

    Raises
    ------
    TypeError
        `net` is not a network from :func:`neonxc.neuralize`, or `composite` no composite.
    ValueError
        A parameter outside its range, or one that does not apply to the network: a composite without a feature
        network, a head rule that it does not support, a baseline for texts.

    Notes
    -----
    With a baseline b, the target is that of x. At a point z, its contrasts with the competitors (of a tree: the
    margins of the tests on its path) are ``h_k(z)``, and f(z) is the least of them.

    - ``head_rule="linear"``, the default with a baseline: relevance is computed at `steps` points of a path from b
      to x, group by group of the features, and averaged. Nothing is drawn at random.

      1. A point ``z = b + t (x - b)``, in which every group has its own t, has the relevance
         ``R(t) = (x - b) sum_k w_k dh_k/dz``. The weights are ``w = softmin(h(z) / |f(x)|)``, that is,
         ``exp(-h_k(z) / |f(x)|)`` over its sum, times ``|f(x)| / (|f(x)| + |f(z)|)``, so that points far from a
         decision weigh little. `beta` takes the place of ``1 / |f(x)|`` in the soft minimum if it is given. With a
         probability threshold, the weights are ``softmin(h(z))``. A composite replaces the gradient in the feature
         network by its rules.
      2. At the first two points, t = 1/4 and 3/4 for all groups (a single point has 1/2).
      3. The others come in pairs, j = 0, 1, ...: at the first of a pair, the groups are inserted into the baseline
         with ``t_i = sigmoid(10 (s_j - (i + 1/2) / n))``, at the second one they are deleted from the input,
         ``t = 1 - t_i``, with ``s_j = (j + 1/2) (sqrt(5) - 1) / 2 mod 1``. The position i of a group, 0 to n - 1,
         is that of ``I/|I| + D/|D|`` in descending order: I is the mean of R over the points so far that are of
         step 2 or insert, D over those that are of step 2 or delete, and ``|I|`` sums absolute values over the
         groups. Groups where this is 0 come last and do not count in n.
      4. The relevance is ``(|I| + |D|) / 4 (I/|I| + D/|D|)``, with I and D over all points. It does not sum to the
         logit; :meth:`estimate` computes how much is missing to ``f(x) - f(b)``.
      5. An input is decided late if ``f(x) > 0``, but f < 0 at t = 3/4, as is usual among many clusters. Of its m
         points of step 3, the first ``m // 3`` delete, with ``s_j = (j + 1/2) (sqrt(5) - 1) / 2 mod 1`` for each
         and in the order of D. At the others, groups come in for good (t = 1), and the rest waits at t = 1/4. The
         next ones to come in are those of the largest ``R/|R| + D/|D|``; after q of Q points, ``q n / Q`` groups,
         rounded, are in. In step 4, I is the mean over these points and those of step 2, and the values of the
         relevance are exchanged between the groups: the first one to come in has the largest value. Features share
         in the change of their group in proportion to their absolute relevance.

    - ``head_rule="midpoint"``: the soft minimum's weights of the competitors are averaged over `steps` points on
      the straight line from b to x, and divide the logit f(x) (Eqs. 2 and 4). The relevance at the head sums to
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
        baseline: TableLike | float | None = None,
        steps: int = 20,
        groups: ArrayLike | str | int | None = None,
        along: TableLike | float | None = None,
    ) -> None:
        """Explain the decisions of a network; the parameters are those of the class."""
        check_network(net, "NEON")
        if not isinstance(composite, Composite | None):
            raise TypeError(f"composite needs a neonxc.lrp.Composite, got {type(composite).__name__}")
        if head_rule not in ("linear", "midpoint", None):
            raise ValueError(f"head_rule needs 'linear' or 'midpoint', got {head_rule!r}")
        if along is not None:
            if baseline is not None:
                raise ValueError("along is the former name of baseline; pass baseline alone")
            deprecated("NEON(along=...)", "NEON(baseline=...)")
            baseline = along
        super().__init__(net)
        self.net = net
        self.composite = composite
        self.beta = None if beta is None else checked_beta(beta)
        self.baseline: Tensor | str | None = None if baseline is None else net.inputs.baseline(baseline)
        self.steps = steps
        self.groups = groups
        if groups is not None and baseline is None:
            raise ValueError("groups needs a baseline: without one, no features are missing")

        # the head rules that the network supports, the default first
        rules: tuple[HeadRule, ...] = net.inputs.rules
        if baseline is not None:
            check_whole("steps", steps)
            rules = ("linear",) if net.inputs.absent == "word" else ("linear", "midpoint")
        if head_rule is not None and head_rule not in rules:
            raise ValueError(f"head_rule needs {rules[0]!r} for this network, got {head_rule!r}")
        if composite is not None and not net.inputs.propagates:
            raise ValueError("composite sets the rules of a feature network, and this network has none")
        self.head_rule: HeadRule = head_rule or rules[0]

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore a pickled explainer; before version 0.4.0, its baseline had the name "along"."""
        if "along" in state:
            state["baseline"] = state.pop("along")
        self.__dict__.update(state)

    @property
    def along(self) -> Tensor | str | None:
        """The baseline; deprecated since 0.4.0, use :attr:`baseline`."""
        deprecated("NEON.along", "NEON.baseline")
        return self.baseline

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: relevance divides up the logit, and is not a gradient."""
        return True

    @overload
    def attribute(self, inputs: tuple[Item], target: Labels = None, competitor: Labels = None) -> tuple[Item]: ...
    @overload
    def attribute(
        self, inputs: TensorOrFrame, target: Labels = None, competitor: Labels = None
    ) -> TensorOrFrame: ...
    @overload
    def attribute(
        self, inputs: OtherTable, target: Labels = None, competitor: Labels = None
    ) -> np.ndarray | pd.DataFrame: ...
    @overload
    def attribute(self, inputs: AnyArray, target: Labels = None, competitor: Labels = None) -> np.ndarray: ...
    @log_usage(part_of_slo=True)
    def attribute(self, inputs: TableLike, target: Labels = None, competitor: Labels = None) -> object:
        """Compute the relevance of the inputs for a cluster decision.

        Parameters
        ----------
        inputs : array, sparse matrix, data frame, tensor [N, ...] or list of N str, or a tuple of one of these
            Points, or inputs of the feature network, or texts if the network has a vectorizer.
        target : label, sequence or Tensor [N] of labels, or tuple, optional
            Label of the cluster to explain, as ``net.predict`` returns it (-1: noise): one for all inputs or one
            for each. Default: the cluster that each point is assigned to, a documented deviation from captum. If
            the features are a map, a label explains all locations that are assigned to this cluster, and the
            default the cluster of every location; a tuple ``(label, row, column, ...)`` explains one location.
        competitor : label, sequence or Tensor [N] of labels, optional
            Label of a second cluster: explain why a point is in the target rather than in this cluster. Default:
            explain why it is in the target rather than in any other cluster. Without a target, points that are in
            the competitor get zeros.

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
        if isinstance(inputs, tuple) and not (self.net.inputs.in_texts and is_texts(inputs)):
            return (self._attribute(only(inputs), target, competitor),)
        return self._attribute(inputs, target, competitor)

    def _attribute(
        self, inputs: TableLike, target: Labels, competitor: Labels
    ) -> np.ndarray | Tensor | pd.DataFrame:
        """Compute the relevance of inputs; captum logs calls of :meth:`attribute` alone."""
        table = self._read(inputs)
        if self.baseline is None:
            relevance = in_blocks(self.net, table, self._relevance, target, competitor)
        else:
            relevance = self._on_path(table, self._relevance_of_path, target, competitor)
        return table.restore(table.collected(relevance))

    @overload
    def estimate(
        self, inputs: TensorOrFrame, target: Labels = None, competitor: Labels = None
    ) -> Estimate[TensorOrFrame]: ...
    @overload
    def estimate(
        self, inputs: OtherTable, target: Labels = None, competitor: Labels = None
    ) -> Estimate[np.ndarray | pd.DataFrame]: ...
    @overload
    def estimate(
        self, inputs: AnyArray, target: Labels = None, competitor: Labels = None
    ) -> Estimate[np.ndarray]: ...
    def estimate(self, inputs: TableLike, target: Labels = None, competitor: Labels = None) -> Estimate:
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
        if self.baseline is None or self.head_rule == "midpoint":
            raise ValueError("estimate needs a baseline, baseline=..., and the linear head rule")
        stderrs = []
        residuals = []

        def explain(path: PathAttribution) -> Tensor:
            relevance, stderr = path.attribute(self.steps)
            stderrs.append(stderr)
            residuals.append(path.residual(relevance))
            return relevance

        table = self._read(inputs)
        relevance = self._on_path(table, explain, target, competitor)
        return Estimate(table.restore(table.collected(relevance)), torch.cat(stderrs), torch.cat(residuals))

    @overload
    def residual(self, inputs: Tensor, target: Labels = None) -> Tensor: ...
    @overload
    def residual(self, inputs: TableLike, target: Labels = None) -> np.ndarray: ...
    @torch.no_grad()
    def residual(self, inputs: TableLike, target: Labels = None) -> np.ndarray | Tensor:
        """Compute the part of the logit that belongs to no column: the logit minus the sum of the relevance.

        It is zero if the distance to a cluster is the distance to one of its centers. For kernel k-means with
        weights w of the supports it is ``sum_k s_k [KL(q_k | w_k) - KL(p | w_c)] / gamma``, where p and q_k are
        the soft minima over the supports of the target c and of a competitor k. For mixtures it is the
        contribution of the priors; with a probability threshold it is that of the threshold, plus the difference
        between the soft minimum over the competitors and their mean.

        Parameters
        ----------
        inputs : array, data frame or tensor [N, d]
        target : label, or sequence or Tensor [N] of labels, optional
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
        self._check_no_baseline()
        if self.net.features is not None:
            raise ValueError(
                "residual needs a network without feature network: there every layer's bias has a share"
            )

        def residual(x: Tensor, question: Question, _: slice) -> Iterator[Tensor]:
            for answer in answers(self.net.head, x, question, self.stiffness):
                yield answer.logit - answer.relevance().sum(1)

        table = self.net.inputs.read(inputs)
        return table.restore(in_blocks(self.net, table, residual, target))

    @overload
    def heatmaps(
        self,
        inputs: Tensor,
        clusters: Sequence[Label] | None = None,
        *,
        baseline: TableLike | float | None = None,
        passes: int = 6,
    ) -> Tensor: ...
    @overload
    def heatmaps(
        self,
        inputs: TableLike,
        clusters: Sequence[Label] | None = None,
        *,
        baseline: TableLike | float | None = None,
        passes: int = 6,
    ) -> np.ndarray: ...
    def heatmaps(
        self,
        inputs: TableLike,
        clusters: Sequence[Label] | None = None,
        *,
        baseline: TableLike | float | None = None,
        passes: int = 6,
    ) -> np.ndarray | Tensor:
        """Compute one heatmap per cluster: the relevance summed over the input channels.

        Without a baseline, all clusters share one forward pass.

        Parameters
        ----------
        inputs : array or tensor [N, C, ...]
            Inputs of the feature network; or [N, ...] without channels, such as spectrograms [N, F, T], to which
            the network adds some.
        clusters : sequence of labels, optional
            Labels of the clusters. Default: all.
        baseline : float or one input, optional
            What stands for a missing pixel, read as the `baseline` of :class:`NEON`. The maps then
            are those of an explainer with this baseline and `passes` steps. Default: none.
        passes : int
            Number of passes through the network for every cluster, if there is a baseline; at least 1.

        Returns
        -------
        array or Tensor [N, clusters, ...]
            Relevance in units of the logit; `target` of :meth:`attribute` describes what a cluster's map explains.

        Raises
        ------
        ValueError
            Invalid inputs, unknown clusters, or a network without a feature network.
        """
        net = self.net
        positions: int | Tensor | None
        if clusters is None:
            positions = torch.arange(net.head.n_clusters)
        else:
            positions = net.positions(clusters, "clusters")
        if not isinstance(positions, Tensor) or positions.ndim != 1 or not len(positions):
            raise ValueError(
                f"clusters needs a sequence of labels among {net.classes_.tolist()}, got {clusters!r}"
            )
        if baseline is not None:
            self._check_no_baseline()
            check_whole("passes", passes)
            neon = NEON(net, self.composite, beta=self.beta, baseline=baseline, steps=passes)
            return neon._maps_on_path(inputs, net.classes_[positions.cpu().numpy()].tolist())
        return self._maps(inputs, [Question(int(position)) for position in positions])

    @overload
    def threshold_heatmaps(self, inputs: Tensor, target: Labels = None, competitor: Labels = None) -> Tensor: ...
    @overload
    def threshold_heatmaps(
        self, inputs: TableLike, target: Labels = None, competitor: Labels = None
    ) -> np.ndarray: ...
    def threshold_heatmaps(
        self, inputs: TableLike, target: Labels = None, competitor: Labels = None
    ) -> np.ndarray | Tensor:
        """Compute one heatmap per test of a threshold tree: the test's contribution to the decision.

        Parameters
        ----------
        inputs : array or tensor [N, C, ...]
            Inputs of the feature network.
        target, competitor : label, optional
            As in :meth:`attribute`, one for all inputs.

        Returns
        -------
        array or Tensor [N, T, ...]
            One map per test, in the order of the tree's inner nodes. The maps sum to the relevance of the
            decision; those of tests that are not on an input's path are zero.

        Raises
        ------
        ValueError
            The clustering is not a tree or hierarchy, or there is no feature network.
        """
        tests, n_tests = self._tests()
        question = question_of(self.net, target, competitor)
        questions = [question._replace(neurons=tests == test) for test in range(n_tests)]
        return self._maps(inputs, questions)

    @overload
    def thresholds(self, inputs: Tensor, target: Labels = None, competitor: Labels = None) -> Tensor: ...
    @overload
    def thresholds(self, inputs: TableLike, target: Labels = None, competitor: Labels = None) -> np.ndarray: ...
    @torch.no_grad()
    def thresholds(
        self, inputs: TableLike, target: Labels = None, competitor: Labels = None
    ) -> np.ndarray | Tensor:
        """Compute the relevance of the tests of a threshold tree: what each test on a point's path contributes.

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
            The clustering is not a tree or hierarchy.
        """
        self._check_no_baseline()
        tests, n_tests = self._tests()

        def by_test(x: Tensor, question: Question, _: slice) -> Iterator[Tensor]:
            a = self.net.inputs.features(x)
            sums = []
            for answer in answers(self.net.head, a, question, self.stiffness):
                evidence = answer.evidence()  # [n, M], of every neuron
                zeros = evidence.new_zeros(len(evidence), n_tests)
                sums.append(zeros.index_add(1, tests, evidence))
            yield unrows(torch.cat(sums), a)

        table = self.net.inputs.read(inputs)
        relevance = table.restore(in_blocks(self.net, table, by_test, target, competitor))
        return relevance if table.is_tensor else as_array(relevance)  # a frame's columns are not tests

    def summary(
        self,
        X: TableLike,
        n_prototypes: int = 5,
        *,
        method: Literal["lrp", "permute"] = "lrp",
        sample_weight: ArrayLike | None = None,
    ) -> ClusterSummary:
        """Summarize every cluster: its size, the mean relevance and the mean of its features, and its prototypes.

        Relevance says how much a feature matters, but not in which direction. The summary therefore also
        contains the mean of each feature in the cluster and over all points (for categories: their fractions).
        Noise points are counted separately.

        Parameters
        ----------
        X : array, sparse matrix, data frame, tensor or sequence of str
            Points, inputs of the feature network, or texts. Sparse points stay sparse if the head is linear. With
            a feature network the features of the summary are the network's. For texts they are the words or terms:
            the relevance of a word is the sum over its occurrences in a text, averaged over the texts of a
            cluster.
        n_prototypes : int
            Number of prototypes per cluster, points near its middle and clearly inside; at least 0.
        method : {"lrp", "permute"}
            With "permute", the relevance of a column is the fraction of a cluster's points, 0 to 1, that leave it
            if the values of the column are permuted among all points: a second opinion on tables that asks nothing
            but the decisions. It is computed on at most 2,000 points.
        sample_weight : array-like [N], optional
            Weights >= 0 of the points, such as those of a survey; a series goes by its index. A weight of 2 is a
            point twice, and a point of weight 0 is left out: so do sizes, mean relevance, means, fractions and
            effect sizes count. The weight of an image is that of each of its locations. Prototypes are points with
            a weight > 0. With ``method="permute"``, values are drawn by the weights.

        Returns
        -------
        ClusterSummary

        Raises
        ------
        ValueError
            Invalid X, `n_prototypes` or weights, or an explainer with a baseline.
        """
        self._check_no_baseline()
        table = self.net.inputs.given(X)
        weight = weights_of(sample_weight, table)
        if not isinstance(n_prototypes, (int, np.integer)) or n_prototypes < 0:
            raise ValueError(f"n_prototypes needs a whole number >= 0, got {n_prototypes!r}")
        if method not in ("lrp", "permute"):
            raise ValueError(f'method needs "lrp" or "permute", got {method!r}')
        summary = summarized(self.net, self.stiffness, table, n_prototypes, weight)
        if method == "lrp":
            return summary
        return replace(summary, relevance=permuted(self.net, table, weight), method=method)

    @property
    def stiffness(self) -> float:
        """The stiffness of the take-most rule: that of this explainer, or by default that of the network."""
        return float(self.net._beta) if self.beta is None else self.beta

    @property
    def _how(self) -> How:
        return How(self.head_rule, self.stiffness, self.composite)

    def _check_no_baseline(self) -> None:
        if self.baseline is not None:
            raise ValueError("baseline is supported by attribute and estimate only; use a NEON without it")

    def _read(self, inputs: TableLike) -> Table:
        """Read inputs whose relevance is dense; sparse points must not be too many for that."""
        table = self.net.inputs.read(inputs)
        if not isinstance(table.tensor, Tensor):
            check_room(table.tensor)
        return table

    def _relevance(self, x: Tensor, question: Question, _: slice) -> Iterator[Tensor]:
        """Compute the relevance of a block of inputs without a baseline, in parts."""
        return self.net.inputs.relevance_parts(x, question, self._how)

    def _relevance_of_path(self, path: PathAttribution) -> Tensor:
        """Compute the relevance of a block of inputs on their paths from the baseline."""
        if self.head_rule == "midpoint":
            return path.attribute_by_mean_weights(self.steps)
        relevance, _ = path.attribute(self.steps)
        return relevance

    def _on_path(
        self, table: Table, explain: Callable[[PathAttribution], Tensor], target: Labels, competitor: Labels
    ) -> Tensor:
        """Explain inputs block by block, by the paths from the baseline to them."""
        numbers = groups_of(self.net, self.groups, table.tensor)
        n_groups = int(numbers.max()) + 1
        groups = numbers.expand(len(table.tensor), -1)  # [N, D]

        def explain_block(x: Tensor, question: Question, block: slice) -> Iterator[Tensor]:
            assert self.baseline is not None
            path = PathAttribution(
                self.net.inputs,
                x,
                self.baseline,
                question,
                self._how,
                beta=self.beta,
                groups=groups[block],
                n_groups=n_groups,
            )
            yield explain(path)

        return in_blocks(self.net, table, explain_block, target, competitor)

    def _tests(self) -> tuple[Tensor, int]:
        """Return the test of a tree or hierarchy that each neuron belongs to, [M], and the number of tests."""
        head = self.net.head
        if not isinstance(head.competition, Path):
            raise ValueError("only trees have thresholds: neuralize a ThresholdTree or a fitted tree explainer")
        return head.groups, head.n_values

    def _maps(self, inputs: TableLike, questions: list[Question]) -> np.ndarray | Tensor:
        """Compute the relevance [N, questions, ...] of several decisions, summed over the inputs' channels."""
        self._check_no_baseline()
        table, has_channels = self._read_images(inputs)

        def maps(x: Tensor, _question: Question, _block: slice) -> Iterator[Tensor]:
            by_question = self.net.inputs.explain(x, questions, self._how)
            yield torch.stack([_map(relevance, has_channels) for relevance in by_question], dim=1)

        return table.restore(in_blocks(self.net, table, maps))

    def _maps_on_path(self, inputs: TableLike, clusters: list[Label]) -> np.ndarray | Tensor:
        """Compute the relevance [N, clusters, ...] with a baseline, summed over the inputs' channels."""
        table, has_channels = self._read_images(inputs)
        maps = []
        for cluster in clusters:
            relevance = self._on_path(table, self._relevance_of_path, cluster, None)
            maps.append(_map(relevance, has_channels))
        return table.restore(torch.stack(maps, dim=1))

    def _read_images(self, inputs: TableLike) -> tuple[Table, bool]:
        """Read images, and tell whether they have channels; those without are maps themselves."""
        network = self.net.inputs
        if not network.has_heatmaps:
            raise ValueError(
                "heatmaps need a network with a feature network of images; for points and words use attribute"
            )

        table = network.read(inputs)
        kind = reading(network.features, table.tensor)
        if kind == "tokens":
            raise ValueError(
                f"heatmaps need inputs [N, C, ...], and the network takes tokens, {list(table.shape)}: sum "
                "attribute(inputs) over the dimensions; for texts, neonxc.models.SentenceEncoder does"
            )
        return table, kind != "places"


def _map(relevance: Tensor, has_channels: bool) -> Tensor:
    """Sum relevance [N, C, ...] over the channels, if there are any."""
    return relevance.sum(dim=1) if has_channels else relevance
