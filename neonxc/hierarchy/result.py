"""Results of :func:`neonxc.layers`: the splits of a hierarchy, and what explains each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neonxc.attribution.contrasts import Contrast
from neonxc.common.numbers import in_words, percent, plural
from neonxc.common.result import Result
from neonxc.evaluation.separated import Separation
from neonxc.hierarchy.verdicts import NOT_JUDGED, PARTLY, SEPARATED, SLICES, TOO_FEW
from neonxc.naming.cluster_names import ClusterNames
from neonxc.rules.collection import Rules

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IN_WORDS = {
    SEPARATED: "which are separated",
    PARTLY: "of which some are separated, and others are slices of one cloud",
    SLICES: "which are slices of one cloud",
    TOO_FEW: "with too few rows to tell whether they are separated",
    NOT_JUDGED: "of which it is not known whether they are separated",
}
"""Verdicts in a sentence."""
N_COLUMNS = 3
"""Number of columns of the contrast that are named."""


@dataclass(frozen=True, repr=False)
class Split(Result):
    """A cluster that falls into several parts, and what tells these apart.

    Attributes
    ----------
    parent : str
        Name of the cluster: labels from the coarsest layer on, as in ``"3/7"``; ``"all"`` is the root.
    children : list of str
        Names of the parts.
    rows : ndarray [n] of int
        Positions of the rows of the parent in X, sorted.
    codes : ndarray [n] of int
        Position of the part of each of these rows in `children`; -1 for rows that are in none.
    elsewhere : dict of str to int
        Where the rows are that are in none of the parts, and their numbers: other clusters, or noise.
    verdict : str
        "separated", "partly separated", "slices" (of one cloud), "too few rows" or "not judged".
    separation : Separation
        The verdicts about all neighbouring pairs of parts.
    contrast : Contrast or None
        What tells the two largest parts apart; None if they have too few rows.
    fidelity : float or None
        Fraction of held-out rows for which the surrogate decides as the clustering does, 0 to 1, if the contrast
        is of one; None if it is exact.
    rules : Rules or None
        Rules of the parts, with counts of the rows on which they were found, and of those held out. A row is in
        the part of the first rule that it meets. None if there are less than two parts of four rows.
    accuracy : float
        Fraction of the held-out rows that the rules tell rightly, 0 to 1.
    base : float
        Fraction of the held-out rows that are in the largest part, with which the accuracy is to be compared.
    named : ClusterNames
        Names of the parts, and the result of their blind test among each other.
    """

    parent: str
    children: list[str]
    rows: np.ndarray
    codes: np.ndarray
    elsewhere: dict[str, int]
    verdict: str
    separation: Separation
    contrast: Contrast | None
    fidelity: float | None
    rules: Rules | None
    accuracy: float
    base: float
    named: ClusterNames

    @property
    def kept(self) -> float:
        """Fraction of the rows of the parent that are in one of its parts, 0 to 1."""
        return float((self.codes >= 0).mean())

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each part."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.children))
        return dict(zip(self.children, counts.tolist(), strict=True))

    @property
    def names(self) -> dict[str, str]:
        """The name of each part, which repeats no statement of the names of its ancestors; "" without one."""
        return {str(child): name for child, name in self.named.names.items()}

    @property
    def is_exact(self) -> bool:
        """Whether the contrast is that of the clusterer itself, and not of a surrogate."""
        return self.contrast is not None and self.fidelity is None

    def statements(self) -> dict[str, tuple[str, ...]]:
        """Return the statements that the name of each part consists of."""
        return dict(zip(self.children, self.named.statements, strict=True))

    def reasons(self, n: int = N_COLUMNS) -> list[str]:
        """Return the `n` columns, or terms, that matter most to the contrast; none without one."""
        if self.contrast is None:
            return []
        return [*map(str, self.contrast.top(n).index)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per part.

        Returns
        -------
        DataFrame
            Index: "part". Columns: ``rows``; ``name``; ``passed``, whether the name passed its blind test (NA if
            there are too few rows); ``rule``, "otherwise" for the part that has all rows that meet no other rule,
            and "" without rules.
        """
        passed = pd.array([*self.named.passed.values()], dtype="boolean")
        index = pd.Index(self.children, name="part")
        columns = {
            "rows": [*self.sizes.values()],
            "name": [*self.names.values()],
            "passed": passed,
            "rule": [self.rule(child) for child in self.children],
        }
        return pd.DataFrame(columns, index)

    def rule(self, child: str) -> str:
        """Write the rules of a part in one line."""
        if self.rules is None:
            return ""
        texts = [rule.text() if rule.conditions else "otherwise" for rule in self.rules if rule.label == child]
        return " or ".join(texts)

    def sentences(self) -> list[str]:
        """Say what the parent falls into, why, and how well its parts are told apart."""
        sizes = in_words(f"{child} ({plural(size, 'row')})" for child, size in self.sizes.items())
        lines = [f"{self.parent} ({plural(len(self.rows), 'row')}) falls into {sizes}, {IN_WORDS[self.verdict]}."]
        if self.elsewhere:
            places = [f"{place} ({number})" for place, number in self.elsewhere.items()]
            lines.append(f"Its other rows are elsewhere: {in_words(places)}.")
        if self.contrast is not None:
            of_what = ""
            if self.fidelity is not None:
                fraction = percent(self.fidelity)
                of_what = f", by a surrogate that decides as the clustering for {fraction} of held-out rows"
            pair = f"{self.contrast.a} and {self.contrast.b}"
            lines.append(f"{pair} differ most in {in_words(self.reasons())}{of_what}.")
        if self.rules is not None:
            rules = "Rules"
            if not self.rules.divide and len(self.rules) > 2:
                order = ", ".join(str(rule.label) for rule in self.rules)
                rules = f"Rules, of which the first that fits a row counts, in the order {order},"
            lines.append(
                f"{rules} tell {percent(self.accuracy)} of held-out rows rightly; {percent(self.base)} are in the "
                "largest part."
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the split as a dictionary that JSON can store, without its contrast and its rows."""
        parts = []
        for child, row in self.to_frame().iterrows():
            is_passed = None if pd.isna(row["passed"]) else bool(row["passed"])
            parts.append(
                {
                    "part": child,
                    "rows": int(row["rows"]),
                    "name": row["name"],
                    "passed": is_passed,
                    "rule": row["rule"],
                }
            )
        return {
            "parent": self.parent,
            "rows": len(self.rows),
            "kept": self.kept,
            "elsewhere": dict(self.elsewhere),
            "verdict": self.verdict,
            "parts": parts,
            "reason": self.reasons(),
            "fidelity": self.fidelity,
            "rules": None if self.rules is None else self.rules.to_dict(),
            "accuracy": None if np.isnan(self.accuracy) else self.accuracy,
            "base": None if np.isnan(self.base) else self.base,
        }

    def _remarks(self) -> list[str]:
        return self.sentences()


@dataclass(frozen=True, repr=False)
class Layers(Result):
    """The splits of clusters of several resolutions: the result of :func:`neonxc.layers`.

    Attributes
    ----------
    splits : list of Split
        The clusters that fall into several parts, the coarsest first.
    n_rows : int
        Number of rows.
    n_further : int
        Number of lower splits of a dendrogram that are not explained.
    notes : tuple of str
        Columns that were left out.
    """

    splits: list[Split]
    n_rows: int
    n_further: int = 0
    notes: tuple[str, ...] = ()

    def __getitem__(self, parent: str) -> Split:
        """Return the split of a cluster, by the name of the cluster."""
        for split in self.splits:
            if split.parent == parent:
                return split
        raise KeyError(f"no split of {parent!r}; these are explained: {[split.parent for split in self.splits]}")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per split.

        Returns
        -------
        DataFrame
            Index: "parent". Columns:

            - ``rows`` of the parent;
            - ``parts``: names of the parts;
            - ``kept``: fraction of the rows that are in one of the parts;
            - ``verdict``: "separated", "partly separated", "slices", "too few rows" or "not judged";
            - ``reason``: the columns that tell the two largest parts apart most;
            - ``fidelity`` of the surrogate on held-out rows, NaN if the contrast is exact;
            - ``accuracy`` of the rules on held-out rows, and ``base``, the fraction of the largest part;
            - ``names`` of the parts.
        """
        rows = []
        for split in self.splits:
            fidelity = np.nan if split.fidelity is None else split.fidelity
            names = [*split.names.values()]
            measured = (fidelity, split.accuracy, split.base)
            rows.append(
                (len(split.rows), split.children, split.kept, split.verdict, split.reasons(), *measured, names)
            )
        columns = ["rows", "parts", "kept", "verdict", "reason", "fidelity", "accuracy", "base", "names"]
        index = pd.Index([split.parent for split in self.splits], name="parent")
        return pd.DataFrame(rows, index, columns)

    def to_dict(self) -> dict[str, Any]:
        """Return the splits as a dictionary that JSON can store, without contrasts and rows."""
        return {
            "rows": self.n_rows,
            "splits": [split.to_dict() for split in self.splits],
            "further": self.n_further,
            "notes": [*self.notes],
        }

    def plot(self) -> Figure:
        """Draw the splits as an icicle; see :func:`neonxc.plot.layers`."""
        from neonxc.plot.icicle import layers  # loads matplotlib

        return layers(self)

    def _shown(self) -> pd.DataFrame:
        frame = self.to_frame().drop(columns=["reason", "fidelity"])
        return frame.assign(names=[" | ".join(names) for names in frame["names"]])

    def _remarks(self) -> list[str]:
        n_slices = sum(split.verdict == SLICES for split in self.splits)
        n_separated = sum(split.verdict == SEPARATED for split in self.splits)
        lines = [
            f"Splits into separated parts: {n_separated} of {len(self.splits)}; into slices of one cloud: "
            f"{n_slices}. Accuracy is that of the rules on held-out rows, and base the fraction of the largest "
            "part."
        ]
        if self.n_further:
            lines.append(f"Lower splits that are not explained: {self.n_further}; pass a larger splits= for them.")
        return [*lines, *self.notes]
