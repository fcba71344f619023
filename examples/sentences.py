"""Cluster sentence embeddings, and show which words put a text into its cluster.

    python examples/sentences.py --out packages.html
    python examples/sentences.py --encoder sentence-transformers/all-MiniLM-L6-v2 --texts reviews.txt --clusters 8

The default texts are descriptions of Debian's packages, of which apt keeps a copy after ``apt-get update -o
Acquire::Languages=en``. On them, a small BERT (two layers of 128) is trained, so that the example runs without a
download: descriptions from one section of the archive shall have similar embeddings. The page shows, per cluster,
the words that speak for it and its most typical texts. With --compare, pixel-flipping compares NEON with other
methods on held-out texts; with --save, the encoder is written to a folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from corpora import Corpus, lines, packages
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast, T5EncoderModel

import neonxc
from neonxc import NEON, NeuralizedClustering
from neonxc.evaluation import MaskImputer, WordImputer, pixel_flipping
from neonxc.evaluation.methods import pda
from neonxc.models import SentenceEncoder

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECE = 24  # words of a text that are seen at a time
TEMPERATURE = 0.05  # of the contrastive loss
HELD_OUT = 100  # texts on which methods are compared


def tokenizer_of(texts: list[str], size: int = 8000) -> PreTrainedTokenizerFast:
    """Train a tokenizer of word pieces, as BERT has one."""
    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    found.train_from_iterator(texts, trainer)
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    named = dict(zip(names, SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=64, **named)


def trained(corpus: Corpus, seconds: float, kind: str = "bert", seed: int = 0) -> SentenceEncoder:
    """Train a small transformer that gives texts of one topic similar embeddings, unlike those of other topics."""
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    texts = corpus.texts
    tokenizer = tokenizer_of(texts)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    inner = {"d_ff": 512, "d_kv": 32} if kind == "t5" else {"intermediate_size": 512}
    config = AutoConfig.for_model(kind, max_position_embeddings=64, **sizes, **inner)
    encoder = SentenceEncoder((T5EncoderModel if kind == "t5" else AutoModel.from_config)(config), tokenizer)
    optimizer = torch.optim.AdamW(encoder.parameters(), 1e-3)
    words = [text.split() for text in texts]
    begin = time.perf_counter()
    step = 0
    members = [np.flatnonzero(corpus.labels == topic) for topic in range(len(corpus.topics))]
    encoder.train()
    while (spent := time.perf_counter() - begin) < seconds:
        topics = draw.integers(len(members), size=64)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, step / 100) * (1 - spent / seconds)
        one, other = (
            embedded(encoder, [piece(words[draw.choice(members[topic])], draw) for topic in topics])
            for _ in range(2)
        )
        alike = torch.from_numpy(topics[:, None] == topics).fill_diagonal_(False)
        loss = F.cross_entropy((one @ other.T / TEMPERATURE).masked_fill(alike, -torch.inf), torch.arange(64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            typer.echo(f"step {step}: loss {loss:.2f}")
    return encoder.eval()


def piece(text: list[str], draw: np.random.Generator) -> str:
    """Some words of a text, one after the other."""
    first = int(draw.integers(max(1, len(text) - PIECE)))
    return " ".join(text[first : first + PIECE])


def embedded(encoder: SentenceEncoder, texts: list[str]) -> Tensor:
    """Embeddings of texts, through which gradients pass; up to half of a text's tokens are masked."""
    read = encoder.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    ids = read["input_ids"]
    mask = read["attention_mask"].bool()
    masked = torch.rand(ids.shape) < 0.5 * torch.rand(len(ids), 1)
    ids = ids.masked_fill(masked & (ids >= len(SPECIAL)), encoder.tokenizer.mask_token_id)
    return encoder.embedding(encoder.model.get_input_embeddings()(ids), mask)


def gradient_of(encoder: SentenceEncoder, net: NeuralizedClustering, ids: Tensor, share: float) -> Tensor:
    """Relevance of words by the gradient of the own cluster's logit, between the mask (0) and the text (1)."""
    found = torch.zeros(ids.shape)
    own = net(ids.double()).argmax(1).detach()
    for some in encoder.batches(ids):
        tokens = encoder.tokens(ids[some])
        inputs = encoder.inputs(tokens).detach()
        masked = encoder.tokens(torch.where(ids[some] < 0, -1, encoder.mask_word))
        start = torch.zeros_like(inputs)
        if share < 1:  # a masked word has one token; those of a text are masked in their places
            mask = encoder.inputs(masked.ids[:1, 1:2]).detach()
            start = torch.where((tokens.word >= 0)[..., None], mask, inputs)
        at = (start + share * (inputs - start)).requires_grad_()
        logits = net.head(encoder.embedding(at, tokens.mask))
        (slope,) = torch.autograd.grad(logits.gather(1, own[some][:, None]).sum(), at)
        values = ((inputs - start) * slope).sum(2).masked_fill(tokens.word < 0, 0)
        found[some] = found[some].scatter_add(1, tokens.word.clamp(min=0), values)
    return found


