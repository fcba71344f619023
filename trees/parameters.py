"""Parameters of tree explainers: named, typed and described once, whichever explainers have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc, signature
from textwrap import indent
from typing import TypeVar

from typing_extensions import dataclass_transform

Explainer = TypeVar("Explainer", bound=type)

DESCRIPTIONS = {
    "n_clusters": """int
For a `reference` by name; ignored where an estimator, labels or centers say how many clusters there are.""",
    "reference": """{"kmeans", "spectral", "kernel_kmeans"} or estimator
The clustering that is explained, unless `fit` gets labels or centers. With a pipeline, costs are measured in the
space of its last step, and rules are in raw units.""",
    "max_leaves": """int, optional
More leaves than clusters: the tree grows on by ExKMC's rule, and leaves share clusters. Default: one per
cluster.""",
    "leaf_labels": """{"surrogate", "majority", "own"}
The cluster of a leaf where leaves share clusters: the one whose reference center costs its points least, the most
frequent one, or the leaf itself.""",
    "metric": """{"l2", "l1"}
k-means or k-medians.""",
    "refine": """bool
Lower the tree's own k-means cost after it has grown; see :func:`neonxc.trees.refine.refined`.""",
    "n_init": """int
Starts, of which the tree of least cost is kept. The first one is the explainer's own; further ones have the
criteria of other explainers (`criterion_` says which) and, if the reference is "kmeans", other seeds.""",
    "max_bins": """int, optional
Columns of more distinct values than this are put into so many bins of about equally many points, whose ends are
told by a sketch, a sample of at most 65,536 distinct rows; columns of fewer values are exact. Default: every value
counts; 256 for an `X` that is read batch by batch.""",
    "random_state": """int, RandomState or None
Seed of the reference clustering, if it is fitted here.""",
}


@dataclass_transform(eq_default=False)
def explainer(**own: str) -> Callable[[Explainer], Explainer]:
    """Make a class an estimator whose annotated attributes, with their defaults, are its parameters.

    Its ``__init__`` has them in its signature, and its docstring describes all of them: by `own`, a text for a
    name, else as the class that it inherits from does, else by :data:`DESCRIPTIONS`.
    """

    def decorate(cls: Explainer) -> Explainer:
        dataclass(eq=False, repr=False)(cls)
        names = signature(cls).parameters
        described = getattr(cls, "_described", DESCRIPTIONS) | own
        cls._described = described  # type: ignore[attr-defined]
        texts = {name: cleandoc(described[name]) for name in names}
        first, *sections = re.split(r"\n(?=\w+\n-{3,}\n)", cleandoc(cls.__doc__ or ""))
        entries = [f"{name} : {text.partition(chr(10))[0]}\n{_body(text)}" for name, text in texts.items()]
        parameters = "Parameters\n----------\n" + "\n".join(entries) + "\n"
        cls.__doc__ = "\n".join([first.rstrip() + "\n", parameters, *sections])
        return cls

    return decorate


def _body(text: str) -> str:
    return indent(text.partition("\n")[2], "    ")
