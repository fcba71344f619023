"""Do names hold? The blind test of names that were chosen, asked for, given, shuffled and doubled.

python -m tests.benchmarks.names [--data DIR] [--quick] [--json FILE]

All shares are of rows that no name was chosen on, and clusters weigh the same.

Tables: k-means with K = 3, 6, 10 on standardized columns. The constants of neonxc.naming were chosen on five
tables, and on none of the held-out ones. "largest effects" are statements about the columns with
the largest effects.

Namers: one that answers with the strongest statement at first, and with the two that tell the cluster from its
sibling when it is asked again. "failed" are names that do not pass on the rows that names are chosen on.

Texts: descriptions of Debian packages (packages.csv.gz in DIR). Their sections are clusters that have true names.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc.common.progress import hide
from neonxc.evaluation import TextJudge, validate_names
from tests.benchmarks.timing import Report

NUMBERS = (3, 6, 10)
ROWS = 4000
CHOSEN_ON = ("wine", "diabetes", "segment", "ecoli", "pendigits")
HELD_OUT = ("breast_cancer", "iris", "digits", "letter", "yeast", "avila", "communities")
SEEDS = (0, 1, 2)


def tables(folder: str | None, names: tuple[str, ...]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables of scikit-learn, and those in a folder."""
    for name in names:
        if hasattr(datasets, f"load_{name}"):
            yield name, getattr(datasets, f"load_{name}")(as_frame=True).data
        elif folder is not None:
            table = pd.read_csv(Path(folder) / f"{name}.csv.gz")
            yield name, numbers_of(table.iloc[:, :-1])


def numbers_of(table: pd.DataFrame) -> pd.DataFrame:
    """Select the columns of numbers that are mostly known and not constant, and at most ROWS rows."""
    numbers = table.select_dtypes("number")
    numbers = numbers.loc[:, (numbers.isna().mean() < 0.1) & (numbers.nunique() > 1)]
    rows = np.random.default_rng(0).permutation(len(numbers))[:ROWS]
    return numbers.iloc[np.sort(rows)].reset_index(drop=True)


def network(table: pd.DataFrame, k: int, seed: int) -> Any:
    """Cluster a table by k-means, and neuralize it."""
    model = make_pipeline(SimpleImputer(), StandardScaler(), KMeans(k, n_init=5, random_state=seed))
    return neonxc.neuralize(model.fit(table), table)


def figures(named: neonxc.ClusterNames) -> tuple[float, int, int, float]:
    """Return accuracy, numbers of names that pass and are judged, and the ceiling."""
    judged = named.test.is_judged
    ceiling = float(named.ceiling[judged].mean()) if judged.any() else np.nan
    return named.accuracy, int(named.test.passed.sum()), int(judged.sum()), ceiling


def strongest(words: int) -> Callable[[neonxc.Evidence], str]:
    """Make a namer that answers with the strongest statements, however often it is asked."""
    return lambda evidence: ", ".join(map(plain, evidence.statements[:words]))


def plain(statement: str) -> str:
    """Return a statement without its numbers."""
    return statement[: statement.rindex(" (")]


def second_thought(evidence: neonxc.Evidence) -> str:
    """Answer with the strongest statement, and with two that tell the cluster from its sibling if asked again."""
    if evidence.contrast is None:
        return strongest(1)(evidence)
    return ", ".join(map(plain, evidence.contrast.statements[:2]))


