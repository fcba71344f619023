"""Encoders of scikit-learn as parts of an :class:`~neonxc.pipelines.encoding.Encoding`, and their composition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from neonxc.data.inputs import is_missing
from neonxc.pipelines.encoding import category
from neonxc.pipelines.parts import FUNCTIONS, Code, Indicator, Number, Part

ENCODERS = "OneHotEncoder, OrdinalEncoder, SimpleImputer, FunctionTransformer of " + ", ".join(
    f"np.{name}" for name in FUNCTIONS
)


@dataclass(frozen=True)
class Encoded:
    """The effect of an encoder on its input columns.

    Attributes
    ----------
    parts : list of Number, Indicator or Code
        Definitions of the output columns, each in terms of one input column.
    known : dict of int to tuple
        Allowed values of input columns.
    nan_alone : set of int
        Input columns in which NaN is a missing value, and None is another value.
    """

    parts: list[Part]
    known: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    nan_alone: set[int] = field(default_factory=set)


@singledispatch
def encoded(step: Any) -> Encoded | None:
    """Return the effect of a fitted pipeline step that is an encoder; None for other steps."""
    return None


@encoded.register
def _(step: FunctionTransformer) -> Encoded | None:
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
    return Encoded([Number(i, functions=(name,)) for i in range(step.n_features_in_)])


@encoded.register
def _(step: SimpleImputer) -> Encoded:
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
    return Encoded(parts, nan_alone=set() if numeric or step.missing_values is None else {*range(len(fills))})


@encoded.register
def _(step: OneHotEncoder) -> Encoded:
    result = Encoded([])
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
        result.parts.extend(parts)
        if step.handle_unknown == "error":
            result.known[i] = values
    return result


@encoded.register
def _(step: OrdinalEncoder) -> Encoded:
    result = Encoded([])
    unknown = None if is_missing(step.unknown_value) else float(step.unknown_value)
    for i, (values, rare) in enumerate(_categories(step)):
        apart = values[-1] is None and step.categories_[i][-1] is not None  # NaN has a code of its own, None not
        frequent = [value for value in (values[:-1] if apart else values) if value not in rare]
        numbers = {value: float(code) for code, value in enumerate(frequent)}
        numbers |= dict.fromkeys(rare, float(len(frequent)))
        if apart:
            numbers[None] = float(step.encoded_missing_value)
        result.parts.append(Code(i, tuple(numbers), unknown, tuple(numbers.values())))
        if step.handle_unknown == "error":
            result.known[i] = values
    return result


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
    source, slope, shift = column
    as_it_is = column == Scaled(source)
    if isinstance(part, Number) and not part.functions:
        fill = part.fill if as_it_is or part.fill is None else (part.fill - shift) / slope
        return column._replace(part=_filled(source, fill))
    if not isinstance(source, Number):
        codes = tuple(_value(part, column.at(number)) for number in source.numbers.values())
        other = _value(part, column.at(source.other))
        return Scaled(Code(source.column, tuple(source.numbers), None if np.isnan(other) else other, codes))
    if part == Indicator(part.column, (None,)):  # scaling does not change which values are missing
        return Scaled(Indicator(source.column, (None,) if source.fill is None else ()))
    if not as_it_is:
        raise ValueError("it needs unscaled columns, but a step before it scales them; put that step after it")
    if isinstance(part, Number):
        filled: Any = _filled(source, part.fill)
        return Scaled(replace(filled, functions=source.functions + part.functions))
    if source.functions:
        raise ValueError(f"it needs untransformed columns, but a step before it takes their {source.functions[0]}")
    return Scaled(_of_filled(part, source))


def known_behind(values: tuple[Any, ...], column: Scaled) -> tuple[Any, ...] | None:
    """The values of the scaled part's own column that are mapped to one of some values; None: all are."""
    source = column.part
    if isinstance(source, Number):
        return values if source.fill is None or source.fill not in values else (*values, None)
    if column.at(source.other) in values:
        return None
    return tuple(value for value, number in source.numbers.items() if column.at(number) in values)


def _filled(source: Part, fill: Any) -> Part:
    """A source whose missing values are filled, such that its functions map them to a number."""
    if fill is None or isinstance(source, Indicator):
        return source
    if isinstance(source, Code):
        codes = tuple(fill if np.isnan(code) else code for code in source.numbers.values())
        return replace(source, codes=codes, unknown=fill if source.unknown is None else source.unknown)
    if source.fill is not None:
        return source
    number = float(source.undo(np.asarray(fill))) if source.functions else fill
    filled = replace(source, fill=number)
    if source.functions and not np.isclose(_value(filled, None), fill, rtol=1e-9, atol=1e-12):
        raise ValueError(
            f"it fills with {fill:g}, which is no value of {' and '.join(source.functions)} before it"
        )
    return filled


def _of_filled(part: Indicator | Code, source: Number) -> Part:
    """A categorical part of a column whose missing values are filled."""
    if source.fill is None:
        return replace(part, column=source.column)
    if None in part.values:
        raise ValueError("it has a category for missing values, but a SimpleImputer before it fills them")
    if isinstance(part, Indicator):
        missing = (None,) if source.fill in part.values else ()
        return Indicator(source.column, part.values + missing)
    numbers = part.numbers
    if source.fill in numbers:
        numbers[None] = numbers[source.fill]
    return Code(source.column, tuple(numbers), part.unknown, tuple(numbers.values()))


def _value(part: Part, value: Any) -> float:
    """The encoded number of a value; NaN where there is none."""
    value = category(value)
    if not isinstance(part, Number):
        return part.numbers.get(value, part.other)
    found: Any = part.fill if value is None else value
    if found is None:
        return np.nan
    return float(part.apply(np.asarray(found))) if part.functions else found
