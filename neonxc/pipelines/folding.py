"""Folding of the fitted steps of a scikit-learn pipeline: an encoding of the table, followed by one affine map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.data.sparse import moments
from neonxc.data.table import Table
from neonxc.head.preprocessing import Preprocessing
from neonxc.pipelines.affine import appended, remembered
from neonxc.pipelines.encoders import Encoded, Scaled, behind, encoded, known_behind
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Number, Part


def fold(steps: list[tuple[str, Any]], d: int) -> Folding:
    """Fold the fitted steps of a pipeline on a table with `d` columns.

    Raises
    ------
    ValueError
        A step can't be folded; the message names it.
    sklearn.exceptions.NotFittedError
        A step is not fitted.
    """
    folding = Folding.of(d)
    for name, step in steps:
        with _named(f"pipeline step {name!r}"):
            folding = _append(step, folding)
    return folding


def settle(
    folding: Folding, steps: list[tuple[str, Any]], X: Any = None, names: Sequence[str] | None = None
) -> tuple[Encoding | None, Preprocessing]:
    """Convert folded steps to an encoding of the table and a map of the encoded columns.

    If the map reduces the dimension, reference points are chosen nearest to the mean of X in units of its standard
    deviations; without X, nearest to the mean and scale that the first step has stored.

    Parameters
    ----------
    folding : Folding
    steps : list of (name, fitted step)
        The steps that were folded.
    X : array or data frame [N, d], or tensor [N, D] of encoded columns, optional
    names : sequence of str, optional
        Names of the table's columns. Default: x0, x1, ...

    Returns
    -------
    encoding : Encoding or None
        None if the steps use the columns of the table as numbers.
    preprocessing : Preprocessing

    Raises
    ------
    ValueError
        Invalid X, or a step fills a column with a string that no later step encodes.
    """
    encoding, chain, d = None, folding.map, folding.width
    if not folding.plain or _drops_others(folding, X):
        encoding, chain = folding.parted(tuple(names or (f"x{i}" for i in range(d))))
    center, scale = _location(X, encoding, d, steps[0][1])
    return encoding, replace(chain, center=center, scale=scale)


@dataclass(frozen=True)
class Folding:
    """The columns after some steps of a pipeline: an affine map of parts, each a function of one table column."""

    width: int
    parts: tuple[Part, ...]
    known: dict[int, tuple[Any, ...]]
    map: Preprocessing
    nan_alone: frozenset[int] = frozenset()

    @classmethod
    def of(cls, d: int) -> Folding:
        """Return the folding of no steps, on a table with `d` columns."""
        return cls(d, tuple(Number(i) for i in range(d)), {}, Preprocessing.identity(d))

    @property
    def plain(self) -> bool:
        """Whether the parts are the unchanged columns of the table."""
        return not self.known and all(part == Number(i) for i, part in enumerate(self.parts))

    @property
    def used(self) -> list[int]:
        """Indices of the parts that the map depends on."""
        weights = [self.map.weight] if self.map.norm is None else [self.map.weight, self.map.norm.weight]
        if any(weight.ndim == 1 for weight in weights):
            return list(range(len(self.parts)))
        used: list[int] = torch.cat(weights).ne(0).any(0).nonzero()[:, 0].tolist()
        return used

    def encoded(self, encoder: Encoded) -> Folding:
        """Append an encoder."""
        if self.map.norm is not None:
            raise ValueError(
                "it comes after a Normalizer, which mixes the table's columns; put it before the Normalizer"
            )
        columns: list[Scaled] = []
        mixtures = {}
        for row, part in enumerate(encoder.parts):
            source = self._source(part.column)
            if source is not None:
                columns.append(behind(part, source))
            elif isinstance(part, Number) and not part.functions:
                mixtures[row] = part.column  # mixed columns have no missing values to fill
            else:
                raise ValueError(
                    "it needs single columns, but a step before it mixes them; put it before that step"
                )
        alone = {i for i in encoder.nan_alone if self.plain and self._source(i) == Scaled(Number(i))}
        scaling = torch.tensor([column[1:] for column in columns], dtype=torch.float64).view(-1, 2)
        map_ = Preprocessing.identity(len(columns)).then(*scaling.T)
        parts = tuple(column.part for column in columns)
        folding = Folding(self.width, parts, self._known_with(encoder.known), map_, self.nan_alone | alone)
        return folding._with_mixtures(self, mixtures) if mixtures else folding

    def parted(self, columns: tuple[str, ...]) -> tuple[Encoding, Preprocessing]:
        """Return the encoding of the parts that are used, and the map of these parts."""
        used, norm = self.used, self.map.norm
        parts = tuple(self.parts[i] for i in used)
        for part in parts:
            if isinstance(part, Number) and isinstance(part.fill, str):
                raise ValueError(
                    f"missing values of column {columns[part.column]!r} are filled with {part.fill!r}, which no "
                    "step encodes as a number"
                )
        known = {column: values for column, values in self.known.items() if column in {p.column for p in parts}}
        encoding = Encoding(columns, parts, known, self.nan_alone)
        if self.map.diagonal or len(used) == len(self.parts):
            return encoding, self.map
        norm = None if norm is None else replace(norm, weight=norm.weight[:, used])
        return encoding, replace(self.map, weight=self.map.weight[:, used], norm=norm)

    def _source(self, column: int) -> Scaled | None:
        """The scaled part that a column is; None if it mixes several parts."""
        weight, shift = self.map.weight[column], float(self.map.bias[column])
        if self.map.diagonal:
            return Scaled(self.parts[column], float(weight), shift)
        found = weight.nonzero()[:, 0].tolist()
        return Scaled(self.parts[found[0]], float(weight[found[0]]), shift) if len(found) == 1 else None

    def _known_with(self, known: dict[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
        """Allowed values of the table's columns, after the restrictions of an encoder are added."""
        result = dict(self.known)
        for column, values in known.items():
            source = self._source(column)
            allowed = None if source is None else known_behind(values, source)
            if source is not None and allowed is not None:
                own = source.part.column
                result[own] = tuple(value for value in allowed if value in result.get(own, allowed))
        return result

    def _with_mixtures(self, before: Folding, mixtures: dict[int, int]) -> Folding:
        """Insert mixed columns of `before` as the rows given by the keys; the parts of both foldings are kept."""
        mixed = list(mixtures.values())
        own = [row for row in range(len(self.parts) + len(mixed)) if row not in mixtures]
        order = np.argsort([*own, *mixtures])
        weight = torch.block_diag(torch.diag(self.map.weight), before.map.weight[mixed])[order]
        bias = torch.cat([self.map.bias, before.map.bias[mixed]])[order]
        parts = self.parts + before.parts
        return replace(self, parts=parts, map=Preprocessing.identity(len(parts)).then(weight, bias))


