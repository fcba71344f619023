"""Processor time of what people wait for, in this checkout and in an older one.

python -m tests.benchmarks.waiting OLDER [--tasks "a;b"] [--rounds 3] [--json FILE]

Every task has a process of its own in each checkout, and the two take turns. The first call of a task of less than
20 seconds is not counted, nor are imports, except for commands, which are processes themselves. Seconds are those
of one thread, and of all processes that a task starts. The peak of memory is that of the whole process; that of a
process which only imports the libraries that the task in this checkout has loaded is beside it. A task that the
older checkout cannot run has "-" there, and so has a command, whose process tells nothing of its libraries.

Trees are in `tests.benchmarks.versions`, and times of relevance over those of a gradient in
`tests.benchmarks.attribution` and `tests.benchmarks.heatmaps`.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

Run = Callable[[], Any]
CALLS_OF_ROW = 100  # of a single row, which takes less than a clock of processor time can tell
IMPORT = """
import sys
from contextlib import suppress
from importlib import import_module
from resource import RUSAGE_SELF, getrusage
for name in sys.stdin.read().split():
    with suppress(Exception):  # some modules are made by others, and can't be imported
        import_module(name)
print(getrusage(RUSAGE_SELF).ru_maxrss / 1000)
"""
"""What a process does to measure the libraries: it imports the modules that standard input names."""


class Task(NamedTuple):
    """What people wait for."""

    name: str
    prepare: Callable[[], Run]  # returns what is measured
    goal: float  # seconds of processor time
    peak_goal: float | None = None  # MB of memory
    is_command: bool = False


# --- reports ----------------------------------------------------------------------------------------------------


def report_of_hdbscan() -> Run:
    from sklearn.cluster import HDBSCAN
    from sklearn.datasets import make_blobs

    import neonxc

    X, _ = make_blobs(5000, 6, centers=6, cluster_std=1.5, random_state=0)
    model = HDBSCAN(min_cluster_size=50, copy=True).fit(X)
    return lambda: neonxc.explain(model, X, fast=True).html()


def report_of_mixed_rows() -> Run:
    import neonxc

    X = mixed(4000)
    return lambda: neonxc.explain(X, clusters=5).html()


def report_of_texts(fast: bool) -> Run:
    from sklearn.cluster import KMeans
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    import neonxc

    texts = written(2000)
    model = make_pipeline(TfidfVectorizer(max_features=5000), KMeans(8, n_init=3, random_state=0)).fit(texts)
    return lambda: neonxc.explain(model, texts, fast=fast).html()


def report_of_cells(fast: bool) -> Run:
    import pandas as pd
    from sklearn.cluster import KMeans

    import neonxc

    X = pd.DataFrame(expressed(1500, 2000)).add_prefix("gene")
    model = KMeans(8, n_init=1, random_state=0).fit(X)
    return lambda: neonxc.explain(model, X, fast=fast).html()


def report_of_photos() -> Run:
    import torch
    from sklearn.cluster import KMeans

    import neonxc
    from neonxc import models

    features = models.backbone("efficientnet_lite0", normalize=True)
    generator = torch.Generator().manual_seed(0)
    colours = torch.rand(40, 3, 7, 7, generator=generator)
    photos = features.preprocess(torch.nn.functional.interpolate(colours, (224, 224), mode="bicubic").clamp(0, 1))
    model = KMeans(6, n_init=1, random_state=0).fit(features.points(photos).numpy())
    return lambda: neonxc.explain(model, photos, features, fast=True).html()


def command_of_wine() -> Run:
    from sklearn.datasets import load_wine

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    load_wine(as_frame=True).data.to_csv(folder / "wine.csv", index=False)
    options = ["--clusters", "3", "--fast", "--out", str(folder / "wine.html")]
    command = [sys.executable, "-m", "neonxc", "explain", str(folder / "wine.csv"), *options]
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# --- calls ---------------------------------------------------------------------------------------------------


def of_one_row(
    method: Literal["attribute", "predict", "counterfactual"], kind: Literal["frame", "array", "tensor"]
) -> Run:
    """Prepare calls for one row of wine."""
    import torch
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_wine

    import neonxc

    X = load_wine(as_frame=True).data
    row = X.iloc[:1]
    if kind != "frame":
        X = X.to_numpy()
        row = X[:1]
    if kind == "tensor":
        row = torch.tensor(row)
    net = neonxc.neuralize(KMeans(3, n_init=1, random_state=0).fit(X), X)
    calls: dict[str, Callable[[Any], Any]] = {
        "attribute": neonxc.NEON(net).attribute,
        "predict": net.predict,
        "counterfactual": lambda row: neonxc.counterfactual(net, row),
    }
    call = calls[method]

    def run() -> None:
        for _ in range(CALLS_OF_ROW):
            call(row)

    return run


def tensorboard_sheet() -> Run:
    """Prepare the sheet of 64 images in 10 clusters that training writes to TensorBoard."""
    import torch
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from sklearn.cluster import KMeans

    import neonxc
    from neonxc import plot
    from neonxc.models import FeatureExtractor, vgg_small

    class Writer:
        def add_figure(self, _tag: str, figure: Any, _step: int) -> None:
            FigureCanvasAgg(figure).draw()

        def add_histogram(self, *_: Any) -> None:
            """Do nothing."""

        add_scalar = add_histogram

    torch.manual_seed(0)
    features = FeatureExtractor(vgg_small(width=8, in_channels=3).eval(), "features.block2", pool="avg")
    images = torch.rand(64, 3, 8, 8)
    images = torch.nn.functional.interpolate(images, (64, 64), mode="bicubic").clamp(0, 1)
    model = KMeans(10, n_init=1, random_state=0).fit(features.points(images).numpy())
    net = neonxc.neuralize(model, images, features=features)
    return lambda: plot.to_tensorboard(Writer(), 0, net, images)


def surrogate_of_labels() -> Run:
    """Prepare the surrogate of the labels of 5,000 rows."""
    from sklearn.datasets import make_blobs

    import neonxc

    X, labels = make_blobs(5000, 20, centers=8, cluster_std=4.0, random_state=0)
    return lambda: neonxc.neuralize(labels=labels, X=X)


def neuralized_hdbscan() -> Run:
    """Prepare the network of an HDBSCAN of 20,000 rows."""
    from sklearn.cluster import HDBSCAN
    from sklearn.datasets import make_blobs

    import neonxc

    X, _ = make_blobs(20_000, 20, centers=8, cluster_std=2.0, random_state=0)
    model = HDBSCAN(min_cluster_size=30, copy=True).fit(X)
    return lambda: neonxc.neuralize(model, X)


# --- data -------------------------------------------------------------------------------------------------------


def mixed(n: int) -> pd.DataFrame:
    """Rows of five groups with eight numbers and four categories, of which three in ten are drawn anew."""
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(0)
    group = generator.integers(0, 5, n)
    X = pd.DataFrame({f"x{j}": generator.normal(size=n) + group * generator.normal(0, 1.5) for j in range(8)})
    for j in range(4):
        is_noise = generator.random(n) < 0.3
        code = np.where(is_noise, generator.integers(0, 5, n), group)
        X[f"c{j}"] = np.array(["a", "b", "c", "d", "e"])[code]
    return X


def written(n: int) -> list[str]:
    """Texts of 20 to 80 words, a third of which are from the 300 words of one of eight topics."""
    import numpy as np

    generator = np.random.default_rng(0)
    frequency = 1 / np.arange(1, 6001)
    general = np.array([f"w{i:x}" for i in range(6000)])
    texts = []
    for _ in range(n):
        length = generator.integers(20, 80)
        words = generator.choice(general, length, p=frequency / frequency.sum())
        topic = generator.integers(8)
        special = generator.random(length) < 1 / 3
        words[special] = [f"t{topic}{i:x}" for i in generator.integers(300, size=special.sum())]
        texts.append(" ".join(words))
    return texts


def expressed(n: int, d: int) -> Any:
    """Logarithms of counts [n, d] of genes in cells of eight types, each of which has 40 marker genes."""
    import numpy as np

    generator = np.random.default_rng(0)
    types = generator.integers(8, size=n)
    expected = np.tile(generator.lognormal(-1, 1.2, d), (n, 1))
    for kind in range(8):
        markers = generator.choice(d, 40, replace=False)
        expected[np.ix_(types == kind, markers)] *= 8
    return np.log1p(generator.negative_binomial(2, 2 / (2 + expected)))


TASKS = [
    Task("report of HDBSCAN, 5,000 x 6, fast", report_of_hdbscan, 5),
    Task("report of 4,000 rows of numbers and categories", report_of_mixed_rows, 1.85),
    Task("report of 2,000 texts", lambda: report_of_texts(False), 8),
    Task("report of 2,000 texts, fast", lambda: report_of_texts(True), 4),
    Task("report of 1,500 cells x 2,000 genes", lambda: report_of_cells(False), 7, 600),
    Task("report of 1,500 cells x 2,000 genes, fast", lambda: report_of_cells(True), 4, 600),
    Task("report of 40 photos, EfficientNet-Lite0, fast", report_of_photos, 8),
    Task("neonxc explain wine.csv -k 3 --fast", command_of_wine, 4, is_command=True),
    Task("TensorBoard's sheet, 64 images, 10 clusters", tensorboard_sheet, 0.3),
    Task("counterfactual of one row of an array, 100 times", partial(of_one_row, "counterfactual", "array"), 0.3),
    Task("attribute one row of a frame, 100 times", partial(of_one_row, "attribute", "frame"), 0.1),
    Task("attribute one row of an array, 100 times", partial(of_one_row, "attribute", "array"), 0.05),
    Task("attribute one row of a tensor, 100 times", partial(of_one_row, "attribute", "tensor"), 0.04),
    Task("predict one row of an array, 100 times", partial(of_one_row, "predict", "array"), 0.03),
    Task("surrogate of labels, 5,000 x 20", surrogate_of_labels, 4.5),
    Task("neuralize HDBSCAN, 20,000 x 20", neuralized_hdbscan, 2.5),
]


def tasks() -> dict[str, Callable[[], Run]]:
    """Functions that prepare a task and return what is measured, by the name of the task."""
    return {task.name: task.prepare for task in TASKS}


def main() -> None:
    from tests.benchmarks.timing import Report, progress

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path)
    parser.add_argument("--tasks", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = [name for name in options.tasks.split(";") if name]
    report = Report("Processor time of what people wait for")
    rows = []
    for task in TASKS:
        if task.name in chosen or not chosen:
            progress(task.name)
            rows.append(measured(task, options.older.resolve(), options.rounds))
    report.table("Seconds of processor time, and memory", rows)
    report.close(options.json)


def measured(task: Task, older: Path, rounds: int) -> dict[str, Any]:
    """Measure a task in both checkouts: medians of processor time over rounds, and the largest peak of memory."""
    from tests.benchmarks.versions import ROOT, Cost, Refused, worker

    costs: dict[str, list[Cost]] = {"older": [], "this": []}
    with worker(older, __file__) as (_, in_older), worker(ROOT, __file__) as (_, in_this):
        for _ in range(rounds):
            for side, ask in (("older", in_older), ("this", in_this)):
                try:
                    costs[side].append(ask(task.name))
                except Refused as reason:
                    if side == "this":
                        raise
                    print(f"the older checkout cannot run {task.name}: {reason}", file=sys.stderr)
    row: dict[str, Any] = {"task": task.name}
    for side, of_side in costs.items():
        row[f"{side} s"] = "-"
        row[f"{side} MB"] = "-"
        if of_side:
            row[f"{side} s"] = statistics.median(cost.cpu_seconds for cost in of_side)
            row[f"{side} MB"] = max(cost.peak_mb for cost in of_side)
    row["libraries MB"] = "-" if task.is_command else libraries_mb(costs["this"][-1].libraries)
    peak_goal = "" if task.peak_goal is None else task.peak_goal
    return {**row, "goal s": task.goal, "goal MB": peak_goal}


def libraries_mb(modules: list[str]) -> float:
    """Measure the peak of memory of a process that does nothing but import modules."""
    command = [sys.executable, "-W", "ignore", "-c", IMPORT]
    done = subprocess.run(command, input="\n".join(modules), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
