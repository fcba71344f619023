"""The decorator of explainer classes, and the descriptions of parameters that several explainers share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc, signature
from math import inf
from textwrap import indent
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_type_hints

import numpy as np

from neonxc.common.arguments import check_number, check_whole

Explainer = TypeVar("Explainer", bound=type)
LeafLabels = Literal["surrogate", "majority", "own"]
Metric = Literal["l2", "l1"]
Fraction = Annotated[float, "in [0, 1]"]
PositiveFraction = Annotated[float, "in (0, 1]"]
Positive = Annotated[float, "> 0"]
AtLeastTwo = Annotated[int, ">= 2"]
LIMITS = {">= 2": 2, "in [0, 1]": 1, "in (0, 1]": 1}  # of whole numbers the least, of others the greatest

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
    for name, value in estimator.get_params(deep=False).items():
        plain, optional, limits = _parts(estimator._types[name])
        if value is None and optional:
            continue
        choices = get_args(plain)
        if plain is bool and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} needs True or False, got {value!r}")
        if plain is int:
            check_whole(name, value, LIMITS.get(limits, 1), optional)
        elif plain is float:
            check_number(name, value, LIMITS.get(limits, inf))
            if value == 0 and limits in ("> 0", "in (0, 1]"):
                raise ValueError(f"{name} needs a number > 0, got 0")
        elif choices and value not in choices:
            *first, last = map(_quoted, choices)
            raise ValueError(f"{name} needs {', '.join(first)} or {last}, got {value!r}")


def _parts(kind: Any) -> tuple[Any, bool, str]:
    """A type without None and limits, whether it may be None, and its limits."""
    optional = NoneType in get_args(kind)
    kind = get_args(kind)[0] if optional else kind
    limits = "".join(getattr(kind, "__metadata__", ()))
    return get_args(kind)[0] if limits else kind, optional, limits


def _quoted(choice: str) -> str:
    return f'"{choice}"'


def _first_line(kind: Any, default: Any) -> str:
    """A type as the first line of a description tells it; empty for types that are not checked."""
    plain, optional, limits = _parts(kind)
    if plain in (int, float, bool):
        told = f"{plain.__name__} {limits}".rstrip()
    elif get_args(plain):
        told = f"{{{', '.join(map(_quoted, get_args(plain)))}}}"
    else:
        return ""
    return told + optional * (", optional" if default is None else " or None") + "\n"


@dataclass_transform(eq_default=False)
def explainer(**own: str) -> Callable[[Explainer], Explainer]:
    """Class decorator that turns annotated attributes and their defaults into parameters of an estimator.

    The class gets an ``__init__`` with these parameters, and its docstring a section that describes them.

    Parameters
    ----------
    **own : str
        Descriptions of parameters. Their first lines are the types of those that :func:`check_parameters` does not
        check. Other parameters are described as in the base class, or as in :data:`DESCRIPTIONS`.
    """

    def decorate(cls: Explainer) -> Explainer:
        dataclass(eq=False, repr=False)(cls)
        names = signature(cls).parameters
        described = getattr(cls, "_described", DESCRIPTIONS) | own
        types = get_type_hints(cls, include_extras=True)
        cls._described, cls._types = described, types  # type: ignore[attr-defined]
        texts = {
            name: _first_line(types[name], one.default) + cleandoc(described[name]) for name, one in names.items()
        }
        first, *sections = re.split(r"\n(?=\w+\n-{3,}\n)", cleandoc(cls.__doc__ or ""))
        entries = [f"{name} : {indent(text, '    ').lstrip()}\n" for name, text in texts.items()]
        parameters = "Parameters\n----------\n" + "".join(entries)
        cls.__doc__ = "\n".join([first.rstrip() + "\n", parameters, *sections])
        return cls

    return decorate
