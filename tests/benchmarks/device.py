"""What a GPU does for the package, beside threads of the CPU: one command, about five minutes.

python -m tests.benchmarks.device [--quick] [--json FILE]

1. The tests with the mark `cuda` run.
2. Every piece of work runs on the card, then on `THREADS` threads of the CPU. The number of items (rows, images,
   points) grows by steps, n/100, n/10, n, for as long as the next call is expected to take at most `LIMIT` seconds
   (ten times as long as the first, then in the ratio of the last two); the figures are those of the last step:

       per second = items / seconds of a call, which ends when the device has nothing left to do
       peak MB    = what the call adds to the peak of the device's memory

   Heatmaps and the gradients from the same starting points take turns.
3. The tables are saved, and written to the documentation's page of benchmark figures.

With `--quick` all of it runs on n/2000 items without the page, to see whether it runs at all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor

from neonxc import NEON, NeuralizedClustering, neuralize, trees
from neonxc.evaluation import KDEImputer, pixel_flipping
from neonxc.lrp import Composite, Gamma
from neonxc.models import KernelKMeans, backbone
from tests.benchmarks import page, tasks
from tests.benchmarks.cost_model import Size
from tests.benchmarks.heatmaps import CLUSTERS, GAMMA, GRADIENT, OURS, gradients, peak_memory
from tests.benchmarks.timing import Report, Table, progress, race, seconds

THREADS = 8  # of the CPU that a card is compared with
LIMIT = 4.0  # seconds of a call; about 30 pieces of work on two devices take four minutes at most
TESTS = ("-m", "cuda and not slow", "-n", str(THREADS), "--dist", "load")
TESTS_LIMIT = 100  # seconds
COLUMNS = 50
K = 10
Calls = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Work:
    """What is timed: calls that take turns.

    Attributes
    ----------
    name : str
    n : int
        Number of items at full size.
    prepare : callable
        Number of items, device -> calls by their names.
    """

    name: str
    n: int
    prepare: Callable[[int, torch.device], Calls]

    def sizes(self, quick: bool) -> list[int]:
        """Return the numbers of items, of which the last one that is fast enough counts."""
        if quick:
            return [max(1, self.n // 2000)]
        return [max(1, self.n // 100), max(1, self.n // 10), self.n]


class Figures(NamedTuple):
    """What is measured of one call on one device."""

    items: int
    seconds: float
    megabytes: float | str  # "" where the system does not tell


# --- what is timed -------------------------------------------------------------------------------------------


@cache
def table(n: int) -> tuple[Tensor, Tensor]:
    """Return Gaussian clusters [n, COLUMNS] of float32 and their labels, on the CPU."""
    return tasks.table(Size(n, COLUMNS, K, whole=False))


def clusters(n: int, device: torch.device) -> tuple[Tensor, NeuralizedClustering]:
    """Return a table and the network of its clusters' means, on a device."""
    x, labels = table(n)
    centers = torch.stack([x[labels == cluster].mean(0) for cluster in range(K)])
    return x.to(device), neuralize(centers, x[:10_000]).to(device)


def attribution(n: int, device: torch.device) -> Calls:
    """Attribute rows to the columns."""
    x, net = clusters(n, device)
    return {"attribute": lambda: NEON(net).attribute(x)}


def flipping(n: int, device: torch.device) -> Calls:
    """Flip the columns of points in the order of their relevance."""
    x, net = clusters(max(n, 10_000), device)
    points = x[:n]
    relevance = NEON(net).attribute(points)
    imputer = KDEImputer(x[:2000])
    return {"pixel_flipping": lambda: pixel_flipping(net, points, relevance, imputer, repeats=2)}


def kernel_kmeans(n: int, device: torch.device) -> Calls:
    """Fit kernel k-means, and attribute rows by its network."""
    x = table(n)[0].to(device)
    model = KernelKMeans(K, random_state=0)
    neon = NEON(neuralize(KernelKMeans(K, random_state=0).fit(x), x))
    return {"fit": lambda: model.fit(x), "attribute": lambda: neon.attribute(x)}


