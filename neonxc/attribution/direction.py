"""How the values of a column in a cluster differ from those elsewhere: the rule for words, arrows and numbers.

With the mean m of the cluster's values and m' of those of all other points, their pooled standard deviation s,
Cohen's d = (m - m') / s, and the standard deviation s' of the others' values:

    word        arrow   numbers, for which missing values do not count
    missing             more than half of the cluster's values are missing, and at most half of the others
    high        ↑       d >= CLEAR
    low         ↓       d <= -CLEAR
    extreme     ↕       otherwise, if the mean of (x - m')^2 in the cluster is at least (EXTREME s')^2
    medium      ≈       otherwise; = if both sides read alike
    typical             there are no other points

    words, terms        the fractions of texts that contain it: high, low, or medium if both read alike
    categories          "is yes", for the category whose fraction in the cluster exceeds that elsewhere most

Both numbers are printed with as many digits as they need to differ. Both sides read alike where the numbers are
equal all the same, and where the values are distributed alike: |d| < ALIKE, and the root of the mean of (x - m')^2
in the cluster is s' up to the factor 1 + ALIKE; or, for two fractions p and p' of a category, Cohen's
h = |2 asin(sqrt(p)) - 2 asin(sqrt(p'))| < ALIKE_FRACTIONS. Such a column is no reason for a cluster, and gives it
no name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import asin, isnan, nan, sqrt
from typing import Literal

from neonxc.common.locales import printed_like
from neonxc.common.numbers import percent, text
from neonxc.data.files.format import PLAIN, ColumnFormat

CLEAR = 0.36
"""Smallest absolute value of Cohen's d of what is high or low. Of two normal distributions at this distance, a
value of one is 1.5 times as often larger than one of the other as it is smaller."""
EXTREME = 2.5
"""Smallest deviation, in standard deviations of the others, of what is extreme. Half of a normal distribution of
2.44 times the width of another one is outside of the middle 90% of that one."""
ALIKE = 0.25
"""Two normal distributions whose means differ by less than a quarter of a standard deviation, or whose widths by
less than a quarter, overlap by about 90%."""
ALIKE_FRACTIONS = 0.1
"""Cohen's h of 50% and 55%, of 1% and 2.2%, or of 0% and 0.25%."""
MAX_DIGITS = 12  # of 16: what differs only behind them differs by rounding
MAX_DECIMALS = 3  # of percent
WORTH = 0.1  # smallest relevance of present words, relative to the largest, for a place before absent ones

ARROWS = {"high": "↑", "low": "↓", "extreme": "↕"}
MISSING = "missing"
MEDIUM = "medium"
TYPICAL = "typical"


