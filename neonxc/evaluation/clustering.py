"""Measures of trees and clusterings: the size of explanations, and the agreement with a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.data.inputs import as_array

if TYPE_CHECKING:
    from neonxc.trees import ThresholdTree


def wad(tree: ThresholdTree, *, group: Any = None) -> float:
    """Weighted average depth: the mean number of tests on the path of a training point.

    Laber, Murtinho and Oliveira, "Shallow decision trees for explainable k-means clustering", 2023, Eq. 2.

    Parameters
    ----------
    tree : ThresholdTree
    group : torch.distributed.ProcessGroup, optional
        Sum ``tree.samples``, the numbers of points in the leaves, over the processes of the group, which have the
        same tree with their own counts. A tree that was fitted by a group already contains the counts of all
        processes, so that `group` does not change the result.

    Raises
    ------
    ValueError
        If the trees of the processes differ in their leaves (raised in all processes).
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
    """Compute the adjusted Rand index and mutual information with a reference clustering.

    Parameters
    ----------
    labels, reference : array-like [n]

    Returns
    -------
    dict
        "ari" (adjusted Rand index), "ami" (adjusted mutual information) and "nmi" (normalized mutual information).
        All are 1 for equal clusterings, independently of the label values.
    """
    ours, theirs = as_array(labels), as_array(reference)
    return {
        "ari": float(adjusted_rand_score(theirs, ours)),
        "ami": float(adjusted_mutual_info_score(theirs, ours)),
        "nmi": float(normalized_mutual_info_score(theirs, ours)),
    }


def clustering_accuracy(labels: Any, truth: Any) -> float:
    """Accuracy of a clustering under the best one-to-one matching of clusters with classes.

    Parameters
    ----------
    labels : array-like [n]
        Clusters.
    truth : array-like [n]
        Classes; their number may differ from the number of clusters.

    Returns
    -------
    float
        Accuracy, 0 to 1. The matching is found by the Hungarian method.

    Raises
    ------
    ValueError
        If there are no points, or the numbers of labels and classes differ.

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
    """Return the mean over all points of the values [nodes] of their leaves."""
    leaves = tree.leaves
    ranks.same(leaves=values[leaves].tolist())
    samples = tree.samples[leaves]
    total, number = ranks.sum(torch.stack([(values[leaves] * samples).sum(), samples.sum()]))
    return float(total / number)
