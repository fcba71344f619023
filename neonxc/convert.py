"""Convert fitted clusterings to networks."""

from __future__ import annotations

import math
from inspect import isabstract
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.cluster import MeanShift, estimate_bandwidth
from sklearn.utils.validation import check_is_fitted
from torch import nn

from neonxc.clusterings.agreement import Decisions, Difference, Source, agreement, has_own_predict
from neonxc.clusterings.density import density
from neonxc.clusterings.labels import labels_of, predicted
from neonxc.clusterings.maps import behind_map
from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.clusterings.neuralize_arguments import ClusteringArguments, read_arguments
from neonxc.clusterings.readers import chained, device_of, is_precomputed, within_bandwidth
from neonxc.clusterings.verified import has_centers, verified
from neonxc.common.arguments import kind_of
from neonxc.common.warnings import warn
from neonxc.data.files.format import table_format
from neonxc.data.inputs import as_array, check_width, moments
from neonxc.data.table import Table
from neonxc.data.weights import repeated_rows
from neonxc.head.members import MemberDetection
from neonxc.head.noise import with_noise
from neonxc.head.preprocessing import Preprocessing
from neonxc.inputs import make_inputs
from neonxc.inputs.space import ranges
from neonxc.network import FIDELITY, NeuralizedClustering, with_noise_label

REPEATED = 100_000
"""Rows at most, each as often as its weight, from which deviations of columns are computed."""
SEARCHED = 4000
"""At least this number of rows, and less than twice it, calibrate a network that searches the nearest rows."""


