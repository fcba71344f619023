"""A report in all the forms in which it can be had."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from neonxc.files import staged_file
from neonxc.numerals import percent
from neonxc.report.contents import Contents

if TYPE_CHECKING:
    from neonxc.network import NeuralizedClustering


@dataclass(frozen=True, repr=False)
class Report:
    """What :func:`neonxc.explain` makes: an explanation of a whole clustering.

    ``print`` gives a summary, a notebook shows the page.

    Attributes
    ----------
    contents : Contents
        All that the page says, as plain values.
    net : NeuralizedClustering
        The network of the clustering.
    tree : tree explainer or None
        The fitted tree; None where the columns can't be cut.
    """

    contents: Contents
    net: NeuralizedClustering
    tree: Any = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page as one self-contained HTML file, or the values as JSON if `path` ends so.

        Parameters
        ----------
        path : path-like
            Ends in ``.html`` or ``.json``.

        Raises
        ------
        ValueError
            Another ending.
        """
        path = Path(path)
        if path.suffix not in (".html", ".json"):
            raise ValueError(f"path needs to end in .html or .json, got {str(path)!r}")
        text = self.html() if path.suffix == ".html" else json.dumps(self.to_dict(), ensure_ascii=False)
        with staged_file(path) as partial:
            partial.write_text(text, encoding="utf-8")

    def html(self) -> str:
        """The page."""
        from neonxc.report.page import render

        return render(self.contents)

    def _repr_html_(self) -> str:
        from neonxc.report.page import embedded

        return embedded(self.contents)

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON."""
        return self.contents.to_dict()

    def to_frame(self) -> pd.DataFrame:
        """A row per cluster: size, name, rule and how good it is, the columns that say most."""
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
                    "speaks for it": ", ".join(one.text for one in card.statements if one.relevance > 0),
                    "prototypes": [item.row for item in card.prototypes],
                }
            )
        return pd.DataFrame(rows).set_index("cluster")

    def __str__(self) -> str:
        found = self.contents
        lines = [found.title, found.verdict, ""]
        lines += [f"{figure.label}: {figure.text}" for figure in found.figures]
        for warning in found.warnings:
            about = ", ".join(found.cards[k].label for k in warning.clusters)
            lines.append(f"! {warning.text}" + (f" [{about}]" if about else ""))
        for card in found.cards:
            lines += ["", f"cluster {card.label}: {card.name} ({card.size}, {percent(card.share)})"]
            lines += [
                f"    {rule.text} (coverage {percent(rule.coverage)}, precision {percent(rule.precision)})"
                for rule in card.rules[:2]
            ]
            signed = [f"{one.text} {one.relevance:+.0%}" for one in card.statements[:5]]
            lines.append("    " + ", ".join(signed))
        return "\n".join(lines)

    __repr__ = __str__
