"""The function :func:`neonxc.explain` and its report, which is exported as HTML, JSON, table and text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pandas as pd

from neonxc.common.atomic import staged_file
from neonxc.common.result import Result
from neonxc.report.describe import describe
from neonxc.report.description import Description

if TYPE_CHECKING:
    from neonxc.network import NeuralizedClustering
    from neonxc.trees.estimator import TreeExplainer

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
# of docstrings; notes stay with errors
_SECTIONS = re.compile(r"(?=\n *(?:Parameters|Returns|Raises|Examples)\n *-)")


@dataclass(frozen=True, repr=False)
class Report(Result):
    """Explanation of a whole clustering, as returned by :func:`neonxc.explain`.

    ``print`` gives a summary; a notebook displays the page.

    Attributes
    ----------
    description : Description
        Everything on the page, as plain values.
    """

    description: Description

    @property
    def net(self) -> NeuralizedClustering:
        """Neural network equivalent to the clustering, or to the surrogate model of given labels."""
        assert self.description.net is not None
        return self.description.net

    @property
    def tree(self) -> TreeExplainer:
        """The fitted tree explainer."""
        assert self.description.explainer is not None
        return self.description.explainer

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the page as one self-contained HTML file, or its contents as JSON.

        Parameters
        ----------
        path : path-like
            Path of the file, which ends in ``.html`` or ``.json``.

        Raises
        ------
        ValueError
            If the path ends otherwise.
        """
        path = Path(path)
        if path.suffix not in (".html", ".json"):
            raise ValueError(f"path must end in .html or .json, got {str(path)!r}")
        text = self.html() if path.suffix == ".html" else json.dumps(self.to_dict(), ensure_ascii=False)
        with staged_file(path) as partial:
            partial.write_text(text, encoding="utf-8")

    def html(self) -> str:
        """Return the page as HTML source."""
        from neonxc.report.page import render  # loads the templates

        return render(self.description)

    def _repr_html_(self) -> str:
        from neonxc.report.page import embedded  # as above

        return embedded(self.description)

    def to_dict(self) -> dict[str, Any]:
        """Return everything on the page as a dictionary that JSON can store."""
        return self.description.to_dict()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster, and one of noise (-1): name, size, best rule, statements, prototypes."""
        return self.description.to_frame()

    def __str__(self) -> str:
        return str(self.description)


def with_parameters_of(
    function: Callable[Parameters, Any],
) -> Callable[[Callable[..., Returned]], Callable[Parameters, Returned]]:
    """Decorate a function that passes on all its arguments to `function`, which names and documents them.

    The signature and the docstring get the parameters of `function`, and the docstring its errors and notes.
    """

    def decorated(passing: Callable[..., Returned]) -> Callable[Parameters, Returned]:
        parameters = signature(function)

        @wraps(passing)
        def checked(*args: Parameters.args, **options: Parameters.kwargs) -> Returned:
            try:
                parameters.bind(*args, **options)
            except TypeError as error:
                raise TypeError(f"{passing.__name__}() {error}") from None
            return passing(*args, **options)

        returned = signature(passing).return_annotation
        checked.__signature__ = parameters.replace(return_annotation=returned)  # type: ignore[attr-defined]
        if passing.__doc__ and function.__doc__:  # not with python -OO
            _, documented, _, errors_and_notes, _ = _SECTIONS.split(function.__doc__)
            summary, returns, examples = _SECTIONS.split(passing.__doc__)
            checked.__doc__ = "".join([summary, documented, returns, errors_and_notes, examples])
        return checked

    return decorated


@with_parameters_of(describe)
def explain(*args: Any, **options: Any) -> Report:
    """Explain a whole clustering in one report: clusters, relevant columns, rules and checks of their quality.

    The report combines two kinds of explanation and checks them against each other: the relevance of the columns,
    computed from the clustering written as a neural network, and a threshold tree. It is a page that draws what
    :func:`neonxc.describe` finds out.

    Returns
    -------
    Report
        Report with the methods ``save``, ``to_frame`` and ``to_dict``. A notebook displays the page; ``print``
        gives a summary.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> report = neonxc.explain(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> report.to_frame().loc["1", "rule"]
    'petal length (cm) ≤ 2'
    """
    return Report(describe(*args, **options))