def _append(step: Any, folding: Folding) -> Folding:
    """Append a fitted step."""
    if isinstance(step, Pipeline):
        for name, inner in step.steps:
            with _named(f"step {name!r}"):
                folding = _append(inner, folding)
        return folding
    if hasattr(step, "fit"):
        check_is_fitted(step)
    if isinstance(step, ColumnTransformer):
        return _side_by_side(step, folding)
    encoder = encoded(step)
    if encoder is None:
        return replace(folding, map=appended(step, folding.map))
    got, needed = len(folding.map.bias), step.n_features_in_
    if got != needed:
        raise RuntimeError(f"{type(step).__name__} was fitted on {needed} columns and gets {got}")
    return folding.encoded(encoder)


def _side_by_side(step: ColumnTransformer, folding: Folding) -> Folding:
    """Append a ColumnTransformer; each of its transformers is folded on the table of its columns."""
    if step.transformer_weights:
        raise ValueError("transformer_weights of a ColumnTransformer are not supported")
    blocks: list[tuple[list[int], Folding]] = []
    d, names = step.n_features_in_, list(getattr(step, "feature_names_in_", []))
    for name, inner, columns in step.transformers_:
        index = _column_index(columns, names, d)
        if not index or inner == "drop":  # transformers of no column are not fitted
            continue
        with _named(f"transformer {name!r}"):
            block = _append(inner, Folding.of(len(index)))
        if block.map.norm is not None:
            raise ValueError(f"a Normalizer inside a ColumnTransformer ({name!r}) can't be folded")
        blocks.append((index, block))
    if not sum(len(block.map.bias) for _, block in blocks):
        raise ValueError("the ColumnTransformer keeps no column")
    bias = torch.cat([block.map.bias for _, block in blocks])
    if all(block.plain for _, block in blocks):
        one = torch.eye(step.n_features_in_, dtype=torch.float64)
        weight = torch.cat([_full(block.map.weight) @ one[index] for index, block in blocks])
        return replace(folding, map=folding.map.then(weight, bias))
    together = Encoded([])
    for index, block in blocks:
        together.parts.extend(replace(part, column=index[part.column]) for part in block.parts)
        together.nan_alone.update(index[column] for column in block.nan_alone)
        for column, values in block.known.items():
            known = together.known.get(index[column], values)
            together.known[index[column]] = tuple(value for value in values if value in known)
    weights = [block.map.weight for _, block in blocks]
    weight = torch.cat(weights) if all(w.ndim == 1 for w in weights) else torch.block_diag(*map(_full, weights))
    folding = folding.encoded(together)
    return replace(folding, map=folding.map.then(weight, bias))


