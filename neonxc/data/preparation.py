"""Prepare a table for clustering: select columns, encode and scale them, and report these decisions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from neonxc.common.arguments import LISTED, check_columns, listed
from neonxc.common.numbers import percent
from neonxc.data.frames import from_named, is_path, reads_tables
from neonxc.data.issued import are_candidates, are_issued
from neonxc.data.kinds import column_kind

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer

SCALES = {"none": None, "standard": "StandardScaler", "minmax": "MinMaxScaler", "robust": "RobustScaler"}
RARE = 0.01
"""Categories with a smaller share of the rows are combined into one."""
FEW_ROWS = 10
"""Minimum number of rows to recognise consecutive numbers as an identifier."""
FEW_VALUES = 10
"""Maximum number of distinct values of a label, and of text that is always treated as categories."""
IDENTIFIER = re.compile(r"(?i:(^|[_\W])(id|ids|uuid|guid))$|[a-z](Id|ID)$")
NUMBER = re.compile(
    r"(?i:(^|[_\W])(tel|mobile|cell|fax|iban|account|acct|konto|card|passport|ssn|isbn|issn|ean|gtin|upc|imei|imsi|iccid|"
    r"msisdn|barcode|serial|no|nr|num|numero|número|numéro)\d*|(phone|telefon|number|nummer)\d*)$|[a-z](No|Nr|Num)$"
)
"""Names of numbers that were issued to the row, if they have 8 digits or more."""
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
    "dates": ("holds", "hold", "dates or times: left out; encode them as numbers to use them"),
    "objects": ("holds", "hold", "lists or other objects: left out; encode them as numbers to use them"),
    "identifier": ("looks like an identifier", "look like identifiers", "(every value is different): left out"),
    "labels": ("has", "have", "one value for each cluster, as the labels have: left out"),
    "issued": ("is", "are", "called a number of the row, and nearly every value is different: left out"),
    "different text": ("is", "are", "different in most rows: left out"),
    "suspects": (
        "looks like an identifier or a weight of the rows, but it is used as a feature;",
        "look like identifiers or weights of the rows, but they are used as features;",
        "to leave out: ",
    ),
}
"""What is said of columns for a reason: the verb for one column and for several, and the rest of the sentence."""
LARGEST = 1e150
"""Largest absolute value; sums of squares of larger numbers may overflow."""
_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
DATE = rf"{_DAY}([T ]\d{{1,2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?(\s*(Z|[AP]M|[+-]\d{{2}}:?\d{{2}}))?)?"
"""A date or a time without blanks around it, which would be another place to which blanks inside could belong."""


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
    labels: Any = None,
    sample_weight: Any = None,
) -> Preparation:
    r"""Select the columns of a table that are used for clustering, and define how they are encoded.

    Numbers have the median where they are missing, and are scaled. Text and truth values are categories: one-hot,
    where those of less than 1% of the rows are one together, and missing is a category of its own. Left out are
    columns with only one value, dates, and identifiers: text that is different in most rows, and whole numbers
    that count up from 0 or 1, are all different and called an id, or have 8 to 18 digits, are nearly all different
    and called a number of the row (``phone``, ``iban_number``). With `labels`, columns that repeat them, also
    under other names of the clusters, are left out as well, unless there is no other column. Notes name further
    columns that look like identifiers.

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
    frame = frame.rename(columns=str)
    weight = _weights_of(sample_weight, frame)
    for what, given in (("ignore", ignore), ("keep", keep)):
        check_columns(f"{what}: the table", given, frame.columns)
    read, frame = frame.attrs.get("notes", []), frame.drop(columns=[*ignore])
    useless = {name: why for name, values in frame.items() if (why := _useless(values, name in keep))}
    notes = [
        _note([name for name in useless if useless[name] == why], why) for why in dict.fromkeys(useless.values())
    ]
    useful = frame.drop(columns=[*useless])
    repeated = [] if labels is None else _repeating(useful.drop(columns=[*keep], errors="ignore"), labels)
    if repeated and len(repeated) < useful.shape[1]:
        notes.append(_note(repeated, "labels"))
        useless |= dict.fromkeys(repeated, "labels")
    # Boolean values are categories, because rules and databases cannot compare them with numbers
    frame = frame.drop(columns=[*useless])
    frame = frame.astype({name: object for name, kind in frame.dtypes.items() if kind.kind == "b"})
    if not frame.shape[1]:
        raise ValueError("; ".join(["the table has no column left to cluster by", *notes]))
    numbers = [name for name in frame.columns if _is_number(frame[name])]
    if huge := [name for name in numbers if float(frame[name].abs().max()) > LARGEST]:
        raise ValueError(
            f"columns {huge} have numbers greater than {LARGEST:g}, whose squares overflow: rescale or drop them"
        )
    if gaps := [f"{name} ({percent(share)})" for name in numbers if (share := _share(frame[name].isna(), weight))]:
        have = "s of numbers have" if len(gaps) > 1 else " of numbers has"
        notes.append(f"{len(gaps)} column{have} missing values: {listed(gaps)}; filled in with the median")
    categories = [name for name in frame.columns if name not in numbers]
    if values := [f"{name} ({_values(frame[name], weight)})" for name in categories]:
        are = "s of categories are" if len(values) > 1 else " of categories is"
        notes.append(f"{len(values)} column{are} one-hot encoded: {listed(values)}")
    notes += _on_labels(frame) + on_suspects(frame.drop(columns=[*keep], errors="ignore"))
    from sklearn import compose, impute, pipeline, preprocessing  # takes long, and mistakes are told before

    scalers = [getattr(preprocessing, name)() for name in [SCALES[scale]] if name]
    scaled = pipeline.make_pipeline(impute.SimpleImputer(strategy="median"), *scalers)
    one_hot = preprocessing.OneHotEncoder(
        min_frequency=RARE, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    parts = [("numbers", scaled, numbers), ("categories", one_hot, categories)]
    return Preparation(frame, compose.ColumnTransformer([part for part in parts if part[2]]), [*read, *notes])


def _repeating(frame: pd.DataFrame, labels: Any) -> list[str]:
    """Return the names of the columns that have one value for each cluster."""
    from neonxc.data.labels import label_array, repeats_labels  # loads PyTorch

    clusters = label_array(labels)
    if clusters.shape != (len(frame),):
        raise ValueError(f"labels needs one label per point, shape ({len(frame)},), got {clusters.shape}")
    return [str(name) for name, values in frame.items() if repeats_labels(values, clusters)]


def _is_number(values: pd.Series) -> bool:
    return values.dtype.kind in "iuf"


def _useless(values: pd.Series, keep: bool = False) -> str | None:
    """Return the reason why a column is useless for clustering, or None if it is useful."""
    present, number, kind = values.dropna(), _is_number(values), column_kind(values)
    if not len(present):
        return "no values"
    if kind in ("object", "time"):
        return "objects" if kind == "object" else "dates"
    if values.nunique(dropna=number) < 2:
        return "one value"
    if (
        kind == "category"
        and present.drop_duplicates().astype(str).str.strip().str.fullmatch(DATE, case=False).all()
    ):
        return "dates"
    if keep or values.dtype.kind == "b":
        return None
    if number:  # whole numbers from 0 or 1, or different ones with a name such as "id"
        named = present.is_unique and any(pattern.search(str(values.name)) for pattern in (IDENTIFIER, ROW))
        counted = present.iloc[0] in (0, 1) and (present == np.arange(len(present)) + present.iloc[0]).all()
        if len(present) == len(values) and _whole(present) and (named or counted):
            return "identifier"
        is_number = any(pattern.search(str(values.name)) for pattern in (IDENTIFIER, NUMBER))
        return "issued" if is_number and len(present) >= FEW_ROWS and are_candidates(present) else None
    counts = _counts(present)
    if len(counts) == len(present):
        return "identifier"
    different = len(counts) > max(FEW_VALUES, len(present) / 2) or counts.max() < RARE * len(values)
    return "different text" if different else None


def _whole(present: pd.Series) -> bool:
    """Whether a column holds whole numbers, and enough of them to tell what they are."""
    return _is_number(present) and len(present) >= FEW_ROWS and bool((present == present.round()).all())


def _note(names: list[str], why: str) -> str:
    one, several, rest = REASONS[why]
    return f"{listed(names)} {one if len(names) == 1 else several} {rest}"


def _counts(column: pd.Series) -> np.ndarray:
    """How often each value of a column occurs; `value_counts` of pandas 2 warns about values of some types."""
    return np.bincount(pd.factorize(column.dropna())[0])


def _weights_of(sample_weight: Any, frame: pd.DataFrame) -> np.ndarray | None:
    if sample_weight is None:
        return None
    from neonxc.data.table import Table  # these load PyTorch
    from neonxc.data.weights import weights_of

    return weights_of(sample_weight, Table.read(frame))


def _share(is_missing: pd.Series, weight: np.ndarray | None) -> float:
    """Share of the rows, by number or by weight, with a missing value."""
    return float(is_missing.mean() if weight is None else np.average(is_missing, weights=weight))


def _values(column: pd.Series, weight: np.ndarray | None) -> str:
    counts = _counts(column)
    rare = int((counts < RARE * len(column)).sum())
    if weight is not None:
        codes = pd.factorize(column)[0]
        sums = np.bincount(codes[codes >= 0], weight[codes >= 0])
        rare = int((sums < RARE * weight.sum()).sum())
    combined = f", {rare} rare ones combined" if rare > 1 else ""
    return f"{len(counts)} values{combined}{', and missing values' if column.isna().any() else ''}"


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
    drop = f"X.drop(columns={names[:LISTED]}) or {' '.join(f'--ignore {name}' for name in names[:LISTED])}"
    return [_note(names, "suspects") + drop] if names else []


def _identifies(values: pd.Series) -> bool:
    """Whether a column is called an identifier, or has distinct integers: sorted, nearly consecutive or issued."""
    present = values.dropna()
    if not _whole(present):
        return _useless(values) in ("identifier", "issued")
    ordered = present.is_monotonic_increasing or present.is_monotonic_decreasing
    close = present.max() - present.min() < 1.5 * len(present)
    if IDENTIFIER.search(str(values.name)) is not None or (present.is_unique and bool(ordered or close)):
        return True
    return are_issued(present)


def _weights(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column is called a weight, and does not depend on another one as measured weights do."""
    values = frame[name]
    if not WEIGHT.search(str(name)) or not _is_number(values) or values.min() < 0:
        return False
    with np.errstate(invalid="ignore", divide="ignore"):
        return not frame.drop(columns=name).corrwith(values, numeric_only=True).abs().max() > MEASURED
