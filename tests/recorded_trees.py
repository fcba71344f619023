"""Fits of every tree explainer, to be compared with trees that were recorded earlier.

python -m tests.recorded_trees --write FILE

A change that shall leave all trees as they are is checked by ``test_recorded_trees.py``; one that shall not
records them again. Tables come from seeds (or with scikit-learn), by whole numbers and powers of two alone: sums
are exact in float64 in any order, so that other machines find the same means, and the same ties. Weights that are
no such numbers are in groups of their own: there, cuts may tie but for rounding.
"""

import argparse
import gzip
import json
import zlib
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from sklearn import datasets
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

TABLES = ("iris", "wine", "breast_cancer", "digits")

# --- tables ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What an explainer is fitted to; its text is its name in the file."""

    kind: str = "fine"  # see `_values`
    seed: int = 0
    n: int = 120
    d: int = 4
    k: int = 5
    dtype: str = "float64"
    given: str = "labels"  # the reference: see `_reference`
    weight: str = "none"
    form: str = "array"

    def __str__(self):
        own = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name != "kind"]
        return " ".join([self.kind, *(f"{name}={getattr(self, name)}" for name in own)])


@cache
def built(case):
    """The table of a case, the arguments of `fit`, and a number that tells whether they are what they were."""
    rng = np.random.default_rng([case.seed, case.n, case.d, case.k])
    if case.kind in TABLES:
        X, labels = getattr(datasets, f"load_{case.kind}")(return_X_y=True)
        X, labels = X[:: len(X) // 150], labels[:: len(X) // 150]
    else:
        X = _values(case, rng).astype(case.dtype)
        labels = None
    arguments = _reference(case, X.astype(np.float64), labels, rng) | _weights(case.weight, len(X), rng)
    parts = [X.astype(np.float64), *(value for value in arguments.values() if value.dtype.kind != "U")]
    number = zlib.crc32(b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in parts))
    if case.form in ("csr", "csc"):
        X = sparse.csr_matrix(X).asformat(case.form)
    return torch.from_numpy(X) if case.form == "tensor" else X, arguments, number


def _values(case, rng):
    n = case.n
    d = case.d
    if case.kind == "grid":  # few distinct values, repeated rows, a repeated and a constant column
        X = rng.integers(0, rng.integers(2, 8), (n, d)) / 4
        X[rng.random(n) < 0.3] = X[0]
        X[:, rng.integers(1, d)] = X[:, 0]
        X[:, rng.integers(1, d)] = 0.75
        return X
    places = rng.integers(-8, 9, (case.k, d))
    own = rng.integers(case.k, size=n)
    X = places[own] + rng.integers(-(2**17), 2**17, (n, d, 2)).sum(2) / 2**16
    if case.kind == "apart":  # clusters of which every algorithm finds the same
        X += 32 * np.arange(case.k)[own, None]
    if case.kind == "distinct":  # no value twice in a column
        X += np.stack([rng.permutation(n) for _ in range(d)], 1) / 2**28
    if case.kind == "late":  # whole numbers as far as a first look goes
        X[:100] = X[:100].round()
    if case.kind == "mixed":  # many values in some columns, few in others
        X[:, 1::3] = X[:, 1::3].round()
        X[:, 2::3] = (X[:, 2::3] * 16).round() / 16
    if case.kind == "zeros":
        X[rng.random((n, d)) < 0.6] = 0
    if np.dtype(case.dtype).kind in "iu":  # int64: in a range in which numbers are sorted, not counted
        X = (X * 2**12).round() if case.dtype == "int64" else (X * 8).round().clip(-128, 127)
    return X + 128 if case.dtype == "uint8" else X


def _reference(case, X, labels, rng):
    k = case.k
    places = X[rng.permutation(len(X))[:k]]
    nearest = _squares(X, places).argmin(1) if labels is None else labels
    if case.given == "labels":
        return {"labels": nearest}
    if case.given == "random":
        return {"labels": rng.integers(0, k, len(X))}
    if case.given == "noise":
        return {"labels": np.where(rng.random(len(X)) < 0.2, -1, 3 * nearest)}
    if case.given == "names":
        return {"labels": np.array([f"cluster {label:02}" for label in nearest])}
    if case.given in ("centers", "far"):
        while True:  # until no point is about as near to two centers
            centers = X[rng.permutation(len(X))[:k]] + rng.integers(-(2**10), 2**10, (k, X.shape[1])) / 2**14
            if case.given == "far":
                centers[::2] += 64 * rng.integers(-9, 10, centers[::2].shape)
            two = np.partition(_squares(X, centers), min(1, k - 1), axis=1)[:, :2]
            if k == 1 or (two[:, 1] - two[:, 0]).min() > 1e-9 * np.abs(_squares(X, centers)).max():
                return {"centers": centers}
    return {}


