"""Where a concept is most relevant: places of inputs, or words."""

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
        Center of the place, as shares of the height and the width of the input.
    relevance : float
        Relevance of the place, or mean relevance of the word.
    word : str
        The word, of texts.
    """

    row: int
    y: float
    x: float
    relevance: float
    word: str = ""


def center(place: int, places: int, shape: tuple[int, ...]) -> tuple[float, float]:
    """Center of a place as shares of height and width; tokens before those of a square are the whole input."""
    if len(shape) != 2:
        side = math.isqrt(places)
        place, shape = place - (places - side**2), (side, side)
    if place < 0 or shape == (1, 1):
        return 0.5, 0.5
    i, j = divmod(place, shape[1])
    return (i + 0.5) / shape[0], (j + 0.5) / shape[1]


def best_words(inputs: Any, found: list[tuple[Tensor, Tensor]]) -> list[ConceptReference]:
    """Words by the mean of their relevance, over the texts of the cluster that contain them."""
    names = np.array(inputs.units, dtype=object)
    words = torch.cat([inputs.words(x)[x >= 0] for x, _ in found]).cpu().numpy()
    values = torch.cat([relevance[x >= 0] for x, relevance in found]).cpu().numpy()
    means = pd.Series(values).groupby(names[words]).agg(["mean", "size"])
    means = means[means["size"] >= min(2, means["size"].max())]["mean"].nlargest(REFERENCES)
    return [ConceptReference(-1, 0.5, 0.5, float(value), str(word)) for word, value in means.items()]
