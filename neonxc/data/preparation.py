"""Prepare a table for clustering: select columns, encode and scale them, and report these decisions.

:func:`prepare` does this in four steps:

1. Columns that say nothing about clusters are left out, for the first of these reasons that applies
   (:func:`_useless`): no values; lists or other objects; dates or times; one value; an identifier; a number that
   was issued to the row; text that is different in most rows.
2. Columns that repeat the known labels of the clusters are left out, unless there is no other column.
3. Numbers are scaled, with the median where they are missing. Everything else is a category, and one-hot encoded.
4. Columns that are used although they look like labels, identifiers or weights are named in the notes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from neonxc.common.arguments import LISTED, check_columns, kind_of, listed, remedy
from neonxc.common.numbers import percent, plural
from neonxc.common.types import ArrayLike
from neonxc.data.codes import (
    TIMES,
    are_candidates,
    are_codes,
    are_dates,
    are_issued,
    is_called_code,
    looks_like_code,
)
from neonxc.data.files.format import TEXT, Format
from neonxc.data.files.notation import is_number
from neonxc.data.frames import from_named, is_path, reads_tables
from neonxc.data.kinds import column_kind

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer

SCALES = {"none": None, "standard": "StandardScaler", "minmax": "MinMaxScaler", "robust": "RobustScaler"}
RARE = 0.01
"""Categories with a smaller fraction of the rows are combined into one."""
FEW_ROWS = 10
"""Minimum number of rows to recognise consecutive numbers as an identifier."""
FEW_VALUES = 10
"""Maximum number of distinct values of a label, and of text that is always treated as categories."""
IDENTIFIER = re.compile(r"(?i:(^|[_\W])(id|ids|uuid|guid))$|[a-z](Id|ID)$")
"""Names of identifiers, such as ``customer_id`` and ``customerId``."""
NUMBER = re.compile(
    r"(?i:(^|[_\W])(tel|mobile|cell|fax|iban|account|acct|konto|card|passport|ssn|isbn|issn|ean|gtin|upc|imei|imsi|iccid|"
    r"msisdn|barcode|serial|no|nr|num|numero|número|numéro)\d*|(phone|telefon|number|nummer)\d*)$|[a-z](No|Nr|Num)$"
)
"""Names of numbers that were issued to the row, if they have 8 digits or more."""
ROW = re.compile(r"(^|[_\W])(key|index|idx|rownum|row)$", re.IGNORECASE)
"""Names of numbers of the row."""
WEIGHT = re.compile(r"(weights?|wgt|(^|[_\W])wt)$", re.IGNORECASE)
"""Names of weights of the row."""
MEASURED = 0.5
"""Correlation with another column from which on a "weight" is a measured one, such as that of cars."""
SAME = 1 - 1e-6
"""Correlation from which on two columns have the same numbers in two units, which may be rounded."""
MAX_COMPARED = 500
"""Columns, at most, that are compared with each other, which takes their number squared."""
COMPARED_ROWS = 500
"""Rows that are compared first, as most columns differ in them."""
LABEL = re.compile(
    r"(^|[_\W])(label|labels|class|target|cluster|clusters|category|outcome|species|y)$", re.IGNORECASE
)
"""Names of class labels."""
REASONS = {
    "no values": ("has", "have", "no values: left out"),
    "one value": ("has", "have", "only one value: left out"),
    "dates": ("holds", "hold", "dates or times: left out; encode them as numbers to use them"),
    "dates as numbers": ("holds", "hold", "dates or times as whole numbers: left out"),
    "objects": ("holds", "hold", "lists or other objects: left out; encode them as numbers to use them"),
    "identifier": ("looks like an identifier", "look like identifiers", "(every value is different): left out"),
    "labels": ("has", "have", "one value for each cluster, as the labels have: left out"),
    "issued": ("is", "are", "called a number of the row, and nearly every value is different: left out"),
    "different text": ("is", "are", "different in most rows: left out"),
    "numbers as text": ("holds", "hold", "numbers as text: left out; convert them to numbers to use them"),
    "codes": ("is called a code", "are called codes", "and used as a category"),
    "suspects": (
        "looks like an identifier or a weight of the rows, but it is used as a feature;",
        "look like identifiers or weights of the rows, but they are used as features;",
        "to leave out: ",
    ),
}
"""What is said of columns for a reason: the verb for one column and for several, and the rest of the sentence."""
REMEDIES = {
    **dict.fromkeys(("dates as numbers", "identifier", "labels", "issued", "different text"), ("to use", "keep")),
    "codes": ("as numbers", "numbers"),
}
"""What can be done about columns that were found for a reason, and by which argument."""
LARGEST = 1e150
"""Largest absolute value; sums of squares of larger numbers may overflow."""
_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
_MONTH = (
    r"(?:jan|ene|gen|feb|fév|fev|m[aä]r|mrz|a[pbv]r|ma[ijy]|mag|maggio|ju[nl]|jui|giu|lug|aug|aoû|aou|ago|se[pt]|o[ckt]t"
    r"|out|nov|de[ckzc]|dic|déc)[^\W\d]{0,8}\.?"
)
_NAMED_DAY = rf"(\d{{1,2}}\.?[-/ ]?{_MONTH}[-/, ]{{0,2}}\d{{2,4}}|{_MONTH} \d{{1,2}}(st|nd|rd|th)?,? \d{{4}})"
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(\s*(Z|[AP]M|[+-]\d{2}:?\d{2}))?"
DATE = rf"({_DAY}|{_NAMED_DAY})([T ]{_CLOCK})?"
"""A date, or a date and a time, without blanks around it.

