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
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from neonxc.common.arguments import LISTED, check_columns, kind_of, listed, remedy
from neonxc.common.numbers import percent, plural
from neonxc.common.types import ArrayLike
from neonxc.data.codes import are_candidates, are_codes, are_issued, is_called_code
from neonxc.data.files.format import TEXT, Format
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
LABEL = re.compile(
    r"(^|[_\W])(label|labels|class|target|cluster|clusters|category|outcome|species|y)$", re.IGNORECASE
)
"""Names of class labels."""
REASONS = {
    "no values": ("has", "have", "no values: left out"),
    "one value": ("has", "have", "only one value: left out"),
    "dates": ("holds", "hold", "dates or times: left out; encode them as numbers to use them"),
    "objects": ("holds", "hold", "lists or other objects: left out; encode them as numbers to use them"),
    "identifier": ("looks like an identifier", "look like identifiers", "(every value is different): left out"),
    "labels": ("has", "have", "one value for each cluster, as the labels have: left out"),
    "issued": ("is", "are", "called a number of the row, and nearly every value is different: left out"),
    "different text": ("is", "are", "different in most rows: left out"),
    "codes": ("is called a code", "are called codes", "and used as a category"),
    "suspects": (
        "looks like an identifier or a weight of the rows, but it is used as a feature;",
        "look like identifiers or weights of the rows, but they are used as features;",
        "to leave out: ",
    ),
}
"""What is said of columns for a reason: the verb for one column and for several, and the rest of the sentence."""
REMEDIES = {
    **dict.fromkeys(("identifier", "labels", "issued", "different text"), ("to use", "keep")),
    "codes": ("as numbers", "numbers"),
}
"""What can be done about columns that were found for a reason, and by which argument."""
LARGEST = 1e150
"""Largest absolute value; sums of squares of larger numbers may overflow."""
_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
DATE = rf"{_DAY}([T ]\d{{1,2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?(\s*(Z|[AP]M|[+-]\d{{2}}:?\d{{2}}))?)?"
"""A date or a time without blanks around it.

Blanks are allowed inside: if they were allowed at the ends, too, a run of blanks could be matched in several ways.
"""


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
    huge = [name for name in numeric if float(frame[name].abs().max()) > LARGEST]
    if huge:
        raise ValueError(
            f"columns {huge} have numbers greater than {LARGEST:g}, whose squares overflow: rescale or drop them"
        )
    notes += _on_encoding(frame, numeric, categories, weight)
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
    return notes


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
    if kind == "category" and _are_dates(present):
        return "dates"
    if keep or values.dtype.kind == "b":
        return None
    if is_number:
        return _identifying(values, present)

    counts = _counts(present)
    if len(counts) == len(present):  # every text is different
        return "identifier"
    if len(counts) > max(FEW_VALUES, len(present) / 2) or counts.max() < RARE * len(values):
        return "different text"
    return None


def _are_dates(present: pd.Series) -> bool:
    """Whether all categories are written as dates or times."""
    texts = present.drop_duplicates().astype(str).str.strip()
    return bool(texts.str.fullmatch(DATE, case=False).all())


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
