"""One file per network: nothing else is taken for it; that networks come back whole is in `test_far_device.py`."""

import contextlib
import io
import json
import math
import multiprocessing
import os
import pickle
import threading
from functools import reduce
from importlib import metadata
from operator import getitem

import numpy as np
import pandas as pd
import pytest
import torch
from memory import peak_memory
from numpy.testing import assert_array_equal
from refusals import refusals, refused, rewritten
from safetensors import safe_open
from safetensors.torch import save, save_file
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn
from witnesses import blobs, near

import neonxc
from neonxc import NEON, load, neuralize
from neonxc.common.registry import FORMS, register, storable
from neonxc.head import Head, linear_head
from neonxc.models import SCAN, FeatureExtractor, KernelKMeans, WordVectors, backbone
from neonxc.trees import CART, IMM
from neonxc.trees.saving import register_explainer

X = blobs()
NEW = near(X)
UNUSABLE = "is damaged: |can't be loaded: "
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "ü"])


def km(k=4):
    return KMeans(k, n_init=1, random_state=0)


def small():
    return neuralize(X[:3])


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


def test_how_a_table_was_read_is_optional(tmp_path):
    """It is in files of networks, trees and rules, and older files do not have it."""
    tree = CART(3).fit(FRAME, labels=km(3).fit_predict(X))
    for obj in (neuralize(km().fit(FRAME), FRAME), tree.tree_, tree.tree_.rules()):
        assert again(obj, tmp_path).table_format is None
        rewritten(tmp_path / "kept", lambda h: h["values"].pop("table_format"))
        assert load(tmp_path / "kept").table_format is None


def scan_of(backbone, images):
    fast = {"pretext": None, "n_neighbors": 5, "n_heads": 2, "head_epochs": 1, "epochs": 0, "self_label_epochs": 0}
    return SCAN(3, backbone, batch_size=12, random_state=0, **fast).fit(images)


def test_scan(tmp_path):
    images = torch.rand(24, 3, 24, 24)
    scan = scan_of(backbone("resnet18", block=1, weights=None), images)
    found = again(scan, tmp_path)
    np.testing.assert_allclose(found.predict_proba(images), scan.predict_proba(images), rtol=1e-4, atol=1e-5)
    for name in ("labels_", "neighbors_", "losses_", "history_", "image_shape_"):
        assert_array_equal(getattr(found, name), getattr(scan, name))
    assert {**found.get_params(), "backbone": None} == {**scan.get_params(), "backbone": None}
    assert not found.embedding_.training
    scan = scan_of(nn.Sequential(nn.AvgPool2d(4), nn.Flatten()), images)
    refused("with a custom backbone; save the network", neonxc.save, scan, tmp_path / "scan", error=TypeError)


@pytest.mark.parametrize(
    ("classes", "beta"),
    [
        (np.array(["cat", "dög", "a"]), 0.0),
        (np.array([-1, 5, 7], np.int32), math.inf),
        (np.array([0.5, 2, np.inf], np.float32), 1 / 3),
        (np.array(["cat", None, 3], dtype=object), 1.0),
    ],
)
def test_labels_keep_their_types_and_beta_its_value(classes, beta, tmp_path):
    net = neonxc.NeuralizedClustering(small().head, classes=classes)
    net.beta = beta
    net = again(net, tmp_path)
    assert net.beta == beta
    assert net.classes_.dtype == classes.dtype
    assert net.classes_.tolist() == classes.tolist()
    # a tensor can't hold names
    labels = net.predict(NEW)
    from_tensor = net.predict(torch.as_tensor(NEW))
    assert isinstance(from_tensor, np.ndarray if classes.dtype.kind in "UO" else torch.Tensor)
    assert_array_equal(np.asarray(from_tensor), labels)


# --- feature networks --------------------------------------------------------------------------------------


