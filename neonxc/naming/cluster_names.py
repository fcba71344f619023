"""Names of clusters with the result of their blind test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from neonxc.common.numbers import percent, plural
from neonxc.common.result import Result
from neonxc.common.types import Label
from neonxc.naming.blind_test import MIN_ROWS, BlindTest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class ClusterNames(Result):
    """Result of :func:`neonxc.name_clusters` and :func:`neonxc.evaluation.validate_names`.

    Attributes
    ----------
    clusters : list of K labels
    statements : list of K tuples of str
        The statements that each name consists of; a name from a namer is one text. Column names may have commas,
        so that names can't be divided again.
    test : BlindTest
        What held-out rows choose who are sorted by the names alone.
    ceiling : ndarray [K]
        Accuracy of the nearest mean of labelled rows in the space of the judge; NaN if the judge has none.
    second_accuracy : ndarray [K] or None
        Accuracy of names of texts with a second judge, who knows the words of the names alone.
    """

    clusters: list[Label]
    statements: list[tuple[str, ...]]
    test: BlindTest
    ceiling: np.ndarray
    second_accuracy: np.ndarray | None = None

    @property
    def names(self) -> dict[Label, str]:
        """The names by cluster, as :func:`neonxc.explain` takes them as ``cluster_names``."""
        return {label: ", ".join(name) for label, name in zip(self.clusters, self.statements, strict=True)}

    @property
    def accuracy(self) -> float:
        """Share of the rows that choose the name of their cluster, where clusters weigh the same."""
        is_judged = self.test.is_judged
        if not is_judged.any():
            return float("nan")
        return float(self.test.accuracy[is_judged].mean())

    @property
    def passed(self) -> dict[Label, bool | None]:
        """Whether the name of each cluster passes; None if the cluster has too few rows to tell."""
        passed: dict[Label, bool | None] = {}
        for k, label in enumerate(self.clusters):
            is_passed = bool(self.test.passed[k])
            passed[label] = is_passed if self.test.is_judged[k] else None
        return passed

    @property
    def rivals(self) -> dict[Label, Label | None]:
        """The cluster with which each is confused most; None if it is with no one."""
        rivals: dict[Label, Label | None] = {}
        for k, label in enumerate(self.clusters):
            rival = self.test.rival(k)
            rivals[label] = None if rival is None else self.clusters[rival]
        return rivals

    @property
    def confusions(self) -> pd.DataFrame:
        """Shares of the rows of each cluster that choose each name or, in the last column, none."""
        index = pd.Index(self.clusters, name="cluster")
        columns = pd.Index([*self.clusters, "none"], name="chosen", dtype=object)
        return pd.DataFrame(self.test.shares.copy(), index, columns)

    def titles(self) -> dict[Label, str]:
        """Return the words to print for every cluster.

        A name that passed, or that was not judged, bears no mark. One that failed says with which cluster it is
        confused: ``"high hue (confused with 2)"``. A cluster without a name is called by its label, and so are
        those that have the same name.
        """
        names = distinct(self.clusters, [*self.names.values()])
        return {label: name + self.marks[label] for label, name in zip(self.clusters, names, strict=True)}

    @property
    def marks(self) -> dict[Label, str]:
        """What a title says of a name that failed, such as ``" (confused with 2)"``; "" of the others."""
        marks = {}
        for label, rival in self.rivals.items():
            mark = ""
            if self.names[label] and self.passed[label] is False:
                mark = " (fits no row)" if rival is None else f" (confused with {rival})"
            marks[label] = mark
        return marks

    def verdict(self, thing: str = "row") -> list[str]:
        """Say in sentences how many names pass, and which clusters are confused; a row is called `thing`."""
        is_judged = self.test.is_judged
        n_judged = int(is_judged.sum())
        if not n_judged:
            return []
        n_passed = int(self.test.passed.sum())
        passes = "passes" if n_passed == 1 else "pass"
        lines = [
            f"{n_passed} of {plural(n_judged, 'name')} {passes} a blind test: of held-out {thing}s that are "
            f"sorted by the names alone, {percent(self.accuracy)} come to their own cluster, where clusters weigh "
            "the same."
        ]
        rivals = {label: self.rivals[label] for label, passed in self.passed.items() if passed is False}
        confused = [f"{label} with {rival}" for label, rival in rivals.items() if rival is not None]
        silent = [str(label) for label, rival in rivals.items() if rival is None]
        if confused:
            lines.append(f"By their names, clusters are confused: {', '.join(confused)}.")
        if silent:
            lines.append(f"Clusters whose names fit no {thing}: {', '.join(silent)}.")
        if n_judged < len(self.clusters):
            n_few = len(self.clusters) - n_judged
            lines.append(f"Names that are not tested, with fewer than {MIN_ROWS} held-out {thing}s: {n_few}.")
        return lines

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster.

        Returns
        -------
        DataFrame
            Index: "cluster". Columns:

            - ``name``;
            - ``accuracy``: share of the cluster's rows that choose its name;
            - ``taken``: share of its own rows among those that choose its name, where clusters weigh the same;
            - ``ceiling``: accuracy of the nearest mean of labelled rows in the space of the judge, NaN without
              one;
            - ``passed``: whether both shares are larger than those of every other cluster by more than a standard
              error; NA if the cluster has too few rows;
            - ``rival``: the cluster with which it is confused most, None if it is with no one.
        """
        frame = pd.DataFrame(
            {
                "name": [*self.names.values()],
                "accuracy": self.test.accuracy,
                "taken": self.test.taken,
                "ceiling": self.ceiling,
                "passed": pd.array([*self.passed.values()], dtype="boolean"),
                "rival": pd.Series([*self.rivals.values()], dtype=object).to_numpy(),
            },
            index=pd.Index(self.clusters, name="cluster"),
        )
        return frame

    def plot(self) -> Figure:
        """Draw the confusions; see :func:`neonxc.plot.confusions`."""
        from neonxc.plot.confusions import confusions  # loads matplotlib

        return confusions(self)

    def _remarks(self) -> list[str]:
        n_judged = int(self.test.is_judged.sum())
        remarks = []
        if n_judged:
            line = f"Sorted by the names alone, {percent(self.accuracy)} of the rows come to their own cluster"
            ceiling = self.ceiling[self.test.is_judged].mean()
            if not np.isnan(ceiling):
                line += f", and {percent(float(ceiling))} by the nearest mean of labelled rows"
            remarks.append(f"{line}; clusters weigh the same. {self.test.passed.sum()} of {n_judged} names pass.")
        if self.second_accuracy is not None:
            second = self.second_accuracy[self.test.is_judged]
            if len(second):
                remarks.append(f"By the words of the names alone, it is {percent(float(second.mean()))}.")
        if n_judged < len(self.clusters):
            few = len(self.clusters) - n_judged
            remarks.append(f"Not judged, with fewer than {MIN_ROWS} rows for the test: {few}.")
        return remarks


def distinct(labels: Sequence[Label], names: Sequence[str]) -> list[str]:
    """Call clusters without a name by their labels, and add these to names that are the same."""
    filled = [name or f"cluster {label}" for label, name in zip(labels, names, strict=True)]
    repeated = {name for name in filled if filled.count(name) > 1}
    return [f"{name} ({label})" if name in repeated else name for label, name in zip(labels, filled, strict=True)]
