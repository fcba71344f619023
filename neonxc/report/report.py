"""The report returned by :func:`neonxc.explain`, and its export as HTML, JSON, table and text."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from neonxc.common.atomic import staged_file
from neonxc.common.locales import Marks, printed_like
from neonxc.common.numbers import percent, text
from neonxc.common.result import Result
from neonxc.report.contents import Contents

if TYPE_CHECKING:
    from neonxc.network import NeuralizedClustering


@dataclass(frozen=True, repr=False)
class Report(Result):
    """Explanation of a whole clustering, as returned by :func:`neonxc.explain`.

    ``print`` gives a summary; a notebook displays the page.

    Attributes
    ----------
    contents : Contents
        Everything on the page, as plain values.
    net : NeuralizedClustering
        Neural network equivalent to the clustering, or to the surrogate model of given labels.
    tree : tree explainer or None
        The fitted tree.
    marks : Marks or None
        The marks with which numbers are printed; None for decimal points.
    """

    contents: Contents
    net: NeuralizedClustering
    tree: Any = None
    marks: Marks | None = None

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

        return render(self.contents)

    def _repr_html_(self) -> str:
        from neonxc.report.page import embedded  # as above

        return embedded(self.contents)

    def to_dict(self) -> dict[str, Any]:
        """Return everything on the page as a dictionary that JSON can store."""
        return self.contents.to_dict()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster, and one of noise (-1): name, size, best rule, statements, prototypes."""
        rows = []
        for card in self.contents.cards:
            rule = card.rules[0] if card.rules else None
            rows.append(
                {
                    "cluster": card.label,
                    "name": card.name,
                    "size": card.size,
                    "share": card.share,
                    "rule": None if rule is None else rule.text,
                    "coverage": None if rule is None else rule.coverage,
                    "precision": None if rule is None else rule.precision,
                    "fidelity": card.fidelity,
                    "agreement": card.agreement,
                    "speaks for it": ", ".join(
                        statement.text for statement in card.statements if statement.relevance > 0
                    ),
                    "prototypes": [item.row for item in card.prototypes],
                }
            )
        return pd.DataFrame(rows).set_index("cluster")

    def __str__(self) -> str:
        with printed_like(self.marks):
            return self._text()

    def _text(self) -> str:
        """Write the title, the verdict, and every cluster with its rules and statements."""
        contents = self.contents
        lines = [contents.title, contents.verdict, ""]
        lines += [f"{figure.label}: {figure.text}" for figure in contents.figures]
        for warning in contents.warnings:
            labels = ", ".join(contents.cards[cluster].label for cluster in warning.clusters)
            lines.append(f"! {warning.text}" + (f" [{labels}]" if labels else ""))
        for card in contents.cards:
            name = "noise" if card.rivals else f"cluster {card.label}: {card.name}"
            lines += ["", f"{name} ({text(card.size)}, {percent(card.share)})"]
            if card.rivals:
                near = ", ".join(f"{contents.cards[k].label} ({text(number)})" for k, number in card.rivals)
                lines.append(f"    points by nearest cluster: {near}")
            if contents.kind in ("images", "locations"):  # whose channels have no meaning to readers
                lines.append("    " + ", ".join(item.name for item in card.prototypes))
                continue
            lines += [
                f"    {rule.text} (coverage {percent(rule.coverage)}, precision {percent(rule.precision)}"
                + (")" if rule.with_noise is None else f", with noise {percent(rule.with_noise)})")
                for rule in card.rules[:2]
            ]
            signed = [
                f"{statement.text} {percent(statement.relevance, signed=True)}"
                for statement in card.statements[:5]
            ]
            lines.append("    " + ", ".join(signed))
        return "\n".join(lines)
