"""Reading of texts by a tokenizer: which tokens belong to which words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from neonxc.data.inputs import as_texts
from neonxc.data.words import Span, word_spans

SURROGATE = re.compile("[\ud800-\udfff]")

Unit = tuple[tuple[int, ...], str, Span]
"""Tokens of a word or of a part of one, how it is written, and its position."""


class TokenizedText(NamedTuple):
    """Tokens of a text, as a tokenizer tells them, of which those of the prompt count as special ones."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    special_tokens_mask: list[int]
    overflowing: list[Any]


def tokenized(
    texts: Iterable[str], tokenizer: Any, prompt: str, max_tokens: int
) -> Iterator[tuple[str, TokenizedText]]:
    """Yield texts and their tokens; the prompt's last token belongs to the text if it goes on into it."""
    texts = as_texts(texts)
    options = {"truncation": True, "return_special_tokens_mask": True}
    for n, text in enumerate(texts):
        if SURROGATE.search(text):
            raise ValueError(
                f"text {n} has half of a character, a surrogate, which no tokenizer reads: {text!r:.50}"
            )
    whole = [prompt + text for text in texts]
    read = tokenizer(whole, max_length=max_tokens, **options).encodings
    # a blank belongs to the word after it
    stop = len(prompt)
    end = len(prompt.rstrip())
    for text, found in zip(texts, read, strict=True):
        special = [
            int(inner or (first < end and last <= stop))
            for inner, (first, last) in zip(found.special_tokens_mask, found.offsets, strict=True)
        ]
        offsets = [(max(0, first - stop), max(0, last - stop)) for first, last in found.offsets]
        yield text, TokenizedText(found.ids, offsets, special, found.overflowing)


def units_of(text: str, encoding: TokenizedText, units: str) -> Iterator[Unit]:
    """Yield the tokens of every word (or token) of a text, the unit as it is written, and its position."""
    words = (word_spans(text) or [(0, len(text))]) if units == "words" else None
    found: list[tuple[list[int], int, int]] = []
    for token, span, special in zip(encoding.ids, encoding.offsets, encoding.special_tokens_mask, strict=True):
        if special:
            continue
        start, stop = _without_blanks(text, *span) if words is None else _covered(words, *span)
        ids = [token]
        if found and start < found[-1][2]:  # the token is of the same word, or one of several of a character
            before, begins, ends = found.pop()
            ids = before + ids
            start = min(begins, start)
            stop = max(ends, stop)
        found.append((ids, start, stop))
    for ids, start, stop in found:
        yield tuple(ids), text[start:stop], (start, stop)


def _without_blanks(text: str, start: int, stop: int) -> Span:
    """Position of a token without the blanks around it."""
    start = len(text) - len(text[start:].lstrip())
    return start, max(start, len(text[:stop].rstrip()))


def _covered(words: list[Span], start: int, stop: int) -> Span:
    """Position of the words of which a token has a part; blanks belong to the word after them."""
    first = min(bisect_right(words, start, key=lambda word: word[1]), len(words) - 1)
    last = bisect_left(words, stop, key=lambda word: word[0]) - 1
    return words[first][0], words[max(first, last)][1]
