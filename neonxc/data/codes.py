"""Codes: numbers that name something, such as postal codes, and that nothing can be computed with.

    written as a code   whole numbers without marks, of which some have leading zeros: these are as long as the
                        longest number, or most of the numbers (``02346``; not a single ``05`` among ``100``)
    called a code       the name of the column says so (:func:`is_called_code`), and all numbers are whole

Codes are categories. The names were chosen on 6,753 columns of 779 tables, those of R's packages, scikit-learn and
the UCI repository, of which 3,925 hold whole numbers: 46 have one of these names, and all but 3 of them are codes
(those count the words of tax codes). Words that name counts as often as codes are not among them: 12 of 13 columns
called ``number``, ``num`` or ``no``, which is also nitrogen monoxide, are counts or measurements.
"""

from __future__ import annotations

import re

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
