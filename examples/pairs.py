"""Show which words make two texts alike, and measure it: the cosine should drop when these words are masked.

    python examples/sentences.py --save encoder
    python examples/pairs.py --encoder encoder --out pair.png

Every text of a sample is paired with its nearest neighbor. The picture shows one pair with the words that BiLRP
connects. With --compare, the most relevant words of the first text are masked, by five methods: relevance against
the mean of all texts (one pass), that of the cosine, BiLRP (a pass per dimension), gradient × input, occlusion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from corpora import lines, packages
from torch import Tensor

import neonxc
from neonxc.models import SentenceEncoder

MASKED = 6  # words of the first text
LONGEST = 16  # words of a text


def cosines(encoder: SentenceEncoder, a: Tensor, b: Tensor) -> Tensor:
    """Similarities [N] of texts of word numbers."""
    with torch.no_grad():
        return (encoder(a) * encoder(b)).sum(1)


def occlusion(encoder: SentenceEncoder, a: Tensor, b: Tensor) -> Tensor:
    """Drop of the similarity when a single word of `a` is masked, [N, W]."""
    found = torch.zeros(a.shape)
    for place in range(a.shape[1]):
        masked = a.clone()
        masked[:, place] = torch.where(a[:, place] < 0, -1, encoder.mask_word)
        found[:, place] = cosines(encoder, a, b) - cosines(encoder, masked, b)
    return found


def gradient(encoder: SentenceEncoder, a: Tensor, b: Tensor) -> Tensor:
    """Gradient of the similarity times token embeddings of `a`, summed over the tokens of a word, [N, W]."""
    tokens = encoder.tokens(a)
    other = encoder(b).detach()
    inputs = encoder.inputs(tokens).detach().requires_grad_()
    (slope,) = torch.autograd.grad((encoder.embedding(inputs, tokens.mask) * other).sum(), inputs)
    values = (slope * inputs.detach()).sum(2).masked_fill(tokens.word < 0, 0)
    return torch.zeros(a.shape).scatter_add(1, tokens.word.clamp(min=0), values)


def masked(encoder: SentenceEncoder, ids: Tensor, relevance: Tensor) -> Tensor:
    """Texts without their most relevant words."""
    order = relevance.masked_fill(ids < 0, -torch.inf).topk(MASKED).indices
    return ids.scatter(1, order, torch.where(ids.gather(1, order) < 0, -1, encoder.mask_word))


def compared(encoder: SentenceEncoder, a: list[str], b: list[str], background: list[str]) -> None:
    """Print how far the similarity drops when the words that matter most by different methods are masked."""
    ids = encoder.encode(a), encoder.encode(b)

    def one_pass(of: list[str] | None) -> Tensor:
        return torch.as_tensor(neonxc.similarity(encoder, a, b, background=of).relevance_a)

    def bilrp() -> Tensor:
        found = torch.zeros(ids[0].shape)
        for n, matrix in enumerate(neonxc.similarity(encoder, a, b, matrix=True).matrix or []):
            found[n, : len(matrix)] = torch.as_tensor(matrix.sum(1))
        return found

    methods: dict[str, Callable[[], Tensor]] = {
        "similarity against the mean": lambda: one_pass(background),
        "similarity": lambda: one_pass(None),
        "BiLRP": bilrp,
        "gradient × input": lambda: gradient(encoder, *ids),
        "occlusion": lambda: occlusion(encoder, *ids),
    }
    before = cosines(encoder, *ids)
    for name, method in methods.items():
        start = time.perf_counter()
        relevance = method()
        seconds = time.perf_counter() - start
        drop = before - cosines(encoder, masked(encoder, ids[0], relevance), ids[1])
        error = float(drop.std() / len(drop) ** 0.5)
        typer.echo(f"{name:28} the cosine drops by {float(drop.mean()):.3f} ± {error:.3f}; {seconds:.2f} s")


def main(
    encoder: Annotated[str, typer.Option(help="Folder or name of a sentence encoder.")],
    out: Annotated[Path, typer.Option(help="Picture to write.")] = Path("pair.png"),
    texts: Annotated[Path | None, typer.Option(help="File with one text per line.")] = None,
    data: Annotated[Path, typer.Option(help="Folder of apt's lists.")] = Path("/var/lib/apt/lists"),
    sample: Annotated[int, typer.Option(help="Number of texts.")] = 400,
    pairs: Annotated[int, typer.Option(help="Number of pairs that are compared.")] = 40,
    compare: Annotated[bool, typer.Option(help="Mask the most relevant words.")] = False,
) -> None:
    """Draw the most similar pair of different texts."""
    every = (packages(data) if texts is None else lines(texts)).texts
    draw = np.random.default_rng(0)
    own = [" ".join(every[i].split()[:LONGEST]) for i in draw.permutation(len(every))[:sample]]
    network = SentenceEncoder.from_pretrained(encoder)
    points = network.points(own)
    alike = (points @ points.T).fill_diagonal_(-1)
    alike[alike > 0.95] = -1  # copies of each other
    nearest = alike.argmax(1)
    a = own[:pairs]
    b = [own[int(i)] for i in nearest[:pairs]]
    found = neonxc.similarity(network, a[0], b[0], matrix=True)
    neonxc.plot.pair(found).savefig(out)
    for one, other, strength in found.top(5)[0]:
        typer.echo(f"{one} - {other}: {strength:+.3f}")
    if compare:
        compared(network, a, b, own)
    typer.echo(str(out))


if __name__ == "__main__":
    typer.run(main)
