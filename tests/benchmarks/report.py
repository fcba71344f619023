"""Time of reports and size of their pages, by rows, columns and clusters.

python -m tests.benchmarks.report [--json FILE]

The data are overlapping Gaussian clusters, and the clustering is k-means on scaled columns. Every report is made
in a process of its own, so that imports are counted; the fit of k-means is not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from tests.benchmarks.timing import Report, progress

SIZES = [(1_000, 10, 5), (10_000, 20, 8), (10_000, 20, 50), (100_000, 30, 8)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--case", nargs=3, type=int, help="rows, columns, clusters: one report in this process")
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(*options.case)))
        return
    report = Report("Reports")
    rows = []
    for size in SIZES:
        progress(f"{size}")
        command = [sys.executable, "-m", "tests.benchmarks.report", "--case", *map(str, size)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(found.stdout.splitlines()[-1]))
    report.table("neonxc.explain(model, X).html()", rows)
    report.close(options.json)


def measured(n: int, d: int, k: int) -> dict[str, Any]:
    """Measure the seconds of making and of writing a report, and its contents."""
    import pandas as pd
    from sklearn.cluster import KMeans
    from sklearn.datasets import make_blobs
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import neonxc

    X, _ = make_blobs(n, d, centers=k, cluster_std=4, random_state=0)
    X = pd.DataFrame(X, columns=[f"column {i}" for i in range(d)])
    model = make_pipeline(StandardScaler(), KMeans(k, n_init=3, random_state=0)).fit(X)
    start, cpu = time.perf_counter(), time.process_time()
    report = neonxc.explain(model, X)
    middle = time.perf_counter()
    page = report.html()
    return {
        "rows": n,
        "columns": d,
        "clusters": k,
        "explain s": middle - start,
        "page s": time.perf_counter() - middle,
        "CPU s": time.process_time() - cpu,
        "page MB": len(page.encode()) / 1e6,
        "points on the map": len(report.contents.points.rows),
        "leaves": report.tree.tree_.n_leaves,
        "held-out fidelity": report.contents.figures[0].value,
    }


if __name__ == "__main__":
    main()