def heatmaps(name: str, n: int, device: torch.device) -> Calls:
    """Compute the heatmaps of images for the clusters of the locations of a layer, and as many gradients."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 3, 224, 224, generator=generator)
    features = backbone(name, weights=None, normalize=True)
    with torch.no_grad():
        points = features.points(x[:1]).numpy()
    model = KMeans(CLUSTERS, n_init=1, random_state=0).fit(points)
    net = neuralize(model, x[:1], features=features).to(device)
    neon = NEON(net, Composite(Gamma(GAMMA)))
    images = x.to(device)
    return {GRADIENT: lambda: gradients(net, images), OURS: lambda: neon.heatmaps(images)}


EXPLAINERS: dict[str, Callable[[], Any]] = {
    "IMM": lambda: trees.IMM(K),
    "EMN": lambda: trees.EMN(K),
    "ExGreedy": lambda: trees.ExGreedy(K),
    "ExShallow": lambda: trees.ExShallow(K),
    "ExKMC": lambda: trees.ExKMC(K),
    "RandomThresholds": lambda: trees.RandomThresholds(K, random_state=0),
    "CART": lambda: trees.CART(K),
    "KDTree": lambda: trees.KDTree(K),
    "CUBT": lambda: trees.CUBT(K),
    "CLTree": lambda: trees.CLTree(K, random_state=0),
    "SpExClique": lambda: trees.SpExClique(K),
    "SpExKNN": lambda: trees.SpExKNN(K),
    "SpExGraph": lambda: trees.SpExGraph(K),
    "KernelIMM": lambda: trees.KernelIMM(K),
    "KernelExKMC": lambda: trees.KernelExKMC(K),
    "KernelExpand": lambda: trees.KernelExpand(K),
}
WITHOUT_REFERENCE = ("KDTree", "CUBT", "CLTree", "SpExKNN")


def tree(name: str, n: int, device: torch.device) -> Calls:
    """Fit a tree to the clusters of a table; a graph connects each row with the next one of its cluster."""
    x, labels = table(n)
    given: dict[str, Any] = {"labels": labels}
    if name in WITHOUT_REFERENCE:
        given = {}
    elif name == "SpExGraph":
        given = {"graph": paths(labels)}
    rows = x.to(device)
    return {name: lambda: EXPLAINERS[name]().fit(rows, **given)}


def paths(labels: Tensor) -> Tensor:
    """Return the edges [n, 2] of a graph in which the rows of every cluster are a path."""
    by_cluster = labels.argsort(stable=True)
    following = by_cluster.roll(-1)
    is_within = labels[by_cluster] == labels[following]
    return torch.stack([by_cluster, following], dim=1)[is_within]


WORK = {
    "Heatmaps of images of 224 x 224": [
        Work(name, 64, partial(heatmaps, name)) for name in ("vgg16", "resnet50", "efficientnet_b0", "vit_b_16")
    ],
    f"Rows of {COLUMNS} columns": [
        Work("relevance of k-means", 10_000_000, attribution),
        Work("kernel k-means", 100_000, kernel_kmeans),
        Work("pixel-flipping", 10_000, flipping),
    ],
    f"Trees of rows of {COLUMNS} columns": [Work(name, 1_000_000, partial(tree, name)) for name in EXPLAINERS],
}


# --- how it is timed -----------------------------------------------------------------------------------------


def wait(device: torch.device) -> None:
    """Wait until a device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(device: torch.device, run: Callable[[], object]) -> float | str:
    """Return the megabytes that a call adds to the peak of a device's memory, or the process's."""
    if device.type != "cuda":
        return peak_memory(run)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def measure(work: Work, device: torch.device, quick: bool) -> dict[str, Figures]:
    """Run the calls of the largest size that is fast enough."""
    sizes = work.sizes(quick)
    before = 0.0  # seconds of the longest call at the size before
    for size, following in zip(sizes, [*sizes[1:], None], strict=True):
        progress(f"{work.name}: {size} items on {device.type}")
        calls = {name: partial(_finished, call, device) for name, call in work.prepare(size, device).items()}
        if not before:
            for call in calls.values():
                call()  # compiles, loads and allocates what later calls find
        once = {name: _once(call, device, size) for name, call in calls.items()}
        longest = max(figures.seconds for figures in once.values())
        if following is None:
            break
        growth = longest / before if before else following / size
        if longest * growth > LIMIT:
            break
        before = longest
    if longest > 1 or quick:
        return once
    times = race(calls, rounds=3, least=0)
    return {name: once[name]._replace(seconds=statistics.median(times[name])) for name in calls}