@dataclass(frozen=True)
class Direction:
    """How the values of a column in a cluster differ from those of all other points.

    Attributes
    ----------
    word : str
        "high", "low", "medium", "extreme", "missing" or "typical"; "is Private" for a category; "" if the values
        are unknown.
    own, others : float
        Mean of the values, or fraction of the category or of the texts, 0 to 1, in the cluster and in all other
        points; NaN if unknown.
    effect : float
        Cohen's d of numbers; Cramér's V of categories, words and terms, 0 to 1; NaN if unknown.
    kind : {"number", "category", "texts"}
        What the numbers are.
    is_absence : bool
        Whether the column is a word, a term or a count that the cluster lacks.
    is_alike : bool
        Whether the values of both sides are distributed alike.
    format : ColumnFormat
        The unit and the marks of the column's numbers.
    """

    word: str
    own: float
    others: float
    effect: float = nan
    kind: Literal["number", "category", "texts"] = "number"
    is_absence: bool = False
    is_alike: bool = False
    format: ColumnFormat = PLAIN

    @property
    def arrow(self) -> str:
        """``"↑"``, ``"↓"``, ``"↕"``, ``"≈"`` or ``"="``; the word itself for categories and missing values."""
        if self.word == MEDIUM:
            return "≈" if self.differs else "="
        if self.word == TYPICAL:
            return ""
        return ARROWS.get(self.word, self.word)

    @property
    def differs(self) -> bool:
        """Whether the two sides read differently."""
        own, others = self.numbers()
        return own != others and not self.is_alike

    @property
    def is_known(self) -> bool:
        """Whether there are values in the cluster, or whether they are missing."""
        return bool(self.word)

    @property
    def is_reason(self) -> bool:
        """Whether the column tells the cluster from others: both sides are known, and read differently."""
        return self.is_known and (self.differs or self.word == TYPICAL)

    def admits(self, word: str) -> bool:
        """Whether a statement with a word such as "extreme" or "rather high" says what this one says of numbers.

        "Rather high" and "rather low" may also be said of medium numbers that lie on this side of the others.
        """
        match word:
            case "rather high":
                return self.word == "high" or (self.word == MEDIUM and self.effect > 0)
            case "rather low":
                return self.word == "low" or (self.word == MEDIUM and self.effect < 0)
            case _:
                return self.word == word

    def numbers(self, digits: int = 4) -> tuple[str, str]:
        """Print the numbers of the cluster and of the other points with the digits that they need to differ.

        They have the marks of their column, and no unit.
        """
        with printed_like(self.format.marks):
            return self._numbers(digits)

    def texts(self) -> tuple[str, str]:
        """Print the numbers of the cluster and of the other points with their unit."""
        own, others = self.numbers()
        own_unit = "" if self.word == MISSING or isnan(self.own) else self._unit
        return own + own_unit, others + self._unit * (not isnan(self.others))

    def _numbers(self, digits: int) -> tuple[str, str]:
        own = text(None) if self.word == MISSING else self._printed(self.own, digits)
        others = self._printed(self.others, digits)
        if self.own == self.others or self.effect == 0:
            return own, others
        if self.kind == "number":
            more = range(digits + 1, MAX_DIGITS + 1)
        else:
            more = range(1, MAX_DECIMALS + 1)
        for n in more:
            if own != others:
                break
            own = self._finer(self.own, n)
            others = self._finer(self.others, n)
        return own, others

    def _printed(self, value: float, digits: int) -> str:
        return text(value, digits) if self.kind == "number" else percent(value)

    def _finer(self, value: float, digits: int) -> str:
        """Print a number with more digits, or a fraction with more decimals of percent."""
        return text(value, digits) if self.kind == "number" else f"{value:.{digits}%}"

    def comparison(self, digits: int = 4) -> str:
        """Write arrow and numbers: ``"↑ 1116 vs 582.3"``, ``"is Private 91% vs 53%"``; "" if unknown."""
        if not self.is_known:
            return ""
        own, others = self.numbers(digits)
        numbers = own if self.word == TYPICAL else f"{own} vs {others}"
        numbers += self._unit
        if self.word == MISSING:
            return numbers
        if self.kind == "texts":
            numbers = f"in {numbers}"
        return f"{self.arrow} {numbers}".strip()

    def step(self, digits: int = 3) -> str:
        """Write a change from the others to the own numbers: ``"52 → 12"``, ``"is Pro 10% → 80%"``."""
        own, others = self.numbers(digits)
        step = f"{others} → {own}{self._unit}"
        if self.kind == "texts":
            return f"in {step}"
        if self.kind == "category":
            return f"{self.word} {step}"
        return step

    @property
    def _unit(self) -> str:
        """The unit behind numbers, and a space before it."""
        if self.kind != "number" or not self.format.unit:
            return ""
        return f" {self.format.unit}"

    def statement(self, name: str) -> str:
        """Describe a column in words: ``"high proline"``, ``"work is Private"``, ``"no java"``."""
        if self.kind == "texts":
            return f"no {name}" if self.is_absence else name
        if self.kind == "category" or self.word == MISSING:
            return f"{name} {self.word}" if self.kind == "category" else f"{name} is missing"
        return f"{self.word} {name}"

    @property
    def measure(self) -> str:
        """The name of the effect size, d or V."""
        return "d" if self.kind == "number" else "V"

    def effect_size(self) -> str:
        """Write the effect size: ``"d = 1.8"``, ``"V = 0.41"``; "" if it is unknown."""
        if isnan(self.effect):
            return ""
        return f"{self.measure} = {text(self.effect, 2)}"


