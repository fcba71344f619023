"""The report returned by :func:`neonxc.explain`, and its export as HTML, JSON, table and text."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from neonxc.common.atomic import staged_file
from neonxc.common.result import Result
from neonxc.report.description import Description

if TYPE_CHECKING:
    from neonxc.network import NeuralizedClustering
    from neonxc.trees.estimator import TreeExplainer


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
