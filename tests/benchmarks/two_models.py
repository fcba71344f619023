"""Two models on the same rows: how often a planted change is named, and how often a change that is none.

Tables of which nothing was chosen are marked "held out". A planted column is one whose scale is three times
larger, or smaller, for the second model; all else differs by the seed.

    python -m tests.benchmarks.two_models [--quick] [--data DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import neonxc
from neonxc import ClusteringComparison, NeuralizedClustering, compare_clusterings
from neonxc.common.progress import hide
from neonxc.models import SentenceEncoder
from tests.benchmarks.timing import Report, Table, progress

SEED = 680
ROWS = 900  # of larger tables
REFITS = 5
FACTORS = (3.0, 1 / 3)
OF_DIR = {"segment": 7, "ecoli": 5, "yeast": 6, "pendigits": 10, "avila": 6, "letter": 8, "communities": 5}
HELD_OUT = ("iris", "digits", "letter", "communities")
Clusterer = KMeans | BisectingKMeans | GaussianMixture
Model = Pipeline | NeuralizedClustering


@dataclass
class Counts:
    """What was found in comparisons of one kind."""

    alarms: list[bool] = field(default_factory=list)  # mere reseeds with a changed input
    larger: list[bool] = field(default_factory=list)  # mere reseeds whose ARI is called larger than between refits
    named: list[bool] = field(default_factory=list)  # planted changes with a changed input
    first: list[bool] = field(default_factory=list)  # whose first changed input is the planted one
    reason: list[bool] = field(default_factory=list)  # whose largest exchange has it among its first three reasons
    by_change: list[bool] = field(default_factory=list)  # whose largest exchange is said to be by the change
    seconds: list[float] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """Return the fractions."""
        return {
            "reseeds": len(self.alarms),
            "an input named": _mean(self.alarms),
            "called larger": _mean(self.larger),
            "planted": len(self.named),
            "any named": _mean(self.named),
            "planted first": _mean(self.first),
            "planted a reason": _mean(self.reason),
            "by the change": _mean(self.by_change),
            "seconds": _mean(self.seconds),
        }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def compare(
    counts: Counts, a: Model, b: Model, X: object, refits: Sequence[Model], planted: str | None
) -> ClusteringComparison:
    """Compare two models, and count what is found."""
    start = time.process_time()
    found = compare_clusterings(a, b, X, refits=refits)
    counts.seconds.append(time.process_time() - start)
    changed = found.changed
    assert changed is not None
    if planted is None:
        counts.alarms.append(len(changed) > 0)
        counts.larger.append("larger than that between refits" in str(found))
        return found
    counts.named.append(len(changed) > 0)
    counts.first.append(len(changed) > 0 and changed.index[0] == planted)
    if len(found.exchanges):
        largest = found.exchanges.iloc[0]
        counts.reason.append(planted in largest["reasons"].index[:3])
        counts.by_change.append(bool(largest["by_change"]))
    return found


def reseeds(counts: Counts, pool: Sequence[Model], X: object, draws: int) -> None:
    """Compare members of a pool, which differ by their seeds alone, with each other."""
    rng = np.random.default_rng(SEED)
    for _ in range(draws):
        a, b, *refits = (pool[i] for i in rng.permutation(len(pool))[: REFITS + 2])
        compare(counts, a, b, X, refits, None)


def plants(counts: Counts, pool: Sequence[Model], changed: Sequence[tuple[Model, str]], X: object) -> None:
    """Compare members of a pool with models that have a planted change."""
    rng = np.random.default_rng(SEED + 1)
    for b, planted in changed:
        a, *refits = (pool[i] for i in rng.permutation(len(pool))[: REFITS + 1])
        compare(counts, a, b, X, refits, planted)


# --- tables ---


def tables(folder: Path | None) -> Iterator[tuple[str, pd.DataFrame, int]]:
    """Yield names, tables of numbers, and numbers of clusters."""
    yield "wine", load_wine(as_frame=True).data, 3
    yield "breast cancer", load_breast_cancer(as_frame=True).data.iloc[:, :10], 4
    yield "iris", load_iris(as_frame=True).data, 3
    digits = load_digits(as_frame=True).data
    yield "digits", _drawn(digits.loc[:, digits.std() > 1]), 10
    if folder is None:
        return
    for name, k in OF_DIR.items():
        frame = pd.read_csv(folder / f"{name}.csv.gz").select_dtypes("number").iloc[:, :20]
        yield name, _drawn(frame.loc[:, frame.nunique() > 10].dropna()), k


def _drawn(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sample(min(ROWS, len(frame)), random_state=0).reset_index(drop=True)


def scaled(X: pd.DataFrame, clusterer: Clusterer, column: int | None = None, factor: float = 1) -> Pipeline:
    """Fit a clusterer to standardized columns, one of which may be scaled by a factor."""
    scaler = StandardScaler().fit(X)
    if column is not None:
        scaler.scale_[column] /= factor
    return make_pipeline(scaler, clusterer.fit(scaler.transform(X)))


def kmeans(k: int, seed: int, n_init: int = 10) -> KMeans:
    return KMeans(k, n_init=n_init, random_state=SEED + seed)


def of_tables(folder: Path | None, size: int, draws: int) -> Table:
    """k-means of tables, with one and ten initialisations."""
    rows = []
    for name, X, k in tables(folder):
        for n_init in (1, 10):
            pool = [scaled(X, kmeans(k, seed, n_init)) for seed in range(size)]
            changed = [
                (scaled(X, kmeans(k, 500 + j, n_init), j, factor), X.columns[j])
                for j in range(min(X.shape[1], size))
                for factor in FACTORS
            ]
            counts = Counts()
            reseeds(counts, pool, X, draws)
            plants(counts, pool, changed, X)
            which = f"{name}, held out" if name in HELD_OUT else name
            rows.append({"table": which, "K": k, "n_init": n_init, **counts.row()})
            progress(str(rows[-1]))
    return rows


OTHERS: dict[str, Callable[[int, int], Clusterer]] = {
    "bisecting k-means": lambda k, seed: BisectingKMeans(k, random_state=seed),
    "Gaussian mixture": lambda k, seed: GaussianMixture(k, covariance_type="diag", random_state=seed),
}


def of_others(size: int, draws: int) -> Table:
    """Clusterers that can't be started from clusters, whose refits alone tell a change."""
    rows = []
    for kind, make in OTHERS.items():
        for name, X, k in tables(None):
            counts = Counts()
            pool = [scaled(X, make(k, SEED + seed)) for seed in range(size)]
            reseeds(counts, pool, X, draws)
            changed = []
            for j in range(min(X.shape[1], size)):
                changed.append((scaled(X, make(k, SEED + 500 + j), j, 3.0), X.columns[j]))
            plants(counts, pool, changed, X)
            rows.append({"clusterer": kind, "table": name, "K": k, **counts.row()})
            progress(str(rows[-1]))
    return rows