UNKNOWN = Direction("", nan, nan)


def of_number(
    own: float,
    others: float,
    effect: float,
    *,
    deviation: float = 0.0,
    known: float = 1.0,
    known_elsewhere: float = 1.0,
    present: float = 1.0,
    format: ColumnFormat = PLAIN,
) -> Direction:
    """Say how the numbers of a cluster differ from those of all other points.

    Parameters
    ----------
    own, others : float
        The two means; NaN without values.
    effect : float
        Cohen's d; NaN if one side has no values.
    deviation : float
        Root of the mean of (x - m')^2 in the cluster, in standard deviations of the others.
    known, known_elsewhere : float
        Fractions of the cluster's points, and of all other points, that have a value.
    present : float
        Fraction of the cluster's values that are not 0, in a column without negative ones.
    format : ColumnFormat
        The unit and the marks of the numbers.
    """
    if known < 0.5 <= known_elsewhere and not isnan(others):
        return Direction(MISSING, nan, others, format=format)
    if isnan(own):
        return Direction("", own, others, format=format)
    if isnan(others):
        return Direction(TYPICAL, own, others, format=format)
    word = MEDIUM
    if effect >= CLEAR:
        word = "high"
    elif effect <= -CLEAR:
        word = "low"
    elif deviation >= EXTREME:
        word = "extreme"
    is_absence = word == "low" and present < 0.5
    is_alike = abs(effect) < ALIKE and 1 / (1 + ALIKE) < deviation < 1 + ALIKE
    return Direction(word, own, others, effect, is_absence=is_absence, is_alike=is_alike, format=format)


def of_term(own: float, others: float, effect: float) -> Direction:
    """Say whether more or fewer texts of a cluster contain a term, given the fractions of texts."""
    if isnan(own):
        return UNKNOWN
    if isnan(others):
        return Direction(TYPICAL, own, others, kind="texts", is_absence=own == 0)
    if not Direction("", own, others, effect, "texts").differs:
        return Direction(MEDIUM, own, others, effect, "texts")
    word = "high" if own > others else "low"
    return Direction(word, own, others, effect, "texts", is_absence=own < others)


def of_category(name: str, own: float, others: float, effect: float) -> Direction:
    """Say how frequent a category is, given the fractions in a cluster and in all other points."""
    if isnan(own):
        return UNKNOWN
    return Direction(f"is {name}", own, others, effect, "category", is_alike=_are_alike(own, others))


def _are_alike(own: float, others: float) -> bool:
    """Whether two fractions read alike: by Cohen's h, since 1% and 6% differ more than 50% and 55%."""
    in_range = [min(max(fraction, 0.0), 1.0) for fraction in (own, others)]  # sums of weights are rounded
    angles = [2 * asin(sqrt(fraction)) for fraction in in_range]
    return abs(angles[0] - angles[1]) < ALIKE_FRACTIONS


def present_first(directions: Iterable[tuple[Direction, float]]) -> list[int]:
    """Order columns by what they say: what is there, what is absent, and then what is next to irrelevant.

    Parameters
    ----------
    directions : iterable of (Direction, float)
        The columns with their relevance, the most relevant first.

    Returns
    -------
    list of int
        Positions of the columns.
    """
    columns = list(directions)
    needed = WORTH * max((relevance for _, relevance in columns), default=0.0)

    def rank(position: int) -> int:
        direction, relevance = columns[position]
        if relevance < needed or relevance <= 0:
            return 2
        return int(direction.is_absence)

    return sorted(range(len(columns)), key=rank)
