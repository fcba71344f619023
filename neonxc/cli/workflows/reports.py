"""Reports of tables, photos and texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from torch import Tensor

from neonxc.cli.photo_files import photo_files
from neonxc.cli.workflows.photos import fitted
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
    folder: Path, clusters: int, features: FeatureExtractor, size: int, whole: bool, fast: bool = False
) -> Report:
    """Cluster the photos of a folder, or their locations, and make a report on the clusters.

    Raises
    ------
    ValueError
        If there are no photos, or fewer photos than clusters.
    """
    from neonxc.models import load_image

    files = photo_files([folder])
    if whole and len(files) < clusters:
        raise ValueError(f"{clusters} clusters need at least as many photos, {folder} has {len(files)}")
    photos = [fitted(_square(load_image(path, size)), features) for path in files]
    x = features.preprocess(torch.stack(photos)).to(next(features.parameters()).device)
    points = features.points(x).cpu().numpy()
    model = kmeans(points, clusters, "photos" if whole else "locations")
    title = (
        f"{clusters} clusters of {len(files)} photos"
        if whole
        else f"{clusters} kinds of places in {len(files)} photo{'s' if len(files) > 1 else ''}"
    )
    return explain(
        model, x, features, row_names=[path.stem for path in files], title=title, fast=fast, progress=True
    )


def photo_of(name: str, photo: Tensor, clusters: int, features: FeatureExtractor) -> Report:
    """Cluster the locations of one photo and make a report on the clusters."""
    x = features.preprocess(photo[None])
    model = kmeans(features.points(x).cpu().numpy(), clusters, f"locations of {name}")
    return explain(model, x, features, row_names=[name], title=f"{clusters} kinds of places in {name}")


def text_report(file: Path, clusters: int, fast: bool = False) -> Report:
    """Cluster texts, one per line, by the TF-IDF of their terms, and make a report on the clusters.

    Raises
    ------
    ValueError
        If there are fewer texts than clusters, or the file is not a text file.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} can't be read as text: {error}") from None
    texts = [line.strip() for line in lines if line.strip()]
    if len(texts) < clusters:
        raise ValueError(f"{clusters} clusters need at least as many lines of text, {file} has {len(texts)}")
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


def _square(photo: Tensor) -> Tensor:
    """Crop the central square of a photo [3, H, W], so that photos of all shapes form a batch."""
    height, width = photo.shape[1:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return photo[:, top : top + side, left : left + side]
