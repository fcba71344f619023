"""Where a concept is most relevant: locations of inputs, or words."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

REFERENCES = 6  # patches or words of a concept


class ConceptReference(NamedTuple):
    """Where a concept is most relevant.

    Attributes
    ----------
    row : int
        Row of X; -1 for a word.
    y, x : float
        Center of the location, as fractions of the height and the width of the input.
    relevance : float
        Relevance of the location, or mean relevance of the word.
    word : str
        The word, of texts.
    """

    row: int
    y: float
    x: float
    relevance: float
    word: str = ""


def center(index: int, n_locations: int, shape: tuple[int, ...]) -> tuple[float, float]:
    """Compute the center of a location, as fractions of height and width; (0.5, 0.5) is that of the input itself.

    Tokens are a square of patches in rows, after those that belong to no patch.
    """
    if len(shape) != 2:
        side = math.isqrt(n_locations)
        shape = (side, side)
        index -= n_locations - side**2
    if index < 0 or shape == (1, 1):
        return 0.5, 0.5
    i, j = divmod(index, shape[1])
    return (i + 0.5) / shape[0], (j + 0.5) / shape[1]


def best_words(inputs: Any, pairs: list[tuple[Tensor, Tensor]]) -> list[ConceptReference]:
    """Find the words with the largest mean relevance over the texts of the cluster that contain them.

    Parameters
    ----------
    inputs : Words
    pairs : list of (x, relevance)
        Ids [N, T] of words, negative after the last word, and their relevance [N, T].
    """
    names = np.array(inputs.units, dtype=object)
    words = torch.cat([inputs.words(x)[x >= 0] for x, _ in pairs])
    values = torch.cat([relevance[x >= 0] for x, relevance in pairs])
    of_words = pd.Series(values.cpu().numpy()).groupby(names[words.cpu().numpy()])
    by_word = of_words.agg(["mean", "size"])
    repeated = by_word["size"] >= min(2, by_word["size"].max())  # all words, if none occurs twice
    best = by_word[repeated]["mean"].nlargest(REFERENCES)
    return [ConceptReference(-1, 0.5, 0.5, float(value), str(word)) for word, value in best.items()]
