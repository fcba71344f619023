"""Reports of tables, photos and texts, and short rules for the clusters of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from neonxc.cli.workflows.photos import Named, names_of
from neonxc.common.storage import save
from neonxc.data.inputs import are_labels
from neonxc.data.preparation import Preparation
from neonxc.models import SentenceEncoder
from neonxc.report.clusters import Clusters, kmeans
from neonxc.report.explain import explain
from neonxc.report.report import Report
from neonxc.rules import Rules

if TYPE_CHECKING:
    from neonxc.models import FeatureExtractor


TERMS = 5000
"""Terms of texts at most, the most frequent ones."""


def table_report(prepared: Preparation, clusters: Clusters, fast: bool = False) -> Report:
    """Make a report on the clusters of a table."""
    notes = [*prepared.notes, *clusters.notes]
    return explain(clusters.model, prepared.frame, title=clusters.what, notes=notes, fast=fast, progress=True)


def photo_report(
    photos: Named, clusters: int, features: FeatureExtractor, whole: bool = False, fast: bool = False
) -> Report:
    """Cluster photos of the same shape, or their locations, and make a report on the clusters."""
    names = names_of(photos)
    stack = torch.stack([photos[row][1] for row in range(len(photos))])
    x = features.preprocess(stack).to(next(features.parameters()).device)
    model = kmeans(features.points(x).cpu().numpy(), clusters, "photos" if whole else "locations")
    of = names[0] if len(names) == 1 else f"{len(names)} photos"
    title = f"{clusters} clusters of {of}" if whole else f"{clusters} kinds of places in {of}"
    return explain(model, x, features, row_names=names, title=title, fast=fast, progress=True)


def text_report(file: Path, clusters: int, encoder: str | None = None, fast: bool = False) -> Report:
    """Cluster texts, one per line, by their embeddings or the TF-IDF of their terms, and make a report.

    Raises
    ------
    ValueError
        If there are fewer different texts than clusters, or the file is not a text file.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} can't be read as text: {error}") from None
    texts = [line.strip() for line in lines if line.strip()]
    title = f"{clusters} clusters of {len(texts)} texts of {file.name}"
    if encoder is not None:
        features = SentenceEncoder.from_pretrained(encoder)
        embedded = kmeans(features.points(texts).cpu().numpy(), clusters, "texts")
        return explain(embedded, texts, features, title=title, fast=fast, progress=True)
    least = 2 if len(texts) >= 50 else 1
    vectorizer = TfidfVectorizer(
        max_df=0.5, min_df=least, max_features=TERMS, stop_words="english", sublinear_tf=True
    )
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise ValueError(f"{file} has no terms besides English stop words: {error}") from None
    model = make_pipeline(vectorizer, kmeans(counts, clusters, "texts"))
    return explain(model, texts, title=title, fast=fast, progress=True)


HELD_OUT = 0.2
ENOUGH = 50
"""Rows from which on some are held out."""
SUFFIXES = {".md": "markdown", ".html": "html", ".htm": "html", ".sql": "sql", ".py": "python", ".json": "json"}


def cluster_rules(prepared: Preparation, clusters: Clusters, leaves: int | None = None) -> Rules:
    """Return the rules of a tree: ExShallow for k-means, CART for the labels of a column.

    The tree is fitted to four fifths of the rows, and the rules are measured on the others. If there are few rows,
    or a cluster has a single row, the tree is fitted to all rows.

    Parameters
    ----------
    prepared : Preparation
    clusters : Clusters
    leaves : int, optional
        Maximum number of rules. The default is one per cluster of k-means, and two per label.
    """
    from neonxc.trees import CART, ExShallow  # depends on this package
    from neonxc.trees.rules import with_noise  # depends on this package

    table, labels = prepared.frame, clusters.labels
    seen, held_out = (clusters.clustered[rows] for rows in _split(labels[clusters.clustered]))
    if clusters.given:
        most = 2 * clusters.k if leaves is None else leaves
        tree = CART(n_clusters=clusters.k, max_leaves=most).fit(table.iloc[seen], labels=labels[seen]).tree_
    else:
        explainer = ExShallow(n_clusters=clusters.k, reference=clusters.model, max_leaves=leaves)
        tree = explainer.fit(table.iloc[seen]).tree_
    noise = np.flatnonzero(~are_labels(labels))
    apart = noise[:: round(1 / HELD_OUT)] if len(held_out) else noise[:0]
    rules = with_noise(tree, table.iloc[np.setdiff1d(noise, apart)]).rules()
    held_out = np.union1d(held_out, apart)
    return rules.measure(table.iloc[held_out], labels[held_out]) if len(held_out) else rules


def write_rules(rules: Rules, table: str, format: str | None, out: Path | None) -> str | None:
    """Write rules in a format, by default that of the file's suffix; without a file, return them."""
    if out is not None and out.suffix == ".safetensors" and format is None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(rules, out)
        return None
    text = rendered(rules, table, format or (SUFFIXES.get(out.suffix, "text") if out else "text"))
    if out is None:
        return text
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")
    return None


def rendered(rules: Rules, table: str, format: str) -> str:
    """Format rules as text, markdown, html, sql, python or json; in SQL the table is called `table`."""
    if format == "json":
        return json.dumps(rules.to_dict(), indent=1, ensure_ascii=False)
    render = getattr(rules, f"to_{format}")
    return str(render(table) if format == "sql" else render())


def _split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split the rows into training and held-out rows, stratified by cluster."""
    rows = np.arange(len(labels))
    _, sizes = np.unique(labels, return_counts=True)
    if len(rows) < ENOUGH or sizes.min() < 2 or HELD_OUT * len(rows) < len(sizes):
        return rows, rows[:0]
    seen, held_out = train_test_split(rows, test_size=HELD_OUT, stratify=labels, random_state=0)
    return np.sort(seen), np.sort(held_out)
