"""Numbers in text: the marks, units and signs with which a column writes them.

A cell with a number consists of these parts, with spaces between them, of which all but the body may be missing::

    sign   before      inner   body        behind   after   last
    -      $                   1,250.50
                               12,-                 EUR
                               31.5                 kg      -

A number in parentheses is negative. At most one of the signs and the parentheses may be there. The body has digits
with marks of :data:`MARKS`; a :class:`Notation` says which of the marks is the decimal one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from functools import cache
from typing import NamedTuple

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
"""Cells that count as missing in every column, in lower case."""
_SIGNS_OF_NOTHING = r"--|---|.|..|...|…|–|—|/|\n|<na>|nat|nil|tbd|(null)|(blank)|<null>|<none>|-nan|n\a|#n/a n/a"
_ERRORS = (
    "#na|#nv|#div/0!|#value!|#ref!|#name?|#null!|#num!|#wert!|#bezug!|#zahl!|#error!|#calc!|#spill!|#valeur!"
    "|#nom?|#nombre!|#valor!|#¡div/0!|#¡valor!|#¡num!|#¡ref!|#¿nombre?|#valore!|#rif!|#waarde!|#getal!|#verw!"
    "|1.#ind|-1.#ind|1.#qnan"
)
_ABBREVIATIONS = (
    "n.a.|n. a.|na.|n.d.|n. d.|n/d|nd|n.v.|n/v|n.b.|n.c.|n. c.|n/c|n.r.|n. r.|n/r|n.s.|n.p.|s.o.|s. o.|s/o"
    "|s.d.|s. d.|s/d|s.r.|n.v.t.|nvt|nsp|n.s.p.|ns/nc|k.a.|k. a.|k.a|k/a|ka|k.w.|o.a.|entf."
)
_ENGLISH = (
    "missing|(missing)|unknown|(unknown)|not available|not applicable|not known|no data|not reported"
    "|not measured|not stated|no answer|no response|undefined|empty|unavailable|not recorded|not specified"
    "|no value"
)
_GERMAN = (
    "keine angabe|keine angaben|ohne angabe|nicht bekannt|unbekannt|unbek.|fehlt|fehlend|fehlender wert"
    "|keine daten|nicht vorhanden|nicht erhoben|nicht verfügbar|nicht zutreffend|nicht ermittelt|kein wert"
    "|entfällt|leer"
)
_FRENCH = (
    "manquant|manquante|manquants|manque|inconnu|inconnue|vide|absent|absente|indisponible|non disponible"
    "|non renseigné|non renseignée|non renseigne|non communiqué|non applicable|non connu|non connue"
    "|non précisé|non déterminé|non mesuré|non réponse|ne sait pas|sans objet|sans réponse|aucune donnée"
    "|aucune réponse|aucune valeur|pas de donnée|pas de réponse|donnée manquante|valeur manquante"
)
_SPANISH = (
    "desconocido|desconocida|sin dato|sin datos|sin información|sin respuesta|sin especificar|no disponible"
    "|no aplica|no aplicable|no consta|no contesta|no sabe|no responde|no informado|no especificado"
    "|dato faltante|falta|faltante|ausente|vacío|vacio|perdido"
)
_ITALIAN = (
    "sconosciuto|sconosciuta|mancante|mancanti|dato mancante|assente|vuoto|non disponibile|non disp."
    "|non applicabile|non noto|non nota|non rilevato|non indicato|non pervenuto|nessun dato|nessuna risposta"
    "|ignoto"
)
_PORTUGUESE = (
    "desconhecido|desconhecida|em falta|omisso|vazio|ignorado|sem dados|sem dado|sem informação|sem resposta"
    "|não disponível|nao disponivel|indisponível|não aplicável|não se aplica|não informado|nao informado"
    "|não sabe"
)
_DUTCH = (
    "onbekend|ontbreekt|ontbrekend|niet beschikbaar|niet van toepassing|niet bekend|niet opgegeven"
    "|niet gemeten|geen gegevens|geen opgave|geen antwoord|geen waarde|weet niet|leeg"
)
_POLISH = "brak danych|brak|nieznany|nieznane|nie dotyczy"
AMONG_NUMBERS = frozenset(
    word
    for words in (
        _SIGNS_OF_NOTHING,
        _ERRORS,
        _ABBREVIATIONS,
        _ENGLISH,
        _GERMAN,
        _FRENCH,
        _SPANISH,
        _ITALIAN,
        _PORTUGUESE,
        _DUTCH,
        _POLISH,
    )
    for word in words.split("|")
)
"""Further cells that count as missing where the others are numbers, in lower case."""
EXACT = 2**53
"""Smaller integers are exact in float64, the type of columns with missing values."""
_SIGNS = {" ": "\u00a0\u2007\u2009\u202f", "'": "’‘´`", "-": "−–—", "¥": "￥", "$": "＄"}
ALIKE = str.maketrans({variant: sign for sign, variants in _SIGNS.items() for variant in variants})
"""Signs that are written in several ways: spaces, apostrophes, minus signs and currencies."""
MARKS = {".": "points", ",": "commas", " ": "spaces", "'": "apostrophes"}
ENCLOSED = "parentheses around negative numbers"
BEHIND = "minus signs behind numbers"
INFINITE = "(?i:inf|infinity)"
BODY = rf"(?:[0-9]+(?:[.,' ][0-9]+)*(?:[.,]-{{0,2}})?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?|{INFINITE}"
CURRENCY = (
    r"[A-Z]{0,3}[$€£¥₹₽₩₺₴₪฿₫₦]|S?Fr\.|Rs\.?|kr\.?|EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF"
    "|RON|BGN|TRY|RUB|BRL|MXN|ZAR"
)
PARENTHESES = re.compile(rf"({CURRENCY})?\s*\(([^()]+)\)")
_POWER = r"(?<=[A-Za-z])[23](?!\w)|(?<=\^)-?[1-9](?!\w)"  # m2, m^3, s^-1
_PER = r"(?:(?<=/)|(?<=/ )|(?<=per ))(?:10{1,6}|24(?= ?h))(?![0-9.,])"  # l/100 km, cases per 1000
UNIT = rf"(?:[^\W\d_]|[%‰°$€£¥₹₽])(?:[^\W\d_]|[%‰°$€£¥₹₽./·^]|{_POWER}|{_PER}| (?=\S)){{0,24}}"
# Blanks are matched once (*+): no part begins with one, and where all are optional, n blanks could be divided
# among the spaces between the parts in n^3 ways
CELL = re.compile(
    rf"(?P<sign>[+-]?)\s*+(?P<before>{CURRENCY})?\s*+(?P<inner>[+-]?)\s*+(?P<body>{BODY})\s*+(?P<behind>-?)\s*+"
    rf"(?P<after>{UNIT})?\s*+(?P<last>-?)"
)


class Notation(NamedTuple):
    """How a column writes numbers: its marks, "" for unknown ones, and its unit."""

    decimal: str = ""
    thousands: str = ""
    unit: str = ""


class NumberParts(NamedTuple):
    """The number in a cell: its sign, digits and marks; its unit; and what else than a sign makes it negative."""

    body: str
    unit: str
    negative: str


def part_of(cell: str) -> NumberParts | None:
    """Find the number in a cell; None if the cell holds anything else than a number and its unit."""
    cell = cell.translate(ALIKE)
    enclosed = PARENTHESES.fullmatch(cell) if cell.endswith(")") else None
    if enclosed:  # a currency may stand before the parentheses
        cell = " ".join(filter(None, enclosed.groups())).strip()
    parts = CELL.fullmatch(cell)
    if parts is None:
        return None

    sign_before = parts["sign"] + parts["inner"]
    sign_behind = parts["behind"] + parts["last"]
    if len(sign_before + sign_behind) + bool(enclosed) > 1:
        return None
    negative = ""
    if enclosed:
        negative = ENCLOSED
    elif sign_behind:
        negative = BEHIND
    sign = "-" if negative else sign_before
    body = parts["body"].rstrip("-")  # 12,- is a price without cents
    unit = " ".join(filter(None, (parts["before"], parts["after"])))
    return NumberParts(sign + body, unit, negative)


@cache
def numbers_in(notation: Notation) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches numbers with these marks."""
    mark = re.escape(notation.thousands)
    point = re.escape(notation.decimal or ".")
    number = rf"(?:[0-9]+(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?|{INFINITE}"
    if mark:
        number += rf"|[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{point}[0-9]*)?"
    if mark == ",":  # 12,34,567
        number += rf"|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}}(?:{point}[0-9]*)?"
    return re.compile(f"[+-]?(?:{number})").fullmatch


def notations(marks: Set[str]) -> list[Notation]:
    """Return the notations that have these marks."""
    if not marks & {".", ","}:
        candidates = [Notation("", "".join(marks))]
    else:
        candidates = [Notation(decimal, "".join(marks - {decimal})) for decimal in ".,"]
    return [notation for notation in candidates if len(notation.thousands) < 2] or [Notation(".")]


def is_number(cell: str, with_unit: bool = False) -> bool:
    """Return whether a cell is a number, whatever its marks."""
    part = part_of(cell)
    if part is None or (part.unit and not with_unit):
        return False
    marks = {*MARKS} & {*part.body}
    return any(numbers_in(notation)(part.body) for notation in notations(marks))