def neuralize(
    model: Any = None,
    X: Any = None,
    features: nn.Module | None = None,
    *,
    labels: Any = None,
    threshold: float | None = None,
    stiffness: float | None = None,
    sample_weight: Any = None,
) -> NeuralizedClustering:
    """Rewrite a fitted clustering as a network with the same decisions.

    The network is computed without training. Only for a clusterer that has labels but no decision function, a
    surrogate is fitted to the labels, which is a kernel k-means whose fidelity the network reports.

    Parameters
    ----------
    model : estimator, Pipeline, nn.Module, array or Tensor
        One of the following:

        - a fitted KMeans, MiniBatchKMeans, BisectingKMeans, MeanShift, AffinityPropagation, Birch, GaussianMixture
          or BayesianGaussianMixture of scikit-learn, or a DBSCAN of Euclidean distances;
        - an HDBSCAN of scikit-learn or of the package hdbscan, of Euclidean distances, or an OPTICS that is cut at
          a radius (``cluster_method="dbscan"``), together with the X that it was fitted on;
        - a fitted KernelKMeans, KCenter or SCAN of `neonxc.models`, or a threshold tree of `neonxc.trees`;
        - an nn.Linear whose outputs go into a softmax, a convolution with a kernel of one location (1 x 1), which
          is such a layer at every location, a module with centers (DEC), or an nn.Sequential that ends in one of
          these; the mean of all locations may follow the convolution;
        - a Pipeline of affine steps, encoders of categories and imputers that ends in a clusterer, and may begin
          with a CountVectorizer or TfidfVectorizer; affine steps of any class are read from what they return for
          rows of X, and all steps are compared with it;
        - a fitted GridSearchCV or another search, in place of its ``best_estimator_``, also as a step;
        - centers [K, d];
        - any other clusterer with centers (of scikit-learn-extra, faiss, or a class of one's own), together with
          the X that it was fitted on; the nearest center needs to give its labels of X. Exemplars of an
          AffinityPropagation of a precomputed matrix are rows of X;
        - any other clusterer with `labels_` (AgglomerativeClustering, SpectralClustering, OPTICS by xi, ...),
          together with the X that it was fitted on, through a surrogate.
    X : array, sparse matrix, frame, tensor or sequence of str, optional
        Data on which beta is calibrated (and from which reference points are chosen if a Pipeline reduces
        dimensions). These are inputs of the network: points [N, d], images if `features` is given, or texts if a
        Pipeline begins with a vectorizer. SciPy sparse matrices and arrays stay sparse; only a surrogate needs a
        dense array, of at most 1 GiB. Without X, beta is calibrated on the centers of the model.
    features : nn.Module, optional
        Network from inputs to the features that the clusterer was fitted on: [N, d], or a map [N, d, ...] whose
        locations are the points. It is not copied, and must be in evaluation mode.
    labels : array-like [N], optional
        Any labels of the points X, instead of `model`, for example from human experts. Points with -1 are noise
        and left out. If X is a data frame, the surrogate is fitted to its columns as
        :func:`neonxc.data.preparation.prepare` standardizes and encodes them; columns that it leaves out have no
        relevance. The columns of arrays are taken as they are.
    threshold : float, optional
        Explain why the probability ``p_c`` of a cluster exceeds this threshold (0 to 1), instead of why it is the
        largest (NEON paper, Prop. 7). Logits are then positive where ``p_c > threshold``. For models with a
        softmax: linear heads, mixtures, kernel k-means, and k-means with a stiffness.
    stiffness : float, optional
        Soft k-means: ``p = softmax(-stiffness * squared distances)``.
    sample_weight : array-like [N], optional
        Weights >= 0 of the rows of X, such as those of a survey; a series goes by its index. A weight of 2 is a
        row twice, and rows of weight 0 are left out, in a surrogate, its scaling and its measures, in the
        agreement with the clusterer, and in the calibration of beta. The surrogate's measures leave a row out, or
        hold it out, with all of its weight. The vote that stands for a clustering behind a map takes no weights.
        A fitted clusterer stays as it is.

    Returns
    -------
    NeuralizedClustering
        The network, on the device of `features`, of a model that consists of tensors, or of X if it is a tensor;
        otherwise on the CPU.

    Raises
    ------
    TypeError
        If the clusterer is not supported, or arguments are in the wrong order.
    sklearn.exceptions.NotFittedError
        If the clusterer is not fitted.
    ValueError
        If there are fewer than two clusters, centers or components are identical, parameters are NaN or infinite,
        a step is not affine, or does other than its class says to rows of X, X cannot be used, the number of
        labels is wrong, or a threshold is given for a model without probabilities.

    Warns
    -----
    UserWarning
        If the network does not agree with the clusterer: it gives less than 100% of the rows the label that the
        model predicts, or less than 95% the label that it stores (``net.agreement_``). If a surrogate assigns less
        than 95% of the points to their label, a clusterer has centers that do not give its labels, or an HDBSCAN
        gets a surrogate, because of its metric, its alpha, or many equal distances. If `labels` are given with an
        array whose columns seem to have several units.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> net = neonxc.neuralize(KMeans(3, random_state=0).fit(X), X)
    >>> relevance = neonxc.NEON(net).attribute(X)
    >>> relevance.shape
    (150, 4)

    Density clusterings, whose noise is the last output:

    >>> from sklearn.cluster import DBSCAN
    >>> neonxc.neuralize(DBSCAN(0.6).fit(X), X).classes_
    array([ 0,  1, -1])

    Any labels, here those of agglomerative clustering:

    >>> from sklearn.cluster import AgglomerativeClustering
    >>> net = neonxc.neuralize(AgglomerativeClustering(3).fit(X), X)
    >>> net.fidelity_
    1.0
    """
    arguments = read_arguments(model, X, features, labels, sample_weight)
    cluster_model = _from_labels(arguments) if arguments.by_labels else _read(arguments.final, arguments.X)
    net, difference = _assembled(arguments, cluster_model, threshold, stiffness)
    if difference is None:
        return net
    if _may_decide_otherwise(arguments) and not difference.reason.is_found:
        cluster_model = _from_labels(arguments, _all_labels(arguments, difference.source))
        net, difference = _assembled(arguments, cluster_model, threshold, stiffness)
    if difference is not None:
        warn(f"{difference.message}: {difference.reason.text}")
    return net


def _may_decide_otherwise(arguments: ClusteringArguments) -> bool:
    """Whether a clusterer is of a class of its own, which inherits from the one that its network is made for.

    What inherits from an abstract class, as every tree explainer does, is what the network is made for.
    """
    known = next(kind for kind in type(arguments.final).__mro__ if kind in read.registry)
    is_own = type(arguments.final) is not known and not isabstract(known)
    return is_own or has_own_predict(arguments.model)


