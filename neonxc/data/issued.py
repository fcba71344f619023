"""Numbers that were issued to rows, such as those of phones, accounts and cards, and not measured.

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

import numpy as np
import pandas as pd
from scipy.stats import kurtosis

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
DATES = {8: 1, 10: 100, 12: 10**4, 14: 10**6}
"""By the number of digits of YYYYMMDD, also with hours, minutes and seconds, what the day is multiplied by."""


def are_candidates(present: pd.Series) -> bool:
    """Whether numbers, none of which is missing, are candidates; with a name that says so they are issued ones."""
    values = present.to_numpy()
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

    # sup |F - G|, where G jumps from (i - 1) / n to i / n at the i-th number
    expected = (numbers - numbers[0]) / (numbers[-1] - numbers[0])
    ranks = np.arange(len(numbers) + 1) / len(numbers)
    distance = max(np.abs(expected - ranks[1:]).max(), np.abs(expected - ranks[:-1]).max())
    return bool(distance < 0.07 + 0.5 / len(numbers) ** 0.5 and kurtosis(expected) < -0.8)


def _are_times(numbers: np.ndarray) -> bool:
    """Whether all numbers are seconds since 1970, or dates as YYYYMMDD."""
    if any(low <= numbers.min() and numbers.max() <= high for low, high in TIMES):
        return True
    digits = len(str(numbers.max()))
    if digits not in DATES:
        return False
    days = numbers // DATES[digits]
    year = days // 10**4
    month = days // 100 % 100
    day = days % 100
    is_date = (year >= 1800) & (year <= 2200) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(is_date.all())
