"""The command that measures a GPU, on the emulated device and at small sizes."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("zennit")

ROOT = Path(__file__).parent.parent
RATES = ["items", "per second", "peak MB", "items, CPU", "per second, CPU", "peak MB, CPU", "times faster"]
NAMES = [
    *("vgg16", "resnet50", "efficientnet_b0", "vit_b_16", "relevance of k-means", "kernel k-means"),
    *("pixel-flipping", "IMM", "EMN", "ExGreedy", "ExShallow", "ExKMC", "RandomThresholds", "CART", "KDTree"),
    *("CUBT", "CLTree", "SpExClique", "SpExKNN", "SpExGraph", "KernelIMM", "KernelExKMC", "KernelExpand"),
]
FAST = ("relevance of k-means", "IMM")


@pytest.fixture
def device(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from tests.benchmarks import device

    threads = torch.get_num_threads()
    yield device
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FAST)) for n in NAMES])
def test_all_work_runs_on_a_device_that_is_far(device, far, name):
    (work,) = (work for works in device.WORK.values() for work in works if work.name == name)
    for row in device.compared(work, far.device, quick=True):
        assert [*row][1:8] == RATES
        assert row["items"] == row["items, CPU"] == max(1, work.n // 2000)
        assert row["times faster"] == pytest.approx(row["per second"] / row["per second, CPU"])


def test_every_explainer_of_trees_is_measured(device):
    from neonxc import trees

    explainers = {name for name in trees.__all__ if hasattr(getattr(trees, name), "fit")}
    assert {*device.EXPLAINERS} == explainers
    assert [work.name for works in device.WORK.values() for work in works] == NAMES


def test_the_largest_size_that_is_fast_enough_counts(device, monkeypatch):
    cpu = torch.device("cpu")
    calls = []
    work = device.Work("work", 1000, lambda n, _: {"call": lambda: calls.append(n)})

    def figures(seconds):
        monkeypatch.setattr(device, "_once", lambda call, _, n: (call(), device.Figures(n, seconds(n), 0.0))[1])
        calls.clear()
        return device.measure(work, cpu, quick=False)["call"].items

    fast = 1e-4
    linear = device.LIMIT / 500
    slow = device.LIMIT
    assert figures(lambda n: fast) == 1000
    assert figures(lambda n: linear * n) == 100  # 1,000 would take twice the limit
    assert figures(lambda n: slow) == 10
    assert {*calls} == {10}


@pytest.mark.slow
def test_the_report_names_the_card_and_the_page_shows_it(device, far, tmp_path, monkeypatch):
    from tests.benchmarks import page

    few = {heading: [work for work in works if work.name in FAST] for heading, works in device.WORK.items()}
    monkeypatch.setattr(device, "WORK", {heading: works for heading, works in few.items() if works})
    report = device.benchmark(far.device, ("tests/test_training.py", "-m", "cuda", "-n", "0"), quick=True)
    assert "No card was measured." in page.section("device", tmp_path / "device.json")
    report.close(tmp_path / "device.json")
    assert json.loads((tmp_path / "device.json").read_text())["machine"]["card"] == "device lazy:0, emulated"
    shown = page.section("device", tmp_path / "device.json")
    assert "card device lazy:0, emulated" in shown
    assert all(name in shown for name in ("Tests of CUDA", *FAST))
