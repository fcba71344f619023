"""Texts for places with little room: they end behind a word."""

from __future__ import annotations


def shortened(text: str, n_max: int) -> str:
    """Return a text, or its beginning up to the end of a word if it has more than `n_max` characters.

    A word that takes more than half of the room is cut, as names without blanks would be lost otherwise.

    Parameters
    ----------
    text : str
    n_max : int
        Maximum number of characters, among them the mark ``…`` of what is left out.

    Examples
    --------
    >>> from neonxc.common.shortening import shortened
    >>> shortened("mean of the concave points", 20)
    'mean of the concave…'
    >>> shortened("meanOfTheConcavePoints", 20)
    'meanOfTheConcavePoi…'
    """
    if len(text) <= n_max:
        return text
    beginning = text[: n_max - 1]
    is_inside_word = not text[n_max - 1].isspace()
    words = beginning.rsplit(maxsplit=1)
    if is_inside_word and len(words) > 1 and not beginning[-1].isspace() and 2 * len(words[0]) >= n_max:
        beginning = words[0]
    return beginning.rstrip(" \t\n,;:") + "…"