def test_feature_networks_that_are_given(tmp_path):
    images = torch.randn(2, 3, 24, 24)
    centers = torch.eye(64)[:3]
    neonxc.save(neuralize(centers[:, :4], images, nn.Conv2d(3, 4, 3)), tmp_path / "kept")
    refused(r"saved without its feature network: neonxc\.load\(path, features=", load, tmp_path / "kept")
    refused(r"features needs an nn\.Module, got str", load, tmp_path / "kept", features="vgg16", error=TypeError)
    net = neuralize(centers, images, backbone("resnet18", block=1, weights=None, normalize=True))
    found = again(net, tmp_path)
    other = backbone("resnet18", block=1, weights=None)
    assert found.features.recipe == net.features.recipe
    assert not any(p.requires_grad for p in found.features.parameters())
    found = load(tmp_path / "kept", features=other)
    assert found.features is other
    assert not found(images).equal(net(images))
    rewritten(tmp_path / "kept", lambda h: h["parts"]["features"]["values"]["recipe"].update(builder="resnet50"))
    refused(r"can't be loaded: its network has weights 'net.fc.weight'", load, tmp_path / "kept")


def test_a_feature_network_alone(tmp_path):
    words = WordVectors(["cat", "dog"], torch.eye(2), weights=[1.0, 2.0])
    pooled = backbone("resnet18", block=1, weights=None, pool="avg")
    for network, inputs in ((pooled, torch.randn(2, 3, 24, 24)), (words, torch.tensor([[0, 1]]))):
        assert torch.equal(again(network, tmp_path)(inputs), network(inputs))


# --- classes of a user ---------------------------------------------------------------------------------------


@pytest.fixture
def forms():
    """Registered forms; those of classes that a test registers are forgotten after it."""
    yield FORMS
    for name in ("Patient", "Louder", "Softplus", "Mine"):
        FORMS.pop(name, None)


def test_an_explainer_of_ones_own(forms, tmp_path):
    class Patient(IMM):
        pass

    fitted = Patient(3, random_state=0).fit(FRAME)
    advice = r"can't save a Patient; .*neonxc\.common\.registry\.register"
    refused(advice, neonxc.save, fitted, tmp_path / "tree", error=TypeError)
    register_explainer(Patient)
    found = again(fitted, tmp_path)
    assert type(found) is Patient
    assert (found.predict(FRAME) == fitted.labels_).all()
    assert found.score(FRAME) == fitted.score(FRAME)
    del forms["Patient"]
    refused("can't be loaded: Patient is not registered", load, tmp_path / "kept")


def test_a_head_and_features_of_ones_own(forms, tmp_path):
    class Louder(Head):
        PLAIN = ("factor",)

        def forward(self, x):
            return self.factor * super().forward(x)

    head = Louder(linear_head(torch.randn(3, 4), torch.randn(3)).detection)
    head.factor = 2.5
    net = neonxc.NeuralizedClustering(head, features=nn.Softplus(0.5))
    x = torch.as_tensor(NEW)
    register(nn.Softplus, lambda obj: {"beta": obj.beta}, lambda cls, values: cls(values["beta"]))
    refused("can't save a Louder", neonxc.save, net, tmp_path / "net", error=TypeError)
    storable(Louder)
    assert torch.equal(again(net, tmp_path)(x), net(x))
    head.register_parameter("slope", nn.Parameter(torch.ones(1)))
    refused("can't save a Louder with parameters", neonxc.save, net, tmp_path / "net", error=TypeError)


def test_one_class_for_a_name(forms):
    def defined(name):
        register(type(name, (), {"__module__": "mine"}), vars, lambda cls, values: cls())

    refused(r"IMM is registered for neonxc\.trees\.explainers\.center_based\.IMM", defined, "IMM")
    defined("Mine")
    defined("Mine")  # as a notebook does whose cell is run twice


def test_explanations_are_pickled():
    neon = NEON(neuralize(IMM(3, random_state=0).fit(FRAME), FRAME), beta=2.0)
    assert pickle.loads(pickle.dumps(neon)).attribute(FRAME).equals(neon.attribute(FRAME))


# --- writing -----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "net.safetensors"
    neonxc.save(neuralize(km().fit(X)), path)
    return path


