"""What a namer gets to know of a cluster, and how it is asked.

1. Each cluster is named from its evidence: what tells it from all others, and typical rows.
2. The judge sorts the rows that names are chosen on by all names.
3. For each name that does not pass, the namer is asked once more, with the contrast: the cluster with which the
   name is confused, the name of that one, and what tells the two apart.
4. Of both names that one is kept which is chosen as if both were candidates (:mod:`neonxc.naming.choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from neonxc.common.numbers import plural, text
from neonxc.common.types import Label
from neonxc.data.table import Table, is_texts
from neonxc.naming.blind_test import blind_test
from neonxc.naming.candidates import Candidate, Candidates
from neonxc.naming.choice import Search
from neonxc.naming.judges import Judge

N_STATEMENTS = 8
N_EXAMPLES = 5
LETTERS = 300
"""Number of letters of an example text."""


@dataclass(frozen=True)
class NameContrast:
    """Why a namer is asked again.

    Attributes
    ----------
    rejected : str
        The name that did not pass.
    sibling : label
        The cluster with which it is confused.
    sibling_name : str
        The name of that cluster.
    statements : tuple of str
        What tells the cluster from that one, with numbers, the strongest first; empty for images and the like.
    """

    rejected: str
    sibling: Label
    sibling_name: str
    statements: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """What is known of a cluster before it has a name.

    Attributes
    ----------
    cluster : label
    n_rows : int
        Number of its rows.
    statements : tuple of str
        What tells it from all other rows, the strongest first: ``"high proline (↑ 1116 vs 582.3)"``, or terms
        with the shares of texts that contain them; empty for images and the like.
    examples : tuple of str
        Rows near the middle of the cluster, as texts; empty for images and the like.
    rows : ndarray of int
        Positions of these rows in X.
    contrast : NameContrast or None
        Why this is asked again.
    """

    cluster: Label
    n_rows: int
    statements: tuple[str, ...]
    examples: tuple[str, ...]
    rows: np.ndarray
    contrast: NameContrast | None = None

    def prompt(self) -> str:
        """Write the evidence as a question to a language model."""
        lines = ["Name this cluster of a clustering in at most five words. Answer with the name alone."]
        lines.append(f"It has {plural(self.n_rows, 'row')}.")
        if self.statements:
            lines += ["What tells it from all other rows:", *(f"- {words}" for words in self.statements)]
        if self.examples:
            lines += ["Typical rows:", *(f"- {example}" for example in self.examples)]
        if self.contrast is not None:
            contrast = self.contrast
            lines.append(
                f"Readers who knew the name {contrast.rejected!r} alone took its rows for those of another "
                f"cluster, {contrast.sibling_name!r}, or the reverse. Give another name that tells the two apart."
            )
            if contrast.statements:
                lines += ["What tells it from that one:", *(f"- {words}" for words in contrast.statements)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.prompt()


Namer: TypeAlias = Callable[[Evidence], str]
"""Names a cluster from its evidence."""


def evidence_of(
    clusters: Sequence[Label],
    sizes: np.ndarray,
    table: Table,
    groups: np.ndarray,
    rows: np.ndarray,
    candidates: Candidates | None,
    space: np.ndarray | None,
) -> list[Evidence]:
    """Collect the evidence of every cluster.

    Parameters
    ----------
    clusters : sequence of K labels
    sizes : ndarray [K]
        Numbers of all rows.
    table : Table [n, ...]
        The rows that names are chosen on.
    groups, rows : ndarray [n] of int
        Positions of their clusters, and their positions in X.
    candidates : Candidates, optional
        What statements are from.
    space : ndarray [n, d], optional
        Points near whose means examples are; without them, they are the first rows.
    """
    collected = []
    for k, cluster in enumerate(clusters):
        inside = np.flatnonzero(groups == k)
        if space is not None and len(inside):
            points = space[inside]
            distances = ((points - points.mean(axis=0)) ** 2).sum(axis=1)
            inside = inside[np.argsort(distances, kind="stable")]
        nearest = inside[:N_EXAMPLES]
        statements: tuple[str, ...] = ()
        if candidates is not None:
            statements = tuple(_with_numbers(candidates.against_others(k, N_STATEMENTS)))
        examples = _as_texts(table, nearest)
        collected.append(Evidence(cluster, int(sizes[k]), statements, examples, rows[nearest]))
    return collected


def asked_names(
    namer: Namer,
    evidence: Sequence[Evidence],
    judge: Judge,
    table: Table,
    groups: np.ndarray,
    candidates: Candidates | None,
    weight: np.ndarray | None,
    generator: np.random.RandomState,
) -> list[tuple[str, ...]]:
    """Ask for the names of all clusters, and once more for each that does not pass."""
    names = [_ask(namer, of_cluster) for of_cluster in evidence]
    test = blind_test(judge.scores(names, table), groups, weight)
    failed = np.flatnonzero(~test.passed & test.is_judged).tolist()
    if not failed:
        return names

    choices = [[name] for name in names]
    for k in failed:
        sibling = test.rival(k)
        if sibling is None:  # its rows choose no name at all
            sibling = candidates.siblings(k)[0] if candidates is not None else (k + 1) % len(names)
        statements: tuple[str, ...] = ()
        if candidates is not None:
            statements = tuple(_with_numbers(candidates.against(k, sibling, N_STATEMENTS)))
        contrast = NameContrast(_text(names[k]), evidence[sibling].cluster, _text(names[sibling]), statements)
        choices[k].append(_ask(namer, replace(evidence[k], contrast=contrast)))

    # together, as two names that are swapped are both wrong until both have changed
    scores = [judge.scores(of_cluster, table) for of_cluster in choices]
    chosen = Search(scores, groups, weight).best(generator)
    return [of_cluster[i] for of_cluster, i in zip(choices, chosen, strict=True)]


def _ask(namer: Namer, evidence: Evidence) -> tuple[str, ...]:
    """Ask for one name."""
    name = namer(evidence)
    if not isinstance(name, str):
        raise TypeError(f"namer needs to return a name as a str, got {type(name).__name__}")
    return (" ".join(name.split()),)


def _text(name: tuple[str, ...]) -> str:
    return ", ".join(name)


def _with_numbers(candidates: Sequence[Candidate]) -> list[str]:
    """Write statements with their numbers in brackets."""
    return [f"{one.words} ({one.numbers})" for one in candidates]


def _as_texts(table: Table, rows: np.ndarray) -> tuple[str, ...]:
    """Write rows of a table or of texts."""
    chosen = table.take(rows)
    if is_texts(chosen):
        return tuple(str(one)[:LETTERS] for one in chosen.data)
    if len(table.shape) != 2 or table.is_sparse:
        return ()
    frame = chosen.frame()
    examples = []
    for values in frame.itertuples(index=False, name=None):
        cells = [f"{name} {text(value)}" for name, value in zip(frame.columns, values, strict=True)]
        examples.append(", ".join(cells[:20]))
    return tuple(examples)
