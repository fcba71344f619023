"""What trees refuse, and what they say: explainers, the message, and what is wrong with an otherwise fine fit."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from refusals import refused
from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from neonxc import trees
from neonxc.trees import IMM

CENTERS = "IMM EMN ExGreedy ExShallow"
KERNEL = "KernelIMM KernelExKMC KernelExpand"
KERNEL_BASED = "KernelExKMC KernelExpand"
SPEX = "SpExClique SpExKNN SpExGraph"
EVERY = f"{CENTERS} ExKMC CART KDTree {SPEX} {KERNEL}"
SOME = "IMM CART KernelIMM"

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))[np.arange(60) % 4] * 4 + RNG.normal(size=(60, 3))
Y = np.arange(60) % 3
FRAME = pd.DataFrame(X, columns=list("abc"))
MIXED = FRAME.assign(work=["p", "q"] * 30)
BASE = IMM(4).fit(FRAME, labels=np.arange(60) % 4)
LONE = np.concatenate([X, [[100.0, 100, 100]]])  # whose last point is noise
CORNERS = np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]])  # two diagonals, one mean
ROWS = RNG.normal(size=(700, 4))
NAN, INF = (np.where(X[3, 1] == X, value, X) for value in (np.nan, np.inf))


def in_batches():
    return iter(np.array_split(ROWS, 7))


def changed(how):
    """A function that gives something else when it is called again."""
    tables = iter([ROWS])
    return lambda: iter([next(tables, how(ROWS))])


def frames(*tables):
    return lambda: [pd.DataFrame(table) for table in tables]


once = iter([ROWS])
PARAMETERS = [
    (f"{SOME} SpExKNN", "n_clusters needs a whole number >= 1, got 0", {"n_clusters": 0}),
    ("IMM CART SpExKNN", "n_clusters needs a whole number >= 1, got '3'", {"n_clusters": "3"}),
    (EVERY, "n_clusters=99", {"n_clusters": 99}),
    (EVERY.replace("SpExKNN SpExGraph", ""), "n_clusters=99", {"n_clusters": 99, "reference": "spectral"}),
    *(
        (
            f"{SOME} {KERNEL}",
            f'reference needs "kmeans", "kernel_kmeans", "spectral" or a clusterer{got}',
            {"reference": bad},
        )
        for bad, got in (("kmedoids", ", got 'kmedoids'"), (5, ", got 5"), (StandardScaler(), ""), (KMeans, ""))
    ),
    (
        "IMM CART SpExClique",
        'leaf_labels needs "surrogate", "majority" or "own", got .best',
        {"leaf_labels": "best"},
    ),
    (f"IMM CART SpExKNN {KERNEL}", "max_bins needs a .*number >= 2", {"max_bins": 1}),
    *(("IMM CART SpExKNN", "max_leaves needs", {"max_leaves": bad}) for bad in (4.5, "8", 0)),
    (CENTERS, "max_leaves must be at least the number of clusters, 3, got 2", {"max_leaves": 2}),
    (CENTERS, "refine needs True or False, got 'yes'", {"refine": "yes"}),
    ("IMM EMN", 'metric needs "l2" or "l1", got \'cosine\'', {"metric": "cosine"}),
    *(("ExShallow", "depth_factor needs", {"depth_factor": bad}) for bad in (-0.1, np.inf, np.nan, "much")),
    ("SpExClique", 'clique_weights needs "unit" or "size", got \'one\'', {"clique_weights": "one"}),
    ("SpExKNN", "n_neighbors needs a whole number >= 1, got 0", {"n_neighbors": 0}),
    *((KERNEL, "gamma needs", {"gamma": bad}) for bad in (0, -1.0, np.nan, np.inf, "median")),
    (KERNEL, 'kernel needs "gaussian" or "laplace", got .cosine', {"kernel": "cosine"}),
    (KERNEL, 'features needs "anchors" or "taylor", got \'fourier\'', {"features": "fourier"}),
    (KERNEL, 'features="taylor" needs kernel="gaussian"', {"features": "taylor", "kernel": "laplace"}),
    (KERNEL, "n_features needs a whole number >= 1, got 0", {"n_features": 0}),
    (KERNEL_BASED, "max_leaves must be at least the number of leaves of base, 3, got 2", {"max_leaves": 2}),
    (KERNEL_BASED, 'base needs "imm" or "none", got \'emn\'', {"base": "emn"}),
    ("ExKMC", "base was fitted on 3 columns, X has 2", {"X": X[:, :2], "base": BASE}),
    (
        "ExKMC",
        "max_leaves must be at least the number of leaves of base, 4, got 3",
        {"base": BASE, "max_leaves": 3},
    ),
    ("ExKMC", r"base needs(.|\n)*explainer\.tree_", {"base": IMM(4)}),
    ("ExKMC", "another order", {"X": FRAME.iloc[:, ::-1], "base": BASE}),
    *(
        ("IMM CART", "reference leaves points out as noise", {"X": LONE, "reference": bad})
        for bad in (
            DBSCAN(eps=9),
            make_pipeline(PCA(2), DBSCAN(eps=9)).fit(LONE),
            make_pipeline(PCA(2), make_pipeline(PCA(2), DBSCAN(eps=9))).fit(LONE),
        )
    ),
    ("CUBT CLTree", "n_clusters needs a whole number >= 1 or None, got 0", {"n_clusters": 0}),
    ("CUBT CLTree", "max_leaves needs a whole number >= 1", {"max_leaves": 0}),
    ("CUBT", "n_samples=60, fewer than n_clusters=61", {"n_clusters": 61}),
    ("CUBT", "min_size needs a finite number >= 0", {"min_size": np.nan}),
    ("CUBT", r"min_dev needs a number in \[0, 1\]", {"min_dev": 1.5}),
    ("CUBT", "min_dist needs a finite number >= 0", {"min_dist": -1}),
    ("CUBT", "delta needs a number > 0", {"delta": 0}),
    ("RandomThresholds", "n_trials needs a whole number >= 1", {"n_trials": 0}),
    ("CLTree", r"min_y needs a number in \[0, 1\]", {"min_y": "0.05"}),
    ("CLTree", "min_rd needs a finite number >= 0", {"min_rd": np.inf}),
]
GIVEN = [
    (SOME, "labels or centers, not both", {"labels": Y, "centers": np.zeros((1, 3))}),
    (SOME, r"labels needs one label per point, shape \(60,\), got \(59,\)", {"labels": Y[1:]}),
    (
        "IMM",
        r"labels needs one label per point, shape \(60,\)",
        {"labels": np.arange(80) % 3, "sample_weight": Y},
    ),
    (SOME, "no points are left", {"labels": np.full(60, -1)}),
    (SOME, r"centers needs shape \[clusters, 3\], got \[2, 4\]", {"centers": np.zeros((2, 4))}),
    (SOME, r"centers (needs shape|is empty)", {"centers": np.zeros((0, 3))}),
    (SOME, "centers has a value that is not finite", {"centers": [[0.0, 0, 0], [np.nan, 1, 1]]}),
    ("IMM", "centers can't be read", {"centers": "kmeans"}),
    ("IMM", "columns of centers differ from the fitted ones", {"X": FRAME, "centers": FRAME.iloc[:3, 1:]}),
    ("IMM", "centers are too far from X", {"centers": np.full((2, 3), 1e200) * [[1], [2]]}),
    (SOME, "sample_weight needs weights >= 0", {"sample_weight": np.full(60, -1.0)}),
    (SOME, "sample_weight", {"sample_weight": np.ones(59)}),
    (SOME, "(?i)weight", {"sample_weight": np.zeros(60)}),
    *(
        (
            name,
            r"centers of clusters \[.*\] are the same in every column",
            extra | {"centers": [[0.0] * 3, [1] * 3, [1] * 3]},
        )
        for name, extra in zip(
            CENTERS.split(), ({}, {"refine": True}, {"max_leaves": 7}, {"max_leaves": 6}), strict=True
        )
    ),
    (
        f"{CENTERS} {KERNEL} RandomThresholds",
        "are the same in every column",
        {"X": CORNERS, "labels": [0, 0, 1, 1]},
    ),
    # One point, over and over: sums of different length are not to make a cut of it
    (CENTERS, "are the same in every column", {"X": np.full((12, 2), 0.1), "labels": [0] * 3 + [1] * 4 + [0] * 5}),
    ("SpExGraph", "graph has 5 points, but X has 60; both need the same", {"graph": sp.identity(5, format="csr")}),
    ("SpExGraph", "graph needs a sparse matrix, an edge list", {"graph": "neighbours"}),
]
TABLES = [
    *((EVERY, "X|NaN|infinity", {"X": kind(NAN)}) for kind in (np.asarray, torch.from_numpy, sp.csr_matrix)),
    *(
        ("IMM", "X|infinity", {"X": kind(INF)})
        for kind in (np.asarray, torch.from_numpy, sp.csr_matrix, pd.DataFrame)
    ),
    (EVERY, "1D array|2D array|shape", {"X": np.arange(5.0)}),
    *((EVERY, "X ", {"X": torch.zeros(shape)}) for shape in ((4, 3, 2), 5, (0, 2), (3, 0))),
    (EVERY, r"neither numbers nor categories: \['when'\]", {"X": FRAME.assign(when=pd.Timestamp("2020"))}),
    ("IMM", r"neither numbers nor categories: \['work'\]", {"X": MIXED.assign(work=[[1]] * 60), "labels": Y}),
    ("IMM", "not finite in column 'a'", {"X": MIXED.assign(a=np.inf), "labels": Y}),
    ("IMM", "centers needs an X without categories", {"X": MIXED, "centers": np.zeros((2, 4))}),
]
STREAMS = [
    ("gave 700 points when it was first read, and 0", lambda: once),
    ("gave 700 points when it was first read, and 699", changed(lambda X: X[:-1])),
    ("gave 700 points when it was first read, and 1400", changed(lambda X: np.concatenate([X, X]))),
    ("and 700 or others when it was read again", changed(lambda X: X * 2)),
    ("and 700 or others when it was", changed(lambda X: X[::-1])),
    ("batch 1 of X .*nan in row 5, column 2", lambda: [ROWS, np.where(ROWS[5, 2] == ROWS, np.nan, ROWS)]),
    ("batch 0 of X .*inf in row .*'b'", frames({"a": [1, 1], "b": [0, np.inf]})),
    ("batch 1 of X has 3 columns .*, the previous ones have 4", lambda: [ROWS, ROWS[:, :3]]),
    ("batch 1 of X has .* torch.float32, the previous", lambda: [ROWS, ROWS.astype(np.float32)]),
    (
        "columns of batch 1 of X differ from the fitted ones",
        frames(*({name: [0.0, 1] for name in names} for names in ("abcd", "abce"))),
    ),
    ("batch 0 of X has columns that are not num", frames({"a": ["x"], "b": [1]})),
    (r"batch 0 of X needs shape \[points, features\]", lambda: [ROWS[0]]),
    ("X has no points", lambda: iter([])),
    ("needs to return an iterator of batches", lambda: None),
    ("nowhere.parquet can't be read: No such file", "nowhere.parquet"),
]
STREAMED = [
    *(("IMM", message, {"X": table, "centers": ROWS[:2]}) for message, table in STREAMS),
    (
        "IMM",
        r"labels needs one label per point, shape \(700,\), got \(3,\)",
        {"X": in_batches, "labels": [0, 1, 1]},
    ),
    ("IMM", "noise", {"X": in_batches, "labels": np.full(700, -1)}),
    ("IMM", r"centers needs shape \[clusters, 4\], got \[2, 3\]", {"X": in_batches, "centers": ROWS[:2, :3]}),
    (
        "IMM",
        "sample_weight needs X in memory",
        {"X": in_batches, "centers": ROWS[:2], "sample_weight": np.ones(700)},
    ),
    ("IMM", 'reference needs "kmeans"', {"X": in_batches, "reference": "spectral"}),
    ("IMM", 'need metric="l2"', {"X": in_batches, "metric": "l1", "labels": np.arange(700) % 2}),
    ("KDTree CUBT", "X needs to be in memory", {"X": in_batches}),
    ("IMM", "X needs to be in memory", {"X": in_batches, "refine": True}),
    ("ExKMC", "X needs to be in memory", {"X": in_batches, "base": BASE}),
]


@pytest.mark.parametrize(("names", "message", "wrong"), [*PARAMETERS, *GIVEN, *TABLES, *STREAMED])
def test_what_is_refused(names, message, wrong):
    parameters = {"X": X, "n_clusters": 3} | wrong
    table = parameters.pop("X")
    given = {
        key: parameters.pop(key) for key in ("labels", "centers", "sample_weight", "graph") if key in parameters
    }
    error = TypeError if isinstance(wrong.get("graph"), str) else ValueError
    for name in names.split():
        refused(message, getattr(trees, name)(**parameters).fit, table, error=error, **given)


@pytest.mark.parametrize("name", EVERY.split())
def test_what_is_refused_in_predictions(name):
    model = getattr(trees, name)(3)
    for table in (X, in_batches):
        refused("fit", model.predict, table, error=NotFittedError)
    model.fit(FRAME)
    for message, wrong in (
        ("X|NaN|infinity", NAN),
        *(("features", kind(X[:, :2])) for kind in (np.asarray, torch.from_numpy, sp.csr_matrix)),
        ("feature names|columns of X", FRAME[["a", "c", "b"]]),
    ):
        refused(message, model.predict, wrong)
