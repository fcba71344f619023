"""The function :func:`neonxc.describe`, which finds out what is true of a clustering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from neonxc.common.arguments import kind_of
from neonxc.common.locales import current_marks, print_in, restoring
from neonxc.common.numbers import text
from neonxc.common.progress import are_shown, progress_bar
from neonxc.common.progress import progress as showing
from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.data.frames import from_named, with_cells
from neonxc.report.checks import FAST, REFITTED, reality, refit
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Description, Trust
from neonxc.report.members import describe_clusters
from neonxc.report.names import name
from neonxc.report.pairs import compare_pairs
from neonxc.report.points import Projection, map_points
from neonxc.report.relevance import Relevance, measure
from neonxc.report.reproduce import reproduce
from neonxc.report.source import Arguments, clustered_data, read, row_weights
from neonxc.report.statements import cluster_values, columns_of, statements
from neonxc.report.tree import grow, nodes
from neonxc.report.wording import cautions, comparisons, figures, source, verdict

if TYPE_CHECKING:
    from PIL.Image import Image

    from neonxc.attribution.moved_rows import Moves
    from neonxc.hierarchy.result import Layers

DISAGREEMENTS = 8  # maximum number of points shown that the tree assigns to another cluster
WEIGHTED = (
    "Rows count by their weights: a weight of 2 is a row twice in all numbers, shares, means, medians and "
    "measures. Points of the map, examples, random samples and held-out parts are rows."
)


@restoring
def describe(
    model_or_labels: object,
    X: TableLike | None = None,
    features: nn.Module | None = None,
    names: Sequence[str] | None = None,
    *,
    labels: ArrayLike | None = None,
    before: TableLike | None = None,
    compared: object = None,
    clusters: int | str | range | None = None,
    cluster_names: Mapping[Label, str] | None = None,
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
    progress: bool = True,
    sample_weight: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    locale: str | None = None,
) -> Description:
    """Describe a whole clustering: its clusters, relevant columns, rules and checks of their quality.

    It is what the page of :func:`neonxc.explain` shows, as plain values.

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
    compared : estimator, Pipeline or NeuralizedClustering, optional
        Another model of the same rows, such as that of last month. The report then says which columns both use
        differently, and which rows are in other clusters (:func:`neonxc.compare_clusterings`).
    clusters : int, str or range, optional
        For a table alone: number of clusters, or a range such as ``"2-8"`` from which
        :func:`neonxc.evaluation.choose_k` chooses. Default: 2 to 8.
    cluster_names : mapping of labels to str, optional
        Names of clusters; default: statements that pass a blind test, as :func:`neonxc.name_clusters` chooses
        them, and the labels of clusters of images.
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
        Whether to leave out the slowest parts: pixel-flipping, and the smallest changes that move points of the
        map to other clusters. Clusters are then refitted on at most 2,000 points.
    concepts : bool
        Whether to draw the concepts of each cluster of a feature network; see :func:`neonxc.concepts`.
    layers : Layers, optional
        Result of :func:`neonxc.layers` for the same rows. The report then has a card for each split.
    progress : bool
        Whether a call of more than two seconds shows what it does, and how long it will take, in a terminal or a
        notebook.
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
    Description
        What is true of the clustering, with the methods ``to_frame`` and ``to_dict``; ``print`` gives a summary.

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
    >>> found = neonxc.describe(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> [cluster.size for cluster in found.clusters]
    [62, 50, 38]
    >>> found.clusters[1].rules[0].text
    'petal length (cm) ≤ 2'
    """
    if projection not in ("pca", "tsne", "umap"):
        raise ValueError(f'projection must be "pca", "tsne" or "umap", got {projection!r}')
    if layers is not None:
        from neonxc.hierarchy.result import Layers  # which most reports do without

        if not isinstance(layers, Layers):
            raise TypeError(f"layers needs the result of neonxc.layers, got {kind_of(layers)}")
    print_in(locale)
    before = with_cells(before)
    weight = sample_weight
    if before is not None and isinstance(sample_weight, tuple):
        weight = sample_weight[1]
    arguments = Arguments(
        model=from_named(model_or_labels),
        X=from_named(X),
        labels=labels,
        features=features,
        names=names,
        clusters=clusters,
        cluster_names=cluster_names,
        row_names=row_names,
        images=images,
        layer=layer,
        use_raw=use_raw,
        sample_weight=weight,
    )
    n_steps = 7 + (not fast) + (before is not None) + (compared is not None) + concepts
    with showing(progress and are_shown()), progress_bar(total=n_steps, desc="report") as bar:
        begun: list[str] = []

        def step(name: str) -> None:
            if begun:
                bar.update()  # the step before this one has ended
            begun.append(name)
            bar.set_postfix_str(name)

        step("clustering")
        later = arguments.later
        arguments = read(arguments)
        clustering = clustered_data(arguments)
        print_in(marks=clustering.net.inputs.marks)
        if layers is not None and layers.n_rows != clustering.n:
            raise ValueError(
                f"layers needs the result of neonxc.layers for the {clustering.n} rows of X, got one of "
                f"{layers.n_rows} rows"
            )
        moved = None
        if before is not None:
            step("moves")
            from neonxc.report.moved import since  # loads captum

            moved = since(clustering, before, later, arguments.names, sample_weight)
        comparison = None
        if compared is not None:
            step("comparison")
            from neonxc.evaluation.transitions import compare_clusterings  # loads captum

            rows = clustering.table.data if later is None else later
            comparison = compare_clusterings(compared, clustering.whole, rows, random_state=0)
        if arguments.sample_weight is not None:
            clustering = clustering.weighted(row_weights(clustering, arguments.sample_weight))
        description = described(clustering, moved, projection, fast, concepts, step)
    all_notes = list(dict.fromkeys([*notes, *description.notes]))  # some of both may be on how X was prepared
    return replace(
        description, title=title or description.title, notes=all_notes, layers=layers, compared=comparison
    )


def described(
    clustering: ClusteredData,
    moved: Moves | None,
    projection: Projection,
    fast: bool,
    concepts: bool,
    step: Callable[[str], None],
) -> Description:
    """Describe a clustering, whose rows have `moved` since an earlier version.

    `step` is called with the name of each part before it.
    """
    # 1. the two explanations
    step("relevance")
    relevance = measure(clustering)
    step("tree")
    tree = grow(clustering)

    # 2. how far to trust them
    trust = Trust(cost=tree.curves)
    flipping = None
    if not fast:
        step("pixel-flipping")
        from neonxc.report.flipping import flip  # loads captum

        flipping = flip(clustering)
        trust.flipping = flipping.curves
        trust.comparisons = comparisons(flipping)
    step("refits")
    refits = refit(clustering, FAST if fast else REFITTED)
    if refits is not None:
        trust.seeds = refits.seeds
    real = reality(clustering, fast)
    trust.reality = real.sentences
    mistaken = np.flatnonzero(np.isin(relevance.index, tree.mistaken))[:DISAGREEMENTS]
    trust.disagreements = clustering.examples(relevance, mistaken)

    # 3. clusters, pairs of them, and points
    step("clusters")
    values = cluster_values(clustering, relevance)
    of_clusters = [statements(clustering, relevance, k, values) for k in range(clustering.k)]
    named = name(clustering, relevance)
    trust.names = named.tested
    names = named.names
    members = describe_clusters(clustering, relevance, of_clusters, named, tree, values)
    drawn: list[tuple[str, Image]] = []
    if concepts:
        step("concepts")
        from neonxc.report.concepts import pictures  # loads Matplotlib

        drawn = pictures(clustering, names)
    step("pairs")
    pairs, pair_notes = compare_pairs(clustering, relevance)
    step("map")
    shown = [*trust.disagreements]
    for cluster in members:
        shown += cluster.prototypes
        shown += cluster.borderline
    n_changes = 0
    if not fast:
        from neonxc.report.changes import n_searched  # loads the counterfactuals

        n_changes = n_searched(clustering)
    points = map_points(clustering, relevance, shown, tree, projection, n_changes)

    # 4. words
    warnings = list(cautions(clustering, tree, relevance, refits, real.is_above, names))
    warned = {warning.text for warning in warnings}
    remarks = [note for note in _notes(clustering, relevance, n_changes, len(points.rows)) if note not in warned]
    if fast:
        remarks.append(_left_out(clustering))
    description = Description(
        title=clustering.title or clustering.counted,
        kind=clustering.kind,
        source=source(clustering),
        n=clustering.total,
        k=clustering.k,
        noise=clustering.noise_total,
        verdict=verdict(clustering, tree, refits),
        figures=list(figures(clustering, tree, flipping, refits)),
        warnings=warnings,
        notes=remarks,
        columns=columns_of(clustering, relevance),
        n_columns=len(clustering.columns),
        clusters=members,
        pairs=pairs,
        tree=nodes(tree, clustering),
        points=points,
        trust=trust,
        reproduce=reproduce(clustering, tree),
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        pair_notes=pair_notes,
        moves=moved,
        concepts=drawn,
        rows=None if clustering.weight is None else clustering.n,
        net=clustering.whole,
        explainer=tree.explainer,
        marks=current_marks(),
    )
    if clustering.rows is not None:
        _renumber(description, clustering.rows.tolist())
    photo, regions = clustering.regions()
    return replace(description, photo=photo, regions=regions)


def _renumber(description: Description, rows: list[int]) -> None:
    """Give the points the numbers of their rows in the inputs, of which some are left out."""
    for example in description.examples():
        if example.name == str(example.row):
            example.name = str(rows[example.row])
        example.row = rows[example.row]
    points = description.points
    points.rows = [rows[row] for row in points.rows]


def _notes(clustering: ClusteredData, relevance: Relevance, n_changes: int, n_mapped: int) -> Iterator[str]:
    """Yield remarks on how the data were treated, and on what is left out."""
    yield from clustering.notes
    if clustering.weight is not None:
        yield WEIGHTED
    n_columns = len(clustering.columns)
    n_shown = len(relevance.shown)
    if len(relevance.index) < clustering.n:
        n_sampled = text(len(relevance.index))
        yield f"Relevance and distributions are computed on a stratified sample of {n_sampled} points."
    if n_shown < n_columns:
        changed = ", and only they are changed to move points to other clusters" if n_changes else ""
        yield f"The {n_shown} most relevant of {text(n_columns)} columns are shown{changed}."
    if 0 < n_changes < n_mapped:
        yield f"The smallest change to another cluster is computed for {n_changes} points of the map."
    if n_changes:
        from neonxc.report.changes import margin_text  # as above

        yield margin_text(clustering)


def _left_out(clustering: ClusteredData) -> str:
    """Say what a fast report is without."""
    if clustering.has_columns_to_change:
        return "Left out for speed: pixel-flipping, and the smallest changes that move points to other clusters."
    return "Left out for speed: pixel-flipping."
