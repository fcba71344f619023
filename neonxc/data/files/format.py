"""How a table was read from a file, which models keep, so that new rows are read alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import pandas as pd

from neonxc.data.files.notation import Notation

TEXT, TRUTH = "text", "truth"
"""What columns without numbers hold."""


class Format(NamedTuple):
    """The notation, "text" or "truth" for every column of a file that was text; and further missing words."""

    columns: Mapping[str, Any]
    missing: Sequence[str]

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Return what a JSON text describes; None describes nothing."""
        try:
            return cls({}, ()) if text is None else cls(**json.loads(text))
        except (TypeError, ValueError):
            raise ValueError(f"format needs the text in frame.attrs['format'], got {text!r}") from None

    def text(self) -> str | None:
        """Return the description as a JSON text, which pandas copies fast; None if it says nothing."""
        return json.dumps(self._asdict(), ensure_ascii=False) if self.columns or self.missing else None

    def notation(self, name: str) -> Notation | None:
        """Return the notation of a column of numbers, None for another or unknown column."""
        known = self.columns.get(name)
        return Notation(*known) if isinstance(known, list) else None


def table_format(X: Any) -> str | None:
    """Return how the columns of a frame were read, if they still hold what they held; None for other data."""
    text = X.attrs.get("format") if isinstance(X, pd.DataFrame) else None
    if not (isinstance(text, str) and text.startswith('{"columns"')):
        return None
    read, numeric = Format.read(text), {str(name): kind.kind in "iuf" for name, kind in X.dtypes.items()}
    same = {name: kind for name, kind in read.columns.items() if numeric.get(name) == isinstance(kind, list)}
    return read._replace(columns=same).text()
