"""Functions of batches that other engines run, and rules that are verified where the data live."""

import copy
import io
import os
import pickle
import shutil
import sqlite3
import time
from functools import cache, partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
import torch
from PIL import Image
from refusals import refusals, refused
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

import neonxc
from neonxc.lrp import presets
from neonxc.models import FeatureExtractor, to_tensor, vgg_small
from neonxc.trees import ExShallow

WINE = load_wine(as_frame=True).data.rename(columns=lambda name: name.replace("/", "_"))
NET = neonxc.neuralize(KMeans(3, n_init=3, random_state=0).fit(WINE), WINE)
TREE = ExShallow(3).fit(WINE, labels=NET.predict(WINE))
RULES = TREE.tree_.rules()
BATCH = pa.RecordBatch.from_pandas(WINE.iloc[:, ::-1].assign(id=range(178)), preserve_index=False)


def test_attribution_of_batches(tmp_path):
    neonxc.save(NET, tmp_path / "net.safetensors")
    for model in (NET, tmp_path / "net.safetensors"):
        function = neonxc.batch_function(model, keep={"id": pa.int64()})
        sent = pickle.loads(pickle.dumps(function))
        found = sent(BATCH)
        assert isinstance(found, pa.RecordBatch)
        assert found.schema.equals(function.schema)
        frame = found.to_pandas()
        np.testing.assert_allclose(frame[[*WINE]], neonxc.NEON(NET).attribute(WINE))
        np.testing.assert_allclose(frame[[*WINE]].sum(axis=1), frame["logit"])
        assert (frame["cluster"] == NET.predict(WINE)).all()
        assert frame["id"].tolist() == [*range(178)]
        parts = [sent(BATCH.slice(first, 50)) for first in range(0, 200, 50)]
        pd.testing.assert_frame_equal(pa.Table.from_batches(parts).to_pandas(), frame)
        for kind, given in ((pd.DataFrame, BATCH.to_pandas()), (pa.Table, pa.table(BATCH))):
            assert isinstance(sent(given), kind)


CLASSES = {
    "numbers": [0, 5, 7],
    "numbers and noise": [0, 5, -1],
    "names": ["u", "v", "w"],
    "names and noise": ["u", "v", -1],
    "truth values": [False, True, True],
    "truth values and noise": [False, True, None],
}


@pytest.mark.parametrize(
    ("classes", "what"),
    [
        # by default, every kind of labels is asked for two of three answers
        pytest.param(classes, what, marks=[pytest.mark.slow] * ((i + j) % 3 == 0))
        for i, classes in enumerate(CLASSES)
        for j, what in enumerate(["attribute", "predict", "rules"])
    ],
)
@pytest.mark.filterwarnings("ignore:the surrogate", "ignore:labels has")
def test_labels_of_all_kinds_in_batches(classes, what):
    labels = [CLASSES[classes][position] for position in NET.predict(WINE)]
    if what == "rules":
        model = ExShallow(len({*labels} - {-1, None})).fit(WINE, labels=labels).tree_.rules()
        expected = model.predict(WINE).tolist()
    else:
        model = neonxc.neuralize(labels=labels, X=WINE)
        expected = model.predict(WINE).tolist()
        assert len({*expected}) == len({*labels})
    function = neonxc.batch_function(model, what)
    kind = {"numbers": pa.int64(), "names": pa.string(), "truth values": pa.bool_()}[classes.split(" and")[0]]
    if classes == "truth values and noise":  # among numbers, True is 1
        kind = pa.int64()
    assert function.schema.field("cluster").type == kind
    texts = list(map(str, expected)) if kind == pa.string() else expected
    assert function(BATCH)["cluster"].to_pylist() == texts
    assert function(BATCH.slice(0, 0)).schema.equals(function.schema)


def test_labels_of_places_in_batches():
    """Names and noise of the locations of a map are nested lists of text."""
    features = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), torch.nn.ReLU()).eval()
    features.pool = None
    X = torch.rand(4, 3, 2, 2)
    centers = features(X).detach().permute(0, 2, 3, 1).reshape(-1, 2)[:3].double().numpy()
    net = neonxc.neuralize(centers, X, features)
    net.classes_ = np.array(["u", "v", -1], dtype=object)
    images = pa.FixedShapeTensorArray.from_numpy_ndarray(X.numpy())
    rows = pa.table({"image": images})
    function = neonxc.batch_function(net, "predict", images="image")
    assert function.schema.field("cluster").type == pa.list_(pa.list_(pa.string()))
    assert function(rows)["cluster"].to_pylist() == np.vectorize(str)(net.predict(X.numpy())).tolist()


