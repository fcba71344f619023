"""The function :func:`neonxc.explain`, which writes a report on a clustering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from neonxc.clusterings.mistaken import check_is_model
from neonxc.common.colours import colors
from neonxc.common.numbers import text
from neonxc.common.progress import progress as showing
from neonxc.common.progress import progress_bar
from neonxc.data.expression import expression_of, groups_of
from neonxc.data.frames import as_pandas, from_named
from neonxc.report.cards import cards, noise_card, pairs
from neonxc.report.clustering import Clustering, is_table, read, row_weights, with_names
from neonxc.report.clusters import of_data
from neonxc.report.contents import Contents, Moved, Trust
from neonxc.report.items import items, regions
from neonxc.report.moved import since
from neonxc.report.points import Projection, points, searched
from neonxc.report.relevance import Relevance, measure
from neonxc.report.report import Report
from neonxc.report.reproduce import reproduce
from neonxc.report.statements import cluster_names as titles_of
from neonxc.report.statements import cluster_values, columns_of, statements
from neonxc.report.tree import grow, nodes
from neonxc.report.trust import FAST, REFITTED, flip, refit, second_opinion
from neonxc.report.verdict import cautions, description, figures, verdict

DISAGREEMENTS = 8  # maximum number of points shown that the tree assigns to another cluster
WEIGHTED = (
    "Rows count by their weights: a weight of 2 is a row twice in all numbers, shares, means, medians and "
    "measures. Points of the map, examples, random samples and held-out parts are rows."
)
LEFT_OUT = "Left out for speed: the trees that separate pairs of clusters, and pixel-flipping."


class Subject(NamedTuple):
    """What a report explains; the fields are arguments of :func:`explain` as far as they have been read."""

    model: Any  # the clustering, or the data if they are the first argument
    X: Any
    labels: Any
    names: Sequence[str] | None
    row_names: Sequence[str] | None
    title: str | None
    notes: list[str]


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
    layer: str | None = None,
    use_raw: bool | None = None,
    title: str | None = None,
    notes: Sequence[str] = (),
    projection: Projection = "pca",
    fast: bool = False,
    concepts: bool = False,
    progress: bool = False,
    sample_weight: Any = None,
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
        Whether to leave out the slowest parts: the trees that separate pairs of clusters, and pixel-flipping.
        Clusters are then refitted on at most 2,000 points.
    concepts : bool
        Whether to draw the concepts of each cluster of a feature network; see :func:`neonxc.concepts`.
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

    Returns
    -------
    Report
        Report with the methods ``save``, ``to_frame`` and ``to_dict``. A notebook displays the page; ``print``
        gives a summary.

    Raises
    ------
    TypeError
        If the inputs are missing, if both a model and labels are given, or `clusters` and one of these.
    ValueError
        If :func:`neonxc.neuralize` refuses the model or the inputs, if the number of names is wrong, if the
        projection is unknown, or if a table cannot be read or has too few different rows.
    ImportError
        If `projection` is "umap" and umap-learn is not installed.

    Notes
    -----
    For more than 20,000 points, relevance is computed on a stratified sample, while the tree is grown on all
    points. The map shows at most 5,000 points. ExShallow and CART trees with one to three leaves per cluster are
    compared, and the smallest whose fidelity is close to that of the best is chosen. All pairs of at most 20
    clusters are compared, and of more clusters, each with its two nearest rivals.

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
    if projection not in ("pca", "tsne", "umap"):
        raise ValueError(f'projection must be "pca", "tsne" or "umap", got {projection!r}')
    n_steps = 7 + (not fast) + (before is not None) + concepts
    subject = Subject(from_named(model_or_labels), from_named(X), labels, names, row_names, title, [*notes])
    later = subject.model if subject.X is None or isinstance(subject.X, str) else subject.X
    has_pair = before is not None and isinstance(sample_weight, tuple)
    weight = sample_weight[1] if has_pair else sample_weight

    with showing(progress), progress_bar(total=n_steps, desc="report", delay=0) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        # 1. what is explained
        step("clustering")
        if hasattr(subject.model, "obs"):
            subject = _of_cells(subject, layer, use_raw)
        elif layer is not None or use_raw is not None:
            raise TypeError("layer= and use_raw= are for an AnnData as first argument")
        subject = subject._replace(model=as_pandas(subject.model))
        if _is_data(subject, features):
            subject = _of_table(subject, clusters, weight)
        elif clusters is not None:
            raise TypeError("clusters= is for a table alone, which is clustered here; got a clustering as well")
        clustering = read(
            subject.model,
            subject.X,
            subject.labels,
            features,
            subject.names,
            cluster_names,
            subject.row_names,
            weight,
        )
        title = subject.title
        notes = subject.notes
        moved: tuple[str, list[Moved]] = ("", [])
        if before is not None:
            step("moves")
            moved = since(clustering, before, later, subject.names, sample_weight)
        if sample_weight is not None:
            clustering = clustering.of_rows(row_weights(clustering, weight))
            notes = [*notes, WEIGHTED]

        # 2. the two explanations, and how far to trust them
        step("relevance")
        relevance = measure(clustering)
        step("tree")
        tree = grow(clustering)
        flipping = None
        trust = Trust(cost=tree.curves)
        if not fast:
            trust.notes = second_opinion(clustering, relevance)
            step("pixel-flipping")
            flipping = flip(clustering)
            trust.flipping = flipping.curves
        step("refits")
        refits = refit(clustering, FAST if fast else REFITTED)
        if refits is not None:
            trust.seeds = refits.seeds

        # 3. what the page says of clusters, pairs of them, and points
        step("clusters")
        palette = colors(clustering.k)
        values = cluster_values(clustering, relevance)
        sentences = [statements(clustering, relevance, cluster, values) for cluster in range(clustering.k)]
        titles = titles_of(clustering, sentences)
        described = cards(clustering, relevance, sentences, titles, palette, tree)
        of_noise = noise_card(clustering, relevance)
        if of_noise is not None:
            described.append(of_noise)
        mistaken = np.flatnonzero(np.isin(relevance.index, tree.mistaken))[:DISAGREEMENTS]
        trust.disagreements = items(clustering, relevance, mistaken)
        pictures_of_concepts: list[tuple[str, str]] = []
        if concepts:
            step("concepts")
            from neonxc.report.concepts import pictures  # loads the parts that few reports need

            pictures_of_concepts = pictures(clustering, titles)
        step("pairs")
        compared, pair_notes = pairs(clustering, relevance, trees=not fast)
        step("map")
        point_map = points(clustering, relevance, described, trust.disagreements, tree, projection)

    warnings = list(cautions(clustering, tree, relevance, refits, titles))
    warned = {warning.text for warning in warnings}
    remarks = [*notes, *_notes(clustering, relevance, len(point_map.rows))]
    remarks = [note for note in remarks if note not in warned]
    if fast:
        remarks.append(LEFT_OUT)
    contents = Contents(
        title=title or clustering.counted,
        kind=clustering.kind,
        what=description(clustering),
        n=clustering.total,
        k=clustering.k,
        noise=clustering.noise_total,
        verdict=verdict(clustering, tree, flipping),
        figures=list(figures(clustering, tree, flipping, refits)),
        warnings=warnings,
        notes=remarks,
        columns=columns_of(relevance.table, relevance.weight),
        cards=described,
        pairs=compared,
        tree=nodes(tree, clustering),
        points=point_map,
        trust=trust,
        reproduce=reproduce(clustering, tree),
        pair_notes=pair_notes,
        moved=moved[0],
        moves=moved[1],
        concepts=pictures_of_concepts,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        rows=None if clustering.weight is None else clustering.n,
    )
    if clustering.rows is not None:
        _number(contents, clustering.rows.tolist())
    if clustering.kind == "locations":
        contents.photo, contents.regions = regions(clustering, palette)
    return Report(contents, clustering.whole, tree.explainer)


def _of_cells(subject: Subject, layer: str | None, use_raw: bool | None) -> Subject:
    """Read an AnnData: a matrix of expression, and the groups of cells that `X` names."""
    cells = subject.model
    if subject.X is not None:
        labels, groups = groups_of(cells, subject.X)
        title = subject.title or f"{text(len(cells.obs))} cells by {groups}"
        subject = subject._replace(X=None, labels=labels, title=title)
    expression, genes, matrix = expression_of(cells, layer, use_raw)
    row_names = cells.obs.index if subject.row_names is None else subject.row_names
    return subject._replace(
        model=expression,
        names=subject.names or genes,
        row_names=row_names,
        notes=[*subject.notes, f"Expression is that of {matrix}."],
    )


def _of_table(subject: Subject, clusters: int | str | range | None, weight: Any) -> Subject:
    """Cluster a table that is given alone."""
    check_is_model(subject.model, None)
    name = "the table"
    if isinstance(subject.model, str | PathLike):
        name = Path(subject.model).name
    table = with_names(subject.model, subject.names)
    prepared, clustered = of_data(table, clusters, name, weight)
    return subject._replace(
        model=clustered.model,
        X=prepared.frame,
        names=None,
        title=subject.title or clustered.what,
        notes=[*prepared.notes, *clustered.notes, *subject.notes],
    )


def _number(contents: Contents, rows: list[int]) -> None:
    """Give the points the numbers of their rows in the inputs, of which some are left out."""
    groups = [contents.trust.disagreements, *(card.prototypes + card.borderline for card in contents.cards)]
    for item in (item for group in groups for item in group):
        if item.name == str(item.row):
            item.name = str(rows[item.row])
        item.row = rows[item.row]
    contents.points.rows = [rows[row] for row in contents.points.rows]


def _is_data(subject: Subject, features: nn.Module | None) -> bool:
    """Whether a table, or the path of one, is given and nothing else."""
    if subject.X is not None or subject.labels is not None or features is not None:
        return False
    if isinstance(subject.model, str | PathLike):
        return True
    return len(getattr(subject.model, "shape", ())) == 2 and is_table(subject.model)


def _notes(clustering: Clustering, relevance: Relevance, mapped: int) -> Iterator[str]:
    yield from clustering.notes
    if len(relevance.index) < clustering.n:
        yield (
            f"Relevance and distributions are computed on a stratified sample of {text(len(relevance.index))} "
            "points."
        )
    if len(relevance.shown) < len(clustering.units):
        yield (
            f"The {len(relevance.shown)} most relevant of {text(len(clustering.units))} columns are shown, and "
            "only they are changed to move points to other clusters."
        )
    if 0 < (most := searched(clustering, relevance)) < mapped:
        yield f"The smallest change to another cluster is computed for {most} points of the map."
