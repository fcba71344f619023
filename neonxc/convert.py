"""Convert fitted clusterings to networks.

1. The arguments are read, and the steps of a pipeline folded (:mod:`neonxc.clusterings.neuralize_arguments`).
2. A reader makes the head from the parameters of the clusterer. Without a reader, one of these does, in this
   order: the vote of the rows behind a map, a density clustering's rule, centers that give the labels of X,
   and a surrogate that is fitted to these labels.
3. Inputs and head become a network, whose beta is calibrated on X.
4. Its decisions are compared with the clusterer's. Where a clusterer of a class of its own decides otherwise
   than the class that it inherits from, steps 2 and 3 are repeated with its labels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from inspect import isabstract
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.cluster import MeanShift, estimate_bandwidth
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.clusterings.agreement import Decisions, Difference, Source, agreement, has_own_predict
from neonxc.clusterings.labels import labels_of, predicted
from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.clusterings.neuralize_arguments import ClusteringArguments, read_arguments
from neonxc.clusterings.readers import chained, device_of, is_precomputed, within_bandwidth
from neonxc.clusterings.verified import has_centers, verified
from neonxc.common.arguments import kind_of
from neonxc.common.precision import in_full_precision
from neonxc.common.sizes import CALIBRATION_ROWS, REPEATED_ROWS
from neonxc.common.types import ArrayLike, TableLike
from neonxc.common.warnings import warn
from neonxc.data.files.format import table_format
from neonxc.data.inputs import as_array, check_width, moments
from neonxc.data.table import Table
from neonxc.data.weights import repeated_rows
from neonxc.head.answer import Answer
from neonxc.head.preprocessing import Preprocessing
from neonxc.inputs import make_inputs
from neonxc.inputs.space import ranges
from neonxc.network import FIDELITY, NeuralizedClustering, with_noise_label


def neuralize(
    model: object = None,
    X: TableLike | None = None,
    features: nn.Module | None = None,
    *,
    labels: ArrayLike | None = None,
    threshold: float | None = None,
    stiffness: float | None = None,
    sample_weight: ArrayLike | None = None,
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
    return neuralized(arguments, threshold, stiffness).net


class Neuralized(NamedTuple):
    """A network, and what its calibration tells."""

    net: NeuralizedClustering
    difference: Difference | None  # of its decisions from those of the clusterer
    points: list[Tensor]  # [n, d] each, what `features` returned for all inputs; empty unless they are kept


def neuralized(
    arguments: ClusteringArguments,
    threshold: float | None = None,
    stiffness: float | None = None,
    keeps_points: bool = False,
) -> Neuralized:
    """Rewrite a clustering as :func:`neuralize` does; `keeps_points` is for those who need the features, too."""
    if arguments.by_labels:
        cluster_model = _from_labels(arguments)
    else:
        cluster_model = _read(arguments.final, arguments.X)
    arguments = _with_encoding(arguments, cluster_model)
    assembled = _assembled(arguments, cluster_model, threshold, stiffness, keeps_points)
    difference = assembled.difference
    if difference is None:
        return assembled
    if _may_decide_otherwise(arguments) and not difference.reason.is_found:
        labels_by_clusterer = _all_labels(arguments, difference.source)
        cluster_model = _from_labels(arguments, labels_by_clusterer)
        assembled = _assembled(arguments, cluster_model, threshold, stiffness, keeps_points)
        difference = assembled.difference
    if difference is not None:
        warn(f"{difference.message}: {difference.reason.text}")
    return assembled


def _may_decide_otherwise(arguments: ClusteringArguments) -> bool:
    """Whether a clusterer is of a class of its own, which inherits from the one that its network is made for.

    What inherits from an abstract class, as every tree explainer does, is what the network is made for.
    """
    kind = type(arguments.final)
    known = next(base for base in kind.__mro__ if base in read.registry)
    is_subclass = kind is not known and not isabstract(known)
    return is_subclass or has_own_predict(arguments.model)


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


def _with_encoding(arguments: ClusteringArguments, cluster_model: ClusterModel) -> ClusteringArguments:
    """Take over the encoding of a clusterer that encodes its table itself."""
    encoding = cluster_model.encoding
    if encoding is None:
        return arguments
    if arguments.preprocessing is not None or arguments.encoding is not None:
        raise ValueError(
            f"{kind_of(arguments.final)} that encodes its table itself needs to be without a pipeline"
        )
    return replace(arguments, encoding=encoding, names=list(encoding.columns))


def _assembled(
    arguments: ClusteringArguments,
    cluster_model: ClusterModel,
    threshold: float | None,
    stiffness: float | None,
    keeps_points: bool,
) -> Neuralized:
    """Put inputs and head together, calibrate beta, and compare the decisions with the clusterer's."""
    X = arguments.X
    preprocessing = arguments.preprocessing
    factor = _factor(cluster_model, threshold, stiffness)
    head = cluster_model.head(preprocessing)
    classes = cluster_model.classes
    if factor != 1 or threshold is not None:
        head = head.soft(factor, threshold)
    if cluster_model.radius is not None:
        from neonxc.head.noise import with_noise  # which few clusterings have

        # squared distances, and therefore squared radii, are multiplied by the factor
        space = preprocessing or Preprocessing.identity(head.n_features)
        weight = space.weight * factor**0.5
        head = with_noise(head, cluster_model.radius * factor, weight, space.equal_shares())
        classes = with_noise_label(classes)

    features = arguments.encoding or chained(arguments.features, cluster_model.features)
    net = NeuralizedClustering(head, features, classes, arguments.names)
    net.to(_device(arguments))
    for name, value in zip(FIDELITY, cluster_model.fidelity or (), strict=False):
        setattr(net, name, value)
    tree = getattr(arguments.final, "tree_", arguments.final)
    net.inputs.table_format = getattr(tree, "table_format", None)
    if X is not None:
        net.inputs.table_format = table_format(X.data) or net.inputs.table_format
        rows = net.inputs.read(X)
        if not isinstance(features, nn.Module):
            _describe_columns(net, arguments, rows)
        return _calibrated(net, arguments, cluster_model, rows, keeps_points)
    if cluster_model.points is not None:
        of_points = NeuralizedClustering(cluster_model.head(None).soft(factor, threshold))
        net.beta = of_points.calibrate(cluster_model.points).beta
    return Neuralized(net, None, [])