@pytest.mark.parametrize("missing", ["ash", "id"])
def test_a_column_that_a_batch_lacks(missing):
    function = neonxc.batch_function(NET, keep={"id": pa.int64()})
    for batch in (BATCH.drop_columns([missing]), BATCH.to_pandas().drop(columns=missing)):
        refused(rf"the batch has no column \['{missing}'\]", function, batch)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("way", ["saved", "in place", "renamed", "other folder"])
def test_the_model_is_that_of_the_file_as_it_is(way, settled, tmp_path, monkeypatch):
    """Also if size and time of change are the same, and if a relative path leads to another file."""
    nets = NET, neonxc.neuralize(NET.head.detection.references.flip(0), WINE)
    files = tmp_path / "a" / "net.safetensors", tmp_path / "b" / "net.safetensors"
    for net, file in zip(nets, files, strict=True):
        file.parent.mkdir()
        neonxc.save(net, file)
        os.utime(file, (10**9, 10**9))
    if settled:
        monkeypatch.setattr("neonxc.attribution.batch_function.SETTLED", -1)
    monkeypatch.chdir(tmp_path / "a")
    function = neonxc.batch_function("net.safetensors", "predict")
    np.testing.assert_array_equal(function(BATCH)["cluster"], NET.predict(WINE))
    time.sleep(0.05 * settled)
    {
        "saved": partial(neonxc.save, nets[1], files[0]),
        "in place": partial(shutil.copyfile, files[1], files[0]),
        "renamed": partial(shutil.move, files[1], files[0]),
        "other folder": partial(monkeypatch.chdir, tmp_path / "b"),
    }[way]()
    os.utime("net.safetensors", (10**9, 10**9))
    np.testing.assert_array_equal(function(BATCH)["cluster"], nets[1].predict(WINE))


def test_a_file_is_read_once_and_keeps_its_columns(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    labels = NET.predict(WINE)
    read = []
    neonxc.save(NET, path)
    function = neonxc.batch_function(path)
    monkeypatch.setattr("neonxc.attribution.batch_function.SETTLED", -1)
    monkeypatch.setattr(
        "neonxc.attribution.batch_function.load", lambda path: read.append(path) or neonxc.load(path)
    )
    for _ in range(3):
        function(BATCH)
    assert len(read) == 1
    for other, X in ((labels, WINE.iloc[:, 1:]), (np.array(["x", "y", "z"])[labels], WINE)):
        neonxc.save(neonxc.neuralize(ExShallow(3).fit(X, labels=other), X), path)
        refused("now holds a model with other columns", function, BATCH)


def test_clusters_and_rules_of_batches():
    assert neonxc.batch_function(NET, "predict")(BATCH).schema.names == ["cluster", "logit"]
    for model in (TREE, TREE.tree_, RULES):
        found = neonxc.batch_function(model, "rules")(BATCH).to_pandas()
        assert (found["cluster"] == RULES.predict(WINE)).all()
        texts = {rule.text(): rule.label for rule in RULES}
        assert found["rule"].map(texts).eq(found["cluster"]).all()
    people = pd.DataFrame({"age": np.r_[20.0:50, 60:90], "town": ["Rome", "Oslo"] * 30})
    named = ExShallow(2).fit(people, labels=np.repeat(["young", "old"], 30))
    assert neonxc.batch_function(named, "rules").schema.field("cluster").type == pa.string()
    model = neonxc.neuralize(named, people)
    assert neonxc.batch_function(model)(pa.table(people)).column_names == ["cluster", "logit", "age", "town"]


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 16, 20, 3), dtype=np.uint8)


