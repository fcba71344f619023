"""The decorator of explainer classes, and the descriptions of parameters that several explainers share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc, signature
from json import dumps
from math import inf
from textwrap import indent
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import numpy as np

from neonxc.common.arguments import check_number, check_whole

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


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError unless all parameters are of the types by which they are annotated.

    Types are int (at least 1), float (at least 0), those with other limits, bool and choices (Literal), all of
    them also with ``| None``. Others are not checked.
    """
    for name, (kind, optional, told) in estimator._types.items():
        value = getattr(estimator, name)
        if value is None and optional:
            continue
        if kind is bool and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} needs True or False, got {value!r}")
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ValueError(f"{name} needs {' or '.join(told[1:-1].rsplit(', ', 1))}, got {value!r}")
        if kind in (int, AtLeastTwo):
            check_whole(name, value, 1 + (kind is not int), optional)
        elif kind in (float, Positive, Fraction, PositiveFraction):
            check_number(name, value, inf if kind in (float, Positive) else 1)
            if value == 0 and kind in (Positive, PositiveFraction):
                raise ValueError(f"{name} needs a number > 0, got 0")


def _read(kind: Any) -> tuple[Any, bool, str]:
    """An annotation without None, whether it may be None, and what it is called; "" if it is not checked."""
    if optional := get_args(kind)[1:] == (NoneType,):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return kind, optional, f"{{{dumps(get_args(kind))[1:-1]}}}"
    return kind, optional, CHECKED.get(kind, "")


@dataclass_transform(eq_default=False)
def explainer(**own: str) -> Callable[[Explainer], Explainer]:
    """Class decorator that turns annotated attributes and their defaults into parameters of an estimator.

    The class gets an ``__init__`` with these parameters, and its docstring a section that describes them.

    Parameters
    ----------
    **own : str
        Descriptions of parameters. The types that :func:`check_parameters` checks are taken from the annotations;
        other types are on the first line. Parameters that are left out are described, and checked, as in the base
        class, or as in :data:`DESCRIPTIONS`.
    """

    def decorate(cls: Explainer) -> Explainer:
        dataclass(eq=False, repr=False)(cls)
        names = signature(cls).parameters
        described = getattr(cls, "_described", DESCRIPTIONS) | own
        hints = get_type_hints(cls, include_extras=True)
        inherited = {name: kind for name, kind in getattr(cls, "_types", {}).items() if name not in own}
        types = inherited | {name: kind for name in names if (kind := _read(hints[name]))[2]}
        cls._described = described  # type: ignore[attr-defined]
        cls._types = types  # type: ignore[attr-defined]
        texts = {name: cleandoc(described[name]) for name in names}
        for name, (_, optional, told) in types.items():
            none = ", optional" if names[name].default is None else " or None"
            texts[name] = f"{told}{none * optional}\n{texts[name]}"
        first, *sections = re.split(r"\n(?=\w+\n-{3,}\n)", cleandoc(cls.__doc__ or ""))
        entries = [f"{name} : {indent(text, '    ').lstrip()}\n" for name, text in texts.items()]
        parameters = "Parameters\n----------\n" + "".join(entries)
        cls.__doc__ = "\n".join([first.rstrip() + "\n", parameters, *sections])
        return cls

    return decorate
