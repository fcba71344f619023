"""Why two inputs are alike: the relevance of their words or pixels for the similarity of their embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.numbers import plural, text
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.data.inputs import as_array
from neonxc.inputs import Inputs, make_inputs
from neonxc.inputs.base import Run
from neonxc.lrp import Composite

N_WORDS = 3  # words of each text that a table shows


@dataclass(frozen=True, repr=False)
class Similarity(Result):
    """Result of :func:`similarity` for N pairs of inputs.

    Attributes
    ----------
    cosine : ndarray [N]
        Cosine similarity of the two embeddings, -1 to 1.
    relevance_a, relevance_b : array or Tensor, of the type of the inputs
        Relevance of the words [N, W] or pixels [N, C, H, W] of the first and of the second input.
    words_a, words_b : list of N lists of str, or None
        The words of texts, one per number in a row of their relevance; None for images.
    matrix : list of N ndarrays [words of a, words of b], or None
        Relevance of pairs of words.
    """

    cosine: np.ndarray
    relevance_a: Any
    relevance_b: Any
    words_a: list[list[str]] | None = None
    words_b: list[list[str]] | None = None
    matrix: list[np.ndarray] | None = None

    def top(self, n: int = 5) -> list[list[tuple[str, str, float]]]:
        """Return the pairs of words that make two texts alike most, with their relevance, for every pair of texts.

        Parameters
        ----------
        n : int
            Number of pairs of words.

        Raises
        ------
        ValueError
            There is no matrix.
        """
        if self.matrix is None or self.words_a is None or self.words_b is None:
            raise ValueError("top needs similarity(encoder, a, b, matrix=True) of texts")
        found = []
        for matrix, one, other in zip(self.matrix, self.words_a, self.words_b, strict=True):
            order = np.argsort(-matrix, axis=None, kind="stable")[:n]
            places = np.transpose(np.unravel_index(order, matrix.shape)).tolist()
            found.append([(one[i], other[j], float(matrix[i, j])) for i, j in places])
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair of inputs.

        Returns
        -------
        DataFrame
            Index: the number of the pair. Columns: "cosine", and of texts "words of a" and "words of b", the three
            words of each text with the largest relevance.
        """
        frame = pd.DataFrame({"cosine": self.cosine}).rename_axis("pair")
        if self.words_a is None or self.words_b is None:
            return frame
        words_a = _most_relevant(self.words_a, self.relevance_a)
        words_b = _most_relevant(self.words_b, self.relevance_b)
        return frame.assign(**{"words of a": words_a, "words of b": words_b})

    def _remarks(self) -> list[str]:
        return [f"{plural(len(self.cosine), 'pair')}, mean cosine {text(float(self.cosine.mean()), 3)}"]


def _most_relevant(texts: list[list[str]], relevance: Any) -> list[str]:
    """Return the words of each text with the largest relevance, separated by commas."""
    rows = []
    for words, of_words in zip(texts, as_array(relevance), strict=True):
        order = np.argsort(-of_words[: len(words)], kind="stable")[:N_WORDS]
        rows.append(", ".join(words[i] for i in order))
    return rows


