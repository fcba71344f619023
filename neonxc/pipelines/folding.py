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

from neonxc.data.inputs import moments
from neonxc.data.table import Table
from neonxc.head.detection import Preprocessing
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Number, Scaled, composed, composed_known
from neonxc.pipelines.steps import encoded, remembered, with_step


def fold(steps: list[tuple[str, Any]], d: int) -> Folding:
    """Fold the fitted steps of a pipeline on a table with `d` columns.

    Raises
    ------
    ValueError
        A step can't be folded; the message names it.
    sklearn.exceptions.NotFittedError
        A step is not fitted.
    """
    columns = tuple(f"x{i}" for i in range(d))
    folding = Folding(Encoding(columns, tuple(map(Number, range(d)))), Preprocessing.identity(d))
    for name, step in steps:
        with _named(f"pipeline step {name!r}"):
            folding = _append(step, folding)
    return folding


def encoding_and_map(
    folding: Folding, steps: list[tuple[str, Any]], table: Table | None = None, names: Sequence[str] | None = None
) -> tuple[Encoding | None, Preprocessing]:
    """Convert folded steps to an encoding of the table and a map of the encoded columns.

    If the map reduces the dimension, reference points are chosen nearest to the mean of the points in units of
    their standard deviations; without points, nearest to the mean and scale that the first step has stored.

    Parameters
    ----------
    folding : Folding
    steps : list of (name, fitted step)
        The steps that were folded.
    table : Table, optional
        Points [N, d], or a tensor [N, D] of encoded columns.
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
        Invalid points, or a step fills a column with a string that no later step encodes.
    """
    d, encoding, preprocessing = len(folding.encoding.columns), None, folding.map
    is_plain = folding.plain
    if is_plain and table is not None and table.names is not None and table.width == d:
        # columns that the pipeline drops may hold texts or missing values
        is_plain = not table.select(sorted({*range(d)} - {*folding.used})).is_mixed
    if not is_plain:
        encoding, preprocessing = folding.split(tuple(names or folding.encoding.columns))
    width = d if encoding is None else encoding.width
    if table is None:
        center, scale = remembered(first_step(steps) if encoding is None else None, width)
    elif encoding is not None and not table.is_tensor:
        center, scale = moments(encoding.encode(table))
    else:
        Table.read(table, width)
        center, scale = moments(table.rows(table.device))
    return encoding, replace(preprocessing, center=center.cpu(), scale=scale.cpu())


def first_step(steps: list[tuple[str, Any]]) -> Any:
    """Return the first step of a pipeline, inside of pipelines at its beginning."""
    first = steps[0][1]
    while isinstance(first, Pipeline):
        first = first.steps[0][1]
    return first


