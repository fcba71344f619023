"""Base class of the tree explainers, whose `fit` goes from what it is given to the fitted tree in five steps.

=====================  ========================================================  ===========================
value                  what it is                                                made in
=====================  ========================================================  ===========================
1. ``TrainingData``    X as columns of numbers, with labels, weights and names   ``fit/training_data.py``
2. ``Reference``       labels and centers of the clustering that is explained    ``fit/reference.py``
3. ``Problem``         every column as integer codes, and costs at the centers   ``fit/problem.py``
4. ``Grown``           tests on codes, chosen by the explainer's criterion       ``_grow`` of the explainer
5. ``ThresholdTree``   nodes in preorder with thresholds, labels and counts      ``fit/finished.py``
=====================  ========================================================  ===========================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, overload

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import reads_tables
from neonxc.data.labels import NOISE
from neonxc.data.table import Table
from neonxc.trees.cuts.codes import SharedCodes
from neonxc.trees.cuts.growth import Grown
from neonxc.trees.fit.batches import BatchesLike, batch_source
from neonxc.trees.fit.finished import finished
from neonxc.trees.fit.points import to_tensor
from neonxc.trees.fit.problem import Problem, coded
from neonxc.trees.fit.reference import Reference, from_centers, from_estimator, from_labels
from neonxc.trees.fit.sparse_points import as_points
from neonxc.trees.fit.training_data import TrainingData, read_points, read_training_data, warn_of_repeated
from neonxc.trees.parameters import check_parameters
from neonxc.trees.tree import ThresholdTree


class TreeExplainer(ClusterMixin, BaseEstimator, ABC):
    """A clustering by a threshold tree that explains a reference clustering."""

    n_clusters: int
    reference: object
    random_state: RandomState
    max_bins: int | None = None
    metric: str = "l2"
    _no_group_reason: ClassVar[str | None] = None  # the reason why rows cannot be distributed over processes
    _has_price: ClassVar[bool] = True  # whether the k-means cost of the clusters is meaningful
    _separates_centers: ClassVar[bool] = False  # whether every center gets a leaf, which may have no points
    _cuts_sparse: ClassVar[bool] = True  # whether sparse matrices stay sparse

    tree_: ThresholdTree
    labels_: np.ndarray | Tensor
    cluster_centers_: np.ndarray | Tensor
    n_features_in_: int
    feature_names_in_: np.ndarray

    def fit(
        self,
        X: TableLike | BatchesLike,
        y: object = None,
        *,
        labels: ArrayLike | None = None,
        centers: TableLike | None = None,
        sample_weight: ArrayLike | None = None,
        group: object = None,
    ) -> TreeExplainer:
        """Fit the tree.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [n, d]; path; or callable
            The columns that are cut. Some explainers (CART, EMN, ExGreedy, ExKMC, ExShallow, IMM and SpExClique,
            without `refine`) also read tables batch by batch, and keep no more of them than a code
            per number: a memory-mapped array (``numpy.load(..., mmap_mode="r")``) or the path of a Parquet file of
            128 MB or more, the path of a folder of Parquet files, a dataset of PyArrow, or a function without
            arguments that returns a new iterator over the same batches [b, d] each time it is called, or a
            relation of DuckDB. Such a table has numbers alone and no `sample_weight`; ``reference="kmeans"``, or a
            clusterer that is not fitted, is fitted to a sample. Other files, CSV and Parquet, are read at once.

            Finite numbers; a data frame in memory may also have categories (strings, pandas' categories, truth
            values beside these) and missing values. Whether a missing number goes with the lower or the greater
            ones is learned with every cut, and a missing category is one of its own. Costs are then measured in
            standardized numbers, where medians stand in for missing ones, and categories, each 0 or 1; behind
            its own steps if `reference` is a pipeline.
        y : ignored
        labels : array-like [n], optional
            The reference clustering, instead of `reference`. Points of label -1 (noise) are left out of the fit;
            `labels_` and `predict` assign them to clusters all the same, and ``tree_.n_noise`` counts them.
        centers : array-like [k, d], optional
            Its centers: every point belongs to the nearest. Instead of `reference`.
        sample_weight : array-like [n], optional
            Weights >= 0; a weight of 2 is a point twice, a point of weight 0 is left out.
        group : torch.distributed.ProcessGroup, optional
            The processes that share the rows; each of them calls `fit` with its own rows, their labels and
            weights, and with the same centers. All get the same tree, bit for bit that of one process with all
            rows; `labels_` are those of the process's own rows.

        Returns
        -------
        self

        Raises
        ------
        RuntimeError
            Another process of the group has ended, or does not answer.
        ValueError
            Values that are not finite or whose squares overflow; columns that are
            neither numbers nor categories, such as dates; more clusters than points; both `labels` and `centers`;
            `centers` for a table with categories or missing values; centers that are equal in every column. In a
            group also columns, types, parameters or centers that differ between processes; an error in one
            process is raised in all of them.

        Warns
        -----
        ConvergenceWarning
            There are fewer distinct points than `n_clusters`; k-means then finds one cluster per distinct point.
        UserWarning
            A column of a file looks like an identifier or a weight of the rows; or a column repeats `labels`; or
            `labels` has points of noise (-1), which the fitted tree puts into clusters; or `n_clusters` is set and
            differs from the number of clusters of an estimator as `reference`; or a cluster has no points in the
            tree: cuts that separate its center from the others sent all of its points elsewhere.
        """
        del y
        ranks = ALONE if group is None else Ranks(group)
        # 1. Parameters are checked against their annotations, and X is read as columns of numbers. Points of noise
        #    or of weight 0 are left out; of a table in batches, only a sketch of every column is kept.
        data = read_training_data(self, X, labels, centers, sample_weight, ranks)
        # 2. Every point gets a reference label and every cluster a center: from `labels`, from `centers` (each
        #    point belongs to the nearest), or from the clusterer `reference`, which is fitted unless it is.
        reference = self._reference_of(data, ranks)
        self._has_passed_reference = reference.is_passed  # a refit without its labels or centers is another tree
        # 3. The values of a column become their ranks, or numbers of bins, so that all cuts of a node are scored
        #    by histograms. Costs and weights are rounded so that sums of them are exact in any order.
        problem = coded(data, reference, self, ranks)
        if group is None:
            warn_of_repeated(data)
        # 4. Nodes are split by the cuts that the explainer's criterion scores best, until every leaf has a center
        #    of its own, or there are enough leaves.
        grown = self._grow(problem)
        # 5. The nodes are numbered in preorder and their points counted; tree_, labels_, cluster_centers_ and
        #    inertia_ are set.
        self._finish(data, problem, grown)
        self._warn_of_empty_clusters()
        return self

    @overload
    def predict(self, X: Tensor) -> Tensor: ...
    @overload
    def predict(self, X: TableLike | BatchesLike) -> np.ndarray: ...
    @reads_tables
    def predict(self, X: TableLike | BatchesLike) -> np.ndarray | Tensor:
        """Return the label of every point's cluster, [N]; labels are those of the reference clustering.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, d]; path; or callable
            As in `fit`, batch by batch as well. A category that was not there goes where none of those known goes.

        Returns
        -------
        array or tensor, as X is

        Raises
        ------
        ValueError
            Other columns, values that are not finite, or a missing number in a column that is tested and had none
            in `fit`.
        """
        check_is_fitted(self, "tree_")
        source = batch_source(X, self.tree_.feature_names)
        if source is not None:
            leaf = source.leaf_of(self.tree_)
            return self.tree_.classes[self.tree_.label[leaf].numpy()]
        points, _, give = read_points(self, X, reset=False)
        leaf = self.tree_.leaf_of(points)
        return give(self.tree_.classes[self.tree_.label[leaf].numpy()])

    @reads_tables
    def score(self, X: TableLike | BatchesLike, y: object = None) -> float:
        """Compute minus the k-means cost of X: squared distances to the training means of the tree's clusters.

        Measured where the reference clustering was: behind the scaler, if `reference` is a pipeline with one.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Tensor [N, d]; path; or callable
            Points, as in `predict`.
        y : ignored

        Returns
        -------
        float
        """
        check_is_fitted(self, "tree_")
        if self._steps is False:
            raise ValueError(
                "the tree was saved without the pipeline behind which its cost is measured; fit it again"
            )
        source = batch_source(X, self.tree_.feature_names)
        if source is not None:
            return float(sum(self.score(source.for_sklearn(values)) for values in source))
        table = Table.read(X, columns=self.tree_.feature_names, format=self.tree_.table_format)
        points, _, _ = read_points(self, table, reset=False)
        if self._steps is None:
            in_space = points
        elif self.tree_.encoding is None:
            in_space = to_tensor(self._steps.transform(table.for_sklearn))
        else:
            in_space = to_tensor(self._steps.transform(points))
        space = as_points(in_space)
        label = self.tree_.label[self.tree_.leaf_of(points)].to(space.device)
        return -space.cost(self._space_means.to(space.device), label)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse input will do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing."""
        check_parameters(self)

    def _can_read_batches(self) -> bool:
        """Whether X can be read batch by batch: with these parameters, cuts are scored by codes alone."""
        return False

    def _needs_distances(self) -> bool:
        """Whether growing needs the distances of all points to the centers; only asked if X is read in batches."""
        return False

    def _prepare(
        self,
        X: TableLike | BatchesLike,
        labels: ArrayLike | None,
        centers: TableLike | None,
        sample_weight: ArrayLike | None,
        ranks: Ranks = ALONE,
        shared: SharedCodes | None = None,
    ) -> tuple[TrainingData, Problem]:
        """Take the first three steps of :meth:`fit`, for those that grow several trees of one problem."""
        data = read_training_data(self, X, labels, centers, sample_weight, ranks)
        return data, coded(data, self._reference_of(data, ranks), self, ranks, shared)

    def _reference_of(self, data: TrainingData, ranks: Ranks) -> Reference:
        """Return the reference clustering of the labels or centers that `fit` is passed, or of `reference`."""
        if data.labels is not None:
            reference = from_labels(data.space, data.labels, self.metric, data.weight, ranks)
            return replace(reference, is_passed=True)
        if data.centers is not None:
            with ranks.agreed():
                if data.mixed is not None:
                    raise ValueError(
                        "centers needs an X without categories and missing values; pass labels instead"
                    )
                reference = from_centers(data.space, data.centers, self.metric, data.names)
            return replace(reference, is_passed=True)
        return self._default_reference(data, ranks)

    def _default_reference(self, data: TrainingData, ranks: Ranks) -> Reference:
        """Return the reference clustering if `fit` is passed neither labels nor centers."""
        reference = from_estimator(self, data.space, data.X, data.weight, ranks)
        classes = reference.classes
        k = len(classes)
        if k and classes[0] == NOISE and classes.dtype.kind in "iu":
            raise ValueError("reference leaves points out as noise (label -1); fit it first, and pass its labels_")
        if not isinstance(self.reference, str) and self.n_clusters not in (type(self).n_clusters, k):
            warn(f"n_clusters={self.n_clusters} is ignored: reference has {k} clusters")
        return reference

    @abstractmethod
    def _grow(self, problem: Problem) -> Grown:
        """Grow the tree of a problem."""

    def _finish(self, data: TrainingData, problem: Problem, grown: Grown) -> None:
        """Set the fitted attributes."""
        result = finished(data, problem, grown, self._has_price)
        self.tree_ = result.tree
        self.inertia_ = result.inertia
        self._space_means = result.space_means
        self._steps = problem.reference.steps
        self.cluster_centers_ = result.centers if data.is_tensor else result.centers.cpu().numpy()
        self.labels_ = data.give(self.tree_.classes[result.cluster.numpy()])

    def _warn_of_empty_clusters(self) -> None:
        """Warn of clusters without points, if every cluster was to have a leaf."""
        if not self._separates_centers:
            return
        occupied = self.tree_.label[self.tree_.samples > 0]
        empty = np.delete(self.tree_.classes, occupied[occupied >= 0])
        if len(empty):
            warn(
                f"the tree has no points in clusters {empty.tolist()}: cuts that separate their centers send all "
                "of their points to other leaves. labels_ lacks these clusters, and the rules of their empty "
                "leaves match no training point; refine=True or another explainer may keep them"
            )


def grown_to(
    explainer: TreeExplainer,
    sizes: Iterable[int],
    X: TableLike,
    labels: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    shared: SharedCodes | None = None,
) -> Iterator[TreeExplainer]:
    """Grow one tree to increasing numbers of leaves, and yield a fitted explainer for each of them.

    Searches for a tree or a rule of some size go through these: the best rule, the smallest tree that tells two
    clusters apart, and the tree of a report. Each has a criterion of its own, and stops where that is met.

    Parameters
    ----------
    explainer : TreeExplainer
        Stays as it is; `max_leaves` of its copies are the sizes.
    sizes : iterable of int
        Increasing numbers of leaves.
    X, labels
        As in :meth:`TreeExplainer.fit`.
    weight : array-like [n], optional
        The `sample_weight` of :meth:`TreeExplainer.fit`.
    shared : SharedCodes, optional
        The codes of the columns, if trees of other kinds are grown on the same points.
    """
    data, problem = explainer._prepare(X, labels, None, weight, shared=shared)
    grown = None
    for size in sizes:
        fitted: Any = copy(explainer)
        fitted.max_leaves = size
        grown = fitted._grow(problem, grown)
        fitted._finish(data, problem, grown)
        yield fitted
