"""The decorator of explainer classes, and the descriptions of parameters that several explainers share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc, signature
from math import inf
from textwrap import indent
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from neonxc.common.arguments import check_number, check_whole

Explainer = TypeVar("Explainer", bound=type)

DESCRIPTIONS = {
    "n_clusters": """int
Number of clusters of a `reference` that is given by name. It is ignored if an estimator, labels or centers
determine the number of clusters.""",
    "reference": """{"kmeans", "spectral", "kernel_kmeans"} or estimator
The clustering to explain, unless labels or centers are passed to `fit`. With a pipeline, costs are measured in the
space of its last step, while the rules are in the units of X.""",
    "max_leaves": """int, optional
Maximum number of leaves, at least the number of clusters. Beyond one leaf per cluster, the tree is expanded by the
rule of ExKMC, and several leaves may have the same cluster. Default: one leaf per cluster.""",
    "leaf_labels": """{"surrogate", "majority", "own"}
How leaves get their cluster if there are more leaves than clusters: "surrogate" chooses the cluster at whose
reference center the cost of the leaf's points is lowest, "majority" the most frequent one, and "own" makes every
leaf a cluster of its own.""",
    "metric": """{"l2", "l1"}
"l2" for k-means, "l1" for k-medians.""",
    "refine": """bool
Whether to lower the tree's own k-means cost after it has grown; see
:func:`neonxc.trees.explainers.refine.refined`.""",
    "max_bins": """int >= 2, optional
Columns with more distinct values than this are divided into at most `max_bins` bins of about equally many points.
The bins are computed from a sample of at most 65,536 distinct rows. Default: all distinct values are used, or 256
bins if `X` is read batch by batch.""",
    "random_state": """int, RandomState or None
Seed of the reference clustering, if it is fitted here.""",
}


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError unless all parameters are of the types on the first lines of their descriptions.

    Types are "int", "int >= 2", "float", "float > 0", "float in [0, 1]", "float in (0, 1]", "bool" or a choice as
    '{"l2", "l1"}', and may be followed by ", optional" or " or None". Other types are not checked.
    """
    for name, value in estimator.get_params(deep=False).items():
        kind = estimator._described[name].lstrip().partition("\n")[0]
        plain = re.sub(", optional$| or None$", "", kind)
        if value is None and plain != kind:
            continue
        if plain == "bool" and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} needs True or False, got {value!r}")
        if re.fullmatch(r"int( >= \d+)?", plain):
            check_whole(name, value, int(plain.rpartition(" ")[2]) if " " in plain else 1, optional=plain != kind)
        elif re.fullmatch(r"float( > 0| in [\[(]0, 1\])?", plain):
            check_number(name, value, 1 if "1]" in plain else inf)
            if value == 0 and ("> 0" in plain or "(0" in plain):
                raise ValueError(f"{name} needs a number > 0, got 0")
        elif re.fullmatch(r"\{.*\}", plain) and value not in re.findall('"(.*?)"', plain):
            *first, last = re.findall('".*?"', plain)
            raise ValueError(f"{name} needs {', '.join(first)} or {last}, got {value!r}")


@dataclass_transform(eq_default=False)
def explainer(**own: str) -> Callable[[Explainer], Explainer]:
    """Class decorator that turns annotated attributes and their defaults into parameters of an estimator.

    The class gets an ``__init__`` with these parameters, and its docstring a section that describes them.

    Parameters
    ----------
    **own : str
        Descriptions of parameters: the type on the first line, then the text. Other parameters are described as in
        the base class, or as in :data:`DESCRIPTIONS`.
    """

    def decorate(cls: Explainer) -> Explainer:
        dataclass(eq=False, repr=False)(cls)
        names = signature(cls).parameters
        described = getattr(cls, "_described", DESCRIPTIONS) | own
        cls._described = described  # type: ignore[attr-defined]
        texts = {name: cleandoc(described[name]) for name in names}
        first, *sections = re.split(r"\n(?=\w+\n-{3,}\n)", cleandoc(cls.__doc__ or ""))
        entries = [f"{name} : {indent(text, '    ').lstrip()}\n" for name, text in texts.items()]
        parameters = "Parameters\n----------\n" + "".join(entries)
        cls.__doc__ = "\n".join([first.rstrip() + "\n", parameters, *sections])
        return cls

    return decorate
