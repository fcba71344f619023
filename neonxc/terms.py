"""Texts as counts of terms: what a scikit-learn vectorizer does before its columns are weighted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import Pipeline
from torch import Tensor

from neonxc.carriers import Columns, carrier_of
from neonxc.inputs import Batch, as_texts
from neonxc.registry import Values, register
from neonxc.sparse import SparseRows, check_room, dense, is_sparse

OPTIONS = ("analyzer", "binary", "lowercase", "ngram_range", "stop_words", "strip_accents", "token_pattern")
"""Parameters of a CountVectorizer that decide what it counts, once it has a vocabulary."""
FUNCTIONS = ("analyzer", "preprocessor", "strip_accents", "tokenizer")
"""Those that may be functions, which a file can't hold."""


class Terms:
    """From texts to how often each term of a vocabulary is in them.

    Parameters
    ----------
    vectorizer : CountVectorizer or TfidfVectorizer
        Fitted, or with a vocabulary. A copy is kept, so that another fit leaves this as it is.
    sublinear : bool
        ``1 + log(count)`` in place of a count that is not 0.

    Raises
    ------
    sklearn.exceptions.NotFittedError
    ValueError
        A vectorizer that reads files.
    """

    def __init__(self, vectorizer: CountVectorizer, sublinear: bool = False) -> None:
        if vectorizer.input != "content":
            raise ValueError(f"{type(vectorizer).__name__} needs input='content', got {vectorizer.input!r}")
        self.vectorizer, self.sublinear = copy(vectorizer), sublinear
        self.columns = [str(name) for name in self.vectorizer.get_feature_names_out()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about stop words: it was given when this was fitted
            self.analyze: Callable[[str], list[str]] = self.vectorizer.build_analyzer()

    @property
    def names(self) -> list[str]:
        """The terms, one for each column of counts."""
        return self.columns

    @property
    def width(self) -> int:
        """Terms in the vocabulary V."""
        return len(self.names)

    def encode(self, X: Any, *, name: str = "X") -> Any:
        """Count the terms of texts.

        Parameters
        ----------
        X : sequence of N str
        name : str
            What the errors call the argument.

        Returns
        -------
        scipy.sparse CSR matrix [N, V] of float64

        Raises
        ------
        ValueError
            No texts, or one that is not a str.
        """
        counts = CountVectorizer.transform(self.vectorizer, as_texts(X, name=name)).astype(np.float64)
        if self.sublinear:
            counts.data = 1 + np.log(counts.data)
        return counts


class _TermColumns(Columns):
    """Texts, whose points are their counts of terms; counts themselves are taken, too."""

    module: Terms

    def batch(self, X: Any) -> Batch:
        """Counts [N, V], laid out."""
        stored = self.stored(X)
        check_room(stored.tensor)
        return Batch(dense(stored.tensor).to(self.device), stored.names, stored.restore, stored.labels)

    def stored(self, X: Any) -> Batch:
        """Counts [N, V] as they are stored; what has their shape is handed back as a frame of terms."""
        if not is_texts(X):
            return super().stored(X) if is_sparse(X) else super().batch(X)
        counts = super().stored(self.module.encode(X))
        names, index = self.names, getattr(X, "index", None) if hasattr(X, "iloc") else None

        def restore(result: Tensor) -> Any:
            array = counts.restore(result)
            if array.shape != tuple(counts.tensor.shape):
                return array
            return pd.DataFrame(array, index=index, columns=names)

        return Batch(counts.tensor, None, restore, counts.labels)

    in_texts = True

    def values(self, x: Tensor, points: Tensor | SparseRows) -> Tensor | SparseRows:
        """1 for the terms that a text contains, 0 for others."""
        if not isinstance(points, SparseRows):
            return (points > 0).double()
        return SparseRows((points.matrix > 0).astype(np.float64), points.device)

    def columns(self, X: Any) -> Any:
        """Counts of terms."""
        return self.module.encode(X) if is_texts(X) else X


@carrier_of.register
def _(features: Terms, *options: Any) -> _TermColumns:
    return _TermColumns(features, *options)


def is_texts(X: Any) -> bool:
    """Whether data is meant to be texts: one dimension, and no numbers."""
    if isinstance(X, str):
        return True  # as_texts says what is wrong with it
    if isinstance(X, Tensor) or is_sparse(X) or hasattr(X, "columns"):
        return False
    kind = getattr(getattr(X, "dtype", None), "kind", "O")
    if kind in "fiubc" or getattr(X, "ndim", 1) != 1:
        return False
    return not (isinstance(X, (list, tuple)) and X and not isinstance(X[0], (str, bytes, type(None))))


def behind_terms(steps: list[tuple[str, Any]]) -> tuple[Terms | None, list[tuple[str, Any]]]:
    """Split a vectorizer that a pipeline begins with into its counts and, as steps, the weights of its terms.

    Raises
    ------
    ValueError
        A HashingVectorizer, or one that reads files.
    sklearn.exceptions.NotFittedError
    """
    while steps and isinstance(steps[0][1], Pipeline):
        name, inner = steps[0]
        steps = [*((f"{name}__{key}", step) for key, step in inner.steps), *steps[1:]]
    if not steps:
        return None, steps
    (name, first), rest = steps[0], steps[1:]
    if isinstance(first, HashingVectorizer):
        raise ValueError(
            f"pipeline step {name!r}: a HashingVectorizer does not know its terms, so that there is nothing to "
            "explain by; use a CountVectorizer or TfidfVectorizer"
        )
    if not isinstance(first, CountVectorizer):
        return None, steps
    if isinstance(first, TfidfVectorizer):
        rest = [(name, first._tfidf), *rest]
    sublinear = bool(rest) and isinstance(rest[0][1], TfidfTransformer) and bool(rest[0][1].sublinear_tf)
    if sublinear:  # of counts, so that what is left to fold is a weight
        weights = copy(rest[0][1])
        weights.sublinear_tf = False
        rest = [(rest[0][0], weights), *rest[1:]]
    return Terms(first, sublinear), rest


def _pack(terms: Terms) -> Values:
    vectorizer = terms.vectorizer
    if own := [name for name in FUNCTIONS if callable(getattr(vectorizer, name))]:
        raise TypeError(f"can't save a {type(vectorizer).__name__} with a function as its {own[0]}")
    if type(vectorizer) not in (CountVectorizer, TfidfVectorizer):
        raise TypeError(f"can't save a {type(vectorizer).__name__}, a class of its own; use a CountVectorizer")
    options = {name: getattr(vectorizer, name) for name in OPTIONS}
    if not isinstance(options["stop_words"], (str, type(None))):
        options["stop_words"] = sorted(map(str, options["stop_words"]))
    return {"options": options, "names": terms.names, "sublinear": terms.sublinear}


def _unpack(cls: type[Terms], values: Values) -> Terms:
    options, names = values["options"], values["names"]
    if set(options) != set(OPTIONS) or not all(isinstance(name, str) for name in names):
        raise TypeError("its vectorizer has other options, or terms that are not text")
    options = {**options, "ngram_range": tuple(options["ngram_range"])}
    return cls(CountVectorizer(vocabulary=names, **options), bool(values["sublinear"]))


register(Terms, _pack, _unpack)