def _squares(X, centers):
    return np.stack([((X - center) ** 2).sum(1) for center in centers], 1)


def _weights(kind, n, rng):
    if kind == "none":
        return {}
    if kind == "whole":
        weight = rng.integers(0, 4, n).astype(np.float64)
    elif kind == "eighths":
        weight = rng.integers(1, 17, n) / 8
    elif kind == "uneven":
        weight = 2.0 ** rng.integers(-12, 13, n)
    else:
        weight = (rng.random(n) + 0.1) * {"fractional": 1, "tiny": 1e-9, "huge": 1e9}[kind]
    return {"sample_weight": weight}


class Rows(ClusterMixin, BaseEstimator):
    """Every point to the nearest of some rows."""

    def __init__(self, n_clusters=5):
        self.n_clusters = n_clusters

    def fit(self, X, y=None):
        rows = np.linspace(0, len(X) - 1, self.n_clusters).astype(int)
        self.labels_ = _squares(np.asarray(X), np.asarray(X)[rows]).argmin(1)
        return self


# --- fits --------------------------------------------------------------------------------------------------

SEPARATE = ("IMM", "EMN", "ExGreedy", "ExShallow")
GUIDED = (*SEPARATE, "ExKMC", "CART", "KDTree")
EVERY = (*GUIDED, "RandomThresholds")
BOTH = ["fine", "grid"]


def every(**values):
    """All combinations of values that are in lists; others are the same in all of them."""
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*lists)]


def cases(**values):
    return [Case(**chosen) for chosen in every(**values)]


def shaped(shapes, **options):
    return [Case(seed=seed, n=n, d=d, k=k, **options) for seed, (n, d, k) in enumerate(shapes)]


def crossed(explainers, cases, *options):
    return [(name, option, case) for case in cases for option in options or ({},) for name in explainers]


def groups():
    """The explainer, its parameters and the case of every fit."""
    small = [(20, 2, 2), (40, 3, 4), (80, 3, 6), (60, 5, 3), (120, 4, 5), (120, 6, 8), (200, 3, 4), (30, 6, 5)]
    mixed = [(900, 12, 12), (1200, 9, 16), (700, 16, 9)]
    distinct = [(1600, 8, 8), (2000, 6, 16), (1800, 12, 10)]
    some = cases(kind=BOTH, seed=1, d=5)
    more = cases(kind=BOTH, seed=[1, 2], d=5)
    types = cases(kind="mixed", dtype=["float16", "float32", "int8", "uint8", "int64"])
    types += cases(kind="mixed", dtype=["float16", "uint8"], form="tensor")
    wide = [*shaped([(160, 150, 8)], dtype="uint8"), *shaped([(1500, 25, 8)])]
    apart = every(base=["imm", "none"], max_leaves=12)
    alone = [*cases(kind=BOTH, given="own"), *some, Case(weight="whole", given="own")]
    joins = ({}, {"n_clusters": 3}, {"max_leaves": 4}, {"min_dist": 1.0, "delta": 0.5}, {"min_dev": 0.05})
    gaps = ({}, {"n_clusters": 3}, {"max_leaves": 4}, {"min_y": 0.2}, {"min_rd": 2.0})
    return {
        "ties": crossed(EVERY, shaped(small, kind="grid")),
        "ties, random labels": crossed(GUIDED, cases(kind="grid", seed=[0, 1, 2], n=60, d=3, k=3, given="random")),
        "fine": crossed(EVERY, [*shaped(small[:6]), Case("late", n=150)]),
        "other labels": crossed(GUIDED, cases(kind=BOTH, given=["noise", "names"]) + cases(given="random")),
        "centers": crossed(EVERY, cases(seed=[0, 1], given=["centers", "far"])),
        "numbers of clusters": crossed(EVERY, [Case(seed=k, n=300, k=k) for k in (1, 2, 8, 17, 26)]),
        "types": crossed(EVERY, types),
        "sparse": crossed(EVERY, cases(kind="zeros", n=150, d=8, form=["csr", "csc"])),
        "mixed": crossed(GUIDED, shaped(mixed, kind="mixed", dtype="float32")),
        "bins": crossed(GUIDED, shaped(distinct, kind="distinct")),
        "bins, close centers": crossed(GUIDED, [Case("distinct", 0, 1800, 1, 40, given="random")]),
        "bins, weights": crossed(GUIDED, shaped(distinct[:2], kind="distinct", weight="whole")),
        "max_bins": crossed(GUIDED, cases(kind=["fine", "mixed"], seed=1, k=4), *every(max_bins=[5, 16, 64])),
        "wide": crossed(GUIDED, wide)
        + crossed(["ExKMC"], cases(n=2400, d=25, k=8, weight=["none", "eighths"]), *apart),
        "large": crossed(["IMM", "CART"], shaped([(2100, 500, 6)], kind="mixed", dtype="float32")),
        "whole weights": crossed(EVERY, cases(kind=BOTH, seed=[0, 1], weight="whole")),
        "dyadic weights": crossed(GUIDED, cases(kind=BOTH, weight=["eighths", "uneven"])),
        "fractional weights": crossed(GUIDED, cases(kind=BOTH, seed=[0, 1], weight="fractional")),
        "weights of other scales": crossed(GUIDED, cases(kind=BOTH, weight=["tiny", "huge"])),
        "leaves": crossed(SEPARATE, more, {"max_leaves": 10})
        + crossed(["ExKMC", "CART", "KDTree"], more, *every(max_leaves=[7, 20]))
        + crossed(GUIDED, some, *every(max_leaves=12, leaf_labels=["majority", "own"])),
        "base": crossed(["ExKMC"], more, *every(base=["none", "EMN", "ExShallow", "CART"], max_leaves=14)),
        "metric": crossed(["IMM", "EMN", "RandomThresholds"], more, {"metric": "l1"})
        + crossed(["IMM", "EMN"], some[:1], {"metric": "l1", "max_leaves": 9}),
        "depth": crossed(["ExShallow"], more, *every(depth_factor=[0, 0.01, 0.1, 1.0]))
        + crossed(["ExShallow"], some[:1], *every(goals=[(1.2, 2.5), (1.05, 1.5), (9.0, 1.0)])),
        "refine": crossed(SEPARATE, [*some, Case(n=60, d=2, k=8, given="random")], {"refine": True})
        + crossed(["IMM", "ExGreedy"], [Case(given="own")], {"refine": True, "reference": "scaled"}),
        "reference": crossed(EVERY, [Case(given="own")], {"reference": "scaled"}),
        "CUBT": crossed(["CUBT"], alone, *joins),
        "CLTree": crossed(["CLTree"], alone, *gaps),
        "scikit-learn's tables": crossed((*EVERY, "CUBT", "CLTree"), cases(kind=list(TABLES))),
    }


