"""Reading of texts by a tokenizer: which tokens belong to which words.

1. The tokenizer reads a prompt and a text together, and tells which characters [start, stop) a token covers.
2. Positions are counted from the start of the text. Tokens of the prompt count as special ones, unless they go on
into the text.
3. A token that is not special belongs to all words of which it covers a part (with `units` "tokens", to itself).
4. Words that share a token are one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from neonxc.common.shortening import shortened
from neonxc.data.inputs import as_texts
from neonxc.data.words import Span, word_spans

SURROGATE = re.compile("[\ud800-\udfff]")


class FastTokenizer(Protocol):
    """What is asked of a tokenizer of transformers that knows where tokens are."""

    is_fast: bool
    model_max_length: int
    backend_tokenizer: Any  # of the package tokenizers

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """The special tokens by their names."""

    def __call__(self, text: str | list[str], **options: Any) -> Any:
        """Read a text or several."""


class TokenizedText(NamedTuple):
    """Tokens of a text, as a tokenizer tells them, of which those of the prompt count as special ones."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    special_tokens_mask: list[int]
    overflowing: list[Any]


class Word(NamedTuple):
    """A word of a text, or a token, to which relevance is given."""

    tokens: tuple[int, ...]
    text: str  # as it is written
    span: Span


def tokenized(
    texts: Iterable[str], tokenizer: FastTokenizer, prompt: str, max_tokens: int
) -> Iterator[tuple[str, TokenizedText]]:
    """Yield texts and their tokens; the prompt's last token belongs to the text if it goes on into it."""
    texts = as_texts(texts)
    for n, text in enumerate(texts):
        if SURROGATE.search(text):
            beginning = shortened(repr(text), 50)
            raise ValueError(
                f"text {n} has half of a character, a surrogate, which no tokenizer reads: {beginning}"
            )
    prompted = [prompt + text for text in texts]
    options = {"truncation": True, "return_special_tokens_mask": True}
    encodings = tokenizer(prompted, max_length=max_tokens, **options).encodings

    n_prompt = len(prompt)
    n_without_blanks = len(prompt.rstrip())  # a blank belongs to the word after it
    for text, encoding in zip(texts, encodings, strict=True):
        special = []
        for is_special, (start, stop) in zip(encoding.special_tokens_mask, encoding.offsets, strict=True):
            is_of_prompt = start < n_without_blanks and stop <= n_prompt
            special.append(int(is_special or is_of_prompt))
        offsets = [(max(0, start - n_prompt), max(0, stop - n_prompt)) for start, stop in encoding.offsets]
        yield text, TokenizedText(encoding.ids, offsets, special, encoding.overflowing)


def words_of(text: str, encoding: TokenizedText, units: str) -> Iterator[Word]:
    """Yield the words (or tokens) of a text, with the tokens of each."""
    spans = None
    if units == "words":
        spans = word_spans(text) or [(0, len(text))]

    words: list[tuple[list[int], int, int]] = []
    for token, span, is_special in zip(encoding.ids, encoding.offsets, encoding.special_tokens_mask, strict=True):
        if is_special:
            continue
        if spans is None:
            start, stop = _without_blanks(text, *span)
        else:
            start, stop = _covered(spans, *span)
        tokens = [token]
        # the token is of the same word as the last one, or one of several of a character
        if words and start < words[-1][2]:
            last_tokens, last_start, last_stop = words.pop()
            tokens = last_tokens + tokens
            start = min(last_start, start)
            stop = max(last_stop, stop)
        words.append((tokens, start, stop))
    for tokens, start, stop in words:
        yield Word(tuple(tokens), text[start:stop], (start, stop))


def _without_blanks(text: str, start: int, stop: int) -> Span:
    """Find the position of a token without the blanks around it."""
    start = len(text) - len(text[start:].lstrip())
    stop = len(text[:stop].rstrip())
    return start, max(start, stop)


def _covered(spans: list[Span], start: int, stop: int) -> Span:
    """Find the position of the words of which a token has a part; blanks belong to the word after them."""
    first = bisect_right(spans, start, key=lambda span: span[1])
    first = min(first, len(spans) - 1)
    last = bisect_left(spans, stop, key=lambda span: span[0]) - 1
    last = max(first, last)
    return spans[first][0], spans[last][1]
