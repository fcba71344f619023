"""The columns that a batch function needs and makes, and their types in Arrow.

    what           results of a table                        results of images
    "predict"      cluster, logit                            cluster, logit
    "attribute"    the same, and the relevance of features   the same, and relevance [H, W]
    "heatmaps"     -                                         the same, and heatmaps [K, H, W]
    "rules"        cluster, rule                             -

The relevance of a table has a column per feature. If the features of images are a map, cluster and logit are those
of all its locations, [h, w].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from neonxc.attribution.neon import NEON
from neonxc.common.types import Label
from neonxc.network import NeuralizedClustering
from neonxc.rules.collection import Rules

What = Literal["attribute", "heatmaps", "predict", "rules"]


class Signature(NamedTuple):
    """What a batch function takes and makes."""

    columns: list[str]
    """Names of the columns that the model needs."""
    results: list[tuple[str, pa.DataType]]
    """Names and types of the results."""
    features: list[str]
    """Names of the features whose relevance is a column."""


def table_signature(fitted: Rules | NEON, what: What) -> Signature:
    """Return the signature of a function of tables."""
    if what == "heatmaps":
        raise ValueError("heatmaps need images, the name of their column")
    columns: list[Label]
    features: list[str] = []
    if isinstance(fitted, Rules):
        columns = [column.key for column in fitted.columns]
        labels = [*fitted.clusters]
        result = ("rule", pa.string())
    else:
        columns = [*(fitted.net.feature_names_ or [])]
        labels = fitted.net.classes_.tolist()
        result = ("logit", pa.float64())
        if what == "attribute":
            features = [str(name) for name in fitted.net.inputs.units]
    names = [name for name in columns if isinstance(name, str)]
    if not names or len(names) < len(columns):
        raise ValueError("model needs names of columns, not texts: fit it to a data frame, or pass images")
    return Signature(names, [("cluster", type_of(labels)), result], features)


def image_signature(fitted: Rules | NEON, what: What, column: str) -> Signature:
    """Return the signature of a function of the images in a column."""
    if isinstance(fitted, Rules) or not fitted.net.inputs.has_heatmaps:
        raise ValueError("images needs a network with a feature network of images")
    net = fitted.net
    label_type = type_of(net.classes_.tolist())
    depth = 2 if is_map(net) else 0
    results = [("cluster", lists_of(label_type, depth)), ("logit", lists_of(pa.float64(), depth))]
    if what == "attribute":
        results.append(("relevance", lists_of(pa.float32(), 2)))
    elif what == "heatmaps":
        results.append(("heatmaps", lists_of(pa.float32(), 3)))
    return Signature([column], results, [])


def is_map(net: NeuralizedClustering) -> bool:
    """Whether the features of a network of images are a map, every location of which has a cluster."""
    return not getattr(net.features, "pool", "avg")


def type_of(labels: Sequence[Label]) -> pa.DataType:
    """Return the type of a column of labels: that of numbers or truth values, and else text."""
    if any(isinstance(label, str) for label in labels):
        return pa.string()
    return pa.array(labels).type


def lists_of(value_type: pa.DataType, depth: int) -> pa.DataType:
    """Return the type of lists that are nested `depth` times; without depth, that of the values."""
    for _ in range(depth):
        value_type = pa.list_(value_type)
    return value_type


def as_lists(values: np.ndarray) -> Any:
    """Convert an array to nested lists whose last level are arrays, which Arrow reads fast."""
    if np.ndim(values) <= 1:
        return values
    return [as_lists(row) for row in values]


def type_in_lists(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values in nested lists, or in a tensor; other types are returned as they are."""
    while hasattr(kind, "value_type"):
        kind = kind.value_type
    return kind