def test_a_failure_midway_leaves_the_old_file(path, monkeypatch):
    # SECURITY.md: Files are written atomically
    before = path.read_bytes()

    def broken(tensors, file, metadata=None):
        file.write_bytes(b"half a fi")
        raise OSError("no space left on device")

    monkeypatch.setattr("neonxc.common.storage.save_file", broken)
    refused("no space left", neonxc.save, small(), path, error=OSError)
    assert path.read_bytes() == before
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.skipif(os.name == "nt", reason="permissions and links of POSIX")
def test_a_file_keeps_its_permissions_and_a_link_its_target(tmp_path):
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "net").touch(mode=0o640)
    for name in ("net", "new"):
        (tmp_path / name).symlink_to(f"shelf/{name}")
        neonxc.save(small(), tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert len(load(tmp_path / "shelf" / name).classes_) == 3
    assert (tmp_path / "shelf" / "net").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name == "nt", reason="no pipes with names")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    read = []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    neonxc.plot.text([["a"]], [[1.0]]).save(pipe)
    reader.join()
    assert pipe.is_fifo()
    assert read[0].startswith("<!")


def killed_while_saving(path):
    neonxc.common.storage.save_file = lambda tensors, file, metadata: os._exit(1)
    neonxc.save(small(), path)


@pytest.mark.skipif(os.name == "nt", reason="no fork")
def test_what_a_killed_process_left_is_swept(tmp_path):
    path = tmp_path / "net[1]"
    process = multiprocessing.get_context("fork").Process(target=killed_while_saving, args=(path,))
    process.start()
    process.join()
    assert [file.suffix for file in tmp_path.iterdir()] == [".part"]
    with neonxc.common.atomic.staged_file(path) as living:  # another thread, that writes
        neonxc.save(small(), path)
        assert {*tmp_path.iterdir()} == {path, living}


def saved(make, path="net"):
    return lambda: neonxc.save(make(), path)


test_paths = refusals(
    {
        rf"path needs the suffix \.safetensors, .* got .*{name}": saved(small, name)
        for name in ("net.pkl", "net.PT", "net.v2.pth", "net.joblib")
    }
)
test_folders = refusals({r"the folder .*nowhere does not exist": saved(small, "nowhere/net")}, FileNotFoundError)
test_no_files = refusals({"no such file: ": [lambda: load("none"), lambda: load("/")]}, FileNotFoundError)
test_other_objects = refusals(
    {
        "can't save a KMeans; neonxc saves networks": saved(km),
        "can't save a DataFrame; neonxc saves": saved(lambda: FRAME),
        "a FeatureExtractor whose network was not built by": saved(lambda: FeatureExtractor(nn.Flatten(), "")),
    },
    TypeError,
)

# --- reading what is not ours ------------------------------------------------------------------------------


def test_files_of_another_format(path, tmp_path):
    # SECURITY.md: Files are never unpickled.
    # SECURITY.md: `neonxc.save` writes safetensors files
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    whole = path.read_bytes()
    buffer = io.BytesIO()
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


def test_other_headers(path):
    for version, age in ((99, "a newer"), (3, "an older")):
        rewritten(path, whole=lambda header, version=version: header.update(version=version))
        refused(rf"{age} neonxc \(file version {version}, known 4 and 5\)", load, path)
    rewritten(path, whole=lambda header: header.update(version=5, kind="notes"))
    refused("contains a 'notes', not 'object'", load, path)
    rewritten(path, whole=lambda h: h.update(kind="object"), tensors=lambda h: h.pop("head.detection.directions"))
    refused(r"is damaged: .*head\.detection\.directions", load, path)


def test_versions_of_packages(path):
    """A file names those that wrote it, and an error names them if others are here; version 0.2 wrote none."""
    with safe_open(path, framework="pt") as file:
        wrote = json.loads(file.metadata()["neonxc"])["versions"]
    assert wrote["torch"] == metadata.version("torch")
    assert wrote.keys() <= {"neonxc", "scikit-learn", "torch"}
    unknown = {"class": "neonxc.Nothing"}
    rewritten(path, lambda plain: plain.update(unknown))
    refused("register", load, path)
    rewritten(path, whole=lambda header: header.update(versions={"neonxc": "0.9", "torch": "3.1"}))
    refused(r"registers it; it was written with neonxc 0\.9, torch 3\.1, and here are", load, path)
    rewritten(path, whole=lambda header: header.pop("versions"))
    refused("registers it$", load, path)
    rewritten(path, whole=lambda header: header.update(versions=[]))
    refused("its header has no versions", load, path)


