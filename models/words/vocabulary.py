"""What a word is, and which there are: counted in texts or read from a file of vectors."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor

WORD = re.compile(r"[^\W\d_]{3,}")  # letters of any script, at least three
Found = tuple[np.ndarray, np.ndarray, np.ndarray]


def spans(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Start and stop of every word of each text."""
    return [[match.span() for match in WORD.finditer(text)] for text in as_texts(texts)]


def as_texts(texts: Iterable[str]) -> list[str]:
    """Texts in a list: a column of a frame is in an order of its own, and an iterator can be read once only."""
    listed = list(texts)
    if isinstance(texts, str) or not all(isinstance(text, str) for text in listed):
        raise ValueError("texts needs a sequence of strings; a single one is [text]")
    if not listed:
        raise ValueError("texts is empty")
    return listed


def tokenize(texts: Sequence[str]) -> list[list[str]]:
    """Words of each text in lower case."""
    texts = as_texts(texts)
    # lower case after cutting: of some letters it has another length, and spans would not fit
    return [[text[a:b].lower() for a, b in found] for text, found in zip(texts, spans(texts), strict=True)]


def stop_word_set(stop_words: Any) -> frozenset[str]:
    """Words to leave out, in lower case."""
    if isinstance(stop_words, str):
        if stop_words != "english":
            raise ValueError(f"stop_words is 'english', a collection of words or None, got {stop_words!r}")
        return frozenset(ENGLISH_STOP_WORDS)
    return frozenset(word.lower() for word in stop_words or ())


def counted(
    tokens: Sequence[Sequence[str]], min_count: int, max_words: int | None, stop_words: frozenset[str]
) -> tuple[list[str], Found]:
    """Find the words to keep, most frequent first, and where they stand.

    Returns
    -------
    words : list of V str
    found : (ndarray [L], ndarray [L], ndarray [V])
        Of every place in the texts where a kept word stands, the word and the text; and in how many texts each
        word is.
    """
    number: dict[str, int] = {}  # not np.unique: one very long word would make every entry of its array as long
    ids = np.fromiter((number.setdefault(word, len(number)) for text in tokens for word in text), dtype=np.int64)
    documents = np.repeat(np.arange(len(tokens)), [len(text) for text in tokens])
    counts = np.bincount(ids, minlength=len(number)).tolist()
    frequent = [word for word, i in number.items() if counts[i] >= min_count and word not in stop_words]
    keep = sorted(frequent, key=lambda word: (-counts[number[word]], word))[:max_words]
    renumber = np.full(len(number), -1)
    renumber[[number[word] for word in keep]] = np.arange(len(keep))
    ids = renumber[ids]
    documents, ids = documents[ids >= 0], ids[ids >= 0]
    pairs = np.unique(documents * max(1, len(keep)) + ids)
    n_texts = np.bincount(pairs % max(1, len(keep)), minlength=len(keep))
    return keep, (ids, documents, n_texts)


def read_vectors(
    path: str | os.PathLike[str],
    keep: Collection[str] | None,
    max_words: int | None,
    stop_words: frozenset[str],
) -> tuple[list[str], np.ndarray]:
    """Words and vectors [V, d], float32, of a word2vec or GloVe text file; a word given twice counts once."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    wanted = None if keep is None else frozenset(word.lower() for word in keep)
    found: dict[str, np.ndarray] = {}
    d = 0
    unpack: Any = gzip.open if path.suffix == ".gz" else open
    with unpack(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            cells = line.rstrip().split(" ")
            if number == 1 and len(cells) == 2 and all(cell.isdigit() for cell in cells):
                continue
            d = d or len(cells) - 1
            word = cells[0]
            # capitalised entries are never looked up, and entries of several words have no place in a mean
            if len(cells) > d + 1 or word != word.lower() or not WORD.fullmatch(word):
                continue
            if word in stop_words or word in found or (wanted is not None and word not in wanted):
                continue
            found[word] = _numbers(cells[1:], d, path, number)
            if max_words is not None and len(found) >= max_words:
                break
    if not found:
        raise ValueError(f"{path} has no word to keep")
    return list(found), np.stack(list(found.values()))


def _numbers(cells: list[str], d: int, path: Path, number: int) -> np.ndarray:
    try:
        vector = np.array(cells, dtype=np.float32)
    except ValueError:
        vector = np.empty(0, dtype=np.float32)
    if d < 1 or len(vector) != d or not np.isfinite(vector).all():
        raise ValueError(f"{path}, line {number}: a word and {max(d, 1)} finite numbers are needed")
    return vector


def check_table(words: list[str], vectors: Tensor, weights: Tensor) -> None:
    """Raise ValueError unless every word has a finite vector and a positive weight, once."""
    V = len(words)
    if V == 0 or len(set(words)) < V:
        raise ValueError("words is empty" if V == 0 else "words has a word twice")
    bad = next((word for word in words if len(word) < 3 or word != word.lower()), None)
    if bad is not None:
        raise ValueError(f"{bad!r} is found in no text: words are of three letters or more, in lower case")
    if vectors.ndim != 2 or len(vectors) != V or weights.shape != (V,):
        got = f"{list(vectors.shape)} and {list(weights.shape)}"
        raise ValueError(f"{V} words need vectors [{V}, d] and weights [{V}], got {got}")
    finite = vectors.isfinite().all(dim=1)
    if not finite.all():
        raise ValueError(f"the vector of {words[int((~finite).nonzero()[0])]!r} is not finite")
    if not ((weights > 0) & weights.isfinite()).all():
        raise ValueError("weights needs positive numbers")


def as_floats(values: Any) -> Tensor:
    """Own copy of numbers, float32 unless they are float64."""
    tensor = torch.as_tensor(values).detach()
    return tensor.clone() if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def as_ids(ids: Tensor, V: int) -> Tensor:
    """Word numbers [N, T] as int64; -1 for words outside a vocabulary of V."""
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        got = list(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(f"ids needs a tensor [documents, words] from encode(texts), got {got}")
    whole = ids.long()
    if torch.compiler.is_compiling():  # an exported network can't look at its data
        return whole
    if not bool((whole == ids).all()) or not bool(((whole >= -1) & (whole < V)).all()):
        raise ValueError(f"ids needs whole numbers from -1 to {V - 1}, from encode(texts)")
    return whole
