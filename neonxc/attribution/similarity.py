"""Why two inputs are alike: the relevance of their words or pixels for the similarity of their embeddings.

The embeddings of two inputs are f(a) and f(b), and e(a) and e(b) are these divided by their lengths. The mean of
the unit embeddings of a background is e, or 0 without one. LRP propagates back to the words or pixels

    of a     ``f(a) (e(b) - e) / |f(a)|``, which is linear in f(a) as e(b), e and the length are held constant
    of b     ``f(b) (e(a) - e) / |f(b)|``

The relevance of a pair of words is ``sum_k R_k(i) R_k(j)``, where R_k(i) is the relevance of word i for coordinate
k of the unit embedding of its text (BiLRP, Eberle et al., 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, overload

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.numbers import plural, text
from neonxc.common.precision import in_full_precision
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.common.types import ArrayLike, Rows, TableLike
from neonxc.data.inputs import as_array
from neonxc.inputs import Inputs, make_inputs
from neonxc.inputs.base import Run
from neonxc.lrp import Composite

N_WORDS = 3  # words of each text that a table shows


@dataclass(frozen=True, repr=False)
class Similarity(Result, Generic[Rows]):
    """How similar the inputs of N pairs are, and why: the result of :func:`similarity`.

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
    relevance_a: Rows
    relevance_b: Rows
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
        pairs = []
        for matrix, words_a, words_b in zip(self.matrix, self.words_a, self.words_b, strict=True):
            order = np.argsort(-matrix, axis=None, kind="stable")[:n]
            rows, columns = np.unravel_index(order, matrix.shape)
            positions = zip(rows.tolist(), columns.tolist(), strict=True)
            pairs.append([(words_a[i], words_b[j], float(matrix[i, j])) for i, j in positions])
        return pairs

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


def _most_relevant(texts: list[list[str]], relevance: ArrayLike) -> list[str]:
    """Return the words of each text with the largest relevance, separated by commas."""
    joined_words = []
    for words, of_words in zip(texts, as_array(relevance), strict=True):
        order = np.argsort(-of_words[: len(words)], kind="stable")[:N_WORDS]
        joined_words.append(", ".join(words[i] for i in order))
    return joined_words


@overload
def similarity(
    encoder: nn.Module,
    a: Tensor,
    b: Tensor,
    matrix: bool = False,
    *,
    background: TableLike | None = None,
    composite: Composite | None = None,
) -> Similarity[Tensor]: ...
@overload
def similarity(
    encoder: nn.Module,
    a: TableLike,
    b: TableLike,
    matrix: bool = False,
    *,
    background: TableLike | None = None,
    composite: Composite | None = None,
) -> Similarity[np.ndarray]: ...
def similarity(
    encoder: nn.Module,
    a: TableLike,
    b: TableLike,
    matrix: bool = False,
    *,
    background: TableLike | None = None,
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
        `encoder` is not a network.
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
    if isinstance(a, str):
        a = [a]
    if isinstance(b, str):
        b = [b]
    inputs = _inputs_of(encoder, matrix)
    table_a = inputs.read(a)
    table_b = inputs.read(b)
    x_a = table_a.tensor
    x_b = table_b.tensor
    if len(x_a) != len(x_b):
        raise ValueError(f"a and b need equally many inputs, got {len(x_a)} and {len(x_b)}")

    mean = _mean(inputs, background)
    cosines = []
    parts_a = []
    parts_b = []
    matrices: list[np.ndarray] = []
    # blocks of as many inputs as fit into memory for the larger of the two sides
    blocks = inputs.blocks(max(x_a, x_b, key=lambda x: x.shape[1:].numel()))
    for block in progress_bar(blocks, desc="similarity", disable=len(blocks) < 2):
        run_a = inputs.run(x_a[block], composite, several=matrix)
        run_b = inputs.run(x_b[block], composite, several=matrix)
        unit_a = _unit_vectors(run_a.features)
        unit_b = _unit_vectors(run_b.features)
        cosines.append((unit_a * unit_b).sum(1))
        parts_a.append(_relevance(run_a, (unit_b - mean)[None])[0])
        parts_b.append(_relevance(run_b, (unit_a - mean)[None])[0])
        if matrix:
            matrices += _of_pairs(run_a, run_b)

    cosine = torch.cat(cosines).cpu().numpy()
    relevance_a = table_a.restore(torch.cat(parts_a))
    relevance_b = table_b.restore(torch.cat(parts_b))
    if not inputs.in_texts:
        return Similarity(cosine, relevance_a, relevance_b)
    words_a = inputs.module.tokenize(a)
    words_b = inputs.module.tokenize(b)
    if not matrix:
        return Similarity(cosine, relevance_a, relevance_b, words_a, words_b)
    # without the padding of shorter texts
    of_words = [
        of_pairs[: len(row), : len(column)]
        for of_pairs, row, column in zip(matrices, words_a, words_b, strict=True)
    ]
    return Similarity(cosine, relevance_a, relevance_b, words_a, words_b, of_words)


def _inputs_of(encoder: nn.Module, matrix: bool) -> Any:
    """Return the inputs of an encoder through which LRP propagates relevance; for a matrix, they are texts."""
    inputs = make_inputs(encoder)
    if not inputs.propagates:
        raise TypeError(f"encoder needs a network that LRP explains, got {type(encoder).__name__}")
    if matrix and not inputs.in_texts:
        raise ValueError("matrix is for texts; similarity explains images by two heatmaps")
    return inputs


def _unit_vectors(features: Tensor) -> Tensor:
    """Divide embeddings [N, d] by their lengths."""
    if features.ndim != 2:
        raise ValueError(
            f'encoder needs embeddings [N, d], got {list(features.shape)}; a FeatureExtractor needs pool="avg"'
        )
    return F.normalize(features.detach(), dim=1)


@torch.no_grad()
def _mean(inputs: Inputs, background: TableLike | None) -> Tensor | float:
    """Compute the mean [d] of the unit embeddings of a background; 0 without one."""
    if background is None:
        return 0.0
    vectors = [_unit_vectors(inputs.features(x)) for x in inputs.parts(background)]
    return torch.cat(vectors).mean(0)


def _relevance(run: Run, slopes: Tensor) -> Tensor:
    """Compute the relevance [S, N, ...] of inputs for products of unit embeddings with `slopes` [S, N, d]."""
    lengths = run.features.detach().norm(dim=1, keepdim=True)
    tiny = torch.finfo(slopes.dtype).tiny
    return run.back(slopes / lengths.clamp(min=tiny))


@in_full_precision
def _of_pairs(run_a: Run, run_b: Run) -> list[np.ndarray]:
    """Compute the relevance of all pairs of words of every pair of texts, sum_k R_k(i) R_k(j)."""
    by_coordinate = []  # R_k [d, N, words] of both sides
    for run in (run_a, run_b):
        n, d = run.features.shape
        basis = torch.eye(d).to(run.features)[:, None].expand(d, n, d)
        by_coordinate.append(_relevance(run, basis))
    return [*torch.einsum("dni,dnj->nij", *by_coordinate).cpu().numpy()]
