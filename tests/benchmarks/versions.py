"""Times of this checkout over those of another one, for example a git worktree of the last release.

python -m tests.benchmarks.versions OTHER [--tasks "a;b"] [--rounds 9] [--json FILE]

Each checkout has a process of its own, which takes turns with the other: what else the machine does slows down
both sides of a round alike. A ratio below 1 means that this checkout is faster.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from runpy import run_path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LEAST = 0.05  # seconds; shorter tasks are repeated
LONG = 20  # of processor time; of longer tasks the first call counts, as imports are a small part of it
GARMENTS = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
STARTS = {"import neonxc": ["-c", "import neonxc"], "neonxc --help": ["-m", "neonxc", "--help"]}


def tasks() -> dict[str, Callable[[], Callable[[], Any]]]:
    """Functions that prepare a task and return what is timed; they use nothing but public names."""
    import numpy as np
    import torch
    from scipy.sparse import coo_matrix
    from sklearn.cluster import DBSCAN, KMeans
    from sklearn.datasets import load_digits, make_blobs
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import neonxc
    from neonxc import models, trees
    from neonxc.evaluation import KDEImputer, pixel_flipping

    def points(n: int, d: int, k: int) -> Any:
        return make_blobs(n, d, centers=k, cluster_std=4.0, random_state=0)[0]

    def bytes_() -> Any:
        """Columns of bytes that overlap much, so that many cuts are promising."""
        generator = np.random.default_rng(0)
        means = generator.integers(0, 256, (12, 320))[generator.integers(0, 12, 4000)]
        return np.clip(means + generator.normal(0, 60, means.shape), 0, 255).astype(np.uint8)

    def letters() -> Any:
        return np.clip(points(20_000, 16, 26).round() % 16, 0, 15)

    def garments() -> Any:
        """10,000 images of Fashion-MNIST (Debian's package dataset-fashion-mnist)."""
        with gzip.open(GARMENTS) as images:
            return np.frombuffer(images.read(16 + 10_000 * 784), np.uint8, offset=16).reshape(-1, 784).copy()

    def sparse(name: str) -> Callable[[], Any]:
        """Half of a point's 20 entries are in columns that its cluster prefers."""
        rng = np.random.default_rng(0)
        n = 100_000
        d = 20_000
        labels = rng.integers(0, 10, n)
        column = rng.integers(0, d, (n, 20))
        column[:, :10] = column[:, :10] % (d // 10) + d // 10 * labels[:, None]
        entries = rng.random(20 * n, dtype=np.float32) + 0.5, (np.arange(n).repeat(20), column.ravel())
        X = coo_matrix(entries, shape=(n, d)).tocsr()
        return lambda: getattr(trees, name)(10).fit(X, labels=labels)

    def attribution(n: int, d: int, k: int) -> Callable[[], Any]:
        X = points(n, d, k)
        model = make_pipeline(StandardScaler(), KMeans(k, n_init=1, random_state=0)).fit(X)
        neon = neonxc.NEON(neonxc.neuralize(model, X))
        return lambda: neon.attribute(X)

    def neuralized(n: int, d: int, k: int) -> Callable[[], Any]:
        X = points(n, d, k)
        model = make_pipeline(StandardScaler(), KMeans(k, n_init=1, random_state=0)).fit(X)
        return lambda: neonxc.neuralize(model, X)

    def neuralized_alone(n: int, d: int) -> Callable[[], Any]:
        X = points(n, d, 8)
        model = KMeans(8, n_init=1, random_state=0).fit(X)
        return lambda: neonxc.neuralize(model, X)

    def neuralized_density() -> Callable[[], Any]:
        X = points(3000, 5, 8)
        model = DBSCAN(3.0).fit(X)
        return lambda: neonxc.neuralize(model, X)

    def neuralized_features() -> Callable[[], Any]:
        torch.manual_seed(0)
        images = torch.rand(96, 3, 64, 64)
        features = models.backbone("resnet18", block=4, weights=None)
        model = KMeans(4, n_init=1, random_state=0).fit(features.points(images).numpy())
        return lambda: neonxc.neuralize(model, images, features)

    def fit(name: str, X: Any, k: int) -> Callable[[], Any]:
        labels = KMeans(k, n_init=1, random_state=0).fit(X).labels_
        centers = np.stack([X[labels == c].mean(0) for c in range(k)])
        explainer = getattr(trees, name)(k, random_state=0)
        given = {"labels": labels} if name in ("CART", "SpExClique") else {"centers": centers}
        return lambda: explainer.fit(X, **given)

    def heatmaps() -> Callable[[], Any]:
        torch.manual_seed(0)
        images = torch.rand(4, 3, 96, 96)
        features = models.backbone("resnet18", block=2, weights=None)
        places = features.points(images)
        net = neonxc.neuralize(KMeans(4, n_init=1, random_state=0).fit(places.numpy()), images, features)
        return lambda: neonxc.NEON(net).heatmaps(images)

    def flipping() -> Callable[[], Any]:
        X = points(300, 10, 5)
        net = neonxc.neuralize(KMeans(5, n_init=1, random_state=0).fit(X), X)
        relevance = neonxc.NEON(net).attribute(X)
        imputer = KDEImputer(X)
        return lambda: pixel_flipping(net, X, relevance, imputer=imputer, repeats=2)

    def counterfactuals() -> Callable[[], Any]:
        X = points(1000, 10, 6)
        net = neonxc.neuralize(KMeans(6, n_init=1, random_state=0).fit(X), X)
        return lambda: neonxc.counterfactual(net, X)

    def report() -> Callable[[], Any]:
        X = points(300, 8, 4)
        model = KMeans(4, n_init=1, random_state=0).fit(X)
        return lambda: neonxc.explain(model, X).html()

    def surrogate() -> Callable[[], Any]:
        X, y = load_digits(return_X_y=True)
        return lambda: neonxc.neuralize(labels=y[:600], X=X[:600])

    def kernel() -> Callable[[], Any]:
        X = points(2000, 20, 6)
        neon = neonxc.NEON(neonxc.neuralize(models.KernelKMeans(6, 20, random_state=0).fit(X), X))
        return lambda: neon.attribute(X)

    def words() -> Callable[[], Any]:
        generator = torch.Generator().manual_seed(0)
        vectors = models.WordVectors(
            [f"word{i:x}" for i in range(2000)], torch.randn(2000, 100, generator=generator)
        )
        texts = torch.randint(2000, (2000, 40), generator=generator)
        neon = neonxc.NEON(neonxc.neuralize(torch.randn(8, 100, generator=generator), texts, vectors))
        return lambda: neon.attribute(texts)

    found: dict[str, Callable[[], Callable[[], Any]]] = {
        "attribute 10,000 x 50": lambda: attribution(10_000, 50, 10),
        "attribute 300 x 10": lambda: attribution(300, 10, 4),
        "neuralize 300 x 10": lambda: neuralized(300, 10, 4),
        "neuralize 10,000 x 50": lambda: neuralized(10_000, 50, 10),
        "neuralize 1,000 x 10 without steps": lambda: neuralized_alone(1000, 10),
        "neuralize 100,000 x 50 without steps": lambda: neuralized_alone(100_000, 50),
        "neuralize DBSCAN of 3,000 x 5": neuralized_density,
        "neuralize ResNet-18": neuralized_features,
        "heatmaps of ResNet-18": heatmaps,
        "kernel k-means 2,000 x 20": kernel,
        "words of 2,000 texts": words,
        "pixel-flipping": flipping,
        "counterfactuals": counterfactuals,
        "surrogate of digits": surrogate,
        "report 300 x 8": report,
    }
    for name in ("IMM", "EMN", "ExGreedy", "ExShallow", "ExKMC", "CART", "SpExClique"):
        for n, d, k in ((500, 8, 5), (20_000, 16, 26)):
            found[f"{name} {n:,} x {d}"] = lambda name=name, n=n, d=d, k=k: fit(name, points(n, d, k), k)  # type: ignore[misc]
        found[f"{name} 4,000 x 320 bytes"] = lambda name=name: fit(name, bytes_(), 12)  # type: ignore[misc]
        found[f"{name} digits"] = lambda name=name: fit(name, load_digits().data, 10)  # type: ignore[misc]
        found[f"{name} letters"] = lambda name=name: fit(name, letters(), 26)  # type: ignore[misc]
        found[f"{name} sparse"] = lambda name=name: sparse(name)  # type: ignore[misc]
        if GARMENTS.exists():
            found[f"{name} garments"] = lambda name=name: fit(name, garments(), 10)  # type: ignore[misc]
    return found


class Cost(NamedTuple):
    """What a call of a task costs, in the process of one checkout."""

    seconds: float  # by the clock
    cpu_seconds: float  # of all threads, and of processes that have ended
    peak_mb: float  # of memory, since the process started; that of the largest process of a command
    libraries: list[str]  # modules that the process has loaded, without those of the checkout


class Refused(Exception):
    """A task that a checkout cannot run."""


def work(script: str) -> None:
    """Time the tasks of a script whose names come on standard input: the process of one checkout."""
    known = tasks() if Path(script) == Path(__file__) else run_path(script)["tasks"]()
    prepared = {}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a task prints is no answer
    print(";".join(known), file=answers, flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            answer = None
            if name not in prepared:
                run = known[name]()
                first = cost(run, 1)  # warms up caches and lazy imports
                seconds = first.seconds if first.seconds > 1 else cost(run, 1).seconds
                prepared = {name: (run, max(1, round(LEAST / max(seconds, 1e-7))))}
                if first.cpu_seconds > LONG:
                    answer = json.dumps(first)
            answer = answer or json.dumps(cost(*prepared[name]))
        except Exception as error:  # an older checkout lacks what is new
            answer = json.dumps(f"{type(error).__name__}: {error}")
        print(answer, file=answers, flush=True)


def cost(run: Callable[[], Any], repeats: int) -> Cost:
    """Measure the mean cost of some calls."""
    start = time.perf_counter()
    cpu_start = cpu_seconds()
    for _ in range(repeats):
        run()
    cpu = (cpu_seconds() - cpu_start) / repeats
    seconds = (time.perf_counter() - start) / repeats
    kilobytes = max(getrusage(who).ru_maxrss for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return Cost(seconds, cpu, kilobytes / 1000, libraries())


def libraries() -> list[str]:
    """Names of the modules that this process has loaded from outside of the checkout, where it was started."""
    names = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and not Path(file).is_relative_to(Path.cwd()):
            names.append(name)
    return names


def cpu_seconds() -> float:
    """Processor time of this process, and of those that it has waited for."""
    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextmanager
def worker(checkout: Path, script: str = __file__) -> Iterator[tuple[list[str], Callable[[str], Cost]]]:
    """The process of a checkout: the names of a script's tasks, and a function that measures one of them there.

    The function raises `Refused` if the checkout cannot run the task.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-W", "ignore", __file__, "--worker", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=checkout, env=environment, **pipes)  # type: ignore[call-overload]

    def ask(name: str) -> Cost:
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if isinstance(answer, str):
            raise Refused(answer)
        return Cost(*answer)

    try:
        yield process.stdout.readline().strip().split(";"), ask
    finally:
        process.stdin.close()
        process.wait()


def started(checkout: Path, arguments: list[str]) -> float:
    """Seconds of a whole process."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - start


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.benchmarks.timing import Report, results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--tasks", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    report = Report("This checkout against another one")
    rows = []
    chosen = [name for name in options.tasks.split(";") if name]
    checkouts = {"other": options.other.resolve(), "this": ROOT}

    def add(name: str, timed: Callable[[str], float]) -> None:
        times: dict[str, list[float]] = {side: [] for side in checkouts}
        for _ in range(options.rounds):
            for side in checkouts:
                times[side].append(timed(side))
        rows.append({**results(times, "other")[1], "what": name})
        print(f"{name}: {rows[-1]['ratio']:.2f}", file=sys.stderr, flush=True)

    for name, arguments in STARTS.items():
        if name in chosen or not chosen:
            add(name, lambda side, arguments=arguments: started(checkouts[side], arguments))  # type: ignore[misc]
    with worker(checkouts["other"]) as (names, other), worker(ROOT) as (_, this):
        for name in names:
            if name in chosen or not chosen:
                add(name, lambda side, name=name: {"other": other, "this": this}[side](name).seconds)  # type: ignore[misc]
    report.table("Times of this checkout over those of the other", rows)
    report.close(options.json)


if __name__ == "__main__":
    work(sys.argv[2]) if sys.argv[1:2] == ["--worker"] else main()
