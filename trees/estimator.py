"""Base class of the tree explainers: prepares the data for growing, and turns grown leaves into a fitted tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.common.numbers import plural
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.warnings import warn
from neonxc.data.files.format import table_format
from neonxc.data.frames import as_pandas, in_order_of, is_path, reads_tables
from neonxc.data.labels import NOISE
from neonxc.data.table import Table
from neonxc.trees.cuts.growth import Grown
from neonxc.trees.fit.batches import BatchSource, batch_source
from neonxc.trees.fit.finished import finished
from neonxc.trees.fit.given import (
    Given,
    agree_on_source,
    check_fit,
    given_batches,
    given_table,
    read_points,
    warn_of_repeated,
)
from neonxc.trees.fit.problem import Problem, explained, problem_in_batches, problem_in_memory
from neonxc.trees.fit.reference import Reference, from_estimator
from neonxc.trees.fit.sparse_points import Points, as_points, to_tensor
from neonxc.trees.parameters import check_parameters
from neonxc.trees.tree import ThresholdTree


class TreeExplainer(ClusterMixin, BaseEstimator, ABC):
    """A clustering by a threshold tree that explains a reference clustering."""

    n_clusters: int
    reference: Any
    random_state: Any
    max_bins: int | None = None
    metric: str = "l2"
    _no_group_reason: ClassVar[str | None] = None  # the reason why rows cannot be distributed over processes
    _has_price: ClassVar[bool] = True  # whether the k-means cost of the clusters is meaningful
    _separates_centers: ClassVar[bool] = False  # whether every center gets a leaf, which may have no points
    _cuts_sparse: ClassVar[bool] = True  # whether sparse matrices stay sparse

    tree_: ThresholdTree
    labels_: Any
    cluster_centers_: Any

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        labels: Any = None,
        centers: Any = None,
        sample_weight: Any = None,
        group: Any = None,
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
            rows; `labels_` are those of the own rows.

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
        given, problem = self._prepare(X, labels, centers, sample_weight, Ranks(group))
        if group is None:
            warn_of_repeated(given)
        self._finish(given, problem, self._grow(problem))
        kept = self.tree_.label[self.tree_.samples > 0]
        empty = np.delete(self.tree_.classes, kept[kept >= 0])
        if self._separates_centers and len(empty):
            warn(
                f"the tree has no points in clusters {empty.tolist()}: cuts that separate their centers send all "
                "of their points to other leaves. labels_ lacks these clusters, and the rules of their empty "
                "leaves match no training point; refine=True or another explainer may keep them"
            )
        return self

    @reads_tables
    def predict(self, X: Any) -> Any:
        """Cluster of every point, [N], in the labels of the reference clustering.

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
            return self.tree_.classes[self.tree_.label[source.leaf_of(self.tree_)].numpy()]
        data, _, give = read_points(self, X, reset=False)
        return give(self.tree_.classes[self.tree_.label[self.tree_.leaf_of(data)].numpy()])

    @reads_tables
    def score(self, X: Any, y: Any = None) -> float:
        """Minus the k-means cost of X: squared distances to the training means of the tree's clusters.

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
            return float(sum(self.score(source.as_given(values)) for values in source))
        X = Table.read(X, columns=self.tree_.feature_names, format=self.tree_.table_format)
        data, _, _ = read_points(self, X, reset=False)
        given = X.for_sklearn if self.tree_.encoding is None else data
        table = as_points(data if self._steps is None else to_tensor(self._steps.transform(given)))
        own = self.tree_.label[self.tree_.leaf_of(data)].to(table.device)
        return -table.cost(self._space_means.to(table.device), own)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse input will do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing."""
        check_parameters(self)

    @abstractmethod
    def _grow(self, problem: Problem) -> Grown:
        """The grown tree."""

    def _prepare(
        self, X: Any, labels: Any, centers: Any, sample_weight: Any, ranks: Ranks = ALONE
    ) -> tuple[Given, Problem]:
        """Read the data, and find the reference clustering."""
        with ranks.agreed():
            if labels is not None and centers is not None:
                raise ValueError("fit takes labels or centers, not both")
            self._check_parameters()
            labels = in_order_of(labels, X)
            sample_weight = in_order_of(sample_weight, X, "sample_weight")
            X, labels, centers, sample_weight = map(as_pandas, (X, labels, centers, sample_weight))
            source = self._source(X, ranks)
            if source is None and is_path(X):
                file = Table.read(X)
                file.warn_of_suspects()
                X = file.data
        source = agree_on_source(X, source, ranks)
        self._given = labels is not None or centers is not None
        if not ranks.alone:
            check_fit(ranks, self, centers=centers, labels=labels, sample_weight=sample_weight)
        if source is not None:
            given = self._given_batches(source, labels, centers, sample_weight, ranks)
        else:
            with ranks.agreed():
                if not ranks.alone and self._no_group_reason is not None:
                    raise ValueError(f"{type(self).__name__} takes no group: {self._no_group_reason}")
            given = given_table(self, X, labels, sample_weight, ranks)
        found = explained(given, centers, self.metric, ranks)
        if found is None:
            found = self._own_reference(given.space, given.X, given.weight, ranks)
        if source is None:
            problem = problem_in_memory(given, found, self, ranks)
        else:
            problem = problem_in_batches(given, found, self, bool(self._streams()), ranks)
        truths = torch.tensor(["bool" in str(kind).lower() for kind in getattr(X, "dtypes", ())])
        given = replace(
            given,
            boolean=truths if ranks.alone and bool(truths.any()) else None,
            table_format=table_format(X),
            is_tensor=isinstance(X, Tensor),
        )
        if given.n_noise:
            warn(
                f"labels has {plural(given.n_noise, 'point')} of noise (-1): the tree is fitted without them, but "
                "labels_ and predict put them into its clusters"
            )
        return given, problem

    def _source(self, X: Any, ranks: Ranks) -> BatchSource | None:
        """The source of batches, if X is to be read batch by batch; otherwise None."""
        source = batch_source(X, shard=not ranks.alone)
        if source is None or self._streams() is not None:
            return source
        if isinstance(X, np.memmap):
            return None
        raise ValueError(
            f"X needs to be in memory: {type(self).__name__} with these parameters can't read it batch by batch; "
            "CART, EMN, ExGreedy, ExKMC, ExShallow, IMM and SpExClique can, without refine"
        )

    def _given_batches(
        self, source: BatchSource, labels: Any, centers: Any, sample_weight: Any, ranks: Ranks
    ) -> Given:
        """Read a table batch by batch; k-means or a clusterer that is not fitted is fitted to a sample."""
        own = isinstance(self.reference, str)
        with ranks.agreed():
            if sample_weight is not None:
                raise ValueError("sample_weight needs X in memory; leave it out, or repeat points in the batches")
            if not self._given and own and self.reference != "kmeans":
                raise ValueError(
                    'reference needs "kmeans" or a clusterer for an X that is read batch by batch, got '
                    f"{self.reference!r}; or pass labels or centers, such as those of a clustering of a sample"
                )
            if self.metric != "l2" and centers is None and (labels is not None or not own):
                raise ValueError(f'labels of a stream need metric="l2", got {self.metric!r}; pass centers')
        given = given_batches(source, labels, self.max_bins, ranks)
        self.n_features_in_ = given.table.d
        self.__dict__.pop("feature_names_in_", None)  # set by an earlier fit
        if source.names is not None:
            self.feature_names_in_ = np.array(source.names, dtype=object)
        return given

    def _streams(self) -> bool | None:
        """Whether distances of all points to the centers are kept of batches; None where there can be none."""
        return None

    def _own_reference(self, table: Points, X: Any, weight: Tensor | None, ranks: Ranks) -> Reference:
        """The reference clustering of a table, which consists of the points of X, if `fit` is given none."""
        found = from_estimator(self, table, X, weight, ranks)
        k = len(found.classes)
        if k and found.classes[0] == NOISE and found.classes.dtype.kind in "iu":
            raise ValueError("reference leaves points out as noise (label -1); fit it first, and pass its labels_")
        if not isinstance(self.reference, str) and self.n_clusters not in (type(self).n_clusters, k):
            warn(f"n_clusters={self.n_clusters} is ignored: reference has {k} clusters")
        return found

    def _finish(self, given: Given, problem: Problem, grown: Grown) -> None:
        """Set the fitted attributes."""
        done = finished(given, problem, grown, self._has_price)
        self.tree_ = done.tree
        self.inertia_ = done.inertia
        self._space_means = done.space_means
        self._steps = problem.reference.steps
        self.cluster_centers_ = done.centers if given.is_tensor else done.centers.cpu().numpy()
        self.labels_ = given.give(self.tree_.classes[done.cluster.numpy()])


def grown_to(
    explainer: TreeExplainer, sizes: Iterable[int], X: Any, labels: Any = None, weight: Any = None
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
    """
    given, problem = explainer._prepare(X, labels, None, weight)
    grown = None
    for size in sizes:
        one: Any = copy(explainer)
        one.max_leaves = size
        grown = one._grow(problem, grown)
        one._finish(given, problem, grown)
        yield one
