"""How a table was read from a file, which models keep, so that new rows are read alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import pandas as pd

from neonxc.data.files.notation import Notation

TEXT = "text"
TRUTH = "truth"
"""What columns without numbers hold."""


class Format(NamedTuple):
    """The notation, "text" or "truth" for every column of a file that was text; and further missing words."""

    columns: Mapping[str, str | list[str]]
    missing: Sequence[str]

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Return what a JSON text describes; None describes nothing."""
        if text is None:
            return cls({}, ())
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            raise ValueError(f"format needs the text in frame.attrs['format'], got {text!r}") from None

    def text(self) -> str | None:
        """Return the description as a JSON text, which pandas copies fast; None if it says nothing."""
        if not self.columns and not self.missing:
            return None
        return json.dumps(self._asdict(), ensure_ascii=False)

    def notation(self, name: str) -> Notation | None:
        """Return the notation of a column of numbers, None for another or unknown column."""
        kind = self.columns.get(name)
        if not isinstance(kind, list):
            return None
        return Notation(*kind)


def table_format(X: object) -> str | None:
    """Return how the columns of a frame were read, if they still hold what they held; None for other data."""
    text = X.attrs.get("format") if isinstance(X, pd.DataFrame) else None
    if not isinstance(X, pd.DataFrame) or not isinstance(text, str) or not text.startswith('{"columns"'):
        return None

    is_number = {str(name): dtype.kind in "iuf" for name, dtype in X.dtypes.items()}
    described = Format.read(text)
    unchanged = {
        name: kind for name, kind in described.columns.items() if is_number.get(name) == isinstance(kind, list)
    }
    return described._replace(columns=unchanged).text()
