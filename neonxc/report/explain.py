"""The function :func:`neonxc.explain`, which writes a report on a clustering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from neonxc.common.arguments import kind_of
from neonxc.common.types import ArrayLike
from neonxc.hierarchy.result import Layers
from neonxc.report.describe import describe
from neonxc.report.projection import Projection
from neonxc.report.report import Report


def explain(
    model_or_labels: Any,
    X: Any = None,
    features: nn.Module | None = None,
    names: Sequence[str] | None = None,
    *,
    labels: Any = None,
    before: Any = None,
    clusters: int | str | range | None = None,
    cluster_names: Mapping[Any, str] | None = None,
    row_names: Sequence[str] | None = None,
    images: ArrayLike | Sequence[int] | None = None,
    layer: str | None = None,
    use_raw: bool | None = None,
    title: str | None = None,
    notes: Sequence[str] = (),
    projection: Projection = "pca",
    fast: bool = False,
    concepts: bool = False,
    layers: Layers | None = None,
    progress: bool = False,
    sample_weight: Any = None,
    locale: str | None = None,
) -> Report:
    """Explain a whole clustering in one report: clusters, relevant columns, rules and checks of their quality.

    The report combines two kinds of explanation and checks them against each other: the relevance of the columns,
    computed from the clustering written as a neural network, and a threshold tree.

    Parameters
    ----------
    model_or_labels : estimator, Pipeline, tree, NeuralizedClustering, array-like [n], table or path
        Fitted clustering, as for :func:`neonxc.neuralize`, or its labels. With the keyword `labels`, the data may
        be the first argument: ``neonxc.explain(X, labels=y)``. A table [n, d] alone, or the path of a CSV or
        Parquet file, is prepared (:func:`neonxc.data.preparation.prepare`) and clustered by k-means, as the
        command ``neonxc explain`` does.
    X : data frame, array, sparse matrix, tensor, sequence of str, path, or str
        Clustered data: a table [n, d], texts, or, if `features` is a backbone, images. With an AnnData as first
        argument, the column of its ``obs`` that holds the labels: ``neonxc.explain(adata, "leiden")``, or the
        labels themselves; a series goes by the names of the cells.
    features : nn.Module, optional
        Feature network, as for :func:`neonxc.neuralize`.
    names : sequence of str, optional
        Names of the columns of X.
    labels : array-like [n], optional
        Label of every input; -1 is noise. A surrogate model is fitted to the labels, and the verdict states its
        fidelity.
    before : as X, optional
        An earlier version of X. The report then has a section on the rows that have changed cluster since, as
        :func:`neonxc.moves` explains them.
    clusters : int, str or range, optional
        For a table alone: number of clusters, or a range such as ``"2-8"`` from which
        :func:`neonxc.evaluation.choose_k` chooses. Default: 2 to 8.
    cluster_names : mapping of labels to str, optional
        Names of clusters; default: the two strongest statements about the cluster.
    row_names : sequence of str, optional
        Names of the inputs, such as file names; default: the index of a data frame, or row numbers.
    images : three ints, or sequence of N images, optional
        What the report shows of images: three of their bands (channels, from 0) as red, green and blue, or
        pictures of them with values from 0 to 1. Default: one band is grey, of two the first is red and the second
        turquoise, of four the first three are shown, and of more the last, the middle and the first.
    layer, use_raw : str and bool, optional
        The expression of an AnnData, as for :func:`neonxc.markers`: a layer, or whether ``adata.raw`` is read.
        Default: ``adata.raw`` if it is there, else ``adata.X``.
    title : str, optional
        Title of the report.
    notes : sequence of str
        Further remarks for the reader, such as how the data were prepared.
    projection : {"pca", "tsne", "umap"}
        Projection used for the map. "umap" needs umap-learn.
    fast : bool
        Whether to leave out the slowest parts: pixel-flipping, and the smallest changes of points where clusters
        have curved boundaries. Clusters are then refitted on at most 2,000 points.
    concepts : bool
        Whether to draw the concepts of each cluster of a feature network; see :func:`neonxc.concepts`.
    layers : Layers, optional
        Result of :func:`neonxc.layers` for the same rows. The report then has a card for each split.
    progress : bool
        Whether to show progress bars.
    sample_weight : array-like [n], or pair of array-like, optional
        Weights >= 0 of the rows of X, such as those of a survey; a series goes by its index. Rows of weight 0 are
        left out, and a weight of 2 is a row twice, in all numbers, shares, means, medians, measures and rules.
        With `before`, a tuple has the weights of both versions, as for :func:`neonxc.moves`. The map and the
        examples show rows, and random samples, held-out parts and the halves of refits are drawn from the rows,
        which then have their weights. Standard errors, and the warning of small clusters, go by the number of
        rows, as weights are no evidence. The weight of an image is that of each of its locations. Refits of
        clusterers and steps that take no weights are without them, as a t-SNE or UMAP map is. A fitted clustering
        stays as it is; a surrogate, and a table that is clustered here, are fitted with the weights.
    locale : str, optional
        Language, possibly with a region, whose decimal mark and mark between thousands numbers have, such as
        ``"de"``, ``"de_CH"`` or ``"en"``. Default: the marks of the file that the table is from, or else decimal
        points.

    Returns
    -------
    Report
        Report with the methods ``save``, ``to_frame`` and ``to_dict``. A notebook displays the page; ``print``
        gives a summary.

    Raises
    ------
    TypeError
        If the inputs are missing, if both a model and labels are given, or `clusters` and one of these; or if
        `layers` is no result of :func:`neonxc.layers`.
    ValueError
        If :func:`neonxc.neuralize` refuses the model or the inputs, if the number of names is wrong, if the
        projection is unknown, or if a table cannot be read or has too few different rows.
    ImportError
        If `projection` is "umap" and umap-learn is not installed.

    Notes
    -----
    For more than 20,000 points, relevance is computed on a stratified sample, while the tree is grown on all
    points. The map shows at most 4,000 points, and the smallest changes of at most 200. ExShallow and CART trees
    with one to three leaves per cluster are compared, and the smallest whose fidelity is close to that of the best
    is chosen. All pairs of at most 20 clusters are compared, and of more clusters, each with its two nearest
    competitors.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> report = neonxc.explain(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> report.to_frame().loc["1", "rule"]
    'petal length (cm) ≤ 2'
    """
    if layers is not None and not isinstance(layers, Layers):
        raise TypeError(f"layers needs the result of neonxc.layers, got {kind_of(layers)}")
    description = describe(
        model_or_labels,
        X,
        features,
        names,
        labels=labels,
        before=before,
        clusters=clusters,
        cluster_names=cluster_names,
        row_names=row_names,
        images=images,
        layer=layer,
        use_raw=use_raw,
        projection=projection,
        fast=fast,
        concepts=concepts,
        progress=progress,
        sample_weight=sample_weight,
        locale=locale,
    )
    title = title or description.title
    notes = list(dict.fromkeys([*notes, *description.notes]))
    return Report(replace(description, title=title, notes=notes, layers=layers))
