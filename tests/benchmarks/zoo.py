"""LRP on a small model of each family of timm and of torchvision, with random weights.

python -m tests.benchmarks.zoo [--only REGEX] [--library timm|torchvision] [--limit SECONDS] [--json FILE]

A model runs in a process of its own, with one thread, and is stopped after some seconds. Demanded are the same
output as without LRP, finite relevance, and that relevance sums to the output where biases are zero (LRP-0).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.lrp import LRP, Composite, Epsilon, Gamma
from tests.benchmarks.timing import Report, Table, progress, race

LIMIT = 150  # seconds per model
NOTE = "LRP-γ, one image, one thread; sums by LRP-0 without biases."
ROUNDS = 3
SIZES = "test atto femto pico nano xxs xxt xs xt micro tiny mini small".split()  # noqa: SIM905
"""Words in the names of models, from the smallest."""


def by_name(name: str) -> tuple[int, list[int], str]:
    """Order names of models by size, as far as names tell."""
    words = re.split("[_.]", name)
    rank = next((n for n, size in enumerate(SIZES) if size in words), len(SIZES))
    return rank, [int(number) for number in re.findall(r"\d+", name)], name


def timm_models(only: str) -> dict[str, str]:
    """Return a small model of each family of timm: that with the fewest parameters of four."""
    import timm

    found = {}
    for family in filter(re.compile(only).search, sorted(timm.list_modules())):
        sizes = {}
        for name in sorted(timm.list_models(module=family), key=by_name)[:4]:
            try:
                with torch.device("meta"):
                    sizes[name] = sum(p.numel() for p in timm.create_model(name).parameters())
            except Exception as error:  # some need a real device while they are built
                progress(f"{name}: {error!r}"[:100])
        if sizes:
            found[family] = min(sizes, key=lambda name: (sizes[name], name))
    return found


def torchvision_models(only: str) -> dict[str, str]:
    """Return the network for classification with the fewest parameters of each family of torchvision."""
    from torchvision import models

    found: dict[str, tuple[int, str]] = {}
    for name in models.list_models(module=models):
        family = models.get_model_builder(name).__module__.rpartition(".")[2]
        size = models.get_model_weights(name).DEFAULT.meta["num_params"]
        found[family] = min(found.get(family, (size, name)), (size, name))
    return {family: name for family, (_, name) in found.items() if re.search(only, family)}


def built(library: str, name: str) -> tuple[nn.Module, Tensor]:
    """Return a network with random weights, and a batch of one random image of the size that it needs."""
    torch.manual_seed(0)
    if library == "timm":
        import timm

        network = timm.create_model(name)
        size = network.pretrained_cfg.get("input_size", (3, 224, 224))
    else:
        from torchvision import models

        more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        network = models.get_model(name, weights=None, **more)
        side = 299 if name == "inception_v3" else 224
        size = (3, side, side)
    return network.eval(), torch.rand(1, *size)


def without_biases(network: nn.Module) -> nn.Module:
    """Set biases, means of BatchNorm, and tokens and positions that are added to the input, to zero."""
    with torch.no_grad():
        for name, parameter in [*network.named_parameters(), *network.named_buffers()]:
            if name.endswith(("bias", "running_mean", "beta")) or re.search(
                "(pos|cls|class|dist|reg)_?(token|embed)", name
            ):
                parameter.zero_()
    return network


def measured(library: str, name: str) -> dict[str, Any]:
    """Return what is demanded of a network, and its time over that of a gradient."""
    network, x = built(library, name)
    with torch.no_grad():
        plain = network(x)
    lrp = LRP(network, Composite(Gamma(0.25)))
    target = int(plain[0].argmax())
    recorded = lrp.record(x)
    relevance = lrp.attribute(x, target=target)

    def gradient() -> Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(network(leaf)[0, target], leaf)[0]

    times = race({"gradient": gradient, "LRP": lambda: lrp.attribute(x, target=target)}, ROUNDS, least=0)
    bare = without_biases(network)
    with torch.no_grad():
        output = bare(x)[0]
    best = int(output.abs().argmax())
    total = LRP(bare, Composite(Epsilon(0.0))).attribute(x, target=best).double().sum()
    return {
        "model": name,
        "parameters, millions": sum(p.numel() for p in network.parameters()) / 1e6,
        "output": bool(torch.allclose(recorded.output, plain, rtol=1e-4, atol=1e-5)),
        "finite": bool(relevance.isfinite().all()),
        "sum": float(total / output[best]) if output[best].abs() > 0 else None,  # nothing but biases reaches it
        "time": statistics.median(a / b for a, b in zip(times["LRP"], times["gradient"], strict=True)),
        "attention": any("attention" in type(m).__name__.lower() for m in network.modules()),
    }


def in_process(library: str, name: str, limit: float) -> dict[str, Any]:
    """Measure a network in a process of its own; return the reason if it does not run."""
    command = [sys.executable, "-m", "tests.benchmarks.zoo", "--library", library, "--model", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"model": name, "reason": f"takes more than {limit:.0f} s"}
    if done.returncode:
        error = done.stderr.strip().splitlines()[-1]
        return {"model": name, "reason": error.partition(": ")[2].partition(", called at ")[0] or error}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def summary(rows: Table) -> Table:
    """Return a row per kind of network: how many run, the sum of relevance, and the time."""
    kinds: dict[str, Table] = defaultdict(list)
    for row in rows:
        kinds["attention" if row.get("attention") else "convolution, MLP"].append(row)
    found = []
    for kind, own in kinds.items():
        ran = [row for row in own if "reason" not in row]
        sums = sorted(row["sum"] for row in ran if row["sum"] is not None)
        times = [row["time"] for row in ran]
        found.append(
            {
                "kind": kind,
                "run": f"{len(ran)} of {len(own)}",
                "output unchanged": sum(row["output"] for row in ran),
                "relevance finite": sum(row["finite"] for row in ran),
                "sum / output, median": statistics.median(sums),
                "smallest": sums[0],
                "largest": sums[-1],
                "time / gradient, median": statistics.median(times),
            }
        )
    return found


def main() -> None:
    """Measure all models, or one of them for the process that asked for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["timm", "torchvision"])
    parser.add_argument("--only", default="", help="regular expression of names of families")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds per model")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model:
        print(json.dumps(measured(options.library, options.model)))
        return
    report = Report("A zoo of networks: LRP")
    for library, models in (("timm", timm_models), ("torchvision", torchvision_models)):
        if options.library in (None, library):
            rows = []
            for family, name in models(options.only).items():
                rows.append({"family": family, **in_process(library, name, options.limit)})
                progress(str(rows[-1]))
            report.table(f"{library}: summary", summary(rows), NOTE)
            report.table(f"{library}: networks", [{**dict.fromkeys(HEADER, ""), **row} for row in rows])
    report.close(options.json)


HEADER = ("family", "model", "parameters, millions", "output", "finite", "sum", "time", "attention", "reason")


if __name__ == "__main__":
    main()