Blanks are allowed inside: if they were allowed at the ends, too, a run of blanks could be matched in several ways.
"""
_CLOCKED = r"(\d{1,4} ?(d|days?),? )?\d{1,4}:\d{2}(:\d{2}([.,]\d+)?)?( ?([AP]M|h|Uhr))?"
_DURATION = rf"{_CLOCKED}|\d{{1,4}} ?(h|Std\.?) ?\d{{1,2}} ?(m|min\.?)"
_YEAR = r"(19|20)\d{2}"
_QUARTER = rf"{_YEAR}[- ]?(Q[1-4]|W\d{{2}})|Q[1-4][-/ ]?{_YEAR}|\d{{2}}\.\d{{2}}\.?"
_PERIOD = rf"{_YEAR}[-/.](0[1-9]|1[0-2])|(0?[1-9]|1[0-2])[-/.]{_YEAR}|{_MONTH} {_YEAR}|{_QUARTER}"
TIME = rf"{_DURATION}|{_PERIOD}"
"""A time of the day, a duration, or a month, a week, a quarter or a day of a year."""
EVENT = re.compile(
    r"(?i:(^|[_\W])(date|datum|datetime|timestamp|zeitstempel|fecha|epoch|unixtime)$|_at$)|[a-z](Date|Datum|Timestamp|At)$"
)
"""Names of dates."""
SERIALS = (20_000, 60_000)
"""Days since 1899-12-30, as spreadsheets count them, from 1954 to 2064."""


class Preparation(NamedTuple):
    """Result of :func:`prepare`.

    Attributes
    ----------
    frame : DataFrame [n, d]
        The columns used for clustering, with their values unchanged.
    pipeline : sklearn.compose.ColumnTransformer
        Unfitted transformer that imputes, scales and encodes these columns: ``numbers`` are scaled, and
        ``categories`` are one-hot encoded.
    notes : list of str
        Descriptions of the decisions, after the notes of :func:`~neonxc.data.files.read_table`.
    """

    frame: pd.DataFrame
    pipeline: ColumnTransformer
    notes: list[str]


@reads_tables
def prepare(
    frame: pd.DataFrame,
    ignore: Sequence[str] = (),
    scale: str = "standard",
    keep: Sequence[str] = (),
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    numbers: Sequence[str] = (),
) -> Preparation:
    r"""Select the columns of a table that are used for clustering, and define how they are encoded.

    Numbers have the median where they are missing, and are scaled. Text and truth values are categories: one-hot,
    where those of less than 1% of the rows are one together, and missing is a category of its own. Left out are
    columns with only one value, dates, and identifiers: text that is different in most rows, and whole numbers
    that count up from 0 or 1, are all different and called an id, or have 8 to 18 digits, are nearly all different
    and called a number of the row (``phone``, ``iban_number``). Whole numbers that are called codes (``zip``,
    ``store_id``) become text, and so categories; if all are different, they are identifiers. With `labels`,
    columns that repeat them, also under other names of the clusters, are left out as well, unless there is no
    other column. Notes name further columns that look like identifiers.

    Parameters
    ----------
    frame : DataFrame [n, d], rows or columns with names, or path
        Table, such as the result of :func:`~neonxc.data.files.read_table`.
    ignore : sequence of str
        Columns to leave out.
    scale : {"standard", "minmax", "robust", "none"}
        Scaling of the numbers.
    keep : sequence of str
        Columns to use although they look like identifiers, or repeat the labels.
    labels : array-like [n], optional
        The clusters of the rows, if they are known.
    sample_weight : array-like [n], optional
        Weights >= 0 of the rows; a series goes by its index. The notes count missing values and rare categories
        by them; the pipeline, which is not fitted yet, does not have them.
    numbers : sequence of str
        Columns of numbers to use as numbers although they are called codes.

    Returns
    -------
    Preparation

    Raises
    ------
    ValueError
        If a column or the scale is unknown, if there is not one label per row, if numbers are too large to be
        squared, or if no column is left; or for invalid weights.

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
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {list(SCALES)}, got {scale!r}")
    if is_path(frame):
        from neonxc.data.files import read_table  # only data in files need it

        frame = read_table(frame)
    frame = from_named(frame)
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"frame needs a data frame, got {kind_of(frame)}; that of a sparse AnnData is adata.to_df()"
        )
    frame = frame.rename(columns=str)
    weight = _weights_of(sample_weight, frame)
    check_columns("ignore: the table", ignore, frame.columns)
    check_columns("keep: the table", keep, frame.columns)
    check_columns("numbers: the table", numbers, frame.columns)
    notes_of_file = frame.attrs.get("notes", [])

    frame = frame.drop(columns=[*ignore])
    frame, codes = _with_codes_as_text(frame, numbers)
    frame, notes = _selected(frame, [*keep, *numbers], labels)
    used_codes = [name for name in codes if name in frame]
    if used_codes:
        notes.append(f"{_note(used_codes, 'codes')}; to leave out: {remedy('ignore', used_codes)}")
    # Boolean values are categories, because rules and databases cannot compare them with numbers
    truths = [name for name, dtype in frame.dtypes.items() if dtype.kind == "b"]
    if truths:  # else pandas would store every column on its own, and take rows from each of them
        frame = frame.astype(dict.fromkeys(truths, object))

    numeric = [name for name in frame.columns if _is_number(frame[name])]
    categories = [name for name in frame.columns if name not in numeric]
    infinite = [name for name in numeric if np.isinf(frame[name]).any()]
    if infinite:
        raise ValueError(
            f"columns {infinite} have infinite values: replace them by numbers, or by NaN if they stand for "
            "missing values, or drop the columns"
        )
    huge = [name for name in numeric if float(frame[name].abs().max()) > LARGEST]
    if huge:
        raise ValueError(
            f"columns {huge} have numbers greater than {LARGEST:g}, whose squares overflow: rescale or drop them"
        )
    notes += _on_encoding(frame, numeric, categories, weight)
    notes += _on_copies(frame[numeric])
    notes += _on_labels(frame)
    notes += on_suspects(frame.drop(columns=[*keep, *numbers], errors="ignore"))
    return Preparation(frame, _pipeline(scale, numeric, categories), [*notes_of_file, *notes])


