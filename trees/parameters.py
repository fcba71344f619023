"""The decorator of explainer classes, and the descriptions of parameters that several explainers share.

The annotation of a parameter says what `fit` accepts, and what its description begins with:

=====================================  =====================================================
annotation                             accepted
=====================================  =====================================================
``bool``                               True and False
``int``, ``AtLeastTwo``                whole numbers from 1 or 2 on
``float``, ``Positive``                numbers >= 0, or > 0
``Fraction``, ``PositiveFraction``     numbers from 0 to 1, or > 0
``Literal[...]``                       one of the choices
any of them with ``| None``            also None
others                                 anything; the description begins with the type
=====================================  =====================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc, signature
from json import dumps
from math import inf
from textwrap import indent
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from neonxc.common.arguments import check_number, check_whole

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer

Explainer = TypeVar("Explainer", bound=type)
LeafLabels = Literal["surrogate", "majority", "own"]
Metric = Literal["l2", "l1"]
Fraction = Annotated[float, "in [0, 1]"]
PositiveFraction = Annotated[float, "in (0, 1]"]
Positive = Annotated[float, "> 0"]
AtLeastTwo = Annotated[int, ">= 2"]
CHECKED = {
    bool: "bool",
    int: "int",
    AtLeastTwo: "int >= 2",
    float: "float",
    Positive: "float > 0",
    Fraction: "float in [0, 1]",
    PositiveFraction: "float in (0, 1]",
}

DESCRIPTIONS = {
    "n_clusters": """
Number of clusters of a `reference` that is given by name. It is ignored if an estimator, labels or centers
determine the number of clusters.""",
    "reference": """{"kmeans", "spectral", "kernel_kmeans"} or estimator
The clustering to explain, unless labels or centers are passed to `fit`. With a pipeline, costs are measured in the
space of its last step, while the rules are in the units of X.""",
    "max_leaves": """
Maximum number of leaves, at least the number of clusters. Beyond one leaf per cluster, the tree is expanded by the
rule of ExKMC, and several leaves may have the same cluster. Default: one leaf per cluster.""",
    "leaf_labels": """
How leaves get their cluster if there are more leaves than clusters: "surrogate" chooses the cluster at whose
reference center the cost of the leaf's points is lowest, "majority" the most frequent one, and "own" makes every
leaf a cluster of its own.""",
    "metric": """"l2" for k-means, "l1" for k-medians.""",
    "refine": """Whether to lower the tree's own k-means cost after it has grown; see
:func:`neonxc.trees.explainers.refine.refined`.""",
    "max_bins": """
Columns with more distinct values than this are divided into at most `max_bins` bins of about equally many points.
The bins are computed from a sample of at most 65,536 distinct rows. Default: all distinct values are used, or 256
bins if `X` is read batch by batch.""",
    "random_state": """int, RandomState or None
Seed of the reference clustering, if it is fitted here.""",
}


class Annotation(NamedTuple):
    """What an annotation says of a parameter."""

    kind: Any  # the annotation without None
    is_optional: bool  # whether None is accepted
    text: str  # what the kind is called; "" if it is not checked


def check_parameters(explainer: TreeExplainer) -> None:
    """Raise a ValueError unless all parameters are what their annotations accept."""
    annotations: dict[str, Annotation] = explainer._types
    for name, annotation in annotations.items():
        value = getattr(explainer, name)
        if value is None and annotation.is_optional:
            continue
        _check(name, value, annotation)


def _check(name: str, value: object, annotation: Annotation) -> None:
    """Raise a ValueError unless a value that is not an accepted None is of the kind of its annotation."""
    kind = annotation.kind
    if kind is bool:
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} needs True or False, got {value!r}")
    elif get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = annotation.text[1:-1].rsplit(", ", 1)
            raise ValueError(f"{name} needs {' or '.join(choices)}, got {value!r}")
    elif kind in (int, AtLeastTwo):
        lowest = 1 if kind is int else 2
        check_whole(name, value, lowest, annotation.is_optional)
    else:
        highest = inf if kind in (float, Positive) else 1
        check_number(name, value, highest)
        if value == 0 and kind in (Positive, PositiveFraction):
            raise ValueError(f"{name} needs a number > 0, got 0")


def _read(annotation: Any) -> Annotation:
    """Read the annotation of a parameter."""
    kind = annotation
    is_optional = get_args(annotation)[1:] == (NoneType,)
    if is_optional:
        kind = get_args(annotation)[0]
    if get_origin(kind) is Literal:
        choices = dumps(get_args(kind))[1:-1]
        return Annotation(kind, is_optional, f"{{{choices}}}")
    return Annotation(kind, is_optional, CHECKED.get(kind, ""))


@dataclass_transform(eq_default=False)
def explainer(**descriptions: str) -> Callable[[Explainer], Explainer]:
    """Class decorator that turns annotated attributes and their defaults into parameters of an estimator.

    The class gets an ``__init__`` with these parameters, and its docstring a section that describes them.

    Parameters
    ----------
    **descriptions : str
        Descriptions of parameters. The types that :func:`check_parameters` checks are taken from the annotations;
        other types are on the first line. Parameters that are left out are described, and checked, as in the base
        class, or as in :data:`DESCRIPTIONS`.
    """

    def decorate(cls: Explainer) -> Explainer:
        dataclass(eq=False, repr=False)(cls)
        parameters = signature(cls).parameters
        hints = get_type_hints(cls, include_extras=True)
        inherited = getattr(cls, "_types", {})
        types = {name: annotation for name, annotation in inherited.items() if name not in descriptions}
        for name in parameters:
            annotation = _read(hints[name])
            if annotation.text:
                types[name] = annotation
        described = getattr(cls, "_described", DESCRIPTIONS) | descriptions
        cls._types = types  # type: ignore[attr-defined]
        cls._described = described  # type: ignore[attr-defined]

        entries = []
        for name, parameter in parameters.items():
            lines = cleandoc(described[name])
            if name in types:
                lines = f"{_type_text(types[name], parameter.default)}\n{lines}"
            entries.append(f"{name} : {indent(lines, '    ').lstrip()}\n")
        cls.__doc__ = _with_parameters(cls.__doc__ or "", entries)
        return cls

    return decorate


def _type_text(annotation: Annotation, default: object) -> str:
    """Return the first line of a description, as numpydoc has it."""
    if not annotation.is_optional:
        return annotation.text
    return annotation.text + (", optional" if default is None else " or None")


def _with_parameters(docstring: str, entries: list[str]) -> str:
    """Put a section with the parameters after the first part of a docstring, before its other sections."""
    first, *sections = re.split(r"\n(?=\w+\n-{3,}\n)", cleandoc(docstring))
    parameters = "Parameters\n----------\n" + "".join(entries)
    return "\n".join([first.rstrip() + "\n", parameters, *sections])
