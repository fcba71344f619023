"""Find topics by a sentence encoder, UMAP and HDBSCAN, and show why a text is in its topic, or in none.

    python examples/topics.py --out topics.html
    python examples/topics.py --encoder sentence-transformers/all-MiniLM-L6-v2 --texts reviews.txt
    python examples/topics.py --quick

It needs ``pip install -e ".[text,umap]"``. The default texts are descriptions of Debian's packages, of which apt
keeps a copy after ``apt-get update -o Acquire::Languages=en``, or else those of the installed packages. On them, a
small BERT is trained, as in sentences.py. The report has the words of every topic. A second page shows texts in no
topic: red words keep a text out of the topic that it is nearest to, and blue words speak for that topic.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from corpora import Corpus, installed, lines, packages
from sentences import trained
from sklearn.cluster import HDBSCAN
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.pipeline import make_pipeline

import neonxc
from neonxc import NEON, NeuralizedClustering
from neonxc.models import SentenceEncoder
from neonxc.plot.text import HighlightedText

WORDS = 30  # of a text that are read
SHOWN = 12  # texts in no topic


def corpus_of(texts: Path | None, data: Path, most: int) -> Corpus:
    """Lines of a file, or descriptions of packages by section: of apt's lists, or else of what is installed."""
    if texts is not None:
        return lines(texts)
    try:
        return packages(data, most)
    except FileNotFoundError:
        return installed(most=most)


def umap_of(seed: int) -> object:
    """An UMAP as it is used before HDBSCAN."""
    try:
        from umap import UMAP
    except ImportError:
        raise SystemExit('this example needs umap-learn: in a checkout, pip install -e ".[umap]"') from None
    return UMAP(n_neighbors=15, n_components=5, min_dist=0.0, random_state=seed, n_jobs=1)


def words_of(net: NeuralizedClustering, texts: list[str], most: int = 6) -> dict[object, str]:
    """The words that speak most for every topic, and for noise."""
    summary = NEON(net).summary(texts)
    found = dict[object, str]()
    for label in net.classes_:
        words = (reason.split()[0] for reason in summary.reasons(label, 10 * most))
        found[label] = ", ".join([one for one in words if one.isalpha() and one not in ENGLISH_STOP_WORDS][:most])
    return found


def in_no_topic(net: NeuralizedClustering, texts: list[str], words: dict[object, str]) -> HighlightedText:
    """Texts that are noise by little, with the words that keep them out of the topic that they are nearest to."""
    with torch.no_grad():
        logits = net(net.features.encode(texts).double()).numpy()
    noise = np.flatnonzero(logits.argmax(axis=1) == len(net.classes_) - 1)
    noise = noise[logits[noise, -1].argsort()][:SHOWN]
    nearest = net.classes_[logits[noise, :-1].argmax(axis=1)]
    shown = [texts[i] for i in noise]
    relevance = NEON(net).attribute(shown, target=-1, competitor=nearest)
    return neonxc.plot.text(
        shown,
        relevance,
        net.features.spans(shown),
        headings=["in no topic"] * len(shown),
        notes=[f"nearest topic: {label} ({words[label]})" for label in nearest],
        title="Why are these texts in no topic?",
    )


def main(
    out: Annotated[Path, typer.Option(help="Report to write; a second page is written beside it.")] = Path(
        "topics.html"
    ),
    texts: Annotated[Path | None, typer.Option(help="File with one text per line.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Folder or name of a sentence encoder.")] = None,
    smallest: Annotated[int, typer.Option(help="Least number of texts of a topic.")] = 30,
    seconds: Annotated[float, typer.Option(help="Training time, if there is no encoder.")] = 150,
    data: Annotated[Path, typer.Option(help="Folder of apt's lists.")] = Path("/var/lib/apt/lists"),
    seed: int = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few texts and little training.")] = False,
) -> None:
    """Train or load an encoder, find topics, and write the report and the texts in no topic."""
    reducer = umap_of(seed)
    corpus = corpus_of(texts, data, 40 if quick else 150)
    shortened = [" ".join(re.findall(r"\w[\w'+-]*", text)[:WORDS]) for text in corpus.texts]  # without commas
    seconds, smallest = (min(seconds, 20), min(smallest, 10)) if quick else (seconds, smallest)
    features = trained(corpus, seconds) if encoder is None else SentenceEncoder.from_pretrained(encoder)
    threads = torch.get_num_threads()
    model = make_pipeline(
        reducer, HDBSCAN(smallest, min_samples=5, cluster_selection_method="leaf", copy=True)
    ).fit(features.points(shortened).numpy())
    torch.set_num_threads(threads)  # UMAP's library numba changes it
    net = neonxc.neuralize(model, shortened, features=features)
    words = words_of(net, shortened)
    for label, count in zip(*np.unique(model[-1].labels_, return_counts=True), strict=True):
        typer.echo(f"{f'topic {label}' if label >= 0 else 'in no topic'} ({count}): {words[label]}")
    if net.fidelity_held_out_ is not None:
        typer.echo(f"The vote gives {net.fidelity_held_out_:.0%} of the held-out texts their topic.")
    title = f"{net.n_clusters} topics of {len(shortened)} texts"
    names = {label: ", ".join(words[label].split(", ")[:3]) for label in net.classes_[: net.n_clusters]}
    report = neonxc.explain(model, shortened, features, cluster_names=names, title=title, fast=True)
    report.save(out)
    typer.echo(str(out))
    if net.noise_position >= 0:
        page = out.with_name(f"{out.stem}-none.html")
        in_no_topic(net, shortened, words).save(page)
        typer.echo(str(page))


if __name__ == "__main__":
    typer.run(main)
