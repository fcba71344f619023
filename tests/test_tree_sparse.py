"""Trees on sparse matrices are those of the same matrices made dense, and nothing is made dense on the way."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from test_tree_explainers import limits
from tree_witnesses import WEIGHTED, assert_same, entries, rows_of
from turns import every, in_turns, slow

from neonxc.trees import CART, EMN, IMM, ExGreedy, ExKMC, ExShallow


def both(model, X, **given):
    """The explainer of a sparse matrix, and that of the same matrix made dense."""
    return (clone(model).fit(table, **given) for table in (X, X.toarray()))


@pytest.mark.parametrize(("model", "kind"), every(2, in_turns(WEIGHTED, ["tenths", "normal", "tenths"])), ids=str)
def test_sums_that_are_rounded(model, kind):
    X, labels = entries(1, kind=kind)
    centers = np.random.default_rng(0).normal(size=(5, 30))
    assert_same(*both(model, X, **{"centers": centers} if "l1" in str(model) else {"labels": labels}), 1e-12)


@pytest.mark.filterwarnings("ignore:the tree has no points in clusters")
@pytest.mark.parametrize(
    "model", [IMM(5), ExShallow(5), CART(5, max_leaves=9), *slow(EMN(5), ExGreedy(5), ExKMC(5))], ids=str
)
@given(
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    by_labels=st.booleans(),
    path=st.sampled_from(["as_it_is", "chunks", "small_cache"]),
)
def test_random_entries(model, seed, weighted, by_labels, path):
    """In eighths, whose sums are exact: the trees are the same, however many entries are summed at once."""
    X, labels = entries(seed, n=40, d=24, density=0.05)
    rng = np.random.default_rng(seed)
    labels[:5] = range(5)
    centers = rng.normal(size=(5, 24)).round(2) * (rng.random((5, 24)) < 0.5)
    arguments = {"labels": labels} if by_labels else {"centers": centers}
    arguments |= {"sample_weight": rng.integers(1, 9, 40) / 4} if weighted else {}
    with limits(path):
        try:
            assert_same(*both(model, X, **arguments))
        except ValueError as error:
            assert "the same in every column" in str(error)  # noqa: PT017 - means may well coincide


def test_columns_far_from_zero():
    X, labels = entries(3, n=200, d=40, density=0.03, kind="normal")
    X = X.tolil()
    X[:, 4] = 1e6 + np.random.default_rng(0).normal(size=(200, 1))
    X = X.tocsr()
    weight = np.random.default_rng(1).random(200)
    for model in (IMM(5), IMM(5, metric="l1")):
        given = {"centers": X[:5].toarray()} if "l1" in str(model) else {"labels": labels, "sample_weight": weight}
        assert_same(*both(model, X, **given), 1e-9)


def test_matrices_of_users_stay_as_they_are():
    X, labels = entries(0)
    for table in (sp.csr_matrix((X.data, (X.row, X.col)), shape=X.shape), X.tocsc(copy=True), X.copy()):
        before = table.data.copy()
        IMM(5).fit(table, labels=labels)
        assert np.array_equal(table.data, before)


def test_the_default_reference():
    X, _ = entries(0, n=120, d=80, density=0.04)
    X = X.tocsr() + sp.csr_matrix((np.full(120, 8.0), (np.arange(120), np.arange(120) % 4)), shape=X.shape)
    sparse, dense = both(IMM(4, random_state=0), X)
    assert torch.equal(sparse.tree_.feature, dense.tree_.feature)
    assert sparse.inertia_ == pytest.approx(dense.inertia_)


@given(seed=st.integers(0, 10**6), bins=st.integers(3, 9))
def test_at_most_max_bins(seed, bins):
    """Of 20 columns, all but two are empty."""
    rng = np.random.default_rng(seed)
    X = sp.csr_matrix((rng.normal(size=60), (np.arange(60), rng.integers(0, 2, 60))), shape=(60, 20))
    tree = CART(2, max_bins=bins, max_leaves=40).fit(X, labels=np.arange(60) % 2).tree_
    assert max(len(tree.threshold[tree.feature == column].unique()) for column in range(20)) < max(bins, 3)
    assert [len(rows) for rows in rows_of(tree, X.toarray())] == tree.samples.tolist()


def test_nothing_is_made_dense(monkeypatch):
    """400 MB in float64, of which no more than a column, or the columns of a tree, are ever there at once."""
    n = 1_000
    d = 50_000
    rng = np.random.default_rng(0)
    triples = rng.random(10_000), (rng.integers(0, n, 10_000), rng.integers(0, d, 10_000))
    X = sp.csr_matrix(triples, shape=(n, d))
    made = []
    for kind in (sp.csr_matrix, sp.csc_matrix):

        def counted(self, *args, toarray=kind.toarray, **kw):
            made.append(self.shape[0] * self.shape[1])
            return toarray(self, *args, **kw)

        monkeypatch.setattr(kind, "toarray", counted)
    for model in (IMM(3), CART(3)):
        model.fit(X, labels=np.arange(n) % 3).predict(X)
    assert 0 < max(made) <= 3 * d


def test_predictions_some_rows_at_a_time(monkeypatch):
    X, labels = entries(0)
    model = IMM(5).fit(X.tocsr(), labels=labels)
    wanted = model.predict(X.toarray())
    monkeypatch.setattr("neonxc.common.memory.CPU", 32 * 5 * 7)  # seven rows
    for form in ("csr", "csc"):
        assert np.array_equal(model.tree_.predict(X.asformat(form)), wanted)
        assert np.array_equal(model.tree_.apply(X.asformat(form)), model.tree_.apply(X.toarray()))
