"""Prepare a table for clustering: select columns, encode and scale them, and report these decisions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neonxc.common.arguments import check_columns
from neonxc.common.numbers import percent
from neonxc.data.frames import reads_tables

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer

SCALES = ("none", "standard", "minmax", "robust")
RARE = 0.01
"""Categories with a smaller share of the rows are combined into one."""
FEW_ROWS = 10
"""Minimum number of rows to recognise consecutive numbers as an identifier."""
FEW_VALUES = 10
"""Maximum number of distinct values of a label, and of text that is always treated as categories."""
NAMES = 10
"""Maximum number of names in a note."""
IDENTIFIER = re.compile(r"(?i:(^|[_\W])(id|ids|uuid|guid))$|[a-z](Id|ID)$")
ROW = re.compile(r"(^|[_\W])(key|index|idx|rownum|row)$", re.IGNORECASE)
WEIGHT = re.compile(r"(weights?|wgt|(^|[_\W])wt)$", re.IGNORECASE)
MEASURED = 0.5
"""Correlation with another column from which on a "weight" is a measured one, such as that of cars."""
LABEL = re.compile(
    r"(^|[_\W])(label|labels|class|target|cluster|clusters|category|outcome|species|y)$", re.IGNORECASE
)
REASONS = {
    "no values": ("has", "have", "no values: left out"),
    "one value": ("has", "have", "only one value: left out"),
    "dates": ("holds", "hold", "dates: left out; encode them as numbers to use them"),
    "identifier": (
        "looks like an identifier",
        "look like identifiers",
        "(every value is different): left out",
    ),
    "different text": ("is", "are", "different in most rows: left out"),
}
"""Why columns are useless: the verb for one column and for several, and the rest of the sentence."""
LARGEST = 1e150
"""Largest absolute value; sums of squares of larger numbers may overflow."""
_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
DATE = rf"{_DAY}([T ]\d{{1,2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?\s*(Z|[AP]M|[+-]\d{{2}}:?\d{{2}})?)?"


@dataclass(frozen=True)
class Preparation:
    """Result of :func:`prepare`.

    Attributes
    ----------
    frame : DataFrame [n, d]
        The columns used for clustering, with their values unchanged.
    pipeline : sklearn.compose.ColumnTransformer
        Unfitted transformer that imputes, scales and encodes these columns.
    numbers, categories : list of str
        Names of the numeric columns, which are scaled, and of the categorical columns, which are one-hot encoded.
    left_out : list of str
        Names of the columns that are not used.
    notes : list of str
        Descriptions of the decisions, after the notes of :func:`~neonxc.data.files.read_table`.
    """

    frame: pd.DataFrame
    pipeline: ColumnTransformer
    numbers: list[str]
    categories: list[str]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@reads_tables
def prepare(
    frame: pd.DataFrame, ignore: Sequence[str] = (), scale: str = "standard", keep: Sequence[str] = ()
) -> Preparation:
    r"""Select the columns of a table that are used for clustering, and define how they are encoded.

    Numbers have the median where they are missing, and are scaled. Text and truth values are categories: one-hot,
    where those of less than 1% of the rows are one together, and missing is a category of its own. Left out are
    columns with only one value, dates, and identifiers: text that is different in most rows, and whole numbers
    that count up from 0 or 1 or are all different and called an id.

    Parameters
    ----------
    frame : DataFrame [n, d]
        Table, such as the result of :func:`~neonxc.data.files.read_table`.
    ignore : sequence of str
        Columns to leave out.
    scale : {"standard", "minmax", "robust", "none"}
        Scaling of the numbers.
    keep : sequence of str
        Columns to use although they look like identifiers.

    Returns
    -------
    Preparation

    Raises
    ------
    ValueError
        If a column or the scale is unknown, if numbers are too large to be squared, or if no column is left.

    Examples
    --------
    >>> import pandas as pd
    >>> from neonxc.data.preparation import prepare
    >>> frame = pd.DataFrame({"town": ["Rome", "Turin", "Rome", None], "year": 2024, "age": [31, None, 52, 19]})
    >>> prepared = prepare(frame)
    >>> print(*prepared.notes, sep="\n")
    year has only one value: left out
    1 column of numbers has missing values: age (25%); filled in with the median
    1 column of categories is one-hot encoded: town (2 values, and missing values)
    >>> prepared.pipeline.fit_transform(prepared.frame).shape
    (4, 4)
    """
    frame = frame.rename(columns=str)
    names = list(frame.columns)
    for what, given in (("ignore", ignore), ("keep", keep)):
        check_columns(f"{what}: the table", given, names)
    useless = {name: why for name in names if name not in ignore and (why := _useless(frame[name], name in keep))}
    left_out = [name for name in names if name in useless or name in ignore]
    frame = frame[[name for name in names if name not in left_out]]
    # Boolean values are categories, because rules and databases cannot compare them with numbers
    frame = frame.astype({name: object for name in frame.columns if frame[name].dtype.kind == "b"})
    notes = [*frame.attrs.get("notes", []), *_reasons(useless)]
    if not frame.shape[1]:
        raise ValueError("; ".join(["the table has no column left to cluster by", *_reasons(useless)]))
    numbers = [name for name in frame.columns if _is_number(frame[name])]
    if huge := [name for name in numbers if frame[name].abs().max() > LARGEST]:
        raise ValueError(
            f"columns {huge} have numbers greater than {LARGEST:g}, whose squares overflow: rescale or drop them"
        )
    categories = [name for name in frame.columns if name not in numbers]
    notes += _on_numbers(frame[numbers]) + _on_categories(frame[categories]) + _on_labels(frame)
    notes += on_suspects(frame.drop(columns=[*keep], errors="ignore"))
    return Preparation(frame, _pipeline(numbers, categories, scale), numbers, categories, left_out, notes)


def _pipeline(numbers: list[str], categories: list[str], scale: str) -> ColumnTransformer:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

    scalers: dict[str, Any] = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler}
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {list(SCALES)}, got {scale!r}")
    filled = SimpleImputer(strategy="median")
    scaled = filled if scale == "none" else make_pipeline(filled, scalers[scale]())
    one_hot = OneHotEncoder(min_frequency=RARE, handle_unknown="infrequent_if_exist", sparse_output=False)
    parts = [("numbers", scaled, numbers), ("categories", one_hot, categories)]
    return ColumnTransformer([part for part in parts if part[2]])


def _is_number(values: pd.Series) -> bool:
    return values.dtype.kind in "iuf"


def _useless(values: pd.Series, kept: bool) -> str | None:
    """Return the reason why a column is useless for clustering, or None if it is useful."""
    there = values.dropna()
    if not len(there):
        return "no values"
    if values.nunique(dropna=_is_number(values)) < 2:
        return "one value"
    if _is_date(there):
        return "dates"
    if kept:
        return None
    if _is_number(values):
        return "identifier" if _counts(values, there) else None
    if there.dtype.kind == "b":
        return None
    often = there.value_counts()
    if len(often) == len(there):
        return "identifier"
    different = len(often) > max(FEW_VALUES, len(there) / 2) or often.iloc[0] < RARE * len(values)
    return "different text" if different else None


def _counts(values: pd.Series, there: pd.Series) -> bool:
    """Whether integers identify rows: consecutive from 0 or 1, or distinct with a name such as "id"."""
    if len(there) < max(len(values), FEW_ROWS) or not (there == there.round()).all():
        return False
    start = int(there.iloc[0])
    counted = start in (0, 1) and bool((there.to_numpy() == np.arange(start, start + len(there))).all())
    named = any(pattern.search(str(values.name)) for pattern in (IDENTIFIER, ROW))
    return counted or (there.is_unique and named)


def _is_date(there: pd.Series) -> bool:
    if there.dtype.kind in "mM":
        return True
    if there.dtype.kind in "iufb":
        return False
    text = pd.Series(there.unique()).astype(str)
    return bool(text.str.strip().str.fullmatch(DATE, case=False).all())


def _reasons(useless: dict[str, str]) -> list[str]:
    """Explain why columns were left out, in one sentence per reason."""
    sentences = []
    for why in dict.fromkeys(useless.values()):
        names = [name for name in useless if useless[name] == why]
        one, several, rest = REASONS[why]
        sentences.append(f"{listed(names)} {one if len(names) == 1 else several} {rest}")
    return sentences


def _on_numbers(numbers: pd.DataFrame) -> list[str]:
    gaps = {name: share for name, share in numbers.isna().mean().items() if share}
    if not gaps:
        return []
    found = listed([f"{name} ({percent(share)})" for name, share in gaps.items()])
    what = "1 column of numbers has" if len(gaps) == 1 else f"{len(gaps)} columns of numbers have"
    return [f"{what} missing values: {found}; filled in with the median"]


def _on_categories(categories: pd.DataFrame) -> list[str]:
    if not categories.shape[1]:
        return []
    found = listed([f"{name} ({_values(categories[name])})" for name in categories])
    d = categories.shape[1]
    what = "1 column of categories is" if d == 1 else f"{d} columns of categories are"
    return [f"{what} one-hot encoded: {found}"]


def _values(column: pd.Series) -> str:
    often = column.value_counts()
    rare = int((often < RARE * len(column)).sum())
    what = f"{len(often)} values"
    if rare > 1:
        what += f", {rare} rare ones combined"
    return what + (", and missing values" if column.isna().any() else "")


def _on_labels(frame: pd.DataFrame) -> list[str]:
    """Point out columns that may be class labels."""
    notes = []
    for name in frame.columns:
        values = frame[name].nunique()
        whole = not (frame[name].dtype.kind == "f" and (frame[name].dropna() % 1).any())
        last = name == frame.columns[-1] and frame.shape[1] > 1 and not _is_number(frame[name])
        named = LABEL.search(str(name)) is not None and whole and values <= len(frame) / 2
        if named or (last and values <= FEW_VALUES):
            why = "its name" if named else "the last column"
            notes.append(f"{name} looks like a label ({values} values, {why}), but it is used as a feature")
    return notes


def on_suspects(frame: pd.DataFrame) -> list[str]:
    """Point out columns that may number or weight the rows instead of describing them."""
    names = [name for name in frame.columns if _identifies(frame[name]) or _weights(name, frame)]
    if not names:
        return []
    one = len(names) == 1
    looks = "looks like an identifier or a weight" if one else "look like identifiers or weights"
    used = "it is used as a feature" if one else "they are used as features"
    drop = f"X.drop(columns={names[:NAMES]}) or {' '.join(f'--ignore {name}' for name in names[:NAMES])}"
    return [f"{listed(names)} {looks} of the rows, but {used}; to leave out: {drop}"]


def _identifies(values: pd.Series) -> bool:
    """Whether a column is called an identifier, or its integers are distinct, and sorted or nearly consecutive."""
    there = values.dropna()
    if not _is_number(values) or len(there) < FEW_ROWS or not (there == there.round()).all():
        return _useless(values, False) == "identifier"
    ordered = there.is_monotonic_increasing or there.is_monotonic_decreasing
    close = there.max() - there.min() < 1.5 * len(there)
    return IDENTIFIER.search(str(values.name)) is not None or (there.is_unique and bool(ordered or close))


def _weights(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column is called a weight, and does not depend on another one as measured weights do."""
    values = frame[name]
    if not WEIGHT.search(str(name)) or not _is_number(values) or values.min() < 0:
        return False
    with np.errstate(invalid="ignore", divide="ignore"):
        return not frame.drop(columns=name).corrwith(values, numeric_only=True).abs().max() > MEASURED


def listed(parts: list[str]) -> str:
    """Join names for a message, which has ten at most and the number of the others."""
    more = len(parts) - NAMES
    return ", ".join([*parts[:NAMES], f"and {more} more"] if more > 0 else parts)