def _with_codes_as_text(frame: pd.DataFrame, as_numbers: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Convert numbers that are called codes, and are not all different, to text; return their names, too."""
    codes = {}
    for name, values in frame.items():
        present = values.dropna()
        if name in as_numbers or not are_codes(name, present) or present.is_unique:
            continue
        if _identifying(values, present) is None:
            codes[name] = values.map(lambda number: f"{number:.0f}", na_action="ignore").astype(object)
    if not codes:
        return frame, []

    frame = frame.assign(**codes)
    text = frame.attrs.get("format")
    if text is not None:  # new rows of the file are read so, too
        described = Format.read(text)
        kinds = {**described.columns, **dict.fromkeys(codes, TEXT)}
        frame.attrs["format"] = described._replace(columns=kinds).text()
    return frame, [*codes]


def _selected(
    frame: pd.DataFrame, keep: Sequence[str], labels: ArrayLike | None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the useful columns, and notes about the others."""
    reasons: dict[str, list[str]] = {}  # the names of useless columns by reason
    for name, values in frame.items():
        reason = _useless(values, name in keep)
        if reason is not None:
            reasons.setdefault(reason, []).append(name)
    notes = [_note(names, reason) for reason, names in reasons.items()]
    frame = frame.drop(columns=[*chain(*reasons.values())])

    if labels is not None:
        repeated = _repeating(frame.drop(columns=[*keep], errors="ignore"), labels)
        if repeated and len(repeated) < frame.shape[1]:
            notes.append(_note(repeated, "labels"))
            frame = frame.drop(columns=repeated)
    if not frame.shape[1]:
        raise ValueError("; ".join(["the table has no column left to cluster by", *notes]))
    return frame, notes


def _repeating(frame: pd.DataFrame, labels: ArrayLike) -> list[str]:
    """Return the names of the columns that have one value for each cluster."""
    from neonxc.data.labels import label_array, repeating_columns  # loads PyTorch

    clusters = label_array(labels)
    if clusters.shape != (len(frame),):
        raise ValueError(f"labels needs one label per point, shape ({len(frame)},), got {clusters.shape}")
    return repeating_columns(dict(frame.items()), clusters)


def _on_encoding(
    frame: pd.DataFrame, numbers: list[str], categories: list[str], weight: np.ndarray | None
) -> list[str]:
    """Describe the columns of numbers with missing values, and those that are one-hot encoded."""
    notes = []
    missing = []
    for name in numbers:
        fraction = _missing_fraction(frame[name], weight)
        if fraction:
            missing.append(f"{name} ({percent(fraction)})")
    if missing:
        have = "s of numbers have" if len(missing) > 1 else " of numbers has"
        notes.append(f"{len(missing)} column{have} missing values: {listed(missing)}; filled in with the median")
    if categories:
        encoded = [f"{name} ({_values(frame[name], weight)})" for name in categories]
        are = "s of categories are" if len(encoded) > 1 else " of categories is"
        notes.append(f"{len(encoded)} column{are} one-hot encoded: {listed(encoded)}")
    as_text = [name for name in categories if _are_many_numbers(frame[name].dropna())]
    if as_text and "format" not in frame.attrs:  # of a file, it is known why they are text
        notes.append(f"numbers as text are categories: {listed(as_text)}; convert them to use them as numbers")
    return [*notes, *_on_stand_ins(frame[numbers]), *_on_spellings(frame[categories])]


def _are_many_numbers(present: pd.Series) -> bool:
    """Whether the categories are numbers as text, and more than those of a scale of answers."""
    return present.nunique() > FEW_VALUES and _are_numbers_as_text(str(present.name), present)


def _on_stand_ins(frame: pd.DataFrame) -> list[str]:
    """Point out numbers such as -999 that may stand for missing values."""
    examples = []
    numbers = dict[str, None]()
    for name, values in frame.items():
        number = _stand_in(values)
        if number is not None:
            text = f"{number:.0f}"
            examples.append(f"{name} ({text} in {percent(float((values == number).mean()))} of the rows)")
            numbers[text] = None
    if not examples:
        return []
    missing = remedy("na", numbers)
    return [
        "a number far from all others may stand for a missing value, but is used as a number: "
        f"{listed(examples)}; as a missing value: {missing}"
    ]


def _stand_in(values: pd.Series) -> float | None:
    """Find a number of nines that is repeated, and farther from all others than these are from each other."""
    present = np.sort(values.dropna().to_numpy(dtype=float))
    for end, others in ((present[:1], present), (present[-1:], present[::-1])):
        rest = others[others != end[:1]] if len(end) else others
        n_equal = len(others) - len(rest)
        if n_equal < 2 or len(rest) < FEW_ROWS or n_equal > len(rest):
            continue
        is_nines = {*f"{abs(end[0]):.15g}"} == {"9"} and abs(end[0]) > 9
        if is_nines and abs(rest[0] - end[0]) > abs(rest[-1] - rest[0]) > 0:
            return float(end[0])
    return None


def spelled_alike(values: pd.Series) -> str:
    """List the first texts that differ in capitals, blanks or invisible characters alone; "" if there are none."""
    spellings: dict[str, list[str]] = {}
    for value in values.dropna().unique():
        if isinstance(value, str):
            visible = "".join(character for character in value if unicodedata.category(character) != "Cf")
            spelling = unicodedata.normalize("NFKC", visible).casefold()
            spellings.setdefault(" ".join(spelling.split()), []).append(value)
    several = next((texts for texts in spellings.values() if len(texts) > 1), [])
    return listed([*map(ascii if _look_the_same(several) else repr, several)])


def _look_the_same(texts: Sequence[str]) -> bool:
    """Whether texts differ in what is not seen, such as how an accent is written."""
    return len({unicodedata.normalize("NFC", text) for text in texts}) < len(texts)


def _on_spellings(frame: pd.DataFrame) -> list[str]:
    """Point out categories that differ in capitals or blanks alone."""
    alike = {name: spelled_alike(values) for name, values in frame.items()}
    examples = [f"{name} ({texts})" for name, texts in alike.items() if texts]
    if not examples:
        return []
    return [
        f"categories that differ in capitals, blanks or invisible characters alone are used as different ones: "
        f"{listed(examples)}"
    ]


def _pipeline(scale: str, numbers: list[str], categories: list[str]) -> ColumnTransformer:
    """Return the unfitted transformer of the columns."""
    from sklearn import compose, impute, pipeline, preprocessing  # takes long, and errors are raised before

    steps = [impute.SimpleImputer(strategy="median")]
    scaler = SCALES[scale]
    if scaler is not None:
        steps.append(getattr(preprocessing, scaler)())
    scaled = pipeline.make_pipeline(*steps)
    one_hot = preprocessing.OneHotEncoder(
        min_frequency=RARE, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    transformers = []
    if numbers:
        transformers.append(("numbers", scaled, numbers))
    if categories:
        transformers.append(("categories", one_hot, categories))
    return compose.ColumnTransformer(transformers)


def _is_number(values: pd.Series) -> bool:
    return values.dtype.kind in "iuf"


def _useless(values: pd.Series, keep: bool = False) -> str | None:
    """Return the reason why a column is useless for clustering, or None if it is useful."""
    present = values.dropna()
    kind = column_kind(values)
    if not len(present):
        return "no values"
    if kind == "object":
        return "objects"
    if kind == "time":
        return "dates"
    is_number = _is_number(values)
    if values.nunique(dropna=is_number) < 2:  # a missing value beside one category is a second one
        return "one value"
    if kind == "category" and _are_times(present):
        return "dates"
    if keep or values.dtype.kind == "b":
        return None
    if is_number:
        if _are_dates_as_numbers(str(values.name), present):
            return "dates as numbers"
        return _identifying(values, present)

    counts = _counts(present)
    is_distinct = len(counts) == len(present)
    if not is_distinct and len(counts) <= max(FEW_VALUES, len(present) / 2) and counts.max() >= RARE * len(values):
        return None
    if _are_numbers_as_text(str(values.name), present):
        return "numbers as text"
    return "identifier" if is_distinct else "different text"


def _are_times(present: pd.Series) -> bool:
    """Whether all categories are written as dates, or are many times or months, of which a few are categories."""
    texts = present.drop_duplicates().astype(str).str.strip()
    if texts.str.fullmatch(DATE, case=False).all():
        return True
    return len(texts) > FEW_VALUES and bool(texts.str.fullmatch(TIME, case=False).all())


def _are_numbers_as_text(name: str, present: pd.Series) -> bool:
    """Whether all categories are written as numbers, perhaps with a unit, and are no codes."""
    if is_called_code(name) or IDENTIFIER.search(name) or NUMBER.search(name):
        return False
    texts = present.drop_duplicates()
    if not all(isinstance(text, str) for text in texts):
        return False
    return all(is_number(text.strip(), with_unit=True) and not looks_like_code(text.strip()) for text in texts)


def _are_dates_as_numbers(name: str, present: pd.Series) -> bool:
    """Whether numbers are dates as YYYYMMDD, or are called dates and count days or seconds."""
    if are_dates(present):
        return True
    if not EVENT.search(name):
        return False
    return any(low <= present.min() and present.max() <= high for low, high in (SERIALS, *TIMES))


def _identifying(values: pd.Series, present: pd.Series) -> str | None:
    """Return the reason why numbers identify the rows: they count them, are called an id, or were issued."""
    name = str(values.name)
    is_identifier = IDENTIFIER.search(name) is not None
    if len(present) == len(values) and _are_integers(present):
        first = present.iloc[0]
        # 0, 1, 2, ... or 1, 2, 3, ...
        counts_rows = first in (0, 1) and bool((present == np.arange(len(present)) + first).all())
        is_id = is_identifier or ROW.search(name) is not None
        if counts_rows or ((is_id or is_called_code(name)) and present.is_unique):
            return "identifier"
    if (is_identifier or NUMBER.search(name)) and len(present) >= FEW_ROWS and are_candidates(present):
        return "issued"
    return None


def _are_integers(present: pd.Series) -> bool:
    """Whether a column holds integers, and enough of them to tell what they are."""
    return _is_number(present) and len(present) >= FEW_ROWS and bool((present == present.round()).all())


def _note(names: list[str], reason: str) -> str:
    """Write what is said of columns for a reason."""
    singular, plural, rest = REASONS[reason]
    verb = singular if len(names) == 1 else plural
    note = f"{listed(names)} {verb} {rest}"
    if reason in REMEDIES:
        purpose, argument = REMEDIES[reason]
        note += f"; {purpose}: {remedy(argument, names)}"
    return note


def without_remedies(note: str) -> str:
    """Return a note without the arguments that change what it says, for functions that do not take them."""
    return re.split(r"; (?:to use|as numbers|to leave out): ", note)[0]


def _counts(column: pd.Series) -> np.ndarray:
    """How often each value of a column occurs; `value_counts` of pandas 2 warns about values of some types."""
    return np.bincount(pd.factorize(column.dropna())[0])


def _weights_of(sample_weight: ArrayLike | None, frame: pd.DataFrame) -> np.ndarray | None:
    """Read the weights of the rows of a frame."""
    if sample_weight is None:
        return None
    from neonxc.data.table import Table  # these load PyTorch
    from neonxc.data.weights import weights_of

    return weights_of(sample_weight, Table.read(frame))


def _missing_fraction(column: pd.Series, weight: np.ndarray | None) -> float:
    """Compute the fraction of the rows, by number or by weight, with a missing value."""
    return float(np.average(column.isna(), weights=weight))


def _values(column: pd.Series, weight: np.ndarray | None) -> str:
    """Describe the values of a column of categories."""
    counts = _counts(column)
    text = plural(len(counts), "value")
    n_rare = int((counts < RARE * len(column)).sum())
    if weight is not None:
        codes = pd.factorize(column)[0]
        sums = np.bincount(codes[codes >= 0], weight[codes >= 0])
        n_rare = int((sums < RARE * weight.sum()).sum())
    if n_rare > 1:
        text += f", {n_rare} rare ones combined"
    if column.isna().any():
        text += ", and missing values"
    return text


def _on_labels(frame: pd.DataFrame) -> list[str]:
    """Point out columns that may be class labels."""
    notes = []
    for name in frame.columns:
        is_named = LABEL.search(str(name)) is not None
        is_last = name == frame.columns[-1] and frame.shape[1] > 1
        if not is_named and not is_last:
            continue
        column = frame[name]
        n_values = column.nunique()
        has_fractions = column.dtype.kind == "f" and bool((column.dropna() % 1).any())
        is_named = is_named and not has_fractions and n_values <= len(frame) / 2
        is_last = is_last and not _is_number(column) and not is_called_code(name)
        if is_named or (is_last and n_values <= FEW_VALUES):
            why = "its name" if is_named else "the last column"
            values = plural(n_values, "value")
            looks = f"{name} looks like a label ({values}, {why}), but it is used as a feature"
            notes.append(f"{looks}; to leave out: {remedy('ignore', [name])}")
    return notes


def _on_copies(frame: pd.DataFrame) -> list[str]:
    """Point out numbers that are those of another column in another unit, as a price with and without tax."""
    if not 1 < frame.shape[1] <= MAX_COMPARED or len(frame) < FEW_ROWS:
        return []
    values = frame.to_numpy(dtype=np.float64)
    rows = np.linspace(0, len(values) - 1, min(len(values), COMPARED_ROWS)).astype(int)
    sample = values[rows]
    is_complete = np.isfinite(sample).all(axis=0)
    complete = [*frame.columns[is_complete]]
    centered = sample[:, is_complete] - sample[:, is_complete].mean(axis=0)
    scale = np.sqrt((centered**2).sum(axis=0))
    standardized = centered / np.where(scale > 0, scale, np.inf)
    correlation = np.abs(standardized.T @ standardized)

    copies = {}
    for j, i in np.argwhere(np.tril(correlation, -1) > SAME):
        a = frame[complete[i]]
        b = frame[complete[j]]
        if complete[j] not in copies and abs(a.corr(b)) > SAME and a.isna().equals(b.isna()):
            copies[complete[j]] = complete[i]
    if not copies:
        return []
    examples = [f"{copy} (as {original})" for copy, original in copies.items()]
    ignored = remedy("ignore", copies)
    return [
        f"columns with the numbers of another one, perhaps in another unit, count twice: {listed(examples)}; "
        f"to leave out: {ignored}"
    ]


def on_suspects(frame: pd.DataFrame) -> list[str]:
    """Point out columns that may number or weight the rows instead of describing them."""
    names = [name for name in frame.columns if _identifies(frame[name]) or _weights(name, frame)]
    if not names:
        return []
    first = names[:LISTED]
    options = " ".join(f"--ignore {name}" for name in first)
    return [f"{_note(names, 'suspects')}X.drop(columns={first}) or {options}"]


def _identifies(values: pd.Series) -> bool:
    """Whether a column is called an identifier, or has distinct integers: sorted, nearly consecutive or issued."""
    present = values.dropna()
    if not _are_integers(present):
        if _is_number(values):
            return _identifying(values, present) is not None
        return _useless(values) in ("identifier", "issued")
    if IDENTIFIER.search(str(values.name)) is not None:
        return True
    is_sorted = present.is_monotonic_increasing or present.is_monotonic_decreasing
    is_dense = present.max() - present.min() < 1.5 * len(present)  # nearly consecutive numbers
    if present.is_unique and bool(is_sorted or is_dense):
        return True
    return are_issued(present)


def _weights(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column is called a weight, and does not depend on another one as measured weights do."""
    values = frame[name]
    if not WEIGHT.search(str(name)) or not _is_number(values) or values.min() < 0:
        return False
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = frame.drop(columns=name).corrwith(values, numeric_only=True).abs().max()
    return not correlation > MEASURED  # NaN if there is no other column of numbers
