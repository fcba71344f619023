"""Folding of the fitted steps of a scikit-learn pipeline: an encoding of the table, followed by one affine map.

The columns after some steps are

    z(x) = (A e(x) + b) / n(x) + c     of the encoded columns e(x) of the table, with the row norm n(x), or n = 1

at first e(x) = x, A = I, b = c = 0. A step that is appended changes them as follows:

    affine map W z + v         A becomes W A, and the others accordingly
    Normalizer                 n(x) becomes the norm of z
    selector                   some rows of A, b and c; of columns that stay separate, also some of e
    encoder, function, fill    e becomes its composition with the step, column by column
    ColumnTransformer          the columns that each of its steps makes of some of z, one after the other
    FeatureUnion               the same, of all of z
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.common.numbers import plural
from neonxc.common.searches import unwrapped
from neonxc.data.inputs import moments
from neonxc.data.table import Table
from neonxc.head.preprocessing import Preprocessing
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.folding_check import FoldingCheck, Numbers, Rows, difference
from neonxc.pipelines.opened import Step
from neonxc.pipelines.parts import Number, Scaled, composed, composed_known
from neonxc.pipelines.steps import (
    CONTAINERS,
    WithoutFormula,
    encoded,
    has_formula,
    inherited,
    is_curved,
    remembered,
    selected,
    with_step,
    without_formula,
)

NEEDS_X = "what it does is read from rows of X: neonxc.neuralize(model, X)"


def fold(steps: list[Step], d: int, rows: Rows | None = None) -> Folding:
    """Fold the fitted steps of a pipeline on a table with `d` columns.

    Parameters
    ----------
    steps : list of (name, fitted step)
    d : int
        Number of columns of the table.
    rows : Rows, optional
        Rows of the table. Steps without a formula are read from what they return for them, and all steps are
        compared with it.

    Raises
    ------
    ValueError
        A step can't be folded, or returns something else for the rows; the message names it.
    sklearn.exceptions.NotFittedError
        A step is not fitted.
    """
    columns = tuple(f"x{i}" for i in range(d))
    folding = Folding(Encoding(columns, tuple(map(Number, range(d)))), Preprocessing.identity(d))
    comparison = None if rows is None else FoldingCheck(rows)
    for name, step in steps:
        with _named(f"pipeline step {name!r}"):
            folding = _append(step, folding, rows)
            if rows is None or comparison is None:
                continue
            rows = behind(step, rows)
            reason = comparison.difference(step, folding, rows)
            if reason:
                kind = type(step).__name__
                raise ValueError(f"{kind} is not the map that was read from it: for a row of X, {reason}")
    return folding


def transform(steps: list[Step], data: Any) -> Any:
    """Transform data by fitted steps, of which the last may store nothing, which a Pipeline refuses."""
    for _, step in steps:
        if step is not None and not isinstance(step, str):
            data = step.transform(data)
    return data


def behind(step: object, rows: Rows) -> Rows:
    """Return rows behind a step, which may be 'passthrough'."""
    if step is None or isinstance(step, str):
        return rows
    return rows.after(step)


def check_pipelines(model: object, rows: Rows | None) -> None:
    """Raise a ValueError unless pipelines of a class of their own do with rows what their steps do.

    Parameters
    ----------
    model : estimator
        A fitted model; a pipeline may end in another one.
    rows : Rows or None
        Rows as they enter the first step.
    """
    while isinstance(model, Pipeline):  # not opened(): the pipeline of every level may have a transform of its own
        name = type(model).__name__
        steps = model.steps[:-1]
        after = rows
        for _, step in steps:
            after = after and behind(step, after)
        if steps and inherited(model, (Pipeline,)) is None:
            if rows is None or after is None:
                raise ValueError(f"{name} has a transform of its own, and {NEEDS_X}")
            reason = _other_rows(rows.after(model[:-1]), after)
            if reason:
                raise ValueError(
                    f"{name} has a transform of its own, and not that of its steps: for a row of X, {reason}; "
                    "neonxc.neuralize(labels=model.predict(X), X=X) explains its labels by the columns of X"
                )
        rows = after
        model = model.steps[-1][1]


def _other_rows(by_pipeline: Rows, by_steps: Rows) -> str:
    """Describe a difference between what a pipeline makes of rows and what its steps make of them."""
    try:
        expected = Numbers.of(by_steps.data).values
    except Exception:  # rows that the steps do not take, as the network does not
        return ""
    try:
        numbers = Numbers.of(by_pipeline.data)
    except Exception as error:
        return f"it fails with {type(error).__name__}: {error}"
    size = np.nan_to_num(np.abs(expected)).max(axis=0, initial=0.0)
    return difference(expected, size, numbers)


def encoding_and_map(
    folding: Folding, steps: list[Step], table: Table | None = None, names: Sequence[str] | None = None
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
    d = len(folding.encoding.columns)
    is_plain = folding.plain
    if is_plain and table is not None and table.names is not None and table.width == d:
        # columns that the pipeline drops may hold texts or missing values
        unused = {*range(d)} - {*folding.used}
        is_plain = not table.select(sorted(unused)).is_mixed
    encoding = None
    preprocessing = folding.map
    if not is_plain:
        encoding, preprocessing = folding.split(tuple(names or folding.encoding.columns))

    width = d if encoding is None else encoding.width
    if table is None:
        first = first_step(steps) if encoding is None else None
        center, scale = remembered(first, width)
    elif encoding is not None and not table.is_tensor:
        center, scale = moments(encoding.encode(table))
    else:
        Table.read(table, width)
        center, scale = moments(table.rows(table.device))
    return encoding, replace(preprocessing, center=center.cpu(), scale=scale.cpu())


def first_step(steps: list[Step]) -> object:
    """Return the first step of a pipeline, inside of pipelines at its beginning."""
    first: object = steps[0][1]
    while isinstance(first, Pipeline):  # not opened(), which follows the last step
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
        columns = range(len(self.encoding.columns))
        return not self.encoding.known and self.encoding.parts == tuple(map(Number, columns))

    @property
    def used(self) -> list[int]:
        """Indices of the encoded columns that the map depends on."""
        weights = [self.map.weight]
        if self.map.norm is not None:
            weights.append(self.map.norm.weight)
        if any(weight.ndim == 1 for weight in weights):
            return [*range(len(self.encoding.parts))]
        is_used = torch.cat(weights).any(0)
        return list(is_used.nonzero()[:, 0].tolist())

    def select(self, columns: Sequence[int]) -> Folding:
        """Return some of the columns."""
        encoding = self.encoding
        weight = self.map.weight
        if self.map.diagonal and self.map.norm is None:
            encoding = encoding.of(columns)
        else:
            weight = _full(weight)
        bias = self.map.bias[columns]
        offset = self.map.offset[columns]
        return Folding(encoding, replace(self.map, weight=weight[columns], bias=bias, offset=offset))

    def keep(self, columns: Sequence[int]) -> Folding:
        """Return some of the columns, without a change of the encoding."""
        if not columns:
            raise ValueError("it keeps no column")
        if [*columns] == [*range(len(self.map.bias))]:
            return self
        return self.concatenated([self.select(columns)])

    def scaled(self, factor: float | None) -> Folding:
        """Return multiples of the columns."""
        if factor is None:
            return self
        weight = torch.full_like(self.map.bias, factor)
        return replace(self, map=self.map.then(weight, torch.zeros_like(weight)))

    def unchanged(self, column: int) -> Number | None:
        """Return the part that a column is, if it is what is in the table, but for missing values."""
        source = self._source(column)
        if source is None or source != Scaled(source.part) or self.map.norm is not None:
            return None
        if isinstance(source.part, Number) and not source.part.functions:
            return source.part
        return None

    def concatenated(self, blocks: Sequence[Folding]) -> Folding:
        """Concatenate the columns of foldings, each of which was made from some columns of this one."""
        known: dict[int, tuple[Any, ...]] = {}
        nan_alone = frozenset[int]()
        for block in blocks:
            nan_alone |= block.encoding.nan_alone
            for column, values in block.encoding.known.items():
                _restrict(known, column, values)

        weights = [block.map.weight for block in blocks]
        if all(weight.ndim == 1 for weight in weights):
            weight = torch.cat(weights)
        else:
            weight = torch.block_diag(*map(_full, weights))
        parts = tuple(part for block in blocks for part in block.encoding.parts)
        position = {part: i for i, part in enumerate(self.encoding.parts)}
        if position.keys() >= {*parts}:  # no block has encoded its columns
            weight = _scattered(weight, [position[part] for part in parts], self.encoding.width)
            parts = self.encoding.parts
        bias = torch.cat([block.map.bias for block in blocks])
        offset = torch.cat([block.map.offset for block in blocks])
        encoding = replace(self.encoding, parts=parts, known=known, nan_alone=nan_alone)
        return Folding(encoding, replace(self.map, weight=weight, bias=bias, offset=offset))

    def encoded(self, encoder: Encoding) -> Folding:
        """Append an encoder."""
        if self.map.norm is not None:
            raise ValueError(
                "it comes after a Normalizer, which mixes the table's columns; put it before the Normalizer"
            )
        sources = [self._source(column) for column in range(len(self.map.bias))]
        composed_parts: dict[int, Scaled] = {}  # by the position of the part in the encoder
        mixed: dict[int, int] = {}
        for i, part in enumerate(encoder.parts):
            source = sources[part.column]
            if source is not None:
                composed_parts[i] = composed(part, source)
            elif isinstance(part, Number) and not part.functions:
                mixed[i] = part.column  # mixed columns have no missing values to fill
            else:
                raise ValueError(
                    "it needs single columns, but a step before it mixes them; put it before that step"
                )
        known, nan_alone = self._restricted(encoder, sources)

        parts = tuple(scaled.part for scaled in composed_parts.values())
        scaling = [(scaled.slope, scaled.shift) for scaled in composed_parts.values()]
        slopes, shifts = torch.tensor(scaling, dtype=torch.float64).view(-1, 2).T
        encoding = replace(self.encoding, parts=parts, known=known, nan_alone=nan_alone)
        single = Folding(encoding, Preprocessing.identity(len(parts)).then(slopes, shifts))
        if not mixed:
            return single
        both = self.concatenated([single, self.select([*mixed.values()])])
        order = np.argsort([*composed_parts, *mixed])  # of the parts in the encoder
        return both.select(order.tolist())

    def _restricted(
        self, encoder: Encoding, sources: list[Scaled | None]
    ) -> tuple[dict[int, tuple[Any, ...]], frozenset[int]]:
        """Return the values of table columns that an encoder allows, and where NaN alone is a missing value."""
        known = dict(self.encoding.known)
        nan_alone = {*self.encoding.nan_alone}
        for i, source in enumerate(sources):
            if source is None:
                continue
            column = source.part.column
            if i in encoder.known:
                _restrict(known, column, composed_known(encoder.known[i], source))
            if i in encoder.nan_alone and source == Scaled(Number(column)):
                nan_alone.add(column)
        return known, frozenset(nan_alone)

    def split(self, columns: tuple[str, ...]) -> tuple[Encoding, Preprocessing]:
        """Return the encoding as far as it is used, of columns with these names, and the map behind it."""
        used = self.used
        encoding = replace(self.encoding.of(used), columns=columns)
        for part in encoding.parts:
            if isinstance(part, Number) and isinstance(part.fill, str):
                raise ValueError(
                    f"missing values of column {columns[part.column]!r} are filled with {part.fill!r}, which no "
                    "step encodes as a number"
                )
        known = {i: values for i, values in encoding.known.items() if i in encoding.owner}
        encoding = replace(encoding, known=known)
        if len(used) == self.encoding.width:
            return encoding, self.map

        norm = self.map.norm
        if norm is not None:
            norm = replace(norm, weight=norm.weight[:, used])
        return encoding, replace(self.map, weight=self.map.weight[:, used], norm=norm)

    def _source(self, column: int) -> Scaled | None:
        """Return the scaled part that a column is; None if it mixes several parts."""
        weight = self.map.weight[column]
        parts = [column] if self.map.diagonal else weight.nonzero()[:, 0].tolist()
        if len(parts) != 1:
            return None
        return Scaled(self.encoding.parts[parts[0]], float(weight.sum()), float(self.map.bias[column]))


def _restrict(known: dict[int, tuple[Any, ...]], column: int, values: tuple[Any, ...] | None) -> None:
    """Allow only some values of a column of the table; None: all."""
    if values is not None:
        known[column] = tuple(value for value in values if value in known.get(column, values))


def _append(step: object, folding: Folding, rows: Rows | None) -> Folding:
    """Append a fitted step: by its formula, or, if it has none, as its `transform` of rows tells."""
    step = unwrapped(step)
    if step is None or isinstance(step, str):  # "passthrough"
        return folding
    if has_formula(step, CONTAINERS):
        return _opened(step, folding, rows)
    if has_formula(step):
        check_is_fitted(step)
        _check_width(step, folding)
        try:
            return _by_formula(step, folding)
        except WithoutFormula as error:  # a function
            return _probed(step, folding, rows, error)
    columns = selected(step)
    if columns is not None:
        _check_width(step, folding)
        return folding.keep(columns)
    if inherited(step) in CONTAINERS and rows is not None:  # fold compares it with what it returns
        return _opened(step, folding, rows)
    return _probed(step, folding, rows, without_formula(step))


def _opened(step: object, folding: Folding, rows: Rows | None) -> Folding:
    """Append the steps of a Pipeline, or the transformers of a ColumnTransformer or FeatureUnion side by side."""
    if isinstance(step, Pipeline):
        for name, inner in step.steps:
            with _named(f"step {name!r}"):
                folding = _append(inner, folding, rows)
            rows = rows and behind(inner, rows)
        return folding

    assert isinstance(step, ColumnTransformer | FeatureUnion)
    weights = step.transformer_weights or {}
    blocks = []
    for name, inner, columns in _transformers(step, len(folding.map.bias)):
        with _named(f"transformer {name!r}"):
            block = _append(inner, folding.select(columns), rows and rows.select(columns))
        if block.map.norm is not folding.map.norm:
            raise ValueError(f"a Normalizer inside a {type(step).__name__} ({name!r}) can't be folded")
        blocks.append(block.scaled(weights.get(name)))
    if not sum(len(block.map.bias) for block in blocks):
        raise ValueError(f"the {type(step).__name__} keeps no column")
    return folding.concatenated(blocks)


def _transformers(step: ColumnTransformer | FeatureUnion, n_columns: int) -> Iterator[tuple[str, Any, list[int]]]:
    """Yield the name of each transformer, the transformer and the positions of its columns."""
    if isinstance(step, FeatureUnion):
        for name, inner in step.transformer_list:
            if not _is_drop(inner):
                yield name, inner, [*range(n_columns)]
        return
    check_is_fitted(step)
    for name, inner, _ in step.transformers_:
        columns = step._transformer_to_input_indices[name]
        if len(columns) and not _is_drop(inner):  # without columns it is not fitted
            yield name, inner, [*columns]


def _is_drop(step: object) -> bool:
    """Whether a transformer stands for columns that are left out."""
    return isinstance(step, str) and step == "drop"


def _check_width(step: object, folding: Folding) -> None:
    """Raise a RuntimeError unless a step was fitted on as many columns as the steps before it make."""
    n_columns = len(folding.map.bias)
    n_fitted = getattr(step, "n_features_in_", n_columns)
    if n_columns != n_fitted:
        columns = plural(n_fitted, "column")
        raise RuntimeError(f"{type(step).__name__} was fitted on {columns} and gets {n_columns}")


def _by_formula(step: object, folding: Folding) -> Folding:
    """Append a step by its fitted attributes: an encoder, or a map."""
    encoder = encoded(step)
    if encoder is None:
        return replace(folding, map=with_step(step, folding.map))
    return folding.encoded(encoder)


def _probed(step: object, folding: Folding, rows: Rows | None, error: WithoutFormula) -> Folding:
    """Append a step that has no formula, by what it returns for rows."""
    if rows is None:
        if is_curved(step):
            raise error
        raise WithoutFormula(f"{error}; {NEEDS_X}")
    from neonxc.pipelines.probing import read  # which steps with a formula do without

    try:
        affine = read(step, rows.data)
    except NotFittedError:
        raise
    except Exception as failure:  # of this step, or of one before it
        if inherited(step) is not None and not has_formula(step):
            # an encoder or a Normalizer; fold compares it with what it returns
            return _by_formula(step, folding)
        raise WithoutFormula(f"{error}. {failure}") from None
    columns = affine.selection
    if columns is not None:
        return folding.keep(columns)
    return replace(folding, map=folding.map.then(affine.weight, affine.bias))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of a step to errors."""
    try:
        yield
    except NotFittedError as error:
        raise NotFittedError(f"{name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    except RuntimeError as error:
        raise ValueError(f"{name} does not fit the steps before it ({error}); fit the Pipeline again") from None


def _scattered(weight: Tensor, columns: list[int], d: int) -> Tensor:
    """Return the weights [p, d] of d columns, from those [n] or [p, n] of some of them, which may repeat."""
    index = torch.tensor(columns)
    full = weight.new_zeros(len(weight), d)
    if weight.ndim == 1:
        full[torch.arange(len(weight)), index] = weight
        return full
    return full.index_add_(1, index, weight)


def _full(weight: Tensor) -> Tensor:
    """Return weights [p, d], also of columns [d] that stay separate."""
    return torch.diag(weight) if weight.ndim == 1 else weight
