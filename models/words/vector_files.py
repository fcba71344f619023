"""Text files of word vectors, in the format of word2vec, GloVe and fastText.

Every line has an entry and the d numbers of its vector, separated by blanks. In files of word2vec and fastText, a
first line has the number of entries and d.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Container
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.data.words import is_term, normal


def read_vectors(
    path: str | os.PathLike[str],
    excluded: Container[str],
    included: Container[str] | None,
    max_words: int | None,
) -> tuple[list[str], Tensor]:
    """Read the words of a file, all or those that are included, and their vectors [V, d].

    See ``WordVectors.from_file``.
    """
    vectors: dict[str, np.ndarray] = {}
    d = 0
    open_text: Any = gzip.open if str(path).endswith(".gz") else open
    with open_text(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            entry, *cells = line.rstrip().split(" ")
            word = normal(entry)
            if word in excluded or word in vectors:
                continue
            if included is not None and word not in included:
                continue
            # A first line of sizes is not a word; entries with capital letters never occur as words of a text
            if entry != entry.lower() or not is_term(word):
                continue
            d = d or len(cells)
            if len(cells) > d:  # an entry of several words
                continue
            try:
                vectors[word] = np.array(cells, dtype=np.float32).reshape(d)
            except ValueError as error:
                raise ValueError(f"{path}, line {number} needs a word and {d} numbers: {error}") from error
            if len(vectors) == max_words:
                break
    if not vectors:
        raise ValueError(
            f"{path} has none of the words to keep, or no lines of a word and numbers, separated by spaces"
        )
    return [*vectors], torch.from_numpy(np.stack([*vectors.values()]))
