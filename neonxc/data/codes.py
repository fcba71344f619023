"""Numbers that name something, and that nothing can be computed with: codes, and numbers that were issued to rows.

Codes, such as postal codes, are categories:

    written as a code   whole numbers without marks, of which some have leading zeros: these are as long as the
                        longest number, or most of the numbers (``02346``; not a single ``05`` among ``100``)
    called a code       the name of the column says so (:func:`is_called_code`), and all numbers are whole

The names were chosen on 6,753 columns of 779 tables, those of R's packages, scikit-learn and the UCI repository,
of which 3,925 hold whole numbers: 46 have one of these names, and all but 3 of them are codes (those count the
words of tax codes). Words that name counts as often as codes are not among them: 12 of 13 columns called
``number``, ``num`` or ``no``, which is also nitrogen monoxide, are counts or measurements.

Issued numbers, such as those of phones, accounts and cards, name one row each, and were not measured:

    candidate    whole numbers >= 0 with 8 to 18 digits, of at most two lengths that differ by one, at least 95% of
                 them different, few of them round (multiples of 10), and no dates or seconds since 1970
    issued       a candidate whose numbers have 13 digits or more, which no measurement has, or are spread evenly
                 over their range: with F(x) = (x - min) / (max - min) and the empirical distribution G of n values
                     sup |F - G| < 0.07 + 0.5 / sqrt(n)   and   excess kurtosis < -0.8 (-1.2 if evenly spread)

The bounds were chosen on nine of 18 tables of scikit-learn and the UCI repository, and checked on the other nine:
no column was taken for issued numbers. Of 2,574 samples of their columns, scaled to numbers of nine to eleven
digits, 21 were, of which six are codes of communities and the others lie evenly, such as the rows of pixels.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

_WORDS = (
    "id|ids|nr|codes|zip|zips|plz|postleitzahl|postleitzahlen|postcode|zipcode|vorwahl|blz|ags|kennziffer"
    r"|sic|naics|nace|icd|gtin|ean|upc|isbn|issn|iban|sku|fips|insee|siren|siret|naf"
    "|tel|telefon|téléphone|telephone|phone|fax"
)
_ENDS = r"nr|code|nummer|numéro|schlüssel|schluessel|(?:phone|account)[\W_]?number"
_STARTS = r"plz|zip|postcode|id|code|n°|nº|numéro|numero"
_COUNTED = "of|line|length|size|count|word"
CALLED = re.compile(
    rf"(?i:(?:^|[\W_])(?:{_WORDS})[\W_]?\d*$|(?:{_ENDS})[\W_]?\d*$|^(?:{_STARTS})[\W_]+(?!{_COUNTED})\w)"
    r"|[a-z](?:Id|ID)$"
)
"""Names of codes: their last word, the end of a compound, or in French and Spanish the first word."""
WITH_MARKS = re.compile(r"(^|[\W_])icd[\W_]?\d*", re.IGNORECASE)
"""Names of codes that have points, such as 250.83."""
LEADING_ZERO = re.compile(r"0[0-9]+")
INTERNATIONAL = re.compile(r"\+[0-9]{5,}")
"""Phones with the code of a country."""
DIGITS = (8, 18)
MANY_DIGITS = 13
"""Number of digits from which on no measured number is exact."""
DISTINCT = 0.95
"""Smallest fraction of numbers that are different."""
ROUND = 0.25
"""Fraction of multiples of 10 from which on numbers are rounded; of issued ones it is a tenth."""
FEW = 20
"""Minimum number of rows to tell whether numbers are issued or rounded."""
MANY = 100
"""Minimum number of rows to tell how numbers are spread."""
TIMES = [(6e8 * unit, 2.2e9 * unit) for unit in (1, 1e3, 1e6, 1e9)]
"""Seconds from 1989 to 2039 since 1970, and the same in milliseconds, microseconds and nanoseconds."""
MANY_DATES = 3
"""Minimum number of rows to tell whether numbers are dates."""
DATES = {8: 1, 10: 100, 12: 10**4, 14: 10**6}
"""By the number of digits of YYYYMMDD, also with hours, minutes and seconds, what the day is multiplied by."""


def is_called_code(name: object) -> bool:
    """Whether the name of a column says that its numbers are codes."""
    return CALLED.search(str(name).strip()) is not None


def are_codes(name: object, present: pd.Series) -> bool:
    """Whether a column of numbers, of which none is missing, is called a code and holds whole numbers."""
    if present.dtype.kind not in "iuf" or not len(present) or not is_called_code(name):
        return False
    return bool((present % 1 == 0).all())


def looks_like_code(cell: str) -> bool:
    """Whether a cell has leading zeros, or is the number of a phone with a plus sign."""
    return LEADING_ZERO.fullmatch(cell) is not None or INTERNATIONAL.fullmatch(cell) is not None


def are_written_as_codes(cells: list[str]) -> bool:
    """Whether distinct cells, which are whole numbers without marks, are written as codes."""
    coded = [*filter(looks_like_code, cells)]
    if not coded:
        return False
    if 2 * len(coded) > len(cells):
        return True
    longest = max(map(len, cells))
    return all(len(cell) == longest for cell in coded) and not any(cell.startswith("+") for cell in coded)


def are_candidates(present: pd.Series) -> bool:
    """Whether numbers, none of which is missing, are candidates; with a name that says so they are issued ones."""
    values = _wide(present)
    if values.dtype.kind not in "iuf" or len(values) == 0:
        return False
    shortest, longest = DIGITS
    if not (values >= 10 ** (shortest - 1)).all() or not (values < 10**longest).all():
        return False
    if (values % 1 != 0).any():
        return False

    numbers = values.astype(np.int64)
    if len(np.unique(numbers)) < DISTINCT * len(numbers):
        return False
    lengths = [len(str(numbers.min())), len(str(numbers.max()))]
    if lengths[1] - lengths[0] > 1:
        return False
    if len(numbers) >= FEW and (numbers % 10 == 0).mean() > ROUND:
        return False
    return not _are_times(numbers)


def are_issued(present: pd.Series) -> bool:
    """Whether numbers, none of which is missing, look like issued ones by their values alone."""
    if len(present) < FEW or not are_candidates(present):
        return False
    numbers = np.sort(present.to_numpy().astype(np.int64))
    if numbers[0] >= 10 ** (MANY_DIGITS - 1):
        return True
    if len(numbers) < MANY:
        return False

    from scipy.stats import kurtosis  # takes long to load

    # sup |F - G|, where G jumps from (i - 1) / n to i / n at the i-th number
    expected = (numbers - numbers[0]) / (numbers[-1] - numbers[0])
    ranks = np.arange(len(numbers) + 1) / len(numbers)
    distance = max(np.abs(expected - ranks[1:]).max(), np.abs(expected - ranks[:-1]).max())
    return bool(distance < 0.07 + 0.5 / len(numbers) ** 0.5 and kurtosis(expected) < -0.8)


def _are_times(numbers: np.ndarray) -> bool:
    """Whether all numbers are seconds since 1970, or dates as YYYYMMDD."""
    if any(low <= numbers.min() and numbers.max() <= high for low, high in TIMES):
        return True
    return _are_dates(numbers)


def _wide(present: pd.Series) -> np.ndarray:
    """Return numbers in a type that can be compared with large ones, as float16 can't."""
    values = present.to_numpy()
    if values.dtype == np.float16:
        return values.astype(np.float64)
    return values


def are_dates(present: pd.Series) -> bool:
    """Whether numbers, none of which is missing, are several dates as YYYYMMDD, also with hours or minutes.

    Of numbers of eight digits that are spread evenly, one in 600 could be a date by chance.
    """
    values = _wide(present)
    if values.dtype.kind not in "iuf" or len(values) < MANY_DATES:
        return False
    if not (values >= 10**7).all() or not (values < 10**14).all() or (values % 1 != 0).any():
        return False
    return _are_dates(values.astype(np.int64))


def _are_dates(numbers: np.ndarray) -> bool:
    """Whether all numbers have as many digits as a date, and the month and the day of one."""
    digits = len(str(numbers.max()))
    if digits not in DATES or len(str(numbers.min())) != digits:
        return False
    days = numbers // DATES[digits]
    year = days // 10**4
    month = days // 100 % 100
    day = days % 100
    is_date = (year >= 1800) & (year <= 2200) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(is_date.all())