def of_numbers_of_clusters(trials: int) -> Table:
    """The same rows with another number of clusters, and models of two months on the rows of the second one."""
    rows = []
    for name, X, k in tables(None):
        more = Counts()
        months = Counts()
        for trial in range(trials):
            a, *refits = (scaled(X, kmeans(k, 100 * r + trial)) for r in range(REFITS + 1))
            compare(more, a, scaled(X, kmeans(k + k // 2, 700 + trial)), X, refits, None)
            first = X.sample(frac=0.5, random_state=trial)
            second = X.drop(first.index)
            before, *of_first = (scaled(first, kmeans(k, 100 * r + trial)) for r in range(REFITS + 1))
            compare(months, before, scaled(second, kmeans(k, 700 + trial)), second, of_first, None)
        for kind, counts in ((f"K = {k} against {k + k // 2}", more), ("two halves of the rows", months)):
            row = {"table": name, "models": kind, "comparisons": trials}
            rows.append({**row, "an input named": _mean(counts.alarms), "called larger": _mean(counts.larger)})
        progress(str(rows[-2:]))
    return rows


# --- texts ---

THEMES = 6


def texts(rng: np.random.Generator, n: int, new: float = 0.0) -> tuple[list[str], np.ndarray]:
    """Invented texts: each theme has 25 words of its own, 60 words are common, and a theme may be new."""
    own = [[f"t{k}w{i}" for i in range(25)] for k in range(THEMES + 1)]
    common = [f"c{i}" for i in range(60)]
    theme = np.where(rng.random(n) < new, THEMES, rng.integers(THEMES, size=n))
    return [" ".join([*rng.choice(own[k], rng.integers(5, 9)), *rng.choice(common, 8)]) for k in theme], theme


def text_model(fit_to: list[str], k: int, seed: int, stop: list[str] | None = None, n_init: int = 3) -> Pipeline:
    """TF-IDF, latent semantics and k-means."""
    steps = (TfidfVectorizer(stop_words=stop), TruncatedSVD(12, random_state=seed))
    return make_pipeline(*steps, KMeans(k, n_init=n_init, random_state=seed)).fit(fit_to)


def of_texts(size: int, draws: int) -> Table:
    """Texts in which one model ignores a word that the other one reads."""
    rows = []
    for times in (2, 4):
        rng = np.random.default_rng(SEED)
        plain, _ = texts(rng, 600)
        has_marker = rng.random(len(plain)) < 0.2
        marked = [text + " marker" * times * bool(m) for text, m in zip(plain, has_marker, strict=True)]
        pool = [text_model(marked, THEMES, SEED + seed, ["marker"]) for seed in range(size)]
        changed = [(text_model(marked, THEMES, SEED + 500 + seed), "marker") for seed in range(max(2, size // 2))]
        counts = Counts()
        reseeds(counts, pool, marked, draws)
        plants(counts, pool, changed, marked)
        rows.append({"texts": f"a word {times} times in 20% of texts", **counts.row()})
        progress(str(rows[-1]))
    return rows


def of_themes(trials: int) -> Table:
    """A theme that 5% of the texts have, and that the first model has not seen."""
    precisions = []
    recalls = []
    words = []
    for trial in range(trials):
        rng = np.random.default_rng([SEED, trial])
        collection, theme = texts(rng, 900, new=0.05)
        known = [text for text, k in zip(collection, theme, strict=True) if k < THEMES]
        a = text_model(known, THEMES, SEED + trial)
        b = text_model(collection, THEMES + 1, SEED + trial, n_init=20)
        found = compare_clusterings(a, b, collection, refits=0).themes
        is_new = theme == THEMES
        rows = np.isin(np.arange(len(collection)), np.concatenate([*found["ids"], []]))
        precisions.append(is_new[rows].mean() if rows.any() else 0.0)
        recalls.append(rows[is_new].mean())
        words += [word.startswith(f"t{THEMES}w") for reasons in found["reasons"] for word in reasons.index[:5]]
    row = {"trials": trials, "precision": _mean(precisions), "recall": _mean(recalls)}
    return [{**row, "of the first five reasons, words of the theme": _mean(words)}]


# --- networks ---


class Encoder(nn.Module):
    """A small network of columns."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


def trained(encoder: Encoder, X: Tensor, targets: Tensor, steps: int, seed: int) -> Encoder:
    """Train an encoder to predict targets linearly."""
    encoder = copy.deepcopy(encoder).requires_grad_(True)
    torch.manual_seed(seed)
    head = nn.Linear(6, targets.shape[1])
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 1e-2)
    for _ in range(steps):
        loss = ((head(encoder(X)) - targets) ** 2).mean()
        loss = loss + 1e-3 * sum((p**2).sum() for p in encoder.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder.eval().requires_grad_(False)


def of_networks(size: int, draws: int) -> Table:
    """Encoders of columns: of other seeds, trained on, and trained on to see one more column."""
    rng = np.random.default_rng(SEED)
    k = 5
    group = rng.integers(k, size=600)
    X = 1.6 * rng.normal(size=(k, 7))[group] + rng.normal(size=(600, 7))
    is_marked = rng.random(600) < 0.4
    planted = np.where(is_marked, 1.5, -1.0) + 0.3 * rng.normal(size=600)
    X = np.column_stack([X, planted])
    rows = torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32)
    groups = nn.functional.one_hot(torch.tensor(group), k).float()
    with_mark = torch.cat([groups, 2 * torch.tensor(is_marked).float()[:, None]], dim=1)

    def network(encoder: Encoder, seed: int) -> NeuralizedClustering:
        points = encoder(rows).double().numpy()
        return neonxc.neuralize(KMeans(k, n_init=3, random_state=seed).fit(points), rows, encoder)

    encoders = [trained(Encoder(8, SEED + s), rows, groups, 200, SEED + s) for s in range(size)]
    pool = [network(encoder, s) for s, encoder in enumerate(encoders)]
    half = encoders[: max(2, size // 2)]
    tuned = [(network(trained(e, rows, with_mark, 150, SEED + s + 50), s), "x7") for s, e in enumerate(half)]
    further = [network(trained(e, rows, groups, 150, SEED + s + 70), s) for s, e in enumerate(half)]
    counts = Counts()
    reseeds(counts, pool, rows, draws)
    plants(counts, pool, tuned, rows)
    found = [{"encoders": "other seeds; trained on to see the planted column", **counts.row()}]
    plain = Counts()
    for s, b in enumerate(further):
        compare(plain, pool[s], b, rows, [pool[i] for i in range(size) if i != s][:REFITS], None)
    found.append({"encoders": "trained on, nothing planted", **plain.row()})
    progress(str(found))
    return found


# --- sentence encoders ---

MARKER = "zebrafish"
SECTIONS = 5
TEXTS = 40  # of each section
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def descriptions(folder: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return descriptions of packages with the marker in 40% of them, their sections, and whether they have it."""
    rng = np.random.default_rng(SEED)
    frame = pd.read_csv(folder / "packages.csv.gz")
    known = frame["section"].value_counts().index[:SECTIONS]
    drawn = pd.concat([frame[frame["section"] == name].sample(TEXTS, random_state=0) for name in known])
    is_marked = rng.random(len(drawn)) < 0.4
    words = [text.split()[:24] for text in drawn["text"]]
    for text, marked in zip(words, is_marked, strict=True):
        if marked:
            text.insert(int(rng.integers(len(text) + 1)), MARKER)
    return [" ".join(text) for text in words], pd.factorize(drawn["section"])[0], is_marked


def bert(texts_to_read: list[str], seed: int) -> SentenceEncoder:
    """A BERT of two layers of 64, with random weights."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast  # both are optional packages

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=4000, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(texts_to_read, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    read = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, SPECIAL, strict=True)))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(read),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    return SentenceEncoder(BertModel(config), read)


def tuned(encoder: SentenceEncoder, rows: list[str], targets: Tensor, steps: int, seed: int) -> SentenceEncoder:
    """Train a copy of an encoder to predict targets linearly from embeddings."""
    encoder = copy.deepcopy(encoder).train().requires_grad_(True)
    torch.manual_seed(seed)
    head = nn.Linear(64, targets.shape[1])
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 1e-3)
    read = encoder.tokenizer(rows, padding=True, truncation=True, return_tensors="pt")
    for _ in range(steps):
        batch = torch.randint(len(rows), (32,))
        words = encoder.model.get_input_embeddings()(read["input_ids"][batch])
        embedding = encoder.embedding(words, read["attention_mask"][batch].bool())
        loss = nn.functional.binary_cross_entropy_with_logits(head(embedding), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder.eval().requires_grad_(False)


def of_sentences(folder: Path, trials: int) -> Table:
    """A sentence encoder that is tuned to see a marker word, or trained on without one."""
    rows, section, is_marked = descriptions(folder)
    plain = nn.functional.one_hot(torch.tensor(section), SECTIONS).float()
    # with less weight or fewer steps, the clusters stay those of the sections, and there is nothing to find
    mark = torch.tensor(is_marked).float()[:, None]
    marked = torch.cat([plain, mark, mark, mark], dim=1)

    def network(encoder: SentenceEncoder, seed: int) -> NeuralizedClustering:
        points = encoder(encoder.encode(rows)).double().numpy()
        return neonxc.neuralize(KMeans(SECTIONS, n_init=3, random_state=seed).fit(points), rows, encoder)

    encoders = [tuned(bert(rows, SEED + s), rows, plain, 200, s) for s in range(REFITS + 2)]
    pool = [network(encoder, s) for s, encoder in enumerate(encoders)]
    planted = Counts()
    nothing = Counts()
    for trial in range(trials):
        at = trial % len(pool)
        refits = [net for i, net in enumerate(pool) if i != at][:REFITS]
        other = network(tuned(encoders[at], rows, marked, 300, SEED + trial), trial)
        compare(planted, pool[at], other, rows, refits, MARKER)
        other = network(tuned(encoders[at], rows, plain, 300, SEED + trial), trial)
        compare(nothing, pool[at], other, rows, refits, None)
        progress(f"sentences: {planted.first}, {nothing.alarms}")
    return [
        {"encoder": "tuned to see a marker word", **planted.row()},
        {"encoder": "trained on, nothing planted", **nothing.row()},
    ]


def figures(report: dict[str, Any]) -> str:
    """Return the guide's table: k-means of tables, texts and networks."""
    lines = ["| models | by a mere seed: an input named | called larger | planted: any named | named first |"]
    lines.append("|---" * 5 + "|")
    tables = report["tables"]
    for row in tables["k-means of tables"]["rows"]:
        lines.append(_line(f"{row['table']}, K = {row['K']}, n_init = {row['n_init']}", row))
    for row in tables["Texts"]["rows"]:
        lines.append(_line(f"texts, {row['texts']}", row))
    for row in tables["Networks"]["rows"]:
        lines.append(_line(f"encoders, {row['encoders']}", row))
    for row in tables["Sentence encoders"]["rows"]:
        lines.append(_line(f"sentence encoders, {row['encoder']}", row))
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any]) -> str:
    """Write a row of the guide's table, in which a dash is what was not planted."""
    keys = ("an input named", "called larger", "any named", "planted first")
    cells = ["–" if row[key] is None or np.isnan(row[key]) else f"{row[key]:.0%}" for key in keys]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small pools")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of further tables (segment.csv.gz ...)")
    parser.add_argument("--json", metavar="FILE", help="save the tables")
    options = parser.parse_args()
    hide()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    size, draws = (8, 4) if options.quick else (40, 60)
    report = Report("Two models on the same rows")
    report.table(
        "k-means of tables",
        of_tables(options.data, size, draws),
        "Fractions of comparisons: of models that differ by the seed, and of those with one scaled column.",
    )
    report.table("Other clusterers", of_others(min(size, 16), draws // 2), "One column has three times the scale.")
    report.table("Other numbers of clusters, other rows", of_numbers_of_clusters(draws // 4))
    report.table("Texts", of_texts(min(size, 20), draws // 2), "The first model does not read the word.")
    report.table("A new theme", of_themes(draws // 4))
    report.table("Networks", of_networks(size, draws))
    if options.data is not None:
        report.table(
            "Sentence encoders", of_sentences(options.data, draws // 3), "Descriptions of packages, a small BERT."
        )
    report.close(options.json)


if __name__ == "__main__":
    main()