def _finished(call: Callable[[], object], device: torch.device) -> None:
    call()
    wait(device)


def _once(call: Callable[[], object], device: torch.device, size: int) -> Figures:
    times: list[float] = []
    megabytes = peak(device, lambda: times.append(seconds(call)))
    return Figures(size, times[0], megabytes)


def compared(work: Work, device: torch.device, quick: bool) -> Table:
    """Measure a piece of work on a device and on the CPU: a row for each of its calls."""
    on_card = measure(work, device, quick)
    table.cache_clear()  # ten million rows are 2 GB
    on_cpu = measure(work, torch.device("cpu"), quick)
    rows = []
    for name, card in on_card.items():
        cpu = on_cpu[name]
        row: dict[str, Any] = {
            "what": work.name if len(on_card) == 1 else f"{work.name}: {name}",
            "items": card.items,
            "per second": card.items / card.seconds,
            "peak MB": card.megabytes,
            "items, CPU": cpu.items,
            "per second, CPU": cpu.items / cpu.seconds,
            "peak MB, CPU": cpu.megabytes,
        }
        row["times faster"] = row["per second"] / row["per second, CPU"]
        if GRADIENT in on_card:
            row["over the gradient"] = card.seconds / on_card[GRADIENT].seconds
            row["over the gradient, CPU"] = cpu.seconds / on_cpu[GRADIENT].seconds
        rows.append(row)
    return rows


def cuda_tests(arguments: tuple[str, ...] = TESTS) -> Table:
    """Run the tests that need a card in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *arguments]
        start = time.perf_counter()
        try:
            subprocess.run(command, cwd=page.DOCS.parent, stdout=sys.stderr, timeout=TESTS_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return [{"tests": f"stopped after {TESTS_LIMIT} s", "failed": "", "skipped": "", "seconds": ""}]
        elapsed = time.perf_counter() - start
        suite = ElementTree.parse(results).getroot().find("testsuite")
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    skipped = int(suite.get("skipped"))
    return [{"tests": int(suite.get("tests")), "failed": failed, "skipped": skipped, "seconds": elapsed}]


def benchmark(device: torch.device, tests: tuple[str, ...], quick: bool) -> Report:
    """Run the tests and all work, on a device and on the CPU."""
    threads = min(THREADS, os.cpu_count() or 1)
    report = Report("On a GPU", device)
    report.table("Tests of CUDA", cuda_tests(tests))
    note = f"CPU: {threads} threads. A device that takes more than {LIMIT:.0f} s for a call gets fewer items."
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        for heading, works in WORK.items():
            report.table(heading, [row for work in works for row in compared(work, device, quick)], note)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few items each; the page is left as it is")
    parser.add_argument("--json", metavar="FILE", default=page.DOCS / "benchmarks" / "device.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA device here")
    report = benchmark(torch.device("cuda"), TESTS, options.quick)
    report.close(None if options.quick else options.json)
    if not options.quick:
        page.write()


if __name__ == "__main__":
    main()
