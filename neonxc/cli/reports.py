"""Reports of the commands: on tables, cells, photos and texts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from sklearn.pipeline import make_pipeline

from neonxc.common.numbers import plural
from neonxc.data.frames import read_texts
from neonxc.data.labels import written_labels
from neonxc.report.clusters import Clusters, kmeans
from neonxc.report.report import Report, explain

if TYPE_CHECKING:
    from pandas import DataFrame

    from neonxc.cli.photos import Named
    from neonxc.data.preparation import Preparation
    from neonxc.models import FeatureExtractor

TERMS = 5000
"""Terms of texts at most, the most frequent ones."""
ENOUGH = 50
"""Texts from which on terms of a single text are left out."""


def table_report(
    prepared: Preparation, clusters: Clusters, fast: bool = False, layer_columns: DataFrame | None = None
) -> Report:
    """Make a report on the clusters of a table, and on the splits of layers whose labels are in some columns."""
    notes = [*prepared.notes, *clusters.notes]
    splits = None
    if layer_columns is not None:
        from neonxc.hierarchy.layered import layers  # most reports do without

        splits = layers(layer_columns.apply(written_labels), prepared.frame)
    return explain(
        clusters.model,
        prepared.frame,
        title=clusters.what,
        notes=notes,
        fast=fast,
        layers=splits,
        sample_weight=clusters.weight,
    )


def cells_report(file: Path, labels: str, fast: bool = False) -> Report:
    """Make a report on groups of cells, which a column of the observations of an AnnData names."""
    return explain(file, labels, fast=fast)


def photo_report(
    photos: Named, clusters: int, features: FeatureExtractor, is_whole: bool = False, fast: bool = False
) -> Report:
    """Cluster photos of the same shape, or their locations, and make a report on the clusters."""
    import torch

    from neonxc.cli.photos import names_of, preprocessed

    names = names_of(photos)
    x = torch.cat([preprocessed(photos[row][1], features) for row in range(len(photos))])
    source = names[0] if len(names) == 1 else plural(len(names), "photo")
    if is_whole:
        clustered = "photos"
        title = f"{clusters} clusters of {source}"
    else:
        clustered = "locations"
        title = f"{clusters} kinds of places in {source}"
    model = kmeans(features.points(x).cpu().numpy(), clusters, clustered)
    return explain(model, x, features, row_names=names, title=title, fast=fast)


def text_report(file: Path, clusters: int, encoder: str | None = None, fast: bool = False) -> Report:
    """Cluster texts, one per line, by their embeddings or the TF-IDF of their terms, and make a report.

    Raises
    ------
    ValueError
        If there are fewer different texts than clusters, or the file is not a text file.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [normalize("NFC", text) for text in read_texts(file)]
    title = f"{clusters} clusters of {plural(len(texts), 'text')} of {file.name}"
    if encoder is not None:
        from neonxc.models import SentenceEncoder  # depends on this package

        features = SentenceEncoder.from_pretrained(encoder)
        model = kmeans(features.points(texts).cpu().numpy(), clusters, "texts")
        with warnings.catch_warnings():
            # of parts of the texts; the warning about all of them was given by `features.points`
            warnings.filterwarnings("ignore", ".* cut off there")
            return explain(model, texts, features, title=title, fast=fast)
    min_texts = 2 if len(texts) >= ENOUGH else 1
    words: dict[str, Any] = {}
    if not all(map(str.isascii, texts)):
        from neonxc.data.words import counted_words  # which tables do without

        # the vectorizer's pattern splits words at marks, and takes sentences without blanks for one word
        words = {"tokenizer": counted_words, "token_pattern": None}
    vectorizer = TfidfVectorizer(
        max_df=0.5, min_df=min_texts, max_features=TERMS, stop_words="english", sublinear_tf=True, **words
    )
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise ValueError(f"{file} has no terms besides English stop words: {error}") from None
    pipeline = make_pipeline(vectorizer, kmeans(counts, clusters, "texts"))
    return explain(pipeline, texts, title=title, fast=fast)