def changed(*path, **values):
    """A change of values inside the description of a file."""
    return lambda header: reduce(getitem, path, header["plain"]).update(values)


# What is fitted and saved, and what then is changed in the header of the file
DAMAGED = {
    "network": (
        lambda: neuralize(KernelKMeans(3, 4, random_state=0).fit(X), X),
        [
            lambda h: h.pop("version"),
            lambda h: h.pop("kind"),
            lambda h: h["plain"]["parts"]["head"]["tensors"].append("beta"),
            lambda h: h["plain"]["parts"].update(head=h["plain"]["parts"]["head"]["parts"]["detection"]),
            changed("parts", "classes", "values", dtype="x"),
            changed("parts", "head", "values", another=3),
            changed("parts", "head", "parts", "grouping", "values", sizes=[1, 1]),
            changed("parts", "head", "parts", "grouping", "values", gamma="x"),
            changed("parts", "head", "parts", "detection", "values", norm="l3"),
            changed("values", feature_names=["a"]),
        ],
    ),
    "clusterer": (
        lambda: KernelKMeans(3, 4, random_state=0).fit(X),
        [
            changed("values", n_features_in_=3),
            changed("values", "params", n_clusters="x"),
            changed("parts", "_model", **{"class": "Members"}),
        ],
    ),
    "tree": (
        lambda: IMM(3, random_state=0).fit(X),
        [
            lambda h: h["plain"]["values"]["fitted"].remove("tree_"),
            lambda h: h["plain"]["parts"]["tree_"]["tensors"].remove("feature"),
            changed("parts", "tree_", "values", n_features=1),
        ],
    ),
    "scan": (
        lambda: scan_of(None, torch.rand(24, 1, 12, 12)),
        [
            changed("values", image_shape_=[3, 12, 12]),
            changed("parts", "embedding_", "values", recipe={"builder": "os.system"}),
            changed(**{"class": "KernelKMeans"}),
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
        rewritten(path, whole=change)
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
    "mixture": (lambda: neuralize(GaussianMixture(3, random_state=0).fit(X), X, threshold=0.6), X),
}


@pytest.mark.parametrize("kind", FUZZED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_change_of_a_header_is_noticed_or_harmless(kind, tmp_path):
    make, data = FUZZED[kind]
    path = tmp_path / kind
    found = {}
    neonxc.save(make(), path)
    whole = path.read_bytes()
    rewritten(path, found.update)
    for i, (*above, key) in enumerate(places(found)):

        def change(described, above=above, key=key, i=i):
            inside = reduce(getitem, above, described)
            inside[key] = [1e308, -1, "x", None, []][i % 5]
            if i % 6 == 5:
                del inside[key]

        path.write_bytes(whole)
        rewritten(path, change)
        with contextlib.suppress(ValueError):  # no other error, neither on loading nor later
            load(path).predict(data)
    path.write_bytes(whole.replace(b"class", b"clasp", 1))  # a change that no writer made
    refused("damaged: its header was changed", load, path)


@pytest.mark.parametrize("make", [lambda: KernelKMeans(3, 4, random_state=0), lambda: IMM(3, random_state=0)])
def test_a_file_sets_no_other_attributes(make, tmp_path):
    model = make().fit(X)
    path = tmp_path / "model"
    neonxc.save(model, path)
    rewritten(path, lambda h: h["values"].update(predict=1, _seed=2, fitted=[*h["values"]["fitted"], "predict"]))
    assert (load(path).predict(X) == model.labels_).all()


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.999])
def test_damaged_bytes(path, place):
    # SECURITY.md: `neonxc.load` makes objects of registered classes alone, and checks sums
    whole = path.read_bytes()
    at = int(place * len(whole))
    other = int(0.45 * len(whole))
    exchanged = bytearray(whole)
    exchanged[at : at + 8], exchanged[other : other + 8] = whole[other : other + 8], whole[at : at + 8]
    for content in (whole[:at] + bytes(8) + whole[at + 8 :], bytes(exchanged), whole[:at], whole + whole[at:]):
        path.write_bytes(content)
        refused("damaged", load, path)


def test_files_without_checksums_of_tensors(path):
    model = load(path)
    rewritten(path, whole=lambda header: header.pop("tensors"), tensors=lambda held: held["classes.data"].add_(1))
    assert (load(path).predict(X) == model.predict(X) + 1).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_children_in_a_file_are_those_of_its_tree(side, tmp_path):
    """Version 0.3 reads the children of nodes from files, and they follow from which nodes are leaves."""
    path = tmp_path / "tree"
    neonxc.save(IMM(3, random_state=0).fit(X).tree_, path)
    rewritten(path, whole=lambda header: header.pop("tensors"), tensors=lambda held: held[side].add_(1))
    refused("children", load, path)


def test_a_file_that_changes_after_it_was_read(path):
    """The model stays that of the file when it was read, if the file is overwritten."""
    model = load(path)
    expected = model.predict(X)
    path.write_bytes(bytes(path.stat().st_size))
    assert (model.predict(X) == expected).all()


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("FeatureExtractor", "vgg"),
        ("FeatureExtractor", {"builder": "vgg11", "weights": "/etc/passwd"}),
        ("Sequential", {}),
        ("WordVectors", {"builder": "os.system"}),
    ],
)
def test_recipes_that_are_none(path, name, recipe):
    features = {"class": name, "values": {"recipe": recipe}, "tensors": [], "parts": {}}
    rewritten(path, lambda h: h["parts"].update(features=features))
    refused(r"recipe of a feature extractor|no backbone is called|is damaged: ", load, path)


