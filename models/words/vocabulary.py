"""Vocabularies: tokenization, stop words, and reading word vectors from files."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor

from neonxc.data.inputs import as_texts

WORD = re.compile(r"[^\W\d_]{3,}")  # at least three letters of any script


def tokenize(texts: Iterable[str]) -> list[list[str]]:
    """Words of each text in lower case."""
    # Words are converted after splitting: lower() may change the length of a text, which would shift the spans
    return [[word.lower() for word in WORD.findall(text)] for text in as_texts(texts)]


def stop_word_set(stop_words: Any) -> frozenset[str]:
    """Words to leave out, in lower case."""
    if isinstance(stop_words, str):
        if stop_words != "english":
            raise ValueError(f"stop_words needs 'english', a collection of words or None, got {stop_words!r}")
        return frozenset(ENGLISH_STOP_WORDS)
    return frozenset(word.lower() for word in stop_words or ())


def read_vectors(
    path: str | os.PathLike[str],
    keep: Collection[str] | None,
    max_words: int | None,
    stop_words: frozenset[str],
) -> tuple[list[str], np.ndarray]:
    """Read words and vectors [V, d] of float32 from a text file; only the first vector of a word is used."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    wanted = None if keep is None else {word.lower() for word in keep}
    found: dict[str, np.ndarray] = {}
    d = 0
    unpack: Any = gzip.open if path.suffix == ".gz" else open
    with unpack(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            word, *cells = line.rstrip().split(" ")
            if number == 1 and len(cells) == 1 and word.isdigit() and cells[0].isdigit():
                continue
            d = d or len(cells)
            unwanted = word in stop_words or word in found or (wanted is not None and word not in wanted)
            # Entries with capital letters or several words can never occur as words of a text
            if unwanted or len(cells) > d or word != word.lower() or not WORD.fullmatch(word):
                continue
            try:
                found[word] = np.array(cells, dtype=np.float32)
            except ValueError:
                found[word] = np.array([np.nan])
            if not 0 < len(cells) == d or not np.isfinite(found[word]).all():
                raise ValueError(f"{path}, line {number} needs a word and {max(d, 1)} finite numbers")
            if len(found) == max_words:
                break
    if not found:
        raise ValueError(f"{path} has none of the words to keep")
    return list(found), np.stack(list(found.values()))


def check_table(words: list[str], vectors: Tensor, weights: Tensor) -> None:
    """Raise a ValueError unless words are distinct and all have finite vectors and positive weights."""
    V = len(words)
    if V == 0 or len(set(words)) < V:
        raise ValueError("words is empty" if V == 0 else "words has repeated words")
    bad = next((word for word in words if len(word) < 3 or word != word.lower()), None)
    if bad is not None:
        raise ValueError(f"words needs lower-case words of at least three letters, got {bad!r}")
    if vectors.ndim != 2 or len(vectors) != V or weights.shape != (V,):
        got = f"{list(vectors.shape)} and {list(weights.shape)}"
        raise ValueError(f"{V} words need vectors [{V}, d] and weights [{V}], got {got}")
    finite = vectors.isfinite().all(dim=1)
    if not finite.all():
        raise ValueError(f"the vector of {words[int((~finite).nonzero()[0])]!r} is not finite")
    if not ((weights > 0) & weights.isfinite()).all():
        raise ValueError("weights needs positive numbers")


def as_floats(values: Any) -> Tensor:
    """Copy numbers to a tensor of float32, or float64 if they are float64."""
    tensor = torch.as_tensor(values).detach()
    return tensor.clone() if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def as_ids(ids: Tensor, V: int) -> Tensor:
    """Check word indices [N, T] for a vocabulary of V words, and convert them to int64; -1 is an unknown word."""
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        got = list(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(f"ids needs a tensor [documents, words] from encode(texts), got {got}")
    whole = ids.long()
    if torch.compiler.is_compiling():  # values can't be checked while the network is exported
        return whole
    if not bool((whole == ids).all()) or not bool(((whole >= -1) & (whole < V)).all()):
        raise ValueError(f"ids needs integers from -1 to {V - 1}, as returned by encode(texts)")
    return whole
