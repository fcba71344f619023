"""Counterfactuals of this checkout beside those of another one, for example a git worktree of the last release.

python -m tests.benchmarks.counterfactuals OTHER [--data DIR] [--rows 24] [--choose] [--only NAME] [--json FILE]

Seven families of clusterings of six tables, and for each of them rows that shall change to the nearest other
cluster. Both checkouts get the same fitted clusterings, rows and targets, in processes of their own which take
turns; this one also with margins. `--only` takes a family, or a family and a table. Of the answers are measured

    found       share of the rows with an answer
    distance    in standard deviations, the mean over the rows that all sides found
    columns     number of columns that change
    outliers    share of the answers whose local outlier factor among the rows of the target exceeds 1.5
    row added   share of the answers that are in the target if the clusterer is fitted again with the answer added
    bootstrap   the same, fitted to a bootstrap sample of the table and the answer
    seconds     processor time of the call for all rows
    three       share of the rows with three answers that differ, for `k=3`

After a fit, the target is the cluster with most of its rows. `--choose` takes other rows: constants were chosen on
those, and figures are of the rest.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("k-means", "mixture", "HDBSCAN", "DBSCAN", "kernel k-means", "Ward surrogate", "mixed table")
LINEAR = ("k-means", "mixed table")
SIDES: dict[str, dict[str, Any]] = {
    "other checkout": {},
    "margin 0": {"margin": 0.0},
    "default": {},
    "margin 0.5": {"margin": 0.5},
}
OUTLIER = 1.5


# --- what is clustered ---------------------------------------------------------------------------------------


def tables(folder: str | None) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield tables and numbers of clusters."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs

    yield "iris", load_iris().data, 3
    yield "wine", load_wine().data, 3
    yield "cancer", load_breast_cancer().data, 2
    blobs, _ = make_blobs(500, 8, centers=6, cluster_std=1.5, random_state=0)
    noise = np.random.default_rng(0).uniform(blobs.min(axis=0), blobs.max(axis=0), (100, 8))
    yield "blobs", np.concatenate([blobs, noise]), 6
    if folder is not None:
        segment = pd.read_csv(Path(folder) / "segment.csv.gz").iloc[:, :-1].to_numpy(float)
        order = np.random.default_rng(0).permutation(len(segment))[:800]
        yield "segment", segment[:, segment.std(axis=0) > 0][order], 7
    yield "digits", load_digits().data[:900], 10


def as_mixed(X: np.ndarray) -> pd.DataFrame:
    """Replace every fourth column by three categories."""
    frame = pd.DataFrame(X).add_prefix("x")
    for name in frame.columns[::4]:
        values = frame[name].rank(method="first")
        frame[name] = pd.cut(values, 3, labels=["low", "middle", "high"]).astype(object)
    return frame


def clusterer(family: str, X: Any, K: int) -> Any:
    """Return the clusterer of a family, not fitted."""
    from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, KMeans
    from sklearn.compose import make_column_transformer
    from sklearn.mixture import GaussianMixture
    from sklearn.neighbors import NearestNeighbors
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from neonxc.models import KernelKMeans

    kmeans = KMeans(K, n_init=3, random_state=0)
    match family:
        case "k-means":
            return make_pipeline(StandardScaler(), kmeans)
        case "mixture":
            return make_pipeline(StandardScaler(), GaussianMixture(K, reg_covar=1e-2, random_state=0))
        case "HDBSCAN":
            return HDBSCAN(min_cluster_size=8, min_samples=4, copy=True)
        case "DBSCAN":  # the greatest radius with several clusters and some noise
            radii = NearestNeighbors(n_neighbors=6).fit(X).kneighbors(X)[0][:, 5]
            models = [DBSCAN(np.quantile(radii, q), min_samples=5) for q in np.linspace(0.3, 0.95, 14)]
            labels = [model.fit_predict(X) for model in models]
            good = [i for i, one in enumerate(labels) if one.max() > 0 and 0.03 < (one < 0).mean() < 0.4]
            return models[good[-1]] if good else None
        case "kernel k-means":
            return KernelKMeans(K, random_state=0)
        case "Ward surrogate":
            return AgglomerativeClustering(K)
    numbers = X.select_dtypes("number").columns
    encoded = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), X.columns.drop(numbers)))
    return make_pipeline(encoded, kmeans)


def network(family: str, model: Any, X: Any) -> Any:
    import neonxc

    if family == "Ward surrogate":
        return neonxc.neuralize(labels=model.labels_, X=X)
    return neonxc.neuralize(model, X)


def labels_of(model: Any, X: Any) -> np.ndarray:
    """Return the labels of the rows that a clusterer was fitted to."""
    return np.asarray(model.labels_ if hasattr(model, "labels_") else model.predict(X))


def targets_of(family: str, net: Any, X: Any, rows: np.ndarray) -> np.ndarray:
    """Return other clusters of rows: the runner-up, or for density clusterings that of the nearest row."""
    import torch

    labels = np.asarray(net.predict(X))
    inner = [label for label in net.classes_ if label != -1]
    targets = []
    logits = net(net.batch(X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]).tensor).detach()
    for row, values in zip(rows, torch.as_tensor(logits).numpy(), strict=True):
        others = [label for label in inner if label != labels[row]]
        if "DBSCAN" in family:
            gaps = [np.linalg.norm(X[labels == label] - X[row], axis=1).min() for label in others]
            targets.append(others[int(np.argmin(gaps))])
        else:
            positions = [int(net.positions(label)) for label in others]
            targets.append(others[int(values[positions].argmax())])
    return np.array(targets)


# --- the two checkouts ---------------------------------------------------------------------------------------


def work() -> None:
    """Search the counterfactuals of tasks whose files come on standard input: the process of one checkout."""
    warnings.simplefilter("ignore")
    import neonxc

    for line in sys.stdin:
        path = Path(line.strip())
        task = pickle.loads(path.read_bytes())
        net = network(task["family"], task["model"], task["X"])
        rows = task["X"].iloc[task["rows"]] if isinstance(task["X"], pd.DataFrame) else task["X"][task["rows"]]
        neonxc.counterfactual(net, rows[:1], target=task["target"][:1], **task["options"])  # warms up
        start = time.process_time()
        answers = neonxc.counterfactual(net, rows, target=task["target"], **task["options"])
        seconds = time.process_time() - start
        path.write_bytes(pickle.dumps({"points": answers.points, "found": answers.found, "seconds": seconds}))
        print(flush=True)


@contextmanager
def worker(checkout: Path, folder: Path) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """The process of a checkout: a function that returns the answers to a task."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout}", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-W", "ignore", __file__, "--worker"]
    process = subprocess.Popen(
        command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    path = folder / f"{checkout.name}.pickle"

    def ask(task: dict[str, Any]) -> dict[str, Any]:
        path.write_bytes(pickle.dumps(task))
        process.stdin.write(f"{path}\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        process.stdout.readline()  # type: ignore[union-attr]
        answers: dict[str, Any] = pickle.loads(path.read_bytes())
        return answers

    try:
        yield ask
    finally:
        process.stdin.close()
        process.wait()


# --- measures ------------------------------------------------------------------------------------------------


def stays(model: Any, X: Any, labels: np.ndarray, target: Any, answer: Any, sample: np.ndarray) -> bool:
    """Whether an answer is in the cluster of the target's rows after a fit to a sample and to the answer."""
    if isinstance(X, pd.DataFrame):
        data = pd.concat([X.iloc[sample], answer], ignore_index=True)
    else:
        data = np.concatenate([X[sample], answer])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = labels_of(clone(model).fit(data), data)
    values, counts = np.unique(found[:-1][labels[sample] == target], return_counts=True)
    return bool(len(values)) and bool(found[-1] == values[counts.argmax()])


def measured(
    task: dict[str, Any], answers: dict[str, Any], labels: np.ndarray, common: np.ndarray
) -> dict[str, Any]:
    """Return the figures of a side; `common` are the rows that all sides found."""
    from sklearn.neighbors import LocalOutlierFactor

    X = task["X"]
    rows = task["rows"]
    points = answers["points"]
    found = np.flatnonzero(answers["found"])
    numbers = X.select_dtypes("number").columns if isinstance(X, pd.DataFrame) else None
    values = X if numbers is None else X[numbers].to_numpy()
    after = np.asarray(points if numbers is None else points[numbers])
    spread = np.where(values.std(axis=0) > 0, values.std(axis=0), 1)
    change = (after - values[rows]) / spread

    n = len(values)
    outliers = []
    added = []
    bootstrap = []
    for i in found:
        target = task["target"][i]
        inside = values[labels == target] / spread
        factor = LocalOutlierFactor(min(20, max(2, len(inside) // 2)), novelty=True).fit(inside)
        outliers.append(-factor.score_samples(after[[i]] / spread)[0] > OUTLIER)
        answer = points.iloc[[i]] if numbers is not None else points[[i]]
        added.append(stays(task["model"], X, labels, target, answer, np.arange(n)))
        sample = np.random.default_rng(i).integers(n, size=n)
        bootstrap.append(stays(task["model"], X, labels, target, answer, sample))
    return {
        "found": len(found) / len(rows),
        "distance": float(np.linalg.norm(change[common], axis=1).mean()),
        "columns": float((np.abs(change[found]) > 1e-6).sum(axis=1).mean()),
        "outliers": float(np.mean(outliers)),
        "row added": float(np.mean(added)),
        "bootstrap": float(np.mean(bootstrap)),
        "seconds": answers["seconds"],
    }


def figures(
    family: str, X: Any, K: int, n: int, choose: bool, ask: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the figures of all sides for one table."""
    model = clusterer(family, X, K)
    if model is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
        net = network(family, model, X)
    labels = np.asarray(net.predict(X))
    if len([label for label in net.classes_ if label != -1]) < 2:
        return []
    order = np.random.default_rng(1).permutation(len(X))
    rows = order[1 : 2 * n : 2] if choose else order[: 2 * n : 2]
    task = {"family": family, "model": model, "X": X, "rows": rows}
    task["target"] = targets_of(family, net, X, rows)
    answers = {}
    for side, options in SIDES.items():
        checkout = "other" if side == "other checkout" else "this"
        answers[side] = ask[checkout]({**task, "options": options})
    common = np.logical_and.reduce([one["found"] for one in answers.values()])
    three = ask["this"]({**task, "options": {"k": 3}})["found"].reshape(-1, 3).all(axis=1).mean()
    return [
        {"side": side, **measured(task, one, labels, common), "three": float(three) if side == "default" else ""}
        for side, one in answers.items()
    ]


def means(report: dict[str, Any]) -> str:
    """Return the table of the guide: means over the tables of every family, of three of the sides."""
    sides = {"other checkout": "before", "default": "default", "margin 0.5": "margin 0.5"}
    measures = ("distance", "row added", "bootstrap", "seconds")
    heads = [f"{measure}: {name}" for measure in measures for name in sides.values()]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for family, table in report["tables"].items():
        cells = []
        for measure in measures:
            for side in sides:
                value = np.mean([row[measure] for row in table["rows"] if row["side"] == side])
                cells.append(f"{value:.0%}" if measure in ("row added", "bootstrap") else f"{value:.2f}")
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from sklearn.preprocessing import scale

    from tests.benchmarks.timing import Report, progress

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    report = Report("Counterfactuals")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        checkouts = {"other": options.other.resolve(), "this": ROOT}
        ask = {side: stack.enter_context(worker(path, folder)) for side, path in checkouts.items()}
        for family in FAMILIES:
            rows = []
            for name, table, K in tables(options.data):
                if not f"{family} {name}".startswith(options.only):
                    continue
                X = table if family in ("k-means", "mixture") else scale(table)
                X = as_mixed(table) if family == "mixed table" else X
                sides = figures(family, X, K, options.rows, options.choose, ask)
                rows += [{"table": name, **side} for side in sides]
                progress(f"{family}, {name}")
            if rows:
                report.table(family, rows)
    report.close(options.json)


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--worker"] else main()
