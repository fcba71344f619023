"""Encode texts as counts of terms, as scikit-learn vectorizers do before they weight the terms.

A vectorizer at the start of a pipeline is split into two (:func:`behind_terms`)::

    texts --Terms--> counts, or 1 + log(count) [N, V] --weights of terms, further steps--> space of the clusterer

Relevance is that of the counts, since the weights are a linear step, which is folded into the head.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import Pipeline
from torch import Tensor

from neonxc.common.arguments import kind_of
from neonxc.common.registry import Values, register
from neonxc.common.types import TableLike
from neonxc.data.inputs import as_texts
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table, is_texts
from neonxc.head.head import Head
from neonxc.inputs.base import make_inputs
from neonxc.inputs.raw_columns import RawColumns
from neonxc.inputs.space import Space
from neonxc.pipelines.steps import inherited

OPTIONS = ("analyzer", "binary", "lowercase", "ngram_range", "stop_words", "strip_accents", "token_pattern")
"""Parameters of a CountVectorizer that, together with the vocabulary, define its counts."""
FUNCTIONS = ("analyzer", "preprocessor", "strip_accents", "tokenizer")
"""Parameters that may be functions, which cannot be saved."""


class Terms:
    """Count how often each term of a vocabulary occurs in texts.

    Parameters
    ----------
    vectorizer : CountVectorizer or TfidfVectorizer
        Vectorizer that is fitted or has a vocabulary. It is copied, so refitting it has no effect here.
    sublinear : bool
        Whether to replace nonzero counts by ``1 + log(count)``.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the vectorizer has no vocabulary.
    ValueError
        If the vectorizer reads files.
    """

    def __init__(self, vectorizer: CountVectorizer, sublinear: bool = False) -> None:
        if vectorizer.input != "content":
            raise ValueError(f"{type(vectorizer).__name__} needs input='content', got {vectorizer.input!r}")
        self.vectorizer = copy(vectorizer)
        self.sublinear = sublinear
        self.names = self.columns = [str(name) for name in self.vectorizer.get_feature_names_out()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # inconsistent stop words; already reported at fit
            self.analyze: Callable[[str], list[str]] = self.vectorizer.build_analyzer()

    @property
    def width(self) -> int:
        """Number of terms in the vocabulary, V."""
        return len(self.names)

    def encode(self, X: Iterable[str], *, name: str = "X") -> Any:
        """Count the terms of texts.

        Parameters
        ----------
        X : sequence of N str
            The texts.
        name : str
            Name of the argument in error messages.

        Returns
        -------
        scipy.sparse CSR matrix [N, V] of float64

        Raises
        ------
        ValueError
            If there are no texts, or if one is not a str.
        """
        counts = CountVectorizer.transform(self.vectorizer, as_texts(X, name=name)).astype(np.float64)
        if self.sublinear:
            counts.data = 1 + np.log(counts.data)
        return counts


class TermColumns(RawColumns):
    """Inputs of texts, or of their counts of terms."""

    encoding: Terms
    in_texts = True

    def __init__(self, head: Head | None, names: Sequence[str] | None, encoding: Terms) -> None:
        super().__init__(head, names)
        self.encoding = encoding

    def _read(self, table: Table) -> Table:
        """Count terms [N, V]; for texts, results of this shape are returned as a data frame."""
        counts = super()._read(Table.read(self.columns(table.data), name=table.name))
        if is_texts(table):
            return table.holding(counts.tensor, columns=self.names)
        return counts

    def space(self, table: Table) -> Space:
        """Refuse counterfactuals: a text is not a table."""
        raise ValueError("counterfactual needs a network on tables, the inputs of this one are texts")

    def write(
        self, x: Tensor, like: TableLike | Table, bounds: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """Return the counts of terms; of texts, as a data frame."""
        table = Table.read(like)
        if is_texts(table):
            table = table.holding(x, columns=self.names)
        return table.restore(x)

    def values(self, x: Tensor | SparseRows, points: Tensor | SparseRows) -> Tensor | SparseRows:
        """Return 1 for terms that a text contains, and 0 for other terms."""
        if isinstance(points, SparseRows):
            return SparseRows(points.matrix.sign(), points.device)
        return points.sign()

    def columns(self, X: TableLike) -> Any:
        """Return the counts of terms."""
        return self.encoding.encode(X) if is_texts(X) else X  # type: ignore[arg-type]  # texts are str


make_inputs.register(Terms, lambda terms, head=None, names=None: TermColumns(head, names, terms))


def behind_terms(
    steps: list[tuple[str, Any]], texts: Sequence[str] | None = None
) -> tuple[Terms, list[tuple[str, Any]]]:
    """Split the vectorizer at the start of a pipeline into its counts and, as further steps, its term weights.

    Parameters
    ----------
    steps : list of (name, fitted step)
    texts : sequence of str, optional
        Texts on which a vectorizer with a transform of its own is compared with what is read of it.

    Raises
    ------
    ValueError
        If the pipeline begins with a HashingVectorizer, with a vectorizer that reads files, or with one that does
        not count and weight terms as scikit-learn does.
    sklearn.exceptions.NotFittedError
        If the vectorizer has no vocabulary.
    """
    name, first = steps[0]
    rest = steps[1:]
    while isinstance(first, Pipeline):  # not opened(): this opens the first step, where the vectorizer is
        inner_steps = [(f"{name}__{key}", step) for key, step in first.steps]
        name, first = inner_steps[0]
        rest = [*inner_steps[1:], *rest]
    if isinstance(first, HashingVectorizer):
        raise ValueError(
            f"pipeline step {name!r}: a HashingVectorizer does not know its terms, so that there is nothing to "
            "explain by; use a CountVectorizer or TfidfVectorizer"
        )
    _check_counts(name, first, texts)
    if isinstance(first, TfidfVectorizer):
        rest = [(name, first._tfidf), *rest]
    if not rest:
        return Terms(first), rest
    name, weights = rest[0]
    sublinear = isinstance(weights, TfidfTransformer) and bool(weights.sublinear_tf)
    if sublinear:  # applied to the counts, so that the remaining step is a weight per term
        weights = copy(weights)
        weights.sublinear_tf = False
        rest = [(name, weights), *rest[1:]]
    return Terms(first, sublinear), rest


def _check_counts(name: str, vectorizer: CountVectorizer, texts: Sequence[str] | None) -> None:
    """Raise a ValueError unless a vectorizer counts and weights terms as scikit-learn's own class does."""
    kinds = (TfidfVectorizer, CountVectorizer)
    if inherited(vectorizer, kinds) is not None:
        return
    base = next(kind for kind in kinds if isinstance(vectorizer, kind))
    step = f"pipeline step {name!r}: {type(vectorizer).__name__} has a transform of its own"
    if texts is None:
        raise ValueError(f"{step}, and what it does is read from texts: neonxc.neuralize(model, texts)")
    expected = base.transform(vectorizer, texts)
    change = abs(expected - vectorizer.transform(texts))
    if change.max() > 1e-6 * abs(expected).max():
        raise ValueError(
            f"{step}, which does other than {base.__name__} to texts of X; neonxc.neuralize(model[-1], "
            "model[:-1].transform(X)) explains the clusterer by the terms as they are behind these steps"
        )


def _pack(terms: Terms) -> Values:
    vectorizer = terms.vectorizer
    for name in FUNCTIONS:
        if callable(getattr(vectorizer, name)):
            raise TypeError(f"can't save {kind_of(vectorizer)} with a function as its {name}")
    if type(vectorizer) not in (CountVectorizer, TfidfVectorizer):
        raise TypeError(f"can't save {kind_of(vectorizer)}, a class of its own; use a CountVectorizer")
    options = {name: getattr(vectorizer, name) for name in OPTIONS}
    if not isinstance(options["stop_words"], (str, type(None))):
        options["stop_words"] = sorted(map(str, options["stop_words"]))
    return {"options": options, "names": terms.names, "sublinear": terms.sublinear}


def _unpack(cls: type[Terms], values: Values) -> Terms:
    options = values["options"]
    unknown = options.keys() - {*OPTIONS}
    if unknown:  # such as input="filename", which opens files
        raise ValueError(f"it has terms with the options {sorted(unknown)}")
    options = {**options, "ngram_range": tuple(options["ngram_range"])}
    return cls(CountVectorizer(vocabulary=values["names"], **options), values["sublinear"])


register(Terms, _pack, _unpack)