def _location(X: Any, encoding: Encoding | None, d: int, first: Any) -> tuple[Tensor, Tensor]:
    """Center and scale of the map's input columns: those of the data, or else those that the first step stores."""
    if X is None:
        while isinstance(first, Pipeline):
            first = first.steps[0][1]
        return remembered(first, d) if encoding is None else remembered(None, encoding.width)
    table = Table.read(X)
    if encoding is not None and not table.is_tensor:
        table = table.holding(encoding.encode(table))
    else:
        Table.read(table, d if encoding is None else encoding.width)
    if table.is_sparse:
        return moments(table.sparse_rows(torch.device("cpu")))
    data = table.tensor
    spread = data.double().std(dim=0, correction=0).cpu()
    return data.double().mean(dim=0).cpu(), torch.where(spread > 0, spread, 1.0)


def _drops_others(folding: Folding, X: Any) -> bool:
    """Whether the pipeline drops columns of a data frame that are not numeric or have missing values."""
    table, d = Table.read(X), len(folding.parts)
    if table.names is None or table.width != d:
        return False
    return table.select(sorted({*range(d)} - {*folding.used})).is_mixed


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Add the place in the pipeline to errors."""
    try:
        yield
    except NotFittedError as error:
        raise NotFittedError(f"{place}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    except RuntimeError as error:
        raise ValueError(f"{place} does not fit the steps before it ({error}); fit the Pipeline again") from None


def _full(weight: Tensor) -> Tensor:
    return torch.diag(weight) if weight.ndim == 1 else weight


def _column_index(columns: Any, names: list[str], d: int) -> list[int]:
    """The positions of columns that a ColumnTransformer selects by name, position, slice or mask."""
    if isinstance(columns, (str, int)):
        columns = [columns]
    if isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            start = names.index(columns.start) if columns.start is not None else 0
            stop = names.index(columns.stop) + 1 if columns.stop is not None else d
            return list(range(start, stop))
        return list(range(d))[columns]
    if len(columns) and isinstance(columns[0], (bool, np.bool_)):
        return [int(i) for i in np.flatnonzero(columns)]
    return [names.index(c) if isinstance(c, str) else int(c) % d for c in columns]