@cache
def images(pool):
    """An explainer of clusters of images, or of places in them, and its inputs."""
    torch.manual_seed(0)
    options = {"pool": pool, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    features = FeatureExtractor(vgg_small(3, width=8).eval(), "features.block3", **options)
    x = features.preprocess(torch.stack([*map(to_tensor, PIXELS)]))
    net = neonxc.neuralize(KMeans(2, n_init=1, random_state=0).fit(features.points(x).numpy()), x, features)
    return neonxc.NEON(net, presets.gamma()), x.numpy()


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def column(kind, x, folder):
    if kind == "paths":
        paths = [folder / f"{number}.png" for number in range(5)]
        for path, pixels in zip(paths, PIXELS, strict=True):
            path.write_bytes(encoded(pixels))
        return pa.array(map(str, paths))
    if kind == "lists":
        return pa.array(PIXELS.tolist(), pa.list_(pa.list_(pa.list_(pa.uint8(), 3), 20), 16))
    if kind == "bytes":
        return pa.array(map(encoded, PIXELS))
    return pa.FixedShapeTensorArray.from_numpy_ndarray(PIXELS if kind == "pixels" else x)


@pytest.mark.parametrize(
    ("kind", "pool"),
    [
        # by default, images and their locations in turns
        pytest.param(kind, pool, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, kind in enumerate(["bytes", "paths", "pixels", "lists", "inputs"])
        for j, pool in enumerate(["avg", None])
    ],
)
def test_images(kind, pool, tmp_path):
    neon, x = images(pool)
    batch = pa.record_batch({"id": pa.array(range(5)), "image": column(kind, x, tmp_path)})
    logits = neon.net(torch.from_numpy(x)).amax(1).detach()
    expected = {"attribute": neon.attribute(x).sum(1), "heatmaps": neon.heatmaps(x), "predict": logits}
    for what, values in expected.items():
        function = neonxc.batch_function(neon, what, images="image", keep={"id": pa.int64()})
        found = pickle.loads(pickle.dumps(function))(batch)
        for schema in (found.schema, function(batch.slice(0, 0)).schema):
            assert schema.equals(function.schema)
        assert found["id"].to_pylist() == [*range(5)]
        np.testing.assert_array_equal(found["cluster"].to_pylist(), neon.net.predict(x))
        np.testing.assert_allclose(found["logit"].to_pylist(), logits, rtol=1e-5)
        np.testing.assert_allclose(found[-1].to_pylist(), values, rtol=1e-5, atol=1e-6)


def test_images_of_several_sizes():
    neon, _ = images("avg")
    some = [PIXELS[0], PIXELS[1, :12], PIXELS[2], PIXELS[3, :12]]
    function = neonxc.batch_function(neon, images="image", size=10)
    found = function(pa.table({"image": pa.array(map(encoded, some))}))
    for pixels, one in zip(some, found["relevance"].to_pylist(), strict=True):
        x = neon.net.features.preprocess(to_tensor(pixels, 10))[None]
        np.testing.assert_allclose(one, neon.attribute(x)[0].sum(0), rtol=1e-4, atol=1e-5)


def of_images(column):
    function = neonxc.batch_function(images("avg")[0], images="image", keep={"id": pa.int64()})
    function(pa.table({"id": [7, 8], "image": pa.array(column)}))


test_images_that_are_broken = refusals(
    {
        "image of row 1 of the batch, id 8: it is null": partial(of_images, [encoded(PIXELS[0]), None]),
        "row 1 .*, id 8: cannot read the image of 4 bytes": partial(of_images, [encoded(PIXELS[0]), b"text"]),
        "row 0 .*, id 7: cannot read the image 'none.png': No such file": partial(of_images, ["none.png"] * 2),
        r"row 1 .* finite values .* got float64 \[1, 1, 1\]": partial(of_images, [[[[1.0]]], [[[np.nan]]]]),
        r"row 0 .* got object \[\]": partial(of_images, [{"a": 1}, {"a": 2}]),
    }
)


@pytest.mark.parametrize(
    ("what", "kept", "names"),
    [
        ("attribute", [], ["cluster_3", "logit_2", "cluster", "cluster_2", "logit"]),
        ("attribute", ["rule", "cluster_3"], ["cluster_4", "logit_2", "cluster", "cluster_2", "logit"]),
        ("predict", [], ["cluster", "logit"]),
        ("predict", ["cluster", "logit", "logit_2"], ["cluster_2", "logit_3"]),
        ("rules", ["cluster", "rule", "logit"], ["cluster_2", "rule_2"]),
    ],
)
def test_columns_called_like_results(what, kept, names):
    X = WINE.iloc[:, :3].set_axis(["cluster", "cluster_2", "logit"], axis=1)
    net = neonxc.neuralize(KMeans(3, n_init=1, random_state=0).fit(X), X)
    model = ExShallow(3).fit(X, labels=net.predict(X)).tree_.rules() if what == "rules" else net
    function = neonxc.batch_function(model, what, keep=dict.fromkeys(kept, pa.float64()))
    assert function.schema.names == kept + names
    batch = X.assign(rule=0.5, cluster_3=1.5, logit_2=2.5)
    result = pickle.loads(pickle.dumps(function))(batch)
    assert result.columns.tolist() == kept + names
    pd.testing.assert_frame_equal(result[kept], batch[kept])
    assert result[names[0]].tolist() == model.predict(X).tolist()
    if what == "attribute":
        np.testing.assert_allclose(result[[*X]], neonxc.NEON(net).attribute(X))
        np.testing.assert_allclose(result[[*X]].sum(axis=1), result["logit_2"])


def test_columns_beside_images_called_like_results():
    neon, x = images("avg")
    function = neonxc.batch_function(
        neon, images="image", keep={"cluster": pa.int64(), "relevance": pa.string(), "logit": pa.int64()}
    )
    kept = {"cluster": [7] * len(x), "relevance": ["r"] * len(x), "logit": [8] * len(x)}
    result = function(pa.table({"image": column("inputs", x, None), **kept}))
    assert result.column_names == [*kept, "cluster_2", "logit_2", "relevance_2"]
    assert {name: result[name].to_pylist() for name in kept} == kept
    np.testing.assert_allclose(result["relevance_2"].to_pylist(), neon.attribute(x).sum(1), rtol=1e-5, atol=1e-7)


function_of = partial(partial, neonxc.batch_function)


def of_points():
    neon, x = copy.deepcopy(images("avg"))
    function = neonxc.batch_function(neon, images="image")
    neon.net.features.pool = None
    function(pa.table({"image": column("inputs", x, None)}))


test_other_functions = refusals(
    {
        "what needs one of": function_of(NET, "explain"),
        "model needs names of columns, not texts": lambda: neonxc.batch_function(neonxc.neuralize(np.eye(3))),
        "several columns of one name": function_of(NET, keep={"alcohol": pa.float64()}),
        "heatmaps need images": function_of(NET, "heatmaps"),
        "images needs a network with a feature network of images": [
            function_of(NET, images="image"),
            function_of(RULES, "rules", images="image"),
        ],
        "the features need a FeatureExtractor": of_points,
    }
)


def test_rules_are_verified_where_the_data_live():
    base = sqlite3.connect(":memory:")
    WINE.to_sql("wines", base, index=False)
    for found in (RULES.verify(base, "wines", "sqlite"), RULES.verify(WINE), RULES.verify(pa.table(WINE))):
        assert found["found"].tolist() == [int(rule.samples) for rule in RULES]
        assert found["fit"].equals(found["found"])
    weight = np.where(WINE["alcohol"] > 13, 2.5, 1.0)
    rules = ExShallow(3).fit(WINE, labels=NET.predict(WINE), sample_weight=weight).tree_.rules()
    WINE.assign(w=weight).to_sql("weighted", base, index=False)
    for found in (rules.verify(WINE, sample_weight=weight), rules.verify(base, "weighted", sample_weight="w")):
        np.testing.assert_allclose(found["fit"], found["found"])
    refused("the rules find other rows", rules.verify, WINE)
    base.execute("DELETE FROM wines WHERE proline > 1200")
    last = next(rule for rule in RULES if rule.matches(WINE.nlargest(1, "proline")).all())
    left = last.matches(WINE[WINE["proline"] <= 1200]).sum()
    refused(f"{last.samples:.0f} rows at fit, {left} now", RULES.verify, base, "wines")


def test_dialects():
    script = RULES.to_sql("wines", "databricks")
    assert script.dialects == ["mysql", "spark", "databricks"]
    assert script.startswith("-- SQL for mysql, spark, databricks\n")
    assert str(RULES.to_sql("wines", "postgres")) == str(RULES.to_sql("wines"))
    snow = ExShallow(2).fit(WINE, labels=np.repeat(["a'\\b", "c"], 89)).tree_.rules().to_sql("wines", "snowflake")
    assert "THEN 'a\\'\\\\b'" in snow.case
    assert '"proline"' in RULES.to_sql("wines", "snowflake").case


def test_trees_of_streams_that_can_be_read_again():
    labels = NET.predict(WINE)
    data = pyarrow.dataset.dataset(pa.table(WINE))
    for source in (lambda: data, data, lambda: pa.table(WINE), lambda: iter(data.to_batches())):
        found = ExShallow(3).fit(source, labels=labels)
        assert (found.predict(WINE) == TREE.predict(WINE)).all()
    once = pa.RecordBatchReader.from_batches(data.schema, data.to_batches())
    refused("a function needs to return a new iterator", ExShallow(3).fit, lambda: once, labels=labels)