@dataclass(frozen=True)
class Folding:
    """The columns after some steps of a pipeline: an affine map of encoded columns of the table."""

    encoding: Encoding
    map: Preprocessing

    @property
    def plain(self) -> bool:
        """Whether the encoding is that of no step: the columns of the table as numbers."""
        encoding = self.encoding
        return not encoding.known and encoding.parts == tuple(map(Number, range(len(encoding.columns))))

    @property
    def used(self) -> list[int]:
        """Indices of the encoded columns that the map depends on."""
        weights = [affine.weight for affine in (self.map, self.map.norm) if affine is not None]
        if any(weight.ndim == 1 for weight in weights):
            return [*range(len(self.encoding.parts))]
        return list(torch.cat(weights).any(0).nonzero()[:, 0].tolist())

    def select(self, columns: Sequence[int]) -> Folding:
        """Return some of the columns."""
        weight, encoding = self.map.weight, self.encoding
        if self.map.diagonal and self.map.norm is None:
            encoding = encoding.of(columns)
        else:
            weight = _full(weight)
        weight, bias, offset = (values[columns] for values in (weight, self.map.bias, self.map.offset))
        return Folding(encoding, replace(self.map, weight=weight, bias=bias, offset=offset))

    def concatenated(self, blocks: Sequence[Folding]) -> Folding:
        """Concatenate the columns of foldings, each of which was made from some columns of this one."""
        known: dict[int, tuple[Any, ...]] = {}
        for block in blocks:
            for column, values in block.encoding.known.items():
                _restrict(known, column, values)
        weights = [block.map.weight for block in blocks]
        diagonal = all(weight.ndim == 1 for weight in weights)
        weight = torch.cat(weights) if diagonal else torch.block_diag(*map(_full, weights))
        parts = tuple(part for block in blocks for part in block.encoding.parts)
        place = {part: i for i, part in enumerate(self.encoding.parts)}
        if place.keys() >= {*parts}:  # no block has encoded its columns
            identity = torch.eye(self.encoding.width, dtype=torch.float64)
            weight, parts = _full(weight) @ identity[[place[part] for part in parts]], self.encoding.parts
        bias, offset = (torch.cat([getattr(block.map, name) for block in blocks]) for name in ("bias", "offset"))
        alone = frozenset().union(*(block.encoding.nan_alone for block in blocks))
        encoding = replace(self.encoding, parts=parts, known=known, nan_alone=alone)
        return Folding(encoding, replace(self.map, weight=weight, bias=bias, offset=offset))

    def encoded(self, encoder: Encoding) -> Folding:
        """Append an encoder."""
        if self.map.norm is not None:
            raise ValueError(
                "it comes after a Normalizer, which mixes the table's columns; put it before the Normalizer"
            )
        sources = [self._source(column) for column in range(len(self.map.bias))]
        columns: dict[int, Scaled] = {}
        mixed: dict[int, int] = {}
        for row, part in enumerate(encoder.parts):
            source = sources[part.column]
            if source is not None:
                columns[row] = composed(part, source)
            elif isinstance(part, Number) and not part.functions:
                mixed[row] = part.column  # mixed columns have no missing values to fill
            else:
                raise ValueError(
                    "it needs single columns, but a step before it mixes them; put it before that step"
                )
        known, alone = dict(self.encoding.known), {*self.encoding.nan_alone}
        for i, source in enumerate(sources):
            if source is not None:
                allowed = composed_known(encoder.known[i], source) if i in encoder.known else None
                _restrict(known, source.part.column, allowed)
                if i in encoder.nan_alone and source == Scaled(Number(source.part.column)):
                    alone.add(source.part.column)
        parts = tuple(column.part for column in columns.values())
        scaling = torch.tensor([column[1:] for column in columns.values()], dtype=torch.float64).view(-1, 2)
        encoding = replace(self.encoding, parts=parts, known=known, nan_alone=frozenset(alone))
        single = Folding(encoding, Preprocessing.identity(len(parts)).then(*scaling.T))
        if not mixed:
            return single
        both = self.concatenated([single, self.select([*mixed.values()])])
        return both.select(np.argsort([*columns, *mixed]).tolist())

    def split(self, columns: tuple[str, ...]) -> tuple[Encoding, Preprocessing]:
        """Return the encoding as far as it is used, of columns with these names, and the map behind it."""
        used, preprocessing = self.used, self.map
        encoding = replace(self.encoding.of(used), columns=columns)
        for part in encoding.parts:
            if isinstance(part, Number) and isinstance(part.fill, str):
                raise ValueError(
                    f"missing values of column {columns[part.column]!r} are filled with {part.fill!r}, which no "
                    "step encodes as a number"
                )
        known = {i: values for i, values in encoding.known.items() if i in encoding.owner}
        if len(used) < self.encoding.width:
            norm = preprocessing.norm and replace(preprocessing.norm, weight=preprocessing.norm.weight[:, used])
            preprocessing = replace(preprocessing, weight=preprocessing.weight[:, used], norm=norm)
        return replace(encoding, known=known), preprocessing

    def _source(self, column: int) -> Scaled | None:
        """The scaled part that a column is; None if it mixes several parts."""
        weight = self.map.weight[column]
        parts = [column] if self.map.diagonal else weight.nonzero()[:, 0].tolist()
        if len(parts) != 1:
            return None
        return Scaled(self.encoding.parts[parts[0]], float(weight.sum()), float(self.map.bias[column]))


def _restrict(known: dict[int, tuple[Any, ...]], column: int, values: tuple[Any, ...] | None) -> None:
    """Allow only some values of a column of the table; None: all."""
    if values is not None:
        known[column] = tuple(value for value in values if value in known.get(column, values))


def _append(step: Any, folding: Folding) -> Folding:
    """Append a fitted step; each transformer of a ColumnTransformer is appended to its columns."""
    if isinstance(step, Pipeline):
        for name, inner in step.steps:
            with _named(f"step {name!r}"):
                folding = _append(inner, folding)
        return folding
    if hasattr(step, "fit"):
        check_is_fitted(step)
    if isinstance(step, ColumnTransformer):
        if step.transformer_weights:
            raise ValueError("transformer_weights of a ColumnTransformer are not supported")
        blocks = []
        for name, inner, _ in step.transformers_:
            index = step._transformer_to_input_indices[name]
            if len(index) and inner != "drop":  # transformers of no column are not fitted
                with _named(f"transformer {name!r}"):
                    blocks.append(_append(inner, folding.select([*index])))
                if blocks[-1].map.norm is not folding.map.norm:
                    raise ValueError(f"a Normalizer inside a ColumnTransformer ({name!r}) can't be folded")
        if not sum(len(block.map.bias) for block in blocks):
            raise ValueError("the ColumnTransformer keeps no column")
        return folding.concatenated(blocks)
    encoder = encoded(step)
    if encoder is None:
        return replace(folding, map=with_step(step, folding.map))
    got, needed = len(folding.map.bias), step.n_features_in_
    if got != needed:
        raise RuntimeError(f"{type(step).__name__} was fitted on {needed} columns and gets {got}")
    return folding.encoded(encoder)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Add the place in the pipeline to errors."""
    try:
        yield
    except ValueError as error:
        raise (NotFittedError if isinstance(error, NotFittedError) else ValueError)(f"{place}: {error}") from None
    except RuntimeError as error:
        raise ValueError(f"{place} does not fit the steps before it ({error}); fit the Pipeline again") from None


def _full(weight: Tensor) -> Tensor:
    return torch.diag(weight) if weight.ndim == 1 else weight