def _device(arguments: ClusteringArguments) -> torch.device:
    """Return the device of the features, of the clusterer, or of X; the CPU if they have none."""
    data = None if arguments.X is None else arguments.X.data
    for holder in (arguments.features, arguments.final, data):
        device = device_of(holder)
        if device is not None:
            return device
    return torch.device("cpu")


def _describe_columns(net: NeuralizedClustering, arguments: ClusteringArguments, rows: Table) -> None:
    """Store the standard deviations and ranges of the columns of X, as the network has read its rows."""
    if arguments.weight is not None:
        assert arguments.X is not None
        repeated = repeated_rows(np.arange(len(rows)), REPEATED_ROWS, arguments.weight)
        rows = net.inputs.read(arguments.X.take(repeated))
    _, spread = moments(rows.tensor)
    net.spread_ = spread.cpu().numpy()
    net.ranges_ = ranges(rows)


def _calibrated(
    net: NeuralizedClustering,
    arguments: ClusteringArguments,
    cluster_model: ClusterModel,
    X: Table,
    keeps_points: bool,
) -> Neuralized:
    """Calibrate a network on inputs X, and compare its decisions there with the clusterer's."""
    stride = 1
    if net.head.detection.searches:  # for every row, so that some rows have to do
        stride = max(1, len(X) // CALIBRATION_ROWS)
    inputs = X if stride == 1 else X.take(slice(None, None, stride))
    weight = None if arguments.weight is None else arguments.weight[::stride]
    decisions = Decisions(len(inputs), arguments.preprocessing, arguments.features is not None)
    assigned: list[Tensor] = []
    points: list[Tensor] = []
    keeps_points = keeps_points and stride == 1

    def observe(answer: Answer, points_per_input: int) -> None:
        assigned.append(answer.assigned)
        if keeps_points and isinstance(answer.x, Tensor):
            points.append(answer.x)
        if cluster_model.fidelity is None:  # not a surrogate, which has its own measures
            decisions.add(answer, points_per_input)

    net._calibrate(inputs, observe, weight)
    if net.features is None and not net.inputs.in_texts:
        clusters = torch.cat(assigned)
        if weight is not None:  # rows of weight 0 are left out
            clusters[torch.as_tensor(weight == 0, device=clusters.device)] = -1
        net._keep_rows(net.inputs.read(inputs), clusters)
    if cluster_model.fidelity is not None:
        return Neuralized(net, None, points)
    net.agreement_, difference = agreement(net, arguments, X, decisions, stride)
    return Neuralized(net, difference, points)


@in_full_precision
def _read(final: object, X: Table | None) -> ClusterModel:
    """Read a clusterer; the error about identical centers names the cause in the data, if data are given."""
    try:
        return read(final)
    except SameCenters as error:
        advice = "; fit fewer clusters"
        if X is not None:
            n_clusters = len(getattr(final, "cluster_centers_", ())) or getattr(final, "n_clusters", 2)
            advice = X.why_identical(n_clusters)
        raise ValueError(f"{error}{advice}") from None


def _from_labels(arguments: ClusteringArguments, labels: ArrayLike | None = None) -> ClusterModel:
    """Read the centers of a clusterer if they give its labels; otherwise fit a surrogate to the labels.

    `labels` [n] replace those that the clusterer has.
    """
    final = arguments.final
    if isinstance(final, BaseEstimator):
        check_is_fitted(final)
    X = _rows_of_fit(arguments)
    _check_columns(arguments, X)
    table = Table(X.dense(limited=True))
    _check_table(arguments, table)
    points = arguments.points(table)
    if arguments.behind:
        from neonxc.clusterings.maps import behind_map  # as below

        return behind_map(arguments, points)

    if labels is None:
        from neonxc.clusterings.density import density  # which most clusterings do without

        cluster_model = density(final, points)
        if cluster_model is not None:
            return cluster_model
        if isinstance(final, MeanShift):
            return within_bandwidth(final, estimate_bandwidth(points.cpu().numpy()))
        labels = labels_of(final, X if arguments.takes_columns else Table(points))
        if labels is None and not has_centers(final):
            labels = getattr(final, "labels_", None)  # of another number of rows, which is an error below
    if labels is None:
        raise ValueError(
            f"{kind_of(final)} has no label of each of the {len(X)} rows of X, and predicts none; pass "
            "its centers [K, d] as the model, or labels= and X="
        )
    if has_centers(final):
        cluster_model = verified(final, as_array(labels), points)
        if cluster_model is not None:
            return cluster_model
    from neonxc.clusterings.surrogate import fit_surrogate  # loads captum, which takes a second

    return fit_surrogate(points, labels, arguments.weight)


def _rows_of_fit(arguments: ClusteringArguments) -> Table:
    """Return the inputs on which a clusterer without a reader was fitted; an error says why they are needed."""
    final = arguments.final
    X = arguments.X
    if X is not None:
        return X
    if is_precomputed(final):
        raise ValueError(
            f"the {type(final).__name__} knows a matrix of distances or affinities alone: pass the rows, "
            "whose columns are to explain it: neonxc.neuralize(model, X)"
        )
    if arguments.behind:
        purpose = "explaining a clustering behind a map"
    elif has_centers(final):
        purpose = f"checking the centers of {kind_of(final)}"
    else:
        purpose = "explaining a clustering by its labels alone"
    raise ValueError(f"{purpose} needs the X it was fitted on: neonxc.neuralize(..., X=X)")


def _check_columns(arguments: ClusteringArguments, X: Table) -> None:
    """Refuse a table that is not numeric, unless a pipeline or a network reads it."""
    if not arguments.takes_columns:
        return
    if X.is_mixed or np.dtype(object) == getattr(X.data, "dtype", None):
        frame = "X" if X.is_mixed else "pandas.DataFrame(X)"
        raise ValueError(
            f"X has columns that are not numeric, or missing values: neonxc.neuralize(labels=model.labels_, "
            f"X={frame}) explains the labels of the {type(arguments.final).__name__} by the columns of X"
        )


def _check_table(arguments: ClusteringArguments, table: Table) -> None:
    """Refuse tables of another width than the clusterer's, matrices of distances, and rows that are all equal."""
    final = arguments.final
    width = getattr(final, "n_features_in_", None)
    if arguments.takes_columns and not arguments.behind and width is not None:
        shape = table.tensor.shape
        if not is_precomputed(final):
            check_width(shape[1], width)
        elif shape == (width, width):
            raise ValueError(
                f"X is the matrix of distances or affinities that the {type(final).__name__} was fitted on; pass "
                "the points, whose columns are to explain it: neonxc.neuralize(labels=model.labels_, X=points)"
            )
    if arguments.features is None and table.take(slice(2)).distinct() == 1 and table.distinct() == 1:
        raise ValueError(f"nothing tells the clusters apart{table.why_identical(2)}")


def _factor(cluster_model: ClusterModel, threshold: float | None, stiffness: float | None) -> float:
    """Return the factor of the competing values, with which their softmax gives the probabilities."""
    for name, value, limit in (("stiffness", stiffness, math.inf), ("threshold", threshold, 1)):
        if value is not None and not (isinstance(value, Real) and 0 < value < limit):
            raise ValueError(f"{name} needs a number between 0 and {limit}, got {value!r}")
    if stiffness is not None and not cluster_model.softens:
        raise ValueError("stiffness= is for k-means: this model has a probability, or none, of its own")
    if stiffness is not None:
        return float(stiffness)
    if threshold is None:
        return 1.0
    if cluster_model.scale is None:
        needed = "this model has none"
        if cluster_model.softens:
            needed = "give k-means a stiffness=, as soft k-means has it"
        raise ValueError(f"threshold= needs a model with probabilities: {needed}")
    return float(cluster_model.scale)
