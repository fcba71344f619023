"""Candidates of names: statements about a cluster, the strongest first, and names of one or several of them.

Tables. Cohen's d of a number and Cramér's V of a category, which is written on the scale of d as 2 V / sqrt(1 -
V^2), rank the columns

    of all others     N_OTHERS columns that tell a cluster from all other rows most,
    of siblings       N_SIBLING columns for each of the N_SIBLINGS clusters that are nearest in the judge's space,
    of the middle     N_MIDDLE statements that values are medium, extreme, rather high or rather low, by d of the
                      score that the judge gives them (:mod:`neonxc.naming.statement_judge`)

with the words of :mod:`neonxc.attribution.direction`. A name says nothing that reports contradict: of siblings and
of the middle, only statements are candidates that are true of the cluster among all rows.

Texts. Of the N_TERMS terms with the largest c-TF-IDF (Grootendorst, 2022)

    tf_kt log(1 + A / f_t),

tf_kt is the fraction of term t among the terms of cluster k, f_t its number in all clusters, and A the mean
number of terms of a cluster.

Names are all sets of at most `words` statements, about different columns, in this order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from neonxc.attribution.cluster_values import ValueSums, typical_category
from neonxc.attribution.direction import UNKNOWN, Direction, of_category, of_number
from neonxc.attribution.moments import Moments, cramers_v
from neonxc.common.numbers import text
from neonxc.data.inputs import as_texts
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.naming.statement_judge import StatementJudge, is_number

N_OTHERS = 8
N_SIBLING = 4
N_SIBLINGS = 2
"""Numbers of columns. On five tables (K = 3, 6, 10), with medium and extreme ones of the middle, fewer (5, 3, 2)
sort 83.3% of held-out rows rightly, these 83.1%, and more (10, 6, 4) 83.1% in twice the time."""
N_MIDDLE = 6
"""With 6 statements of the middle, 84.8% are sorted rightly, with 9 84.6%, and without rather high and rather low
ones 83.9%. With statements that reports contradict, it would be 0.8 percentage points more, also on seven other
tables, and 15% of the chosen ones would be among them."""
MIDDLE = ("medium", "extreme", "rather high", "rather low")
N_TERMS = 12
"""Number of terms, of which there are 78 sets of at most two, and 298 of at most three."""
MAX_NAMES = 400
"""Largest number of candidates of a cluster; with four statements there would be thousands."""


class Candidate(NamedTuple):
    """A statement about a cluster, with the numbers behind it."""

    words: str  # "high proline", or a term
    column: int  # position of the column, or of the term
    strength: float  # what ranks it
    numbers: str = ""  # "↑ 1116 vs 582.3"


def names_of(candidates: Sequence[Candidate], words: int) -> list[tuple[str, ...]]:
    """Return the names that consist of at most `words` of the statements, about different columns."""
    names = []
    for length in range(1, words + 1):
        for chosen in combinations(candidates, length):
            columns = {candidate.column for candidate in chosen}
            if len(columns) == length:
                names.append(tuple(candidate.words for candidate in chosen))
    return names[:MAX_NAMES]


class TableCandidates:
    """Statements about clusters of a table.

    Parameters
    ----------
    table : Table [n, d]
        Rows.
    groups : ndarray [n] of int
        Positions of their clusters; -1 for rows that are in none.
    k : int
        Number of clusters.
    judge : StatementJudge
        Its space tells which clusters are siblings.
    weight : ndarray [n], optional
        Weights of the rows.
    categories : sequence of int
        Positions of columns that hold categories, whatever their type.
    """

    def __init__(
        self,
        table: Table,
        groups: np.ndarray,
        k: int,
        judge: StatementJudge,
        weight: np.ndarray | None = None,
        categories: Sequence[int] = (),
    ) -> None:
        self.columns = judge.columns
        self.k = k
        mass = np.ones(len(table)) if weight is None else weight
        group = torch.from_numpy(np.where(groups < 0, k, groups))  # noise is one group more, in the last place
        sums = _value_sums(table, self.columns, group, k + 1, mass, categories)
        self.values = sums.result(in_texts=False)
        self.moments = sums.moments
        self.counts = sums.categories

        space = judge.space(table)
        of_cluster = [groups == cluster for cluster in range(k)]
        self.centers = np.stack([_mean(space[rows], mass[rows]) for rows in of_cluster])
        self._middle = _middle_effects(table, judge, group, k + 1, mass, set(self.counts))

    def of_cluster(self, k: int) -> list[Candidate]:
        """Return the statements that are true of cluster k among all rows, without repetitions."""
        overall = self._among_all(k)
        candidates = self._strongest(overall, N_OTHERS)
        for sibling in self.siblings(k)[:N_SIBLINGS]:
            compared = self._compared(k, sibling)
            true = [self._if_true(k, column, compared[column], overall[column]) for column in range(len(overall))]
            candidates += self._strongest(true, N_SIBLING)
        candidates += self._of_the_middle(k, overall)
        return list({candidate.words: candidate for candidate in reversed(candidates)}.values())[::-1]

    def siblings(self, k: int) -> list[int]:
        """Return the other clusters, the nearest first."""
        distances = ((self.centers - self.centers[k]) ** 2).sum(axis=1)
        distances = np.where(np.isnan(distances), np.inf, distances)
        return [j for j in np.argsort(distances, kind="stable").tolist() if j != k]

    def against_others(self, k: int, n: int) -> list[Candidate]:
        """Return the n statements that tell cluster k from all other rows most."""
        return self._strongest(self._among_all(k), n)

    def against(self, k: int, sibling: int, n: int) -> list[Candidate]:
        """Return the n statements that tell cluster k from another one most."""
        return self._strongest(self._compared(k, sibling), n)

    def _among_all(self, k: int) -> list[Direction]:
        """Compare the columns of cluster k with those of all other rows, [d]."""
        return [self.values.described(k, column) for column in range(len(self.columns))]

    def _compared(self, k: int, sibling: int) -> list[Direction]:
        """Compare the columns of two clusters, [d]."""
        counts = self.moments.counts.numpy()[[k, sibling]]
        means = self.moments.means.numpy()[[k, sibling]]
        squares = self.moments.squares.numpy()[[k, sibling]].sum(axis=0)
        deviation = np.sqrt(squares / np.maximum(counts.sum(axis=0) - 2, 1))
        difference = means[0] - means[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            effects = np.where(difference == 0, 0.0, difference / deviation)
        directions = []
        for column in range(len(self.columns)):
            if column in self.counts:
                directions.append(self._category_against(k, sibling, column))
                continue
            own, other = means[:, column].tolist()
            directions.append(of_number(own, other, float(effects[column])))
        return directions

    def _if_true(self, k: int, column: int, compared: Direction, overall: Direction) -> Direction:
        """Return what a comparison with a sibling says of a column, if it is true of cluster k among all rows."""
        if compared.kind == "category":
            is_true = self._is_more_frequent(k, column, compared.word.removeprefix("is "))
        else:
            is_true = overall.admits(compared.word)
        return compared if is_true else UNKNOWN

    def _is_more_frequent(self, k: int, column: int, category: str) -> bool:
        """Whether a category is more frequent in cluster k than in all other rows."""
        of_all = np.sum([*self.counts[column].values()], axis=0)
        of_category = next(counts for name, counts in self.counts[column].items() if _named(name) == category)
        share = of_category[k] / of_all[k]
        elsewhere = (of_category.sum() - of_category[k]) / (of_all.sum() - of_all[k])
        return bool(share > elsewhere)

    def _category_against(self, k: int, sibling: int, column: int) -> Direction:
        """Compare the categories of two clusters."""
        counts = self.counts[column]
        pair = np.stack([of_category[[k, sibling]] for of_category in counts.values()], axis=1)  # [2, categories]
        sizes = pair.sum(axis=1)
        if not sizes.all():
            return Direction("", np.nan, np.nan)
        own, other = pair / sizes[:, None]
        effect = cramers_v(own, pair.sum(axis=0) / sizes.sum(), sizes[0], sizes.sum())
        category = typical_category(own, other)
        name = _named([*counts][category])
        return of_category(name, float(own[category]), float(other[category]), float(effect))

    def _strongest(self, directions: Sequence[Direction], n: int) -> list[Candidate]:
        """Return the n strongest statements that tell a cluster from what it is compared with."""
        candidates = []
        for column, direction in enumerate(directions):
            if direction.is_reason:
                words = direction.statement(self.columns[column])
                strength = _on_scale_of_d(direction)
                candidates.append(Candidate(words, column, strength, direction.comparison()))
        return sorted(candidates, key=lambda candidate: -candidate.strength)[:n]

    def _of_the_middle(self, k: int, overall: Sequence[Direction]) -> list[Candidate]:
        """Return statements of values that are in cluster k more than elsewhere, and neither high nor low."""
        is_true = [[direction.admits(word) for direction in overall] for word in MIDDLE]
        effects = np.where(is_true, self._middle[:, k], 0.0)
        candidates = []
        for i in np.argsort(-effects, axis=None, kind="stable")[:N_MIDDLE].tolist():
            word, column = np.unravel_index(i, effects.shape)
            effect = float(effects[word, column])
            if effect > 0:
                words = Direction(MIDDLE[word], np.nan, np.nan).statement(self.columns[column])
                candidates.append(Candidate(words, int(column), effect, overall[column].comparison()))
        return candidates


class TextCandidates:
    """Terms of clusters of texts; the arguments are those of :class:`TableCandidates`."""

    def __init__(
        self,
        table: Table,
        groups: np.ndarray,
        k: int,
        weight: np.ndarray | None = None,
    ) -> None:
        self.k = k
        vectorizer = CountVectorizer(stop_words="english")
        counts = vectorizer.fit_transform(as_texts(table.data))
        self.terms = vectorizer.get_feature_names_out()
        mass = np.ones(len(groups)) if weight is None else weight
        clustered = np.flatnonzero(groups >= 0)
        membership = sparse.csr_matrix((mass[clustered], (groups[clustered], clustered)), shape=(k, len(groups)))
        self.frequency = (membership @ counts).toarray()  # [K, terms]
        has_term = counts.copy()
        has_term.data = np.ones_like(has_term.data)
        self.n_texts = np.asarray(membership.sum(axis=1))[:, 0]
        self.containing = (membership @ has_term).toarray()

    def of_cluster(self, k: int) -> list[Candidate]:
        """Return the terms of cluster k with the largest c-TF-IDF."""
        return self._largest(k, [*range(self.k)], N_TERMS)

    def siblings(self, k: int) -> list[int]:
        """Return the other clusters, the nearest in the shares of their terms first."""
        sums = self.frequency.sum(axis=1, keepdims=True)
        lengths = np.linalg.norm(self.frequency, axis=1, keepdims=True)
        unit = self.frequency / np.where(sums > 0, lengths, 1.0)
        cosines = unit @ unit[k]
        return [j for j in np.argsort(-cosines, kind="stable").tolist() if j != k]

    def against_others(self, k: int, n: int) -> list[Candidate]:
        """Return the n terms that tell cluster k from all others most."""
        return self._largest(k, [*range(self.k)], n)

    def against(self, k: int, sibling: int, n: int) -> list[Candidate]:
        """Return the n terms that tell cluster k from another one most."""
        return self._largest(k, [k, sibling], n)

    def _largest(self, k: int, among: list[int], n: int) -> list[Candidate]:
        """Return the n terms with the largest c-TF-IDF among some of the clusters."""
        frequency = self.frequency[among]
        total = frequency.sum(axis=0)  # f_t
        mean = frequency.sum(axis=1).mean()  # A
        fraction = self.frequency[k] / max(self.frequency[k].sum(), 1)  # tf_kt
        weight = fraction * np.log1p(mean / np.maximum(total, 1e-12))
        others = [j for j in among if j != k]
        elsewhere = self.containing[others].sum(axis=0) / max(self.n_texts[others].sum(), 1)
        inside = self.containing[k] / max(self.n_texts[k], 1)
        # by c-TF-IDF alone, words that are frequent everywhere come first where two clusters are compared
        weight = np.where(inside > elsewhere, weight, 0.0)
        candidates = []
        for term in np.argsort(-weight, kind="stable")[:n].tolist():
            if weight[term] > 0:
                direction = Direction("high", inside[term], elsewhere[term], kind="texts")
                words = direction.statement(str(self.terms[term]))
                candidates.append(Candidate(words, term, float(weight[term]), direction.comparison()))
        return candidates


def _value_sums(
    table: Table,
    columns: Sequence[str],
    group: torch.Tensor,
    n_groups: int,
    mass: np.ndarray,
    categories: Sequence[int],
) -> ValueSums:
    """Sum the values of the columns of a table by group; sparse tables hold numbers."""
    if table.is_sparse:
        sums = ValueSums(n_groups, table.width)
        sums.add(SparseRows(table.data.tocsr().astype(np.float64), torch.device("cpu")), group, _as_tensor(mass))
        return sums
    frame = table.frame(columns)
    named = set(categories)
    numbers = {}
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        if is_number(column) and i not in named:
            numbers[i] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    rest = [i for i in range(frame.shape[1]) if i not in numbers]
    sums = ValueSums(n_groups, frame.shape[1], rest)
    sums.add_table(frame, numbers, group, mass)
    return sums


def _named(category: object) -> str:
    """Write a category as statements do."""
    return text(category, separators=False)


def _as_tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))


def _middle_effects(
    table: Table,
    judge: StatementJudge,
    group: torch.Tensor,
    n_groups: int,
    mass: np.ndarray,
    categories: set[int],
) -> np.ndarray:
    """Compute Cohen's d of the scores of statements of the middle in every group, [words, groups, d].

    It is 0 for categories, and for sparse tables, whose values are mostly zeros, of which none is in the middle.
    """
    d = len(judge.columns)
    effects = np.zeros((len(MIDDLE), n_groups, d))
    columns = [i for i in range(d) if i not in categories]
    if table.is_sparse or not columns:
        return effects
    for i, word in enumerate(MIDDLE):
        scores = judge([[f"{word} {judge.columns[column]}"] for column in columns], table)
        moments = Moments(n_groups, len(columns))
        moments.add(scores, group, mass)
        effects[i][:, columns] = np.nan_to_num(moments.cohens_d(), posinf=0.0, neginf=0.0)
    return effects


def _mean(points: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return the mean of points; NaN without any."""
    if not len(points):
        return np.full(points.shape[1], np.nan)
    mean: np.ndarray = np.average(points, axis=0, weights=mass)
    return mean


def _on_scale_of_d(direction: Direction) -> float:
    """Return the size of an effect as that of Cohen's d; that more values are missing than not comes first."""
    if direction.word == "missing":
        return np.inf
    effect = abs(direction.effect)
    if np.isnan(effect):
        return 0.0
    if direction.kind == "number":
        return effect
    if effect >= 1:
        return np.inf
    return float(2 * effect / np.sqrt(1 - effect**2))


Candidates = TableCandidates | TextCandidates
"""Statements about the clusters of rows of any kind."""


def all_names(
    candidates: Candidates, words: int, excluded: Collection[str] = ()
) -> Iterator[list[tuple[str, ...]]]:
    """Yield the candidates of the names of every cluster, without those that have excluded statements."""
    for k in range(candidates.k):
        allowed = [one for one in candidates.of_cluster(k) if one.words not in excluded]
        yield names_of(allowed, words)
