"""Trees of tables that are read batch by batch are those of the same table in memory."""

from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.compose import make_column_transformer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tree_witnesses import FIELDS, STREAMED, assert_same, rows_of
from turns import every, in_turns

from neonxc.trees import CART, CUBT, IMM, ExGreedy, ExShallow

N = 700
D = 4
K = 5


def points(dtype=np.float32, seed=0):
    """Points around centers: columns of any numbers, of few, of heavy tails, and far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) + 3 * rng.normal(size=(K, D))[rng.integers(K, size=N)]
    X[:, 1] = X[:, 1].round()
    X[:, 2] **= 3
    X[:, 3] += 1000
    return X.astype(dtype)


X = points(np.float64)
CENTERS = points()[:K] + np.float32(0.01)


def in_batches(X, parts=7):
    return lambda: iter(np.array_split(X, parts))


@pytest.mark.parametrize(
    ("model", "max_bins", "most", "dtype"),
    in_turns(
        [*STREAMED, IMM(K, metric="l1")], [8, 256, 64, 600], [150, 1 << 16, 60], [np.float32, np.float64, np.int16]
    ),
    ids=str,
)
def test_the_same_tree_as_in_memory(model, max_bins, most, dtype, monkeypatch):
    """In any order and any batches, also of rows that are not in the sample; bins are in one byte, or in two."""
    monkeypatch.setattr("neonxc.trees.cuts.codes.ROWS", 128)
    monkeypatch.setattr("neonxc.trees.cuts.bins.ROWS", most)
    monkeypatch.setattr("neonxc.trees.cuts.bins.PIECE", 200)
    model = clone(model).set_params(max_bins=max_bins)
    scale = 10 if dtype is np.int16 else 1
    X = (points(np.float64) * scale).astype(dtype)
    centers = CENTERS * scale
    X[:-1:9] = X[1::9]  # some rows several times
    inside = clone(model).fit(X, centers=centers)
    assert [len(rows) for rows in rows_of(inside.tree_, X)] == inside.tree_.samples.tolist()
    order = np.random.default_rng(1).permutation(N)
    stream = clone(model).fit(in_batches(X[order]), centers=centers)
    assert_same(inside, stream)
    assert np.array_equal(stream.labels_, inside.labels_[order])


def test_every_kind_of_stream(tmp_path, monkeypatch):
    X = points()
    file = tmp_path / "X.parquet"
    parts = tmp_path / "parts"
    np.save(tmp_path / "X.npy", X)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.to_parquet(file, row_group_size=100)
    (parts / "year=1").mkdir(parents=True)
    (parts / "_metadata.parquet").write_bytes(b"not a table")
    frame[:300].to_parquet(parts / "a.parquet")
    frame[300:].to_parquet(parts / "year=1" / "a.parquet")
    monkeypatch.setattr("neonxc.trees.fit.batches.LARGE", 0)
    expected = CART(K, max_bins=32).fit(X, centers=CENTERS)
    for given, names in (
        (np.load(tmp_path / "X.npy", mmap_mode="r"), None),
        (lambda: (torch.from_numpy(part) for part in np.array_split(X, 3)), None),
        (lambda: [frame[:10], frame[10:10], frame[10:]], tuple("abcd")),
        *((path, tuple("abcd")) for path in (file, str(file), parts)),
    ):
        model = CART(K, max_bins=32).fit(given, centers=CENTERS)
        assert_same(expected, model)
        assert np.array_equal(model.labels_, expected.labels_)
        assert np.array_equal(model.predict(given), expected.labels_)
        assert model.tree_.feature_names == names
    assert np.array_equal(model.predict(frame), expected.labels_)
    refused("missing", model.predict, lambda: [frame.rename(columns={"a": "z"})])
    assert model.score(file) == pytest.approx(model.score(frame), rel=1e-9)
    wider = frame.iloc[:, ::-1].assign(text="?")
    wider.to_parquet(file, row_group_size=100)
    assert np.array_equal(model.predict(file), expected.labels_)
    wider.drop(columns="b").to_parquet(file)
    refused(r"X.parquet has no column \['b'\]", model.predict, file)


def test_labels_with_noise():
    X = points()
    labels = IMM(K, random_state=0).fit(X).labels_
    labels[::50] = -1
    inside, stream = (IMM(max_bins=32).fit(given, labels=labels) for given in (X, in_batches(X)))
    assert_same(inside, stream, fields=FIELDS[:-1])
    assert np.array_equal(stream.labels_, inside.labels_)


def test_arrays_too_large_for_memory_go_to_files(monkeypatch):
    X = points()
    expected = ExGreedy(K).fit(in_batches(X), centers=CENTERS)
    monkeypatch.setattr("neonxc.trees.fit.batches.LARGEST", 0)
    found = ExGreedy(K).fit(in_batches(X), centers=CENTERS)
    assert_same(expected, found)


def test_bad_files(tmp_path):
    file = tmp_path / "X.parquet"
    refused("no file or folder with files", IMM(2).fit, tmp_path, centers=X[:2])
    file.write_text("a,b\n1,2\n")
    refused("be read as a Parquet file", IMM(2).fit, tmp_path, centers=X[:2])
    pd.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]}).to_parquet(file)
    refused(r"batch 0 of X .*nan in row 1, column 'a'", IMM(2).fit, tmp_path, centers=X[:2, :2])


SCALED = make_pipeline(StandardScaler(), KMeans(K, n_init=3, random_state=0))
SELECTED = make_pipeline(
    make_column_transformer((StandardScaler(), ["d", "b"])), GaussianMixture(K, random_state=0)
)
REFERENCES = {"scaled": SCALED, "plain": SCALED[-1], "selected": SELECTED, "labels": AgglomerativeClustering(K)}


@pytest.mark.parametrize(("model", "name"), every(2, in_turns([*STREAMED, IMM(5), CART(5)], REFERENCES)), ids=str)
def test_references_label_and_measure_batches(model, name):
    frame = pd.DataFrame(X, columns=list("abcd"))
    reference = clone(REFERENCES[name]).fit(frame)
    batches = [frame[first : first + 100] for first in range(0, N, 100)]
    inside, stream = (
        deepcopy(model).set_params(reference=reference, max_bins=64).fit(table)
        for table in (frame, lambda: batches)
    )
    assert_same(inside, stream)
    assert np.array_equal(inside.labels_, stream.labels_)
    assert stream.score(frame) == pytest.approx(inside.score(frame), rel=1e-9)


def test_references_that_are_not_fitted_are_fitted_to_a_sample():
    frame = pd.DataFrame(X, columns=list("abcd"))
    for reference in (SCALED, "kmeans"):
        model = ExShallow(K, reference=reference, max_bins=64, random_state=0)
        inside = clone(model).fit(frame)
        stream = clone(model).fit(lambda: [frame, frame])  # the sample has all rows
        assert stream.inertia_ == pytest.approx(2 * inside.inertia_, rel=0.05)
        again = clone(model).fit(lambda: [frame[::-1]] * 2)
        assert_same(stream, again)
        assert np.array_equal(stream.labels_, again.labels_[::-1])
    message = "AgglomerativeClustering, which can't predict"
    refused(message, IMM(K, reference=AgglomerativeClustering(K)).fit, lambda: [frame])


def test_columns_that_number_the_rows_of_batches_are_named(tmp_path):
    pd.DataFrame(X, columns=list("abcd")).assign(row_id=np.arange(N)).to_parquet(tmp_path / "X.parquet")
    with pytest.warns(UserWarning, match="row_id looks like an identifier"):
        IMM(2).fit(tmp_path, labels=X[:, 0] > 0)


def test_small_files_are_tables_in_memory(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 1] > 0, "p", "q"))
    frame.loc[::9, "a"] = np.nan
    frame.to_parquet(tmp_path / "X.parquet")
    np.save(tmp_path / "X.npy", X)
    memmap = np.load(tmp_path / "X.npy", mmap_mode="r")
    labels = np.arange(N) % K
    for model in (IMM(K, random_state=0), IMM(K, refine=True, random_state=0), CUBT(K, max_leaves=4)):
        assert_same(*(clone(model).fit(given, labels=labels) for given in (X, memmap)))
        found = clone(model).fit(tmp_path / "X.parquet", labels=labels, sample_weight=np.ones(N))
        assert_same(found, model.fit(frame, labels=labels))
        assert np.array_equal(found.predict(tmp_path / "X.parquet"), model.labels_)
