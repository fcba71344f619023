"""Time of reports and size of their pages, by rows, columns and clusters.

python -m tests.benchmarks.report [--json FILE]

The data are overlapping Gaussian clusters, in which the last columns may be cut into four categories, and the
clustering is k-means behind `prepare`. Every report is made in a process of its own, so that imports are counted;
the fit of k-means is not counted. CPU seconds are those of all threads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from tests.benchmarks.timing import Report, progress

# rows, numeric columns, columns of categories, clusters, fast
CASES = [
    (1_000, 10, 0, 5, 0),
    (10_000, 20, 0, 8, 0),
    (10_000, 20, 0, 50, 0),
    (100_000, 30, 0, 8, 0),
    (100_000, 30, 0, 8, 1),
    (30_000, 6, 8, 8, 0),
    (1_200, 8, 0, 60, 0),
    (20_000, 30, 0, 200, 0),
    (120, 2_000, 0, 3, 0),
    (200, 5_000, 0, 2, 0),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument(
        "--case", nargs=5, type=int, help="rows, numbers, categories, clusters, fast: one report here"
    )
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(*options.case)))
        return
    report = Report("Reports")
    rows = []
    for case in CASES:
        progress(f"{case}")
        command = [sys.executable, "-m", "tests.benchmarks.report", "--case", *map(str, case)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(found.stdout.splitlines()[-1]))
    report.table("neonxc.explain(model, X).html()", rows)
    report.close(options.json)


def measured(n: int, numbers: int, categories: int, k: int, fast: int) -> dict[str, Any]:
    """Measure the seconds of making and of writing a report, and its contents."""
    import pandas as pd
    from sklearn.cluster import KMeans
    from sklearn.datasets import make_blobs
    from sklearn.pipeline import make_pipeline

    import neonxc
    from neonxc.data.preparation import prepare

    X, _ = make_blobs(n, numbers + categories, centers=k, cluster_std=4, random_state=0)
    X = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    for name in X.columns[numbers:]:
        X[name] = pd.qcut(X[name], 4, labels=list("abcd")).astype(object)
    model = make_pipeline(prepare(X).pipeline, KMeans(k, n_init=3, random_state=0)).fit(X)
    start = time.perf_counter()
    cpu = time.process_time()
    report = neonxc.explain(model, X, fast=bool(fast))
    middle = time.perf_counter()
    page = report.html()
    return {
        "rows": n,
        "columns": numbers + categories,
        "categories": categories,
        "clusters": k,
        "fast": bool(fast),
        "explain s": middle - start,
        "page s": time.perf_counter() - middle,
        "CPU s": time.process_time() - cpu,
        "page MB": len(page.encode()) / 1e6,
        "points on the map": len(report.description.points.rows),
        "leaves": report.tree.tree_.n_leaves,
        "held-out fidelity": report.description.figures[0].value,
    }


if __name__ == "__main__":
    main()
