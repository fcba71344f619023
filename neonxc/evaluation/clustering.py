"""Measures of a clustering by a tree: the size of its explanations, agreement with its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from neonxc.inputs import as_array
from neonxc.ranks import Ranks

if TYPE_CHECKING:
    from neonxc.trees import ThresholdTree


def wad(tree: ThresholdTree, *, group: Any = None) -> float:
    """Weighted average depth: the mean number of tests on the path of a training point.

    Laber, Murtinho and Oliveira, "Shallow decision trees for explainable k-means clustering", 2023, Eq. 2.

    Parameters
    ----------
    tree : ThresholdTree
    group : torch.distributed.ProcessGroup, optional
        Add up the points of the tree's leaves, ``tree.samples``, over the processes of the group, which have the
        same tree, each with the points that it has counted. Trees that a group has fitted have the points of all
        already: with and without `group` the result is the same.

    Raises
    ------
    ValueError
        In a group, on all processes: trees of different leaves.
    """
    return _average(tree, tree.depths, Ranks(group))


def waes(tree: ThresholdTree, *, group: Any = None) -> float:
    """Weighted average explanation size: the mean number of tests that no later test makes redundant.

    Two tests of the same column in the same direction are one condition (the paper cited in :func:`wad`, Eq. 3).

    Parameters
    ----------
    tree : ThresholdTree
    group : torch.distributed.ProcessGroup, optional
        As for :func:`wad`.
    """
    return _average(tree, tree.explanation_sizes, Ranks(group))


def label_agreement(labels: Any, reference: Any) -> dict[str, float]:
    """Adjusted Rand index, adjusted and normalized mutual information with a reference clustering.

    Parameters
    ----------
    labels, reference : array-like [n]

    Returns
    -------
    dict
        "ari", "ami", "nmi"; 1 for equal clusterings, whatever their numbers are.
    """
    ours, theirs = as_array(labels), as_array(reference)
    return {
        "ari": float(adjusted_rand_score(theirs, ours)),
        "ami": float(adjusted_mutual_info_score(theirs, ours)),
        "nmi": float(normalized_mutual_info_score(theirs, ours)),
    }


def clustering_accuracy(labels: Any, truth: Any) -> float:
    """Share of the points that are right under the best matching of clusters with classes, one to one.

    Parameters
    ----------
    labels : array-like [n]
        Clusters.
    truth : array-like [n]
        Classes; there may be more or fewer of them than clusters.

    Returns
    -------
    float
        0 ... 1; the matching is found by the Hungarian method.

    Raises
    ------
    ValueError
        No points, or not one label and one class for each.

    Examples
    --------
    >>> from neonxc.evaluation import clustering_accuracy
    >>> clustering_accuracy([1, 1, 0, 0, 0], ["a", "a", "a", "b", "b"])
    0.8
    """
    ours, theirs = as_array(labels), as_array(truth)
    if ours.ndim != 1 or ours.shape != theirs.shape or not len(ours):
        raise ValueError(
            f"labels and truth need one value per point, both shape (n,); got {ours.shape} and {theirs.shape}"
        )
    counts = contingency_matrix(theirs, ours)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(ours))


def _average(tree: ThresholdTree, values: Tensor, ranks: Ranks) -> float:
    """The mean of values [nodes] of the leaves over the points in them."""
    leaves = tree.leaves
    ranks.same(leaves=values[leaves].tolist())
    samples = tree.samples[leaves]
    total, number = ranks.sum(torch.stack([(values[leaves] * samples).sum(), samples.sum()]))
    return float(total / number)
