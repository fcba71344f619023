"""Explain a clustering in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from neonxc.progress_bars import progress as showing
from neonxc.progress_bars import progress_bar
from neonxc.report.cards import cards
from neonxc.report.colors import colors
from neonxc.report.contents import Contents, Trust
from neonxc.report.items import items, regions
from neonxc.report.pairs import pairs
from neonxc.report.points import Projection, points
from neonxc.report.relevance import Relevance, measure
from neonxc.report.report import Report
from neonxc.report.reproduce import reproduce
from neonxc.report.statements import cluster_names as named
from neonxc.report.statements import columns_of, statements
from neonxc.report.subject import Subject, read
from neonxc.report.tree import grow, nodes
from neonxc.report.trust import agree, flip, refit
from neonxc.report.verdict import figures, sentence, warned, what

DISAGREEMENTS = 8  # that are shown


def explain(
    model_or_labels: Any,
    X: Any = None,
    features: nn.Module | None = None,
    names: Sequence[str] | None = None,
    *,
    labels: Any = None,
    cluster_names: Mapping[Any, str] | None = None,
    row_names: Sequence[str] | None = None,
    title: str | None = None,
    notes: Sequence[str] = (),
    projection: Projection = "pca",
    progress: bool = False,
) -> Report:
    """Explain a clustering: what its clusters are, why, by which rules, and how far to believe it.

    Both kinds of explanation are made and checked against each other: relevance of the columns, by the network of
    the clustering, and a threshold tree.

    Parameters
    ----------
    model_or_labels : estimator, Pipeline, tree, NeuralizedClustering or array-like [n]
        A fitted clustering, as for :func:`neonxc.neuralize`, or its labels. The data may come first where the
        labels are given by their name: ``neonxc.explain(X, labels=y)``.
    X : data frame, array, sparse matrix, tensor or sequence of str
        What was clustered: a table [n, d], images where `features` is a backbone, texts.
    features : nn.Module, optional
        As for :func:`neonxc.neuralize`.
    names : sequence of str, optional
        Names for the columns of X, where it has none.
    labels : array-like [n], optional
        The clustering; -1 is noise. A surrogate stands in for it, with its fidelity in the verdict.
    cluster_names : mapping of labels to str, optional
        What to call clusters; default: a name made of the two strongest statements.
    row_names : sequence of str, optional
        What to call the inputs, such as file names; default: the index of a frame, or row numbers.
    title : str, optional
        Above the report.
    notes : sequence of str
        What else the reader should know, such as what was done to the data.
    projection : {"pca", "tsne", "umap"}
        How the map is made. "umap" needs umap-learn.
    progress : bool
        Show progress bars.

    Returns
    -------
    Report
        With ``.save("report.html")``, ``.to_frame()``, ``.to_dict()``; a notebook shows it, ``print`` sums it up.

    Raises
    ------
    TypeError
        No inputs, or both a model and labels.
    ValueError
        What :func:`neonxc.neuralize` refuses, names that are too few or too many, another projection.

    Notes
    -----
    Of more than 20,000 points relevance is computed for a sample, of every cluster its share; the tree is grown on
    all of them. The map shows 5,000 at most. The tree is the shortest of several that is nearly as faithful as the
    best: ExShallow and CART with up to three leaves per cluster.

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
        raise ValueError(f'projection needs "pca", "tsne" or "umap", got {projection!r}')
    with showing(progress), progress_bar(total=8, desc="report", delay=0) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        step("clustering")
        subject = read(model_or_labels, X, labels, features, names, cluster_names)
        step("relevance")
        relevance = measure(subject)
        step("tree")
        tree = grow(subject)
        step("pixel-flipping")
        flipping = flip(subject)
        step("refits")
        refits = refit(subject)
        step("clusters")
        table, given = subject.values(relevance.index, relevance.shown), _row_names(subject.X, row_names)
        rows = None if subject.kind == "locations" else given  # a photo has many points
        units = [subject.units[i] for i in relevance.shown]
        said = [statements(subject, relevance, table, units, cluster) for cluster in range(subject.k)]
        spoken = said if subject.kind in ("table", "texts") else [[] for _ in said]  # channels are no names
        titles = named(spoken, subject.cluster_labels, dict(subject.cluster_names))
        palette = colors(subject.k)
        found = cards(subject, relevance, table, given, said, titles, palette, tree)
        correlation, differing = agree(subject, tree)
        for card, value in zip(found, correlation.tolist(), strict=True):
            card.agreement = None if np.isnan(value) else value
        step("pairs")
        against = pairs(subject, relevance)
        step("map")
        sample = points(subject, relevance, table, rows, found, tree.leaf, projection)
    doubtful = np.flatnonzero(np.isin(relevance.index, differing))[:DISAGREEMENTS]
    trust = Trust(
        flipping.curves,
        tree.curves,
        [] if refits is None else refits.seeds,
        items(subject, relevance, table, rows, doubtful),
    )
    contents = Contents(
        title=title or f"{subject.k} clusters",
        kind=subject.kind,
        what=what(subject),
        n=subject.n,
        k=subject.k,
        noise=int((subject.own < 0).sum()),
        verdict=sentence(subject, tree, flipping),
        figures=figures(subject, tree, flipping, refits),
        warnings=warned(subject, tree, relevance, refits, titles),
        notes=[*notes, *_notes(subject, relevance)],
        columns=columns_of(table, units),
        cards=found,
        pairs=against,
        tree=nodes(tree, subject),
        points=sample,
        trust=trust,
        reproduce=reproduce(subject, tree),
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
    )
    if subject.kind == "locations":
        contents.photo, contents.regions = regions(subject, palette)
    return Report(contents, subject.whole, tree.explainer)


def _row_names(X: Any, given: Sequence[str] | None) -> list[str] | None:
    """What inputs are called: as given, or by the index of a frame, where it says more than the row numbers."""
    if given is not None:
        if len(given) != (X.shape[0] if hasattr(X, "shape") else len(X)):
            raise ValueError(f"row_names needs one name per input, got {len(given)}")
        return [str(name) for name in given]
    if not hasattr(X, "iloc") or isinstance(X.index, pd.RangeIndex):
        return None
    return [str(name) for name in X.index]


def _notes(subject: Subject, relevance: Relevance) -> list[str]:
    found = list(subject.notes)
    if len(relevance.index) < subject.n:
        found.append(
            f"Relevance and distributions are those of {len(relevance.index):,} points, a sample of every cluster."
        )
    if len(relevance.shown) < len(subject.units):
        found.append(f"Of {len(subject.units):,} columns the {len(relevance.shown)} that matter most are shown.")
    return found
