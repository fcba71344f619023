"""The rows whose splits are explained: what networks, rules, names and verdicts read of them.

    rows                   columns of rules and names                          columns of verdicts
    data frame             those that `prepare` selects                        the same, prepared
    array, sparse matrix   all                                                 the same
    AnnData                the genes of its matrix X                           the same
    texts                  whether a text has a term; names are of the texts   TF-IDF of the terms

The columns of verdicts are those that were clustered, where these are known. Of more than MAX_TESTED_COLUMNS
columns, each split has those that tell its parts apart most, by the largest Cohen's d of a part against all
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from neonxc.attribution.moments import Moments
from neonxc.common.sizes import MAX_TESTED_COLUMNS
from neonxc.data.inputs import as_texts
from neonxc.data.preparation import prepare, without_remedies
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table, is_texts
from neonxc.hierarchy.forks import Integers
from neonxc.naming.statement_judge import is_number
from neonxc.naming.text_judge import vectorizer_of


class SplitRows:
    """Rows of a table or texts.

    Parameters
    ----------
    X : Table [N, ...]
    columns : sequence of str, optional
        Names of columns of a table that has none.
    features : Table, optional
        The columns that were clustered.
    repeating : sequence of str
        Columns that repeat the labels of the layers, which are left out.

    Raises
    ------
    ValueError
        X is neither a table nor texts, or has values that are no finite numbers and is no data frame.
    """

    def __init__(
        self,
        X: Table,
        columns: Sequence[str] | None = None,
        features: Table | None = None,
        repeating: Sequence[str] = (),
    ) -> None:
        self.X = X
        self.features = features
        self.notes: list[str] = []
        self.vectorizer: TfidfVectorizer | None = None
        self._prepared: Any = None
        if is_texts(X):
            self._read_texts()
        elif len(X.shape) != 2:
            raise ValueError(
                f"layers needs a table or texts, got inputs of shape {[*X.shape]}: pass columns that describe the "
                "rows, and features= with those that were clustered"
            )
        elif X.names is not None:
            self._read_frame(repeating)
        else:
            _ = X.rows(torch.device("cpu"))  # an error for values that are no finite numbers
            self.table = X
        self.names = self._names(columns)

    def _read_texts(self) -> None:
        """Read which terms texts have."""
        texts = as_texts(self.X.data)
        self.vectorizer = vectorizer_of(len(texts)).fit(texts)
        self.weights = self.vectorizer.transform(texts)
        self.table = Table((self.weights > 0).astype(np.float64))

    def _read_frame(self, repeating: Sequence[str]) -> None:
        """Read the columns of a data frame that say something about clusters."""
        frame = self.X.frame()
        if len(repeating) < frame.shape[1]:
            frame = frame.drop(columns=[*repeating])
        if repeating:
            self.notes.append(f"columns that repeat the labels are left out: {', '.join(repeating)}")
        self._prepared = prepare(frame)
        notes_of_file = frame.attrs.get("notes", [])
        notes = [note for note in self._prepared.notes if "left out" in note and note not in notes_of_file]
        self.notes += map(without_remedies, notes)
        self.table = Table(self._prepared.frame)

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        """Return the names of the columns of rules."""
        if self.vectorizer is not None:
            return [*map(str, self.vectorizer.get_feature_names_out())]
        if self.table.column_names is not None:
            return self.table.column_names
        if columns is not None:
            return [*columns]
        return numbered(self.table.width)

    @property
    def has_names(self) -> bool:
        """Whether the columns have names, and not just numbers."""
        return self.names != numbered(self.table.width)

    @property
    def preparation(self) -> Any:
        """What imputes, scales and encodes the columns of a data frame."""
        return self._prepared.pipeline

    @property
    def in_texts(self) -> bool:
        """Whether the rows are texts."""
        return self.vectorizer is not None

    @cached_property
    def space(self) -> Any:
        """The columns [N, d] in which splits are judged, an array or a sparse matrix."""
        if self.features is not None:
            if self.features.is_sparse:
                return self.features.data.tocsr().astype(np.float64)
            return self.features.tensor.double().cpu().numpy()
        if self.in_texts:
            return self.weights
        if self._prepared is not None:
            return np.asarray(self._prepared.pipeline.fit_transform(self._prepared.frame), np.float64)
        if self.table.is_sparse:
            return self.table.data.tocsr().astype(np.float64)
        return self.table.tensor.double().cpu().numpy()

    def tested(self, rows: Integers, codes: Integers) -> Integers:
        """Return the sorted positions of the columns that rules and names of a split may use.

        `codes` [n] are the parts of the rows.
        """
        d = self.table.width
        if d <= MAX_TESTED_COLUMNS:
            return np.arange(d)
        part = self.table.take(rows)
        numbers, others = self._kinds
        effects = _effects(part.select(numbers), codes)
        strongest = numbers[np.argsort(-effects, kind="stable")[:MAX_TESTED_COLUMNS]]
        return np.union1d(strongest, others).astype(np.int64)

    @cached_property
    def _kinds(self) -> tuple[Integers, Integers]:
        """The positions of the columns that hold numbers, and of all others."""
        if self.table.names is None:
            return np.arange(self.table.width), np.zeros(0, np.int64)
        frame = self.table.data
        is_numeric = np.array([is_number(frame.iloc[:, i]) for i in range(frame.shape[1])])
        return np.flatnonzero(is_numeric), np.flatnonzero(~is_numeric)

    def frame(self, rows: Integers, columns: Integers) -> pd.DataFrame:
        """Return some rows of some columns as a data frame."""
        part = self.table.take(rows).select(columns)
        return part.frame([self.names[column] for column in columns.tolist()])


def numbered(n: int) -> list[str]:
    """Return names for n columns that have none."""
    return [f"x{i}" for i in range(n)]


def _effects(table: Table, codes: Integers) -> NDArray[np.float64]:
    """Return the largest absolute Cohen's d [d] of a part against all others, in columns of numbers."""
    k = int(codes.max()) + 1
    moments = Moments(k, table.width)
    group = torch.from_numpy(codes)
    if table.is_sparse:
        values: Any = SparseRows(sparse.csr_matrix(table.data).astype(np.float64), torch.device("cpu"))
    elif table.names is not None:
        values = torch.from_numpy(table.data.to_numpy(dtype=np.float64, na_value=np.nan, copy=True))
    else:
        values = table.tensor.double().cpu()
    moments.add(values, group)
    effects = np.abs(np.nan_to_num(moments.cohens_d(), posinf=0.0, neginf=0.0))
    strongest: NDArray[np.float64] = effects.max(axis=0)
    return strongest