def compared(encoder: SentenceEncoder, net: NeuralizedClustering, texts: list[str]) -> None:
    """Print pixel-flipping scores and seconds of NEON and other methods."""
    ids = encoder.encode(texts).double()
    every = encoder.encode(texts)
    masked = MaskImputer(encoder.mask_word or 0)
    methods: dict[str, Callable[[], Tensor]] = {
        "NEON": lambda: NEON(net).attribute(ids),
        'NEON, baseline="mask"': lambda: NEON(net, baseline="mask").attribute(ids),
        "occlusion": lambda: pda(masked)(net, ids, net(ids).argmax(1).detach()),
        "gradient × input": lambda: gradient_of(encoder, net, every, 1.0),
        "integrated gradients, 10 steps": lambda: sum(
            gradient_of(encoder, net, every, (i + 0.5) / 10) for i in range(10)
        ),
    }
    for name, method in methods.items():
        start = time.perf_counter()
        relevance = method()
        seconds = time.perf_counter() - start
        scores = [
            pixel_flipping(net, ids, relevance, imputer, repeats=3, steps=20)
            for imputer in (masked, WordImputer(ids))
        ]
        both = ", ".join(f"{one.auc:.1f} ± {one.auc_stderr:.1f}" for one in scores)
        typer.echo(f"{name:32} AUC with masks, with drawn words: {both}; {seconds:.2f} s")


def planted(encoder: SentenceEncoder, texts: list[str], word: str = "xylophone") -> None:
    """Print how often a planted word, by which alone two clusters differ, is the most relevant one of its text."""
    draw = np.random.default_rng(0)
    own = [text.split()[:16] for text in texts]
    places = [int(draw.integers(len(text) + 1)) for text in own]
    marked = [" ".join([*text[:at], word, *text[at:]]) for text, at in zip(own, places, strict=True)]
    plain = [" ".join(text) for text in own]
    centers = torch.stack([encoder.points(marked).mean(0), encoder.points(plain).mean(0)])
    net = neonxc.neuralize(centers, marked + plain, features=encoder)
    words = [[one.lower() for one in text] for text in encoder.tokenize(marked)]
    for name, explainer in {"NEON": NEON(net), 'NEON, baseline="mask"': NEON(net, baseline="mask")}.items():
        best = explainer.attribute(marked, target=0).argmax(1)
        share = np.mean([text[at] == word for text, at in zip(words, best, strict=True)])
        typer.echo(f"{name:32} the planted word comes first in {share:.1%} of {len(texts)} texts")


def main(
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("sentences.html"),
    texts: Annotated[Path | None, typer.Option(help="File with one text per line.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Folder or name of a sentence encoder.")] = None,
    clusters: int = 16,
    seconds: Annotated[float, typer.Option(help="Training time, if there is no encoder.")] = 150,
    kind: Annotated[str, typer.Option(help="Architecture to train: bert, t5, llama ...")] = "bert",
    data: Annotated[Path, typer.Option(help="Folder of apt's lists.")] = Path("/var/lib/apt/lists"),
    save: Annotated[Path | None, typer.Option(help="Folder to which the encoder is written.")] = None,
    compare: Annotated[bool, typer.Option(help="Compare methods by pixel-flipping.")] = False,
) -> None:
    """Train or load an encoder, cluster texts, and write a page on the clusters."""
    corpus = packages(data, 300) if texts is None else lines(texts)
    shortened = [" ".join(text.split()[:40]) for text in corpus.texts]
    features = trained(corpus, seconds, kind) if encoder is None else SentenceEncoder.from_pretrained(encoder)
    points = features.points(shortened).numpy()
    held_out = np.random.default_rng(0).permutation(len(points)) < HELD_OUT
    model = KMeans(clusters, n_init=10, random_state=0).fit(points[~held_out])
    score = adjusted_mutual_info_score(corpus.labels, model.predict(points))
    typer.echo(f"{len(points)} texts, {clusters} clusters, adjusted mutual information with topics {score:.2f}")
    if save is not None:
        features.model.save_pretrained(save)
        features.tokenizer.save_pretrained(save)
    if compare:
        net = neonxc.neuralize(model, [shortened[i] for i in np.flatnonzero(~held_out)], features=features)
        compared(features, net, [shortened[i] for i in np.flatnonzero(held_out)])
        planted(features, shortened[:200])
    title = f"{clusters} clusters of {len(points)} texts"
    report = neonxc.explain(model, shortened, features, title=title, fast=True)
    report.save(out)
    typer.echo(str(out))


if __name__ == "__main__":
    typer.run(main)
