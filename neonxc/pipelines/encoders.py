"""Encoders of scikit-learn as parts of an :class:`~neonxc.pipelines.encoding.Encoding`, and their composition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from neonxc.data.inputs import is_missing
from neonxc.pipelines.encoding import Encoding, category
from neonxc.pipelines.parts import FUNCTIONS, Code, Indicator, Number, Part

ENCODERS = "OneHotEncoder, OrdinalEncoder, SimpleImputer, FunctionTransformer of " + ", ".join(
    f"np.{name}" for name in FUNCTIONS
)


@singledispatch
def encoded(step: Any) -> Encoding | None:
    """Return the encoding of a fitted step's own columns, which have no names; None if it is no encoder."""
    return None


@encoded.register
def _(step: FunctionTransformer) -> Encoding | None:
    if step.func is None:
        return None
    name = next((name for name, function in FUNCTIONS.items() if function is step.func), None)
    if name is None or step.kw_args:
        what = getattr(step.func, "__name__", repr(step.func))
        what += f" with kw_args {step.kw_args}" if step.kw_args else ""
        raise ValueError(
            f"FunctionTransformer of {what} can't be folded; supported are func=None and the increasing functions "
            f"{', '.join(f'np.{name}' for name in FUNCTIONS)} without kw_args"
        )
    return Encoding((), tuple(Number(i, functions=(name,)) for i in range(step.n_features_in_)))


@encoded.register
def _(step: SimpleImputer) -> Encoding:
    if not is_missing(step.missing_values):
        raise ValueError(
            f"SimpleImputer(missing_values={step.missing_values!r}) can't be folded: missing values need to be "
            "NaN or None; pandas reads them with na_values="
        )
    fills = [category(value) for value in step.statistics_]
    parts: list[Part] = [Number(i, fill) for i, fill in enumerate(fills) if fill is not None]
    if step.indicator_ is not None:
        parts += [Indicator(int(i), (None,)) for i in step.indicator_.features_]
    numeric = step.strategy in ("mean", "median")  # where None becomes NaN
    alone = range(0 if numeric or step.missing_values is None else len(fills))
    return Encoding((), tuple(parts), nan_alone=frozenset(alone))


@encoded.register
def _(step: OneHotEncoder) -> Encoding:
    result: list[Part] = []
    for i, (values, rare) in enumerate(_categories(step)):
        frequent = tuple(value for value in values if value not in rare)
        parts: list[Part] = [Indicator(i, (value,)) for value in frequent]
        if rare and step.handle_unknown in ("infrequent_if_exist", "warn"):  # unknown values count as infrequent
            parts.append(Code(i, frequent, 1.0, (0.0,) * len(frequent)))
        elif rare:
            parts.append(Indicator(i, tuple(rare)))
        dropped = None if step.drop_idx_ is None else step.drop_idx_[i]
        if dropped is not None:
            del parts[-1 if values[dropped] in rare else frequent.index(values[dropped])]
        result += parts
    return Encoding((), tuple(result), _known(step))


@encoded.register
def _(step: OrdinalEncoder) -> Encoding:
    parts = []
    unknown = None if is_missing(step.unknown_value) else float(step.unknown_value)
    for i, (values, rare) in enumerate(_categories(step)):
        apart = values[-1] is None and step.categories_[i][-1] is not None  # NaN has a code of its own, None not
        frequent = [value for value in (values[:-1] if apart else values) if value not in rare]
        numbers = {value: float(code) for code, value in enumerate(frequent)}
        numbers |= dict.fromkeys(rare, float(len(frequent)))
        if apart:
            numbers[None] = float(step.encoded_missing_value)
        parts.append(Code(i, tuple(numbers), unknown, tuple(numbers.values())))
    return Encoding((), tuple(parts), _known(step))


def _known(step: OneHotEncoder | OrdinalEncoder) -> dict[int, tuple[Any, ...]]:
    """The values of each column if others are an error."""
    error = step.handle_unknown == "error"
    return {i: values for i, (values, _) in enumerate(_categories(step))} if error else {}


def _categories(step: OneHotEncoder | OrdinalEncoder) -> Iterator[tuple[tuple[Any, ...], dict[Any, None]]]:
    """Yield the categories of each column, and the infrequent ones, which are encoded as one."""
    rare = getattr(step, "infrequent_categories_", [None] * len(step.categories_))
    for i, categories in enumerate(step.categories_):
        values = tuple(category(value) for value in categories)
        if len(set(values)) < len(values):
            raise ValueError(f"its column {i} has both None and NaN as categories; use one of them")
        yield values, {} if rare[i] is None else dict.fromkeys(category(value) for value in rare[i])


class Scaled(NamedTuple):
    """The column ``slope * part + shift``."""

    part: Part
    slope: float = 1.0
    shift: float = 0.0

    def at(self, number: float) -> float:
        """The column's number where that of the part is known."""
        return self.slope * number + self.shift


def behind(part: Part, column: Scaled) -> Scaled:
    """Compose two parts: a part of a scaled column, in terms of the column that the scaled part is of.

    Raises
    ------
    ValueError
        The composition is no scaled part, for example the categories of a scaled column.
    """
    source, as_it_is = column.part, column == Scaled(column.part)
    if isinstance(part, Number) and not part.functions:
        if part.fill is None or not source.has_gaps:
            return column
        if isinstance(source, Number):
            fill = part.fill if as_it_is else (part.fill - column.shift) / column.slope
            return column._replace(part=_filled(source, fill))
    if not isinstance(source, Number):
        codes = tuple(part.number(column.at(number)) for number in source.numbers.values())
        other = part.number(column.at(source.other))
        return Scaled(Code(source.column, tuple(source.numbers), None if np.isnan(other) else other, codes))
    if part == Indicator(part.column, (None,)):  # scaling does not change which values are missing
        return Scaled(Indicator(source.column, (None,) * source.has_gaps))
    if not as_it_is:
        raise ValueError("it needs unscaled columns, but a step before it scales them; put that step after it")
    if isinstance(part, Number):
        return Scaled(replace(source, functions=source.functions + part.functions))
    if source.functions:
        raise ValueError(f"it needs untransformed columns, but a step before it takes their {source.functions[0]}")
    return Scaled(_of_filled(replace(part, column=source.column), source.fill))


def known_behind(values: tuple[Any, ...], column: Scaled) -> tuple[Any, ...] | None:
    """The values of the scaled part's own column that are mapped to one of some values; None: all are."""
    source = column.part
    if isinstance(source, Number):
        return values if source.fill is None or source.fill not in values else (*values, None)
    if column.at(source.other) in values:
        return None
    return tuple(value for value, number in source.numbers.items() if column.at(number) in values)


def _filled(source: Number, fill: Any) -> Number:
    """Numbers whose missing ones are filled such that the functions map them to a number."""
    if not source.functions:
        return replace(source, fill=fill)
    filled = replace(source, fill=float(source.undo(np.asarray(fill))))
    if not np.isclose(filled.number(None), fill, rtol=1e-9, atol=1e-12):
        raise ValueError(
            f"it fills with {fill:g}, which is no value of {' and '.join(source.functions)} before it"
        )
    return filled


def _of_filled(part: Code, fill: Any) -> Part:
    """A categorical part of a column whose missing values are filled."""
    if fill is None:
        return part
    if None in part.values:
        raise ValueError("it has a category for missing values, but a SimpleImputer before it fills them")
    if fill not in part.values:
        return part
    values = (*part.values, None)
    if isinstance(part, Indicator):
        return replace(part, values=values)
    return replace(part, values=values, codes=(*part.numbers.values(), part.numbers[fill]))