def of_tables(folder: str | None, names: tuple[str, ...], seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure chosen names on tables, by K and on average."""
    contestants: dict[str, dict[str, Any]] = {
        "two largest effects": {"namer": strongest(2)},
        "chosen, one statement": {"words": 1},
        "chosen, two": {"words": 2},
        "chosen, three": {"words": 3},
    }
    found: dict[str, list[list[Any]]] = {name: [] for name in contestants}
    seconds: dict[str, float] = dict.fromkeys(contestants, 0.0)
    for _, table in tables(folder, names):
        for k in NUMBERS:
            for seed in seeds:
                net = network(table, k, seed)
                for name, options in contestants.items():
                    start = time.perf_counter()
                    named = neonxc.name_clusters(net, table, random_state=seed, **options)
                    seconds[name] += time.perf_counter() - start
                    found[name].append([k, *figures(named)])
    rows = []
    for name, of_name in found.items():
        frame = pd.DataFrame(of_name, columns=["k", "accuracy", "passed", "judged", "ceiling"])
        row: dict[str, Any] = {"names": name}
        for k in NUMBERS:
            row[f"K = {k}"] = float(frame[frame["k"] == k]["accuracy"].mean())
        row["mean"] = float(np.mean([row[f"K = {k}"] for k in NUMBERS]))
        for k in NUMBERS:
            of_k = frame[frame["k"] == k]
            row[f"passed, K = {k}"] = float(of_k["passed"].sum() / of_k["judged"].sum())
        row["passed"] = float(frame["passed"].sum() / frame["judged"].sum())
        row["ceiling"] = float(frame.groupby("k")["ceiling"].mean().mean())
        row["seconds a call"] = seconds[name] / len(frame)
        rows.append(row)
    return rows


def by_table(folder: str | None, names: tuple[str, ...], seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure chosen names of two statements, table by table."""
    rows = []
    for name, table in tables(folder, names):
        row: dict[str, Any] = {"table": name, "rows": len(table), "columns": table.shape[1]}
        for k in NUMBERS:
            of_seeds = []
            for seed in seeds:
                named = neonxc.name_clusters(network(table, k, seed), table, random_state=seed)
                of_seeds.append(figures(named))
            accuracy, passed, judged, ceiling = np.array(of_seeds, dtype=float).T
            row[f"K = {k}"] = float(np.nanmean(accuracy)) if not np.isnan(accuracy).all() else np.nan
            row[f"passed, K = {k}"] = f"{int(passed.sum())} of {int(judged.sum())}"
            row[f"ceiling, K = {k}"] = float(np.nanmean(ceiling)) if not np.isnan(ceiling).all() else np.nan
        rows.append(row)
    return rows


def of_namers(folder: str | None, names: tuple[str, ...], seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure what the second question changes, on the rows of clusters whose first name failed."""
    gains: list[list[Any]] = []
    for _, table in tables(folder, names):
        for k in NUMBERS:
            for seed in seeds:
                net = network(table, k, seed)
                asked_again: set[Any] = set()

                def namer(evidence: neonxc.Evidence, asked: set[Any] = asked_again) -> str:
                    if evidence.contrast is not None:
                        asked.add(evidence.cluster)
                    return second_thought(evidence)

                once = neonxc.name_clusters(net, table, namer=strongest(1), random_state=seed)
                twice = neonxc.name_clusters(net, table, namer=namer, random_state=seed)
                for i, cluster in enumerate(once.clusters):
                    if cluster in asked_again and once.test.is_judged[i]:
                        accuracies = [once.test.accuracy[i], twice.test.accuracy[i]]
                        gains.append([*accuracies, once.test.passed[i], twice.test.passed[i]])
    first, second, passed, passed_after = np.array(gains, dtype=float).mean(axis=0)
    return [
        {
            "failed names": len(gains),
            "accuracy before": first,
            "after the second question": second,
            "passed before": passed,
            "passed after": passed_after,
        }
    ]


def of_sections(folder: str, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Test the true names of sections, shuffled ones, and doubled ones, on sets of K sections."""
    packages = pd.read_csv(Path(folder) / "packages.csv.gz")
    judge = TextJudge(packages["text"].tolist())
    sections = sorted(packages["section"].unique())
    counts = {name: np.zeros(2) for name in ("true", "shuffled", "doubled")}
    accuracies = []
    for k in NUMBERS:
        for seed in seeds:
            draw = np.random.default_rng(seed)
            chosen = [*map(str, draw.choice(sections, k, replace=False))]
            rows = packages[packages["section"].isin(chosen)]
            names = {name: name for name in chosen}
            shuffled = dict(zip(chosen, [*chosen[1:], chosen[0]], strict=True))
            doubled = {**names, chosen[0]: chosen[1]}
            texts = rows["text"].tolist()
            labels = rows["section"].to_numpy()

            test = validate_names(names, texts, labels, judge)
            accuracies.append((test.accuracy, test.ceiling.mean(), np.mean(test.second_accuracy)))
            counts["true"] += [sum(test.passed.values()), k]
            test = validate_names(shuffled, texts, labels, judge)
            counts["shuffled"] += [k - sum(test.passed.values()), k]
            test = validate_names(doubled, texts, labels, judge)
            counts["doubled"] += [sum(not test.passed[name] for name in chosen[:2]), 2]
    accuracy, ceiling, second = np.mean(accuracies, axis=0)
    rows: list[dict[str, Any]] = []
    verdicts = {"true": "true ones pass", "shuffled": "shuffled ones fail", "doubled": "doubled ones fail"}
    for kind, verdict in verdicts.items():
        n, total = counts[kind].tolist()
        rows.append({"names": verdict, "share": n / total, "of": int(total)})
    figures_of_true = {"accuracy of true ones": accuracy, "by their words": second, "ceiling": ceiling}
    rows += [{"names": what, "share": float(share), "of": ""} for what, share in figures_of_true.items()]
    return rows


def of_texts(folder: str, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Name clusters of texts by terms: the largest c-TF-IDF, and chosen ones, with the judge of words beside."""
    packages = pd.read_csv(Path(folder) / "packages.csv.gz")
    texts = packages["text"].tolist()
    contestants: dict[str, dict[str, Any]] = {
        "two largest c-TF-IDF": {"namer": strongest(2)},
        "chosen, two terms": {"words": 2},
        "chosen, three terms": {"words": 3},
    }
    found: dict[str, list[Any]] = {name: [] for name in contestants}
    for k in NUMBERS:
        for seed in seeds:
            vectorizer = TfidfVectorizer(stop_words="english", min_df=5, sublinear_tf=True)
            net = neonxc.neuralize(make_pipeline(vectorizer, KMeans(k, n_init=2, random_state=seed)).fit(texts))
            for name, options in contestants.items():
                named = neonxc.name_clusters(net, texts, random_state=seed, **options)
                accuracy, passed, judged, ceiling = figures(named)
                second = float(np.mean(named.second_accuracy[named.test.is_judged]))
                found[name].append([accuracy, second, passed / judged, ceiling])
    rows = []
    for name, of_name in found.items():
        accuracy, second, passed, ceiling = np.mean(of_name, axis=0)
        row = {"names": name, "accuracy": accuracy, "of the judge of words": second, "passed": passed}
        rows.append({**row, "ceiling": ceiling})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with further tables and packages.csv.gz")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--json")
    options = parser.parse_args()
    hide()
    seeds = SEEDS[:1] if options.quick else SEEDS
    report = Report("Names")
    note = "Share of held-out rows that come to their own cluster, and of names that pass."
    report.table("Held-out tables", of_tables(options.data, HELD_OUT, seeds), note)
    report.table("Held-out tables, one by one, two statements", by_table(options.data, HELD_OUT, seeds))
    report.table("Tables that constants were chosen on", of_tables(options.data, CHOSEN_ON, seeds))
    report.table("A second question, held-out tables", of_namers(options.data, HELD_OUT, seeds))
    if options.data is not None:
        report.table("Sections of Debian packages", of_sections(options.data, seeds), "3, 6 and 10 sections.")
        report.table("Clusters of Debian packages", of_texts(options.data, seeds), "k-means of TF-IDF.")
    report.close(options.json)


if __name__ == "__main__":
    main()