def similarity(
    encoder: nn.Module,
    a: Any,
    b: Any,
    matrix: bool = False,
    *,
    background: Any = None,
    composite: Composite | None = None,
) -> Similarity:
    """Explain why two inputs have similar embeddings.

    The relevance of the words of `a` explains its similarity to `b`, as opposed to the mean of a background: LRP
    propagates the slope of ``cos(f(a), f(b)) - cos(f(a), mean)``, which is linear in the embedding of `a`, back to
    its words, and in the same way for `b`. It is that of a clustering with the two centers f(b) and mean, and
    costs one pass.

    Parameters
    ----------
    encoder : SentenceEncoder, FeatureExtractor or nn.Module
        Maps inputs to embeddings [N, d].
    a, b : sequence of N str, or Tensor [N, ...]
        Texts of a :class:`neonxc.models.SentenceEncoder`, or inputs of another encoder; a single text is a str.
    matrix : bool
        Whether to compute also the relevance of pairs of words, which takes d backward passes for either text. It
        explains the cosine itself, without the background.
    background : sequence of str or Tensor, optional
        Inputs such as a and b are compared with: what all have in common gets no relevance. Default: none, so that
        relevance is that of the cosine.
    composite : neonxc.lrp.Composite, optional
        LRP rules of the encoder, as for :class:`neonxc.NEON`.

    Returns
    -------
    Similarity

    Raises
    ------
    TypeError
        `encoder` is no network.
    ValueError
        Numbers of inputs that differ, an encoder with a map of features, a matrix of images, or what the encoder
        refuses.

    References
    ----------
    .. [1] O. Eberle et al., "Building and interpreting deep similarity models", IEEE TPAMI, 2022: BiLRP, the
       relevance of pairs.

    Examples
    --------
    >>> import neonxc, torch
    >>> encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4)).eval()
    >>> one, other = torch.rand(2, 5, 3, 2, 2)
    >>> neonxc.similarity(encoder, one, other).relevance_a.shape
    torch.Size([5, 3, 2, 2])
    """
    if not isinstance(encoder, nn.Module):
        raise TypeError(f"encoder needs a network, got {type(encoder).__name__}")
    a, b = ([one] if isinstance(one, str) else one for one in (a, b))
    inputs: Any = make_inputs(encoder)
    if not inputs.propagates:
        raise TypeError(f"encoder needs a network that LRP explains, got {type(encoder).__name__}")
    texts = inputs.in_texts
    if matrix and not texts:
        raise ValueError("matrix is for texts; similarity explains images by two heatmaps")
    tables = inputs.read(a), inputs.read(b)
    n = len(tables[0].tensor)
    if len(tables[1].tensor) != n:
        raise ValueError(f"a and b need equally many inputs, got {n} and {len(tables[1].tensor)}")
    mean = _mean(inputs, background)
    found: list[tuple[Tensor, ...]] = []
    joint: list[np.ndarray] = []
    blocks = [*inputs.blocks(max((table.tensor for table in tables), key=lambda x: x.shape[1:].numel()))]
    for block in progress_bar(blocks, desc="similarity", disable=len(blocks) < 2):
        runs = [inputs.run(table.tensor[block], composite, several=matrix) for table in tables]
        units = [_unit(run.features) for run in runs]
        sides = (
            _relevance(run, (other - mean)[None])[0] for run, other in zip(runs, reversed(units), strict=True)
        )
        found.append(((units[0] * units[1]).sum(1), *sides))
        if matrix:
            joint += _pairs(*runs)
    cosine, *relevance = (torch.cat(parts) for parts in zip(*found, strict=True))
    of_a, of_b = (table.restore(part) for table, part in zip(tables, relevance, strict=True))
    if not texts:
        return Similarity(cosine.cpu().numpy(), of_a, of_b)
    one, other = (inputs.module.tokenize(side) for side in (a, b))
    cut = [own[: len(row), : len(column)] for own, row, column in zip(joint, one, other, strict=bool(joint))]
    return Similarity(cosine.cpu().numpy(), of_a, of_b, one, other, cut if matrix else None)


def _unit(features: Tensor) -> Tensor:
    """Embeddings [N, d] of unit length."""
    if features.ndim != 2:
        raise ValueError(
            f'encoder needs embeddings [N, d], got {list(features.shape)}; a FeatureExtractor needs pool="avg"'
        )
    return F.normalize(features.detach(), dim=1)


@torch.no_grad()
def _mean(inputs: Inputs, background: Any) -> Tensor | float:
    """Mean of the unit embeddings of a background; 0 without one."""
    if background is None:
        return 0.0
    return torch.cat([_unit(inputs.features(x)) for x in inputs.parts(background)]).mean(0)


def _relevance(run: Run, slopes: Tensor) -> Tensor:
    """Relevance [S, N, ...] of inputs for products of their unit embeddings with `slopes` [S, N, d]."""
    lengths = run.features.detach().norm(dim=1, keepdim=True)
    return run.back(slopes / lengths.clamp(min=torch.finfo(slopes.dtype).tiny))


def _pairs(one: Run, other: Run) -> list[np.ndarray]:
    """Relevance of all pairs of words: products of their relevance for each feature, summed over the features."""
    both = []
    for run in (one, other):
        n, d = run.features.shape
        basis = torch.eye(d).to(run.features)[:, None].expand(d, n, d)
        both.append(_relevance(run, basis))
    return [*torch.einsum("dni,dnj->nij", *both).cpu().numpy()]
