"""Explain a clustering of texts by their words, and ask whether clusters that differ from the labels are wrong.

    python examples/words.py --quick
    python examples/words.py --corpus newsgroups --out page.html

Section VI-A and Figure 6 of J. Kauffmann et al., "From clustering to cluster explanations via neural networks",
2022: documents are means of word vectors; kernel k-means with 10 supports per cluster starts from the labels and
moves away from them. Pairs of documents with different labels that end in one cluster show why. The paper uses
pretrained word vectors; here they are trained on the texts or read from a file (--vectors).

The default corpus is Debian's fortunes (packages `fortunes-min` and `fortunes`; --data names another folder);
scikit-learn downloads the other one. The page is written to --out, and all figures beside it as JSON.
"""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from corpora import Corpus, fortunes, newsgroups
from jinja2 import Environment
from markupsafe import Markup
from sklearn.metrics import adjusted_rand_score

import neonxc
from neonxc import ClusterSummary, NeuralizedClustering
from neonxc.models import KernelKMeans, WordVectors

ENOUGH = 5  # minimum number of known words for a meaningful document mean
SHOWN = (12, 90)  # number of words per document on the page
SAME = 0.6  # two documents that share more of their relevance than this are versions of one text
CANDIDATES = 60  # number of typical documents of a cluster among which a pair is searched
FULL = 56  # minimum length of a line that ends because it is full
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ name }}: clusters and their words</title>
<style>
body { font: 16px/1.55 system-ui, sans-serif; margin: 2em auto; padding: 0 1.2em; max-width: 70em; }
h1 { font-size: 1.7em; margin-bottom: .2em; }
h2 { margin: 2em 0 .4em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3em .9em .3em 0; border-bottom: 1px solid #8883; }
th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.quiet { opacity: .7; }
.wide { overflow-x: auto; }
.pair .neonxc-text { display: grid; gap: 0 1em;
  grid-template-columns: repeat(auto-fit, minmax(min(24em, 100%), 1fr)); }
.pair .neonxc-text h2, .pair .neonxc-text .key { grid-column: 1 / -1; margin: 0; }
.pair .neonxc-text h2 { margin-top: 1.2em; font-size: 1.15em; }
.pair + .pair .key { display: none; }
</style>
</head>
<body>
<h1>Clusters of {{ name }}, explained by their words</h1>
<p>{{ "{:,}".format(documents) }} documents on {{ clusters|length }} topics, as means of the vectors of
{{ "{:,}".format(vocabulary) }} words. With {{ supports }} supports fitted to each topic as it is, kernel k-means
finds the topics again with an adjusted Rand index of <strong>{{ "%.2f"|format(ari.fixed) }}</strong>.
Started there, but free to regroup the documents, it settles at
<strong>{{ "%.2f"|format(ari.converged) }}</strong>. Are these clusters worse, or just others?</p>
<h2>Different topics, one cluster</h2>
<p class="quiet">Pairs that the clustering put together against their topics, and the words that made it do so.</p>
{% for pair in pairs %}
<div class="pair">{{ pair.html }}</div>
{% endfor %}
<h2>All clusters</h2>
<div class="wide">
<table>
<thead><tr><th>began as</th><th class="number">documents</th><th>words that speak for it</th>
<th>topics in it now</th></tr></thead>
{% for cluster in clusters %}
<tr><th>{{ cluster.began_as }}</th><td class="number">{{ "{:,}".format(cluster.documents) }}</td>
<td>{{ cluster.words|join(", ") }}</td>
<td class="quiet">{% for topic, share in cluster.topics %}{{ topic }} {{ "%.0f"|format(100 * share) }}%
{%- if not loop.last %}, {% endif %}{% endfor %}</td></tr>
{% endfor %}
</table>
</div>
</body>
</html>
"""


class Source(StrEnum):
    fortunes = "fortunes"
    newsgroups = "newsgroups"


def prepared(corpus: Corpus, vectors: Path | None, dimensions: int, seed: int) -> tuple[Corpus, WordVectors]:
    """Return the word vectors and the documents with enough known words."""
    if vectors is None:
        words = WordVectors.from_texts(corpus.texts, dimensions, idf=True, unit_norm=True, random_state=seed)
    else:
        words = WordVectors.from_file(vectors)
    vocabulary = set(words.words)
    known = np.array([sum(word in vocabulary for word in text) for text in words.tokenize(corpus.texts)])
    return corpus.part(known >= ENOUGH), words


def clustered(points: np.ndarray, labels: np.ndarray, supports: int, seed: int) -> tuple[KernelKMeans, dict]:
    """Fit kernel k-means from the labels; return it with its adjusted Rand index and that of the initial
    supports."""
    begun, labels = np.unique(labels, return_inverse=True)
    model = KernelKMeans(len(begun), supports, init=labels, random_state=seed).fit(points)
    fixed = KernelKMeans(len(begun), supports, random_state=seed).fit(points, labels=labels)
    ari = {
        "fixed": adjusted_rand_score(labels, fixed.predict(points)),
        "converged": adjusted_rand_score(labels, model.labels_),
    }
    return model, ari


def pair_of(k: int, net: NeuralizedClustering, corpus: Corpus, own: np.ndarray) -> dict[str, Any] | None:
    """Return the two typical documents of cluster k with different topics that share most of their relevant
    words."""
    words: Any = net.features
    members = np.flatnonzero((own == k) & (corpus.labels != k))
    length = np.array(
        [len(text) for text in words.spans([corpus.texts[n] for n in members])] if len(members) else []
    )
    members = members[(length >= SHOWN[0]) & (length <= SHOWN[1])]
    if len(members) < 2:
        return None
    logit = net(words.encode([corpus.texts[n] for n in members]))[:, k]
    members = members[torch.argsort(logit, descending=True, stable=True)[:CANDIDATES].numpy()]
    ids = words.encode([corpus.texts[n] for n in members])
    relevance = neonxc.NEON(net).attribute(ids)
    # share of each word in the positive relevance, per document
    profile = torch.zeros(len(ids), len(words.words)).scatter_add_(
        1, ids.clamp(min=0), relevance.clamp(min=0).float()
    )
    profile = profile[:, profile.any(0)] / profile.sum(1, keepdim=True)
    common = torch.stack([torch.minimum(profile, row).sum(1) for row in profile]).numpy()
    common[corpus.labels[members][:, None] == corpus.labels[members]] = 0
    common[common > SAME] = 0
    i, j = np.unravel_index(common.argmax(), common.shape)
    if common[i, j] == 0:
        return None
    both = [int(i), int(j)]
    return {"cluster": k, "common": float(common[i, j]), "documents": members[both], "ids": ids[both]}


def pairs(
    net: NeuralizedClustering, corpus: Corpus, own: np.ndarray, summary: ClusterSummary, most: int
) -> list[dict[str, Any]]:
    """Return the pairs that share the most relevant words, one per cluster, for the page and for the JSON file."""
    words: Any = net.features
    found = [pair for k in range(len(summary.classes)) if (pair := pair_of(k, net, corpus, own)) is not None]
    chosen = sorted(found, key=lambda pair: -pair["common"])[:most]
    for pair in chosen:
        k = pair["cluster"]
        ids = pair.pop("ids")
        texts = [reflowed(corpus.texts[n]) for n in pair["documents"]]
        relevance = neonxc.NEON(net).attribute(ids)
        topics = [corpus.topics[corpus.labels[n]] for n in pair["documents"]]
        picture = neonxc.plot.text(
            texts,
            relevance,
            words.spans(texts),
            known=ids >= 0,
            headings=topics,
            title=f"In the cluster that began as {corpus.topics[k]}: {', '.join(strongest(summary, k, 6))}",
        )
        pair |= {"topics": topics, "texts": texts, "html": Markup(picture.html()), "plain": str(picture)}
        pair["documents"] = pair["documents"].tolist()
        pair["words"] = [
            {word: round(float(r), 4) for word, r in zip(tokens, row, strict=False) if r != 0}
            for tokens, row in zip(words.tokenize(texts), relevance, strict=True)
        ]
    return chosen


def reflowed(text: str) -> str:
    """Remove the line breaks of full lines, so that text reflows in a narrow column; verse keeps its lines."""
    lines = text.strip("\n").split("\n")
    paragraphs = lines[:1]
    for last, line in pairwise(lines):
        words = line.lstrip()
        aligned = len(line) - len(words) == len(last) - len(last.lstrip())
        if aligned and len(last) >= FULL and words and not words.startswith("--"):
            paragraphs[-1] += " " + words
        else:
            paragraphs.append(line)
    return "\n".join(paragraphs)


def strongest(summary: ClusterSummary, k: int, n: int) -> list[str]:
    return [word for word, value in summary.top(k, n) if value > 0]


def overview(summary: ClusterSummary, corpus: Corpus, own: np.ndarray) -> list[dict[str, Any]]:
    """Return the size, words and topics of every cluster, large ones first."""
    clusters = []
    for k in np.argsort(-summary.sizes, kind="stable"):
        shares = np.bincount(corpus.labels[own == k], minlength=len(corpus.topics)) / max(1, summary.sizes[k])
        topics = [
            (corpus.topics[t], float(shares[t])) for t in np.argsort(-shares, kind="stable")[:3] if shares[t]
        ]
        words = strongest(summary, int(k), 10)
        began = corpus.topics[k]
        clusters.append({"began_as": began, "documents": int(summary.sizes[k]), "words": words, "topics": topics})
    return clusters


def main(
    corpus: Annotated[Source, typer.Option(help="Which texts.")] = Source.fortunes,
    data: Annotated[Path, typer.Option(help="Folder of the fortunes.")] = Path("/usr/share/games/fortunes"),
    vectors: Annotated[Path | None, typer.Option(help="Word vectors, as word2vec or GloVe write them.")] = None,
    out: Annotated[Path, typer.Option(help="HTML page; figures go beside it as JSON.")] = Path("words.html"),
    quick: Annotated[bool, typer.Option(help="Eight topics, short vectors.")] = False,
    seed: Annotated[int, typer.Option(help="Of word vectors and supports.")] = 0,
) -> None:
    """Cluster documents by their words, and show why some are in one cluster despite different labels."""
    found = newsgroups() if corpus is Source.newsgroups else fortunes(data)
    if quick:
        found = Corpus(found.texts, found.labels, found.topics[:8]).part(found.labels < 8)
    found, words = prepared(found, vectors, 30 if quick else 100, seed)
    points = words.points(found.texts).numpy()
    supports = 10
    model, ari = clustered(points, found.labels, supports, seed)
    net = neonxc.neuralize(model, features=words)
    net.beta = neonxc.neuralize(model, points).beta  # so that texts are not padded to the longest of all
    summary = neonxc.NEON(net).summary(found.texts)
    chosen = pairs(net, found, model.labels_, summary, 6)
    figures: dict[str, Any] = {
        "name": {"fortunes": "Debian's fortunes", "newsgroups": "20 newsgroups"}[corpus.value],
        "documents": len(found.texts),
        "vocabulary": len(words.words),
        "supports": supports,
        "ari": ari,
        "iterations": len(model.history_),
        "clusters": overview(summary, found, model.labels_),
        "pairs": chosen,
    }
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(PAGE).render(figures)
    out.write_text(page, encoding="utf-8")
    kept = [{key: value for key, value in pair.items() if key not in ("html", "plain")} for pair in chosen]
    out.with_suffix(".json").write_text(json.dumps(figures | {"pairs": kept}, indent=1), encoding="utf-8")
    for pair in chosen[:2]:
        print(pair["plain"], end="\n\n")
    print(f"adjusted Rand index: {ari['converged']:.3f}; supports of the labels themselves: {ari['fixed']:.3f}")
    print(f"{out} and {out.with_suffix('.json')}")


if __name__ == "__main__":
    typer.run(main)
