"""Trees on sparse matrices: time and memory on a matrix that is too large to be dense, and races on a smaller one.

python -m tests.benchmarks.sparse [--rounds N] [--json FILE]

The large matrix has 100,000 x 20,000 elements and about two million nonzero float32 entries; half of a point's
entries are in columns that its cluster prefers. Every explainer runs in a process of its own, whose peak memory is
measured; "import" is a process that only makes the matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.tree import DecisionTreeClassifier

from neonxc.trees import CART, EMN, IMM, ExGreedy, ExKMC, ExShallow, SpExClique
from tests.benchmarks.timing import Report, race, results

K = 10
LARGE = (100_000, 20_000, 20)
SMALL = (10_000, 2_000, 20)
EXPLAINERS = {model.__name__: model for model in (IMM, EMN, CART, SpExClique, ExGreedy, ExShallow, ExKMC)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    parser.add_argument("--case", help="one explainer on the large matrix, in this process")
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(options.case)))
        return
    report = Report("Sparse matrices")
    n, d, per_row = LARGE
    rows = []
    for case in ("import", *EXPLAINERS, "IMM, given centers"):
        command = [sys.executable, "-m", "tests.benchmarks.sparse", "--case", case]
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        rows.append(json.loads(found.stdout.splitlines()[-1]))
    dense = f"{n * d * 4 / 1e9:.1f} GB in float32"
    report.table(
        f"{n:,} x {d:,}, {per_row} entries per row, k = {K}", rows, f"Made dense, the matrix has {dense}."
    )
    n, d, per_row = SMALL
    X, labels = matrix(*SMALL)
    dense_X = X.toarray()
    classifier = DecisionTreeClassifier(max_leaf_nodes=K, random_state=0)
    times = race(
        {
            "CART, sparse": lambda: CART(K).fit(X, labels=labels),
            "CART, dense": lambda: CART(K).fit(dense_X, labels=labels),
            "IMM, sparse": lambda: IMM(K).fit(X, labels=labels),
            "IMM, dense": lambda: IMM(K).fit(dense_X, labels=labels),
            "scikit-learn's DecisionTreeClassifier, sparse": lambda: classifier.fit(X, labels),
        },
        options.rounds,
    )
    report.table(f"{n:,} x {d:,}, {per_row} entries per row, k = {K}", results(times, "CART, sparse"))
    report.close(options.json)


def matrix(n: int, d: int, per_row: int) -> tuple[Any, np.ndarray]:
    """Make a random matrix and the clusters of its points."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, K, n)
    column = rng.integers(0, d, (n, per_row))
    own = rng.random((n, per_row)) < 0.5
    column = np.where(own, column % (d // K) + (d // K) * labels[:, None], column)
    values = rng.random(n * per_row, dtype=np.float32) + 0.5
    entries = values, (np.arange(n).repeat(per_row), column.ravel())
    return sp.coo_matrix(entries, shape=(n, d)).tocsr(), labels


def measured(case: str) -> dict[str, Any]:
    """Measure the seconds of fit and predict, and the peak memory of this process."""
    X, labels = matrix(*LARGE)
    row: dict[str, Any] = {"explainer": case, "fit s": 0.0, "CPU s": 0.0, "predict s": 0.0}
    if case != "import":
        name, _, centers = case.partition(", given ")
        given = {"labels": labels}
        if centers:
            given = {"centers": np.stack([np.asarray(X[labels == c].mean(0)).ravel() for c in range(K)])}
        start = time.perf_counter()
        cpu = time.process_time()
        model = EXPLAINERS[name](K).fit(X, **given)
        row["fit s"] = time.perf_counter() - start
        row["CPU s"] = time.process_time() - cpu
        start = time.perf_counter()
        model.predict(X)
        row["predict s"] = time.perf_counter() - start
    row["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row


if __name__ == "__main__":
    main()