def _all_labels(arguments: ClusteringArguments, source: Source) -> np.ndarray | None:
    """Return the labels of all points that the clusterer predicts or stores; None if it can't predict so many."""
    if source == "labels_":
        return as_array(arguments.final.labels_).ravel()
    assert arguments.X is not None
    assert arguments.raw is not None
    if arguments.features is None:
        return predicted(arguments.model, arguments.raw.for_sklearn)
    points = torch.cat([*make_inputs(arguments.features).points(arguments.X)])
    return predicted(arguments.model, points.double().cpu().numpy())


def _assembled(
    arguments: ClusteringArguments, cluster_model: ClusterModel, threshold: float | None, stiffness: float | None
) -> tuple[NeuralizedClustering, Difference | None]:
    """Put inputs and head together, calibrate the stiffness, and compare the decisions with the clusterer's."""
    X = arguments.X
    preprocessing = arguments.preprocessing
    if cluster_model.encoding is not None:
        if preprocessing is not None or arguments.encoding is not None:
            raise ValueError(
                f"{kind_of(arguments.final)} that encodes its table itself needs to be without a pipeline"
            )
        arguments.encoding, arguments.names = cluster_model.encoding, list(cluster_model.encoding.columns)
    factor = _factor(cluster_model, threshold, stiffness)
    head = cluster_model.head(preprocessing)
    classes = cluster_model.classes
    if factor != 1 or threshold is not None:
        head = head.soft(factor, threshold)
    if cluster_model.radius is not None:
        space = preprocessing or Preprocessing.identity(head.n_features)
        head = with_noise(head, cluster_model.radius * factor, space.weight * factor**0.5, space.equal_shares())
        classes = with_noise_label(classes)
    features = arguments.encoding or chained(arguments.features, cluster_model.features)
    net = NeuralizedClustering(head, features, classes, arguments.names)
    devices = map(device_of, (arguments.features, arguments.final, None if X is None else X.data))
    net.to(next(filter(None, devices), torch.device("cpu")))
    for name, share in zip(FIDELITY, cluster_model.fidelity or (), strict=False):
        setattr(net, name, share)
    net.inputs.table_format = getattr(getattr(arguments.final, "tree_", arguments.final), "table_format", None)
    if X is not None:
        net.inputs.table_format = table_format(X.data) or net.inputs.table_format
        X = net.inputs.read(X)
        if not isinstance(features, nn.Module):
            rows = X
            if arguments.weight is not None:
                assert arguments.X is not None
                repeated = repeated_rows(np.arange(len(X)), REPEATED, arguments.weight)
                rows = net.inputs.read(arguments.X.take(repeated))
            net.spread_ = moments(rows.tensor)[1].cpu().numpy()
            net.ranges_ = ranges(rows)
        searches = isinstance(head.detection, MemberDetection)  # for every row, so that some rows have to do
        stride = max(1, len(X) // SEARCHED) if searches else 1
        return net, _calibrated(net, arguments, cluster_model, X, stride)
    if cluster_model.points is not None:
        net.beta = (
            NeuralizedClustering(cluster_model.head(None).soft(factor, threshold))
            .calibrate(cluster_model.points)
            .beta
        )
    return net, None


def _calibrated(
    net: NeuralizedClustering, arguments: ClusteringArguments, cluster_model: ClusterModel, X: Table, stride: int
) -> Difference | None:
    """Calibrate a network on every `stride`-th input, and compare its decisions there with the clusterer's."""
    inputs = X.take(slice(None, None, stride)) if stride > 1 else X
    weight = None if arguments.weight is None else arguments.weight[::stride]
    if cluster_model.fidelity is not None:  # a surrogate, which has its own measures
        net._calibrate(inputs, weight=weight)
        return None
    decisions = Decisions(len(inputs), arguments.preprocessing, arguments.features is not None)
    net._calibrate(inputs, decisions.add, weight)
    net.agreement_, difference = agreement(net, arguments, X, decisions, stride)
    return difference


def _read(final: Any, X: Table | None) -> ClusterModel:
    """Read a clusterer; the error about identical centers names the cause in the data, if data are given."""
    try:
        return read(final)
    except SameCenters as error:
        clusters = len(getattr(final, "cluster_centers_", ())) or getattr(final, "n_clusters", 2)
        why = "; fit fewer clusters" if X is None else X.why_identical(clusters)
        raise ValueError(f"{error}{why}") from None


def _from_labels(arguments: ClusteringArguments, labels: np.ndarray | None = None) -> ClusterModel:
    """Read the centers of a clusterer if they give its labels; otherwise fit a surrogate to the labels.

    `labels` [n] replace those that the clusterer has.
    """
    final = arguments.final
    X = arguments.X
    features = arguments.features
    if isinstance(final, BaseEstimator):
        check_is_fitted(final)
    if X is None:
        centers = f"checking the centers of {kind_of(final)}"
        what = centers if has_centers(final) else "explaining a clustering by its labels alone"
        what = "explaining a clustering behind a map" if arguments.behind else what
        if is_precomputed(final):
            raise ValueError(
                f"the {type(final).__name__} knows a matrix of distances or affinities alone: pass the rows, "
                "whose columns are to explain it: neonxc.neuralize(model, X)"
            )
        raise ValueError(f"{what} needs the X it was fitted on: neonxc.neuralize(..., X=X)")
    if (
        not arguments.steps
        and features is None
        and (X.is_mixed or np.dtype(object) == getattr(X.data, "dtype", None))
    ):
        frame = "X" if X.is_mixed else "pandas.DataFrame(X)"
        raise ValueError(
            f"X has columns that are not numeric, or missing values: neonxc.neuralize(labels=model.labels_, "
            f"X={frame}) explains the labels of the {type(final).__name__} by the columns of X"
        )
    table = Table(X.dense(limited=True))
    if (
        not arguments.steps
        and not arguments.behind
        and features is None
        and (width := getattr(final, "n_features_in_", None)) is not None
    ):
        shape = table.tensor.shape
        if not is_precomputed(final):
            check_width(shape[1], width)
        elif shape == (width, width):
            raise ValueError(
                f"X is the matrix of distances or affinities that the {type(final).__name__} was fitted on; pass "
                "the points, whose columns are to explain it: neonxc.neuralize(labels=model.labels_, X=points)"
            )
    if features is None and table.take(slice(2)).distinct() == 1 and table.distinct() == 1:
        raise ValueError(f"nothing tells the clusters apart{table.why_identical(2)}")
    points = arguments.points(table)
    if arguments.behind:
        return behind_map(arguments, points)
    if labels is None:
        if (cluster_model := density(final, points)) is not None:
            return cluster_model
        if isinstance(final, MeanShift):
            return within_bandwidth(final, estimate_bandwidth(points.cpu().numpy()))
        is_behind = bool(arguments.steps) or features is not None
        labels = labels_of(final, Table(points) if is_behind else X)
        if labels is None and not has_centers(final):
            labels = getattr(final, "labels_", None)  # of another number of rows, which is an error below
    if labels is None:
        raise ValueError(
            f"{kind_of(final)} has no label of each of the {len(X)} rows of X, and predicts none; pass "
            "its centers [K, d] as the model, or labels= and X="
        )
    if has_centers(final) and (cluster_model := verified(final, as_array(labels), points)) is not None:
        return cluster_model
    from neonxc.clusterings.surrogate import fit_surrogate  # loads captum, which takes a second

    return fit_surrogate(points, labels, arguments.weight)


def _factor(cluster_model: ClusterModel, threshold: float | None, stiffness: float | None) -> float:
    """Return the factor of the competing values."""
    for name, value, most in (("stiffness", stiffness, math.inf), ("threshold", threshold, 1)):
        if value is not None and not (isinstance(value, Real) and 0 < value < most):
            raise ValueError(f"{name} needs a number between 0 and {most}, got {value!r}")
    if stiffness is not None and not cluster_model.softens:
        raise ValueError("stiffness= is for k-means: this model has a probability, or none, of its own")
    factor = stiffness or (1.0 if threshold is None else cluster_model.scale)
    if factor is None:
        needed = (
            "give k-means a stiffness=, as soft k-means has it" if cluster_model.softens else "this model has none"
        )
        raise ValueError(f"threshold= needs a model with probabilities: {needed}")
    return float(factor)
