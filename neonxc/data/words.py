"""Words of texts in all scripts: where they begin and end, and which of them are the same word.

A text is read as a string of the kinds of its characters, so that one pattern serves all scripts:

- ``l`` and ``a``: letters of the Latin and of other alphabets; ``s``: other letters, which stand for syllables
- ``c``: characters of scripts without blanks between words; ``0``: digits and ``_``
- ``m``: marks such as accents and vowel signs; ``v``: marks that put the next character below; ``z``: joiners
- ``f``: characters that are not seen, such as soft hyphens; a blank: blanks
- ``j``: apostrophes; ``i``: middle dots; ``r``: halves of flags; ``x``: everything else
"""

from __future__ import annotations

import re
from collections.abc import Container
from unicodedata import category, name, normalize

Span = tuple[int, int]

LATIN = ("LATIN", "ROMAN", "DIGIT", "MODIFIER")  # how names of characters begin; superscripts count as letters
ALPHABETS = ("GREEK", "COPTIC", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "SYRIAC", "THAANA", "NKO")
WITHOUT_BLANKS = (
    *("CJK", "IDEOGRAPHIC", "TANGUT", "NUSHU", "HIRAGANA", "KATAKANA-HIRAGANA", "BOPOMOFO"),
    *("THAI ", "LAO ", "KHMER", "MYANMAR", "TAI ", "NEW TAI", "JAVANESE", "BALINESE"),
)
KINDS = {  # of characters whose category and name say something else
    **{"_": "0", "\u200b": " ", "\u00b7": "i"},
    **dict.fromkeys("\u200c\u200d", "z"),
    **dict.fromkeys("\u1039\u17d2\u1a60\u1b44\ua9c0", "v"),
    **dict.fromkeys("\u055b\u055c\u055e", "m"),  # Armenian signs of stress, exclamation and question
    **dict.fromkeys("'\u2019\u05f3\u05f4", "j"),
}
ALIKE = str.maketrans("\u2019\u05f3\u05f4", "''\"")  # signs with which a word may be written


def _pattern(letters: str, minimum: int) -> str:
    """Pattern of words of at least so many letters, or of one that stands for a syllable."""
    long_enough = rf"(?:[{letters}][mzvf]*){{{minimum}}}|[{letters}mzvf]*s"
    # the first letter is looked at first: else a run of n marks is read n times
    first = rf"(?=[{letters}s])(?={long_enough})[{letters}s]"
    others = rf"(?:[{letters}smzv]|f+(?=[{letters}smzv]))*"
    return rf"c(?:vc|[mzv])*|{first}{others}"


WORD = re.compile(_pattern("la0", 1) + "|rr[mzv]*|[^ fz](?:[mzv]|(?<=z)x)*")
"""A run of letters and digits with their marks, a flag, or another character with its marks."""
COUNTED = re.compile(_pattern("la0", 2))
TERM = re.compile(_pattern("la", 3))


class _Kinds(dict[int, str]):
    """Kinds of the characters met so far."""

    def __missing__(self, code: int) -> str:
        self[code] = kind = _kind(chr(code))
        return kind


def _kind(character: str) -> str:
    """Return the kind of a character by its category and its name in Unicode."""
    if character in KINDS or character.isspace():
        return KINDS.get(character, " ")
    kind = category(character)
    first = normalize("NFKD", character)[0]  # its letter, without accents and ligatures
    if kind == "Cf":
        return "f" if character < "\U000e0020" else "m"  # letters of the flags of regions
    if "M" in kind + category(first) or "\U0001f3fb" <= character <= "\U0001f3ff":
        return "m"  # also colours of skin
    if not character.isalnum():
        return "r" if "\U0001f1e6" <= character <= "\U0001f1ff" else "x"
    if character.isdecimal():
        return "0"
    script = name(first, "")
    if script.startswith(WITHOUT_BLANKS):
        return "m" if kind == "Lm" else "c"  # signs of repetition and length belong to the character before
    if script.startswith(LATIN):
        return "l"
    if script.startswith(ALPHABETS):
        return "a"
    return "s"


_KINDS = _Kinds()


def _kinds(text: str) -> str:
    """Return the kinds of the characters of a text, which is what the patterns match."""
    text = re.sub('(?<=[\u0591-\u05ea])"(?=[\u05d0-\u05ea])', "\u05f4", text)  # Hebrew abbreviations
    # In most alphabets an apostrophe is a part of words; in the Latin one it separates them ("l'homme"), and a
    # middle dot is a part of them ("col·lecció")
    return re.sub("(a[mzv]*)j(?=a)|(l[mzv]*)i(?=l)", r"\1\2m", text.translate(_KINDS))


def word_spans(text: str) -> list[Span]:
    """Positions of the words of a text, which are everything but its blanks.

    A word is a run of letters and digits with their marks, or another single character with its marks. In scripts
    without blanks between words, every character with its marks is a word.
    """
    return [match.span() for match in WORD.finditer(_kinds(text))]


def counted_words(text: str) -> list[str]:
    """Words of a text that have two letters or digits, as for scikit-learn's vectorizers, but in all scripts."""
    return [text[slice(*match.span())] for match in COUNTED.finditer(_kinds(text))]


def term_spans(text: str, known: Container[str] = (), longest: int = 1) -> list[Span]:
    """Positions of the words of a text that consist of letters, and may be in a vocabulary.

    They have at least three letters in an alphabet, and at least one in other scripts. In scripts without blanks
    between words, they are the longest `known` words, of at most `longest` characters, and other characters.
    """
    pieces = [match.span() for match in TERM.finditer(_kinds(text))]
    if longest < 2:
        return pieces
    spans: list[Span] = []
    first = 0
    while first < len(pieces):
        start, stop = pieces[first]
        after = first + 1  # the piece after the longest known word so far
        word = normal(text[start:stop])
        end = stop
        for i in range(first + 1, min(first + longest, len(pieces))):
            next_start, next_stop = pieces[i]
            if next_start != end:  # there is a blank or a sign between words, but not between characters
                break
            word += normal(text[next_start:next_stop])
            end = next_stop
            if word in known:
                stop = next_stop
                after = i + 1
        spans.append((start, stop))
        first = after
    return spans


def after_marks(text: str, stop: int) -> int:
    """Position after the marks of the character that ends at `stop`."""
    while stop < len(text) and _KINDS[ord(text[stop])] in "mvz":
        stop += 1
    return stop


def characters(text: str) -> list[Span]:
    """Positions of the characters of a text with their marks."""
    return [match.span() for match in re.finditer("(?s:.)[mvz]*", text.translate(_KINDS))]


def is_term(word: str) -> bool:
    """Whether a word consists of letters, and may be in a vocabulary."""
    # words are matched once (?>), as a word of n characters could be divided into others in 2^n ways
    return re.fullmatch(f"(?:(?>{TERM.pattern}))++", _kinds(word)) is not None


def is_unspaced(word: str) -> bool:
    """Whether a word has characters of a script without blanks between words."""
    return "c" in _kinds(word)


def normal(word: str) -> str:
    """Return a word in lower case, with one encoding of accents and apostrophes, and no invisible characters."""
    if word.isascii():
        return word.lower()
    if "f" in word.translate(_KINDS):
        word = "".join(letter for letter in word if _KINDS[ord(letter)] != "f")
    composed = normalize("NFC", word.lower())
    # The dot of a Turkish capital İ would become a mark of its own
    return composed.replace("i\u0307", "i").translate(ALIKE)
