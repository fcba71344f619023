"""Reports of tables, photos and texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from neonxc.cli.workflows.photos import Named, names_of
from neonxc.data.preparation import Preparation
from neonxc.report.clusters import Clusters, kmeans
from neonxc.report.explain import explain
from neonxc.report.report import Report

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


def text_report(file: Path, clusters: int, fast: bool = False) -> Report:
    """Cluster texts, one per line, by the TF-IDF of their terms, and make a report on the clusters.

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
    least = 2 if len(texts) >= 50 else 1
    vectorizer = TfidfVectorizer(
        max_df=0.5, min_df=least, max_features=TERMS, stop_words="english", sublinear_tf=True
    )
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise ValueError(f"{file} has no terms besides English stop words: {error}") from None
    model = make_pipeline(vectorizer, kmeans(counts, clusters, "texts"))
    title = f"{clusters} clusters of {len(texts)} texts of {file.name}"
    return explain(model, texts, title=title, fast=fast, progress=True)
