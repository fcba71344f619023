"""Trees of a table on disk that is read in batches: time and peak memory.

python -m tests.benchmarks.streams [--rows N] [--folder DIR] [--json FILE] [--only NAME ...]

The table has 50 float32 columns of normal points around 10 given centers. It is first written to a temporary file
of 4 GB for 20,000,000 rows. Each explainer runs in a process of its own, whose memory is measured; "read twice"
reads the file twice and sums its values. Memory is the peak of the process, including libraries and memory-mapped
parts of files; "own" leaves these parts out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.timing import Report, progress

ROWS = 20_000_000
COLUMNS = 50
K = 10
BATCH = 100_000
NAMES = ("IMM", "CART", "ExGreedy", "ExShallow")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", help="where the file is written; default: that of temporary files")
    parser.add_argument("--json")
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--case", nargs=2, help="one explainer on a file, in this process")
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(*options.case)))
        return
    report = Report("Tables on disk")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder, "table.npy")
        write(file, options.rows)
        rows = []
        for case in ("import", "read twice", *options.only):
            progress(case)
            # otherwise idle threads slow down the others
            environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
            command = [sys.executable, "-m", "tests.benchmarks.streams", "--case", case, str(file)]
            found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            rows.append(json.loads(found.stdout.splitlines()[-1]))
        size = file.stat().st_size / 1e9
    twice = next(row["s"] for row in rows if row["what"] == "read twice")
    rows = [{**row, "over reading twice": row["s"] / twice} for row in rows]
    heading = f"{options.rows:,} x {COLUMNS} float32, k = {K}"
    report.table(heading, rows, f"The file has {size:.1f} GB; seconds of wall clock and of all cores.")
    report.close(options.json)


def write(file: Path, n: int) -> None:
    """Write the table and its centers."""
    rng = np.random.default_rng(0)
    centers = 2 * rng.normal(size=(K, COLUMNS)).astype(np.float32)
    np.save(centers_of(file), centers)
    table = np.lib.format.open_memmap(file, "w+", np.float32, (n, COLUMNS))
    for first in range(0, n, BATCH):
        part = table[first : first + BATCH]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) + centers[rng.integers(K, size=len(part))]
    table.flush()


def centers_of(file: Path) -> Path:
    return file.with_name("centers.npy")


def measured(case: str, file: str) -> dict[str, Any]:
    """Measure the seconds and the memory of one process."""
    import neonxc.trees

    X = np.load(file, mmap_mode="r")
    centers = np.load(centers_of(Path(file)))
    most = [kib("RssAnon")]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            most.append(kib("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall = time.perf_counter()
    cpu = time.process_time()
    if case == "read twice":
        for _ in range(2):
            for first in range(0, len(X), BATCH):
                np.array(X[first : first + BATCH]).sum()
    elif case != "import":
        getattr(neonxc.trees, case)(K).fit(X if X.nbytes > 1 << 27 else lambda: iter([X]), centers=centers)
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu
    done.set()
    watcher.join()
    peak = kib("VmHWM") / (1 << 20)
    own = max(most) / (1 << 20)
    return {"what": case, "s": wall, "s of cores": cpu, "peak GiB": peak, "own GiB": own}


def kib(what: str) -> int:
    """Return the memory of this process in KiB from /proc; getrusage would include that of its parent."""
    return int(Path("/proc/self/status").read_text().split(f"{what}:")[1].split()[0])


if __name__ == "__main__":
    main()