def name_of(fit):
    explainer, options, case = fit
    return f"{explainer}({', '.join(f'{key}={value}' for key, value in options.items())}) {case}"


def fitted(trees_module, fit):
    """The tree of a fit, by the explainers of a module, as `columns_of` gives it."""
    explainer, options, case = fit
    X, arguments, _ = built(case)
    options = dict(options)
    goals = options.pop("goals", None)
    if options.get("base", "none") not in ("none", "imm"):
        options["base"] = getattr(trees_module, options["base"])().fit(X, **arguments).tree_
    if options.get("reference") == "scaled":
        options["reference"] = make_pipeline(StandardScaler(), Rows())
    if explainer == "RandomThresholds":
        options["n_trials"] = 10
    model = getattr(trees_module, explainer)(**options, random_state=0)
    if goals is None:
        model.fit(X, **arguments)
    else:
        model.tune_depth_factor(X, goal_cost=goals[0], goal_waes=goals[1], **arguments)
    return columns_of(model.tree_, labels=case.kind != "apart")  # k-means numbers clusters as it likes


def columns_of(tree, labels=True):
    """A tree as four lists, in preorder.

    Tests (the feature of an inner node, or -1 - label of a leaf), samples and mistakes of all nodes; thresholds of
    inner nodes. The lists tell the children, too.
    """
    stack = [0]
    order = []
    while stack:
        order.append(stack.pop())
        if tree.feature[order[-1]] >= 0:
            stack += [int(tree.right[order[-1]]), int(tree.left[order[-1]])]
    assert order == list(range(tree.n_nodes)), "nodes are not numbered in preorder"
    inner = tree.feature >= 0
    tests = torch.where(inner, tree.feature, -1 - labels * tree.label)
    return [values.tolist() for values in (tests, tree.samples, tree.mistakes, tree.threshold[inner])]


def short(value):
    """A number with as many digits as are compared."""
    return float(f"{value:.12g}") if value % 1 else int(value)


def write(file, trees_module):
    """Record the trees of a module's explainers."""
    data = {}
    trees = {}
    for group, fits in groups().items():
        for fit in fits:
            data[str(fit[2])] = built(fit[2])[2]
            found = fitted(trees_module, fit)
            trees.setdefault(group, {})[name_of(fit)] = [[short(value) for value in values] for values in found]
    text = json.dumps({"data": data, "trees": trees}, separators=(",", ":"))
    file.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same bytes for the same trees
    print(f"{file}: {sum(map(len, trees.values()))} trees")


if __name__ == "__main__":
    import neonxc.trees

    parser = argparse.ArgumentParser(description="Record the trees that all explainers fit now.")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    write(parser.parse_args().write, neonxc.trees)