# --- sizes that a file declares ------------------------------------------------------------------------------

NAMED = KMeans(2, n_init=1, random_state=0).fit(X[:, :2])


def named_network():
    frame = pd.DataFrame({"a": [0.0, 0, 1, 1, 1]})
    return neuralize(labels=np.array(["u", "u", "v", "v", "v"]), X=frame)


DECLARED = {  # what is saved, and a change of its header by which a small file asks for much memory
    "letters of names": (
        lambda: named_network(),
        changed("parts", "classes", "values", dtype="<U10000000"),
    ),
    "no numbers": (lambda: neuralize(NAMED), changed("parts", "classes", "values", dtype="S100000000")),
    "columns of a tree": (lambda: IMM(2, random_state=0).fit(X).tree_, changed("values", n_features=10**10)),
    "columns of an explainer": (lambda: IMM(2, random_state=0).fit(X), changed("values", n_features_in_=10**10)),
    "a larger network": (
        lambda: backbone("mobilenet_v3_small", "features.0", weights=None),
        changed("values", "recipe", builder="vgg16", layer="features.0"),
    ),
    "channels": (
        lambda: scan_of(None, torch.rand(24, 1, 24, 24)),
        changed("parts", "embedding_", "values", "recipe", in_channels=10**9),
    ),
    "pixels": (
        lambda: scan_of(None, torch.rand(24, 1, 24, 24)),
        changed("values", image_shape_=[2, 10**5, 10**5]),
    ),
    "another place": (
        lambda: backbone("mobilenet_v3_small", "features.0", weights=None),
        changed("values", "recipe", builder="hf-hub:owner/name"),
    ),
    "a folder": (
        lambda: backbone("mobilenet_v3_small", "features.0", weights=None),
        changed("values", "recipe", builder="timm/local-dir:/tmp"),
    ),
    "published weights": (
        lambda: backbone("mobilenet_v3_small", "features.0", weights=None),
        changed("values", "recipe", weights="default"),
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_sizes_are_compared_with_the_file(case, tmp_path):
    # SECURITY.md: A file takes no more memory than it is worth.
    # SECURITY.md: Sizes that it declares are compared with its own
    make, change = DECLARED[case]
    path = tmp_path / "kept"
    neonxc.save(make(), path)
    load(path)
    rewritten(path, whole=change)
    before = peak_memory()
    refused(UNUSABLE, load, path)
    assert peak_memory() - before < 200e6


def test_names_in_long_arrays(tmp_path):
    """Names that are repeated are stored once, and come back whole."""
    names = np.array(["a" * 40, "b"], dtype="<U60")
    long = np.tile(names, 100_000)
    path = tmp_path / "kept"
    neonxc.save(long, path)
    assert_array_equal(load(path), long)
    assert load(path).dtype == long.dtype
