"""Tables of other libraries are read as those of pandas: their names, their order, their text and their gaps."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import neonxc
from neonxc import evaluation as ev
from neonxc.models import BetaInterpretable, KCenter, KernelKMeans, StronglyInterpretable, patterns
from neonxc.preparation import prepare
from neonxc.trees import CART, IMM, SpExKNN, trade_off
from neonxc.trees.graph import knn_graph

rng = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], 15)
NUMBERS = pd.DataFrame(rng.normal(size=(45, 3)) + 4 * np.eye(3)[Y], columns=["x", "y", "z"])
MIXED = NUMBERS.assign(
    work=np.where(Y == 1, "State", "Private"), size=pd.Categorical(np.array(["S", "M", "L"])[Y]), member=Y > 1
)
MIXED.loc[::7, ["x", "work"]] = None
WEIGHT = pd.Series(np.linspace(1, 2, 45))
CONTAINERS = {
    "pandas with Arrow": lambda data: data.convert_dtypes(dtype_backend="pyarrow"),
    "pandas with NA": lambda data: data.convert_dtypes(),
    "polars": pl.from_pandas,
    "polars, lazy": lambda data: (
        pl.from_pandas(data).lazy() if isinstance(data, pd.DataFrame) else pl.Series(data)
    ),
    "pyarrow": lambda data: pa.table(data) if isinstance(data, pd.DataFrame) else pa.array(data),
    "stream": lambda data: (
        pa.table(data).to_reader() if isinstance(data, pd.DataFrame) else pa.chunked_array([data])
    ),
    "duckdb": lambda data: duckdb.from_arrow(pa.table(data)) if isinstance(data, pd.DataFrame) else data,
}
GAPS = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
COLUMNS = make_column_transformer(
    (GAPS, ["x", "y", "z"]), (OneHotEncoder(handle_unknown="ignore"), ["work", "size", "member"])
)
CENTERS = NUMBERS.groupby(Y).mean().reset_index(drop=True)


def of(X, *steps):
    """A network and a tree of a table."""
    model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(X)
    net = neonxc.neuralize(model, X)
    net.model = model
    return net, CART(3).fit(X, labels=Y), X


FITTED = {"numbers": of(NUMBERS, "passthrough"), "mixed": of(MIXED, COLUMNS)}
LABELS = pd.Series(Y)
ANY = {
    "neuralize": lambda net, tree, X, read: neonxc.neuralize(net.model, read(X)).beta,
    "labels": lambda net, tree, X, read: neonxc.neuralize(labels=read(LABELS), X=read(X)).predict(read(X)),
    "predict": lambda net, tree, X, read: net.predict(read(X)),
    "beta": lambda net, tree, X, read: net.heuristic_beta(read(X)),
    "attribute": lambda net, tree, X, read: neonxc.NEON(net).attribute(read(X), target=read(LABELS)),
    "residual": lambda net, tree, X, read: neonxc.NEON(net).residual(read(X)),
    "summary": lambda net, tree, X, read: neonxc.NEON(net).summary(read(X)).to_frame(),
    "contrast": lambda net, tree, X, read: neonxc.contrast(net, read(X), 0, 1).relevance,
    "counterfactual": lambda net, tree, X, read: neonxc.counterfactual(net, read(X), spread=read(X)).distance,
    "CART": lambda net, tree, X, read: (
        CART(3).fit(read(X), labels=read(LABELS), sample_weight=read(WEIGHT)).labels_
    ),
    "tree.predict": lambda net, tree, X, read: tree.predict(read(X)),
    "tree.score": lambda net, tree, X, read: tree.score(read(X)),
    "tree.apply": lambda net, tree, X, read: tree.tree_.apply(read(X)),
    "tree.decision_path": lambda net, tree, X, read: tree.tree_.decision_path(read(X)),
    "rules.measure": lambda net, tree, X, read: (
        tree.tree_.rules().measure(read(X), read(LABELS), read(WEIGHT)).to_frame()
    ),
    "rules.predict": lambda net, tree, X, read: tree.tree_.rules().predict(read(X)),
    "rule.matches": lambda net, tree, X, read: tree.tree_.rules()[0].matches(read(X)),
    "trade_off": lambda net, tree, X, read: trade_off(
        read(X), labels=read(LABELS), candidates={"IMM": IMM(3)}
    ).to_markdown(),
    "patterns": lambda net, tree, X, read: patterns(read(X), read(LABELS)).to_frame(),
    "KCenter": lambda net, tree, X, read: KCenter(3, "gower").fit(read(X)).predict(read(X)),
    "BetaInterpretable": lambda net, tree, X, read: (
        BetaInterpretable(3, 0.6, metric="gower").fit(read(X), foi=read(LABELS)).labels_
    ),
    "StronglyInterpretable": lambda net, tree, X, read: (
        StronglyInterpretable(3, "gower").fit(read(X), foi=read(LABELS)).predict(read(X))
    ),
    "kcenter_cost": lambda net, tree, X, read: ev.kcenter_cost(read(X), read(LABELS), "gower"),
    "pixel_flipping": lambda net, tree, X, read: (
        ev.pixel_flipping(net, read(X), read(neonxc.NEON(net).attribute(X)), ev.ZeroImputer()).curve
    ),
    "compare": lambda net, tree, X, read: (
        ev.compare(net, read(X), ["NEON"], ev.ZeroImputer(), points=9, progress=False).results["NEON"].auc
    ),
    "agreement": lambda net, tree, X, read: ev.agreement(net, tree, read(X)).same,
    "prepare": lambda net, tree, X, read: prepare(read(X)).notes,
}
NUMERIC = {
    "KernelKMeans": lambda net, tree, X, read: (
        KernelKMeans(3, 2, random_state=0).fit(read(X), sample_weight=read(WEIGHT)).transform(read(X))
    ),
    "choose_k": lambda net, tree, X, read: ev.choose_k(read(X), (2, 3)).frame,
    "cost_ratio": lambda net, tree, X, read: ev.cost_ratio(read(X), read(LABELS), read(CENTERS), read(WEIGHT)),
    "centers": lambda net, tree, X, read: IMM(3).fit(read(X), centers=read(CENTERS)).cluster_centers_,
    "neuralize centers": lambda net, tree, X, read: neonxc.neuralize(read(CENTERS)).predict(X.to_numpy()),
    "SpExKNN": lambda net, tree, X, read: SpExKNN(3).fit(read(X), labels=read(LABELS)).labels_,
    "knn_graph": lambda net, tree, X, read: knn_graph(read(X), 3).weight.numpy(),
    "KDEImputer": lambda net, tree, X, read: ev.KDEImputer(read(X)).points.numpy(),
    "calibrate": lambda net, tree, X, read: (
        ev.calibrate_by_flipping(net, read(X), ev.ZeroImputer(), factors=[1]).betas
    ),
}


def compared(found):
    return found.to_numpy() if hasattr(found, "to_numpy") else found


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_containers(entry, container):
    for net, tree, X in list(FITTED.values())[: 1 if entry in NUMERIC else 2]:
        ask = {**ANY, **NUMERIC}[entry]
        expected, found = ask(net, tree, X, lambda data: data), ask(net, tree, X, CONTAINERS[container])
        np.testing.assert_equal(compared(found), compared(expected))
