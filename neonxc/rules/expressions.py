"""Conditions as expressions of a language, which a table of templates describes."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from neonxc.rules.condition import Condition

Templates = tuple[tuple[str, str], ...]


class Language(NamedTuple):
    """How a language writes a condition on the column ``{x}``."""

    missing: str
    never: str
    either: str
    intervals: Templates
    """Without and with a lower bound, each without and with an upper bound."""
    one_of: Templates
    """No category, one, and several ``{values}``, each without and with None among them."""
    none_of: Templates


def expression(condition: Condition, x: str, language: Language, literal: Callable[[Any], str] = repr) -> str:
    """Write a condition on a column `x`; `literal` writes bounds and categories."""
    if condition.values is not None:
        listed = [literal(value) for value in condition.values if value is not None]
        templates = language.none_of if condition.negated else language.one_of
        template = templates[min(len(listed), 2)][len(listed) < len(condition.values)]
        return template.format(x=x, values=", ".join(listed))
    parts = [
        language.intervals[isfinite(low)][isfinite(high)].format(
            x=x, low=literal(float(low)), high=literal(float(high))
        )
        for low, high in condition.intervals
    ]
    parts += [language.missing.format(x=x)] * condition.missing
    text = language.either.join(parts) or language.never.format(x=x)
    return f"({text})" if len(parts) > 1 else text
