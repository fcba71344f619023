"""Trees on sparse matrices are those of the same matrices made dense, and nothing is made dense on the way."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from tree_witnesses import WEIGHTED, assert_same, entries

from neonxc.trees import CART, IMM
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.columns import Columns
from neonxc.trees.cuts.entries import SparseColumns, code_sparse
from neonxc.trees.cuts.sparse_columns import columns_of, split_by_cost
from neonxc.trees.fit.sparse_points import as_points


@pytest.mark.parametrize("model", WEIGHTED, ids=str)
@pytest.mark.parametrize("kind", ["tenths", "normal"])
def test_sums_that_are_rounded(model, kind):
    X, labels = entries(1, kind=kind)
    given_ = (
        {"centers": np.random.default_rng(0).normal(size=(5, 30))} if "l1" in str(model) else {"labels": labels}
    )
    assert as_points(X).few_entries
    sparse, dense = (clone(model).fit(table, **given_) for table in (X, X.toarray()))
    assert_same(sparse, dense, 1e-12)


def test_matrices_of_users_stay_as_they_are():
    X, labels = entries(0)
    for given_ in (sp.csr_matrix((X.data, (X.row, X.col)), shape=X.shape), X.tocsc(copy=True), X.copy()):
        before = given_.nnz, given_.data.copy()
        IMM(5).fit(given_, labels=labels)
        assert given_.nnz == before[0]
        assert np.array_equal(given_.data, before[1])


def test_the_default_reference():
    rng = np.random.default_rng(0)
    X = sp.random(
        120, 80, density=0.04, format="csr", random_state=0, data_rvs=lambda m: rng.integers(1, 9, m) / 4
    )
    X = X + sp.csr_matrix((np.full(120, 8.0), (np.arange(120), np.arange(120) % 4)), shape=X.shape)
    dense, sparse = (IMM(4, random_state=0).fit(x) for x in (X.toarray(), X))
    assert as_points(X).few_entries
    assert torch.equal(sparse.tree_.feature, dense.tree_.feature)
    assert sparse.inertia_ == pytest.approx(dense.inertia_)


@given(seed=st.integers(0, 10**6), weighted=st.booleans(), data=st.data())
def test_histograms_of_entries(seed, weighted, data):
    """Every sum of a sparse view is that of the same codes, all there."""
    X, labels = entries(seed, n=40, d=12, density=0.15)
    rng = np.random.default_rng(seed)
    centers = torch.from_numpy(rng.integers(-8, 9, (5, 12)) / 8 * (rng.random((5, 12)) < 0.5))
    columns, _ = code_sparse(as_points(X), centers)
    rows = torch.from_numpy(np.flatnonzero(rng.random(40) < 0.6))
    which = torch.from_numpy(np.flatnonzero(rng.random(5) < 0.6))
    here = columns.entries_of(rows, which)
    values = torch.from_numpy(X.toarray()[rows])
    own, middle = values[:, here.features], centers[which][:, here.features]
    for feature in range(12):  # the columns that may be cut
        ends = centers[which, feature] if len(which) else values[:, feature]
        assert (feature in here.features.tolist()) == (len(ends.unique()) > 1)
    if not len(here.features):
        return
    some = torch.from_numpy(np.sort(rng.permutation(len(here.features))[:5]))
    part = rows[torch.from_numpy(rng.random(len(rows)) < 0.5)] if data.draw(st.booleans()) else rows
    problem, node = SimpleNamespace(n=40, k=5, sharded=False, reduce=lambda x: x), SimpleNamespace(rows=part)
    view = columns_of(problem, node, here, some)
    codes = view.at(rows)
    order = own[:, some].T
    assert torch.equal(codes[:, :, None] < codes[:, None], order[:, :, None] < order[:, None])
    places = view.centers[:, which]
    assert torch.equal(codes[:, :, None] <= places[:, None], order[:, :, None] <= middle[:, some].T[:, None])
    every = codes.new_zeros(len(some), 40).index_copy_(1, rows, codes)
    witness = Columns(problem, node, view.features, view.centers, view.places, every)
    mass = torch.from_numpy(rng.integers(0, 9, len(part)) / 4) if weighted else None
    group = torch.from_numpy(labels)[part]
    assert torch.equal(view.counts(part, group, 5, mass), witness.counts(part, group, 5, mass))
    assert torch.equal(view.counts(part, weight=mass), witness.counts(part, weight=mass))
    channels = torch.from_numpy(rng.integers(-9, 9, (3, len(part))) / 4)
    assert torch.equal(view.channels(part, channels), witness.channels(part, channels))
    picked, channel = (torch.from_numpy(rng.integers(0, size, 7)) for size in (len(some), 3))
    assert torch.equal(*(v.chosen_channels(part, channels, picked, channel) for v in (view, witness)))
    if len(part):
        assert all(map(torch.equal, view.ends(), witness.ends()))
    if len(which):
        nearest = torch.from_numpy(rng.integers(0, len(which), len(part)))
        for by_center in (False, True):
            assert torch.equal(*(v.parted(part, nearest, places, mass, by_center) for v in (view, witness)))


def test_at_most_max_bins():
    rng = np.random.default_rng(0)
    X = sp.random(400, 39, density=0.04, format="csc", random_state=0, data_rvs=rng.standard_normal)
    X = sp.hstack([sp.csc_matrix(np.arange(400)[:, None] % 3), X]).tocsc()  # few values stay as they are
    centers = torch.from_numpy(rng.normal(size=(3, 40)))
    columns, _ = code_columns(as_points(X), centers, 8)
    assert isinstance(columns, SparseColumns)
    size = columns.entries.first.diff()
    assert int(size.max()) <= 8
    assert int(size[0]) == 6
    for feature in range(40):
        codes, values = columns.column(feature), torch.from_numpy(X[:, [feature]].toarray()[:, 0])
        assert bool((codes[values.argsort(stable=True)].diff() >= 0).all())


def test_sums_of_a_sparse_table_are_those_of_a_dense_one():
    X, labels = entries(3, n=200, d=40, density=0.03, kind="normal")
    X = X.toarray()
    X[:, 4] = 1e6 + np.random.default_rng(0).normal(size=200)  # no zeros, and far from zero
    dense, sparse = as_points(torch.from_numpy(X)), as_points(sp.csr_matrix(X))
    assert sparse.few_entries
    labels, centers = torch.from_numpy(labels), dense.means(torch.from_numpy(labels), 5)
    weight = torch.from_numpy(np.random.default_rng(1).random(200))
    rows = torch.arange(0, 200, 3)
    for metric in ("l1", "l2"):
        torch.testing.assert_close(
            sparse.distances(centers, metric), dense.distances(centers, metric), rtol=1e-9, atol=0
        )
    for own in (None, weight):
        torch.testing.assert_close(
            sparse.means(labels, 5, own), dense.means(labels, 5, own), rtol=1e-13, atol=1e-12
        )
        assert sparse.cost(centers, labels, own) == pytest.approx(dense.cost(centers, labels, own), rel=1e-12)
        torch.testing.assert_close(sparse.variances(rows, own), dense.variances(rows, own), rtol=1e-9, atol=1e-15)


def test_nothing_is_made_dense(monkeypatch):
    """1.6 GB in float64, of which no more than a column, or the columns of a tree, are ever there at once."""
    n, d = 2_000, 100_000
    rng = np.random.default_rng(0)
    triples = rng.random(30_000), (rng.integers(0, n, 30_000), rng.integers(0, d, 30_000))
    X, labels = sp.csr_matrix(triples, shape=(n, d)), rng.integers(0, 3, n)
    made = []
    for kind in (sp.csr_matrix, sp.csc_matrix):
        toarray = kind.toarray

        def counted(self, *args, toarray=toarray, **kw):
            made.append(self.shape[0] * self.shape[1])
            return toarray(self, *args, **kw)

        monkeypatch.setattr(kind, "toarray", counted)
    for model in (IMM(3), CART(3)):
        model.fit(X, labels=labels).predict(X)
    assert made
    assert max(made) <= 3 * d


def test_predictions_some_rows_at_a_time(monkeypatch):
    X, labels = entries(0)
    model = IMM(5).fit(X.tocsr(), labels=labels)
    wanted = model.predict(X.toarray())
    monkeypatch.setattr("neonxc.common.memory.CPU", 32 * 5 * 7)  # seven rows
    for form in ("csr", "csc"):
        assert np.array_equal(model.tree_.predict(X.asformat(form)), wanted)
        assert np.array_equal(model.tree_.apply(X.asformat(form)), model.tree_.apply(X.toarray()))


def test_parts_of_about_equal_costs():
    costs = torch.tensor([1, 1, 5, 1, 1, 1])
    parts = list(split_by_cost(costs, 3))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(6))
    assert all(part.stop > part.start for part in parts)
    assert len(parts) == 3
    assert max(int(costs[part].sum()) for part in parts) <= 3 + 5
