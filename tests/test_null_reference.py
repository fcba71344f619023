"""Tables without clusters: what they keep of a table, and how clusterings are compared with theirs."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import linalg, sparse, stats
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris, make_blobs
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import neonxc
from neonxc.common.result import Result
from neonxc.data.table import Table
from neonxc.evaluation import NullReference, null_reference
from neonxc.evaluation.copula import Copula
from neonxc.evaluation.without_clusters import Clustering, Shares, evidence_of
from neonxc.trees import IMM

RNG = np.random.default_rng(0)
N = 1500
KMEANS = KMeans(3, n_init=3, random_state=0)
SCALED = make_pipeline(StandardScaler(), KMEANS)
BLOB = np.random.default_rng(1).normal(size=(200, 4))
GROUPS = np.repeat([0, 1, 2], 70)
PLANTED = RNG.normal(size=(210, 4)) + 5 * np.eye(4)[GROUPS]


def correlated(columns, r=0.6):
    """Normal columns that have the correlation r."""
    common = RNG.normal(size=(N, 1))
    return np.sqrt(r) * common + np.sqrt(1 - r) * RNG.normal(size=(N, columns))


def drawn(X, tables=8, weight=None):
    copula = Copula(Table.read(X), weight)
    generator = np.random.default_rng(1)
    return [copula.draw(generator) for _ in range(tables)]


def spearman(X):
    return stats.spearmanr(X).statistic


MARGINS = {
    "normal": lambda x: x,
    "log-normal": np.exp,
    "many zeros": lambda x: np.where(x < 0.3, 0, x),
    "counts": lambda x: np.floor(np.exp(x)),
    "truth values": lambda x: x > 1,
    "steps of a scale": lambda x: np.digitize(x, [-1, 0, 0.5, 2]),
}


@pytest.mark.parametrize("name", MARGINS)
def test_columns_and_rank_correlations_are_kept(name):
    X = MARGINS[name](correlated(3)).astype(float)
    tables = drawn(X)
    for table in tables:
        assert (np.sort(table, 0) == np.sort(X, 0)).all()
    correlations = np.mean([spearman(table) for table in tables], axis=0)
    np.testing.assert_allclose(correlations, spearman(X), atol=0.04)


def test_correlations_of_other_signs_and_of_equal_columns_are_kept():
    x = correlated(2)
    X = np.column_stack([x[:, 0] > 0.8, -x[:, 1], x[:, 0] > 0.8, x[:, 0]]).astype(float)
    tables = drawn(X)
    for table in tables:
        assert (table[:, 0] == table[:, 2]).mean() > 0.99
    correlations = np.mean([spearman(table) for table in tables], axis=0)
    np.testing.assert_allclose(correlations, spearman(X), atol=0.05)


def test_modes_of_a_column_are_joined_and_clusters_vanish():
    X = correlated(2, 0.2)
    X[N // 2 :] += 8
    assert ((X > 3) & (X < 5)).all(1).mean() < 0.005
    for table in drawn(X):
        assert X.min() <= table.min() <= table.max() <= X.max()
        assert ((table > 3) & (table < 5)).all(1).mean() > 0.02
        counts, _ = np.histogram(table[:, 0], 12, (-1, 9))
        assert counts.min() > counts.max() / 3


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_columns_keep_their_type(dtype):
    X = pd.DataFrame(np.round(20 * correlated(2))).astype(dtype).set_axis(["a", "b"], axis=1)
    for table in drawn(X, 2):
        assert table.dtypes.tolist() == X.dtypes.tolist()
        assert set(table["a"]) <= set(range(-200, 200))


def mixed_table(n=N):
    """Columns of several kinds, all of which depend on one normal variable, with gaps."""
    common = np.random.default_rng(3).normal(size=n)
    noise = np.random.default_rng(4).normal(size=(n, 3))
    color = np.array(["red", "blue", "green", "amber"])[np.digitize(common + 0.5 * noise[:, 0], [-1, 0.2, 1])]
    grade = pd.Categorical.from_codes(np.digitize(common + noise[:, 1], [-1, 0, 1]), list("dcba"), ordered=True)
    hours = pd.to_timedelta(np.round(20 * np.exp(0.3 * common + noise[:, 2])), unit="h")
    day = pd.Timestamp("2026-01-01") + hours
    income = np.where(common > 1.2, np.nan, common)
    code = pd.Series(color).map({"red": 3, "blue": 1, "green": 2, "amber": 0}).astype("category")
    columns = {"color": color, "grade": grade, "day": day, "income": income, "constant": 1, "code": code}
    return pd.DataFrame(columns)


def association(a, b):
    """Cramér's V."""
    return stats.contingency.association(pd.crosstab(a, b))


def test_categories_keep_their_shares_and_association_and_gaps_their_place():
    X = mixed_table()
    tables = drawn(X)
    pairs = [("color", "grade"), ("color", "code")]
    for table in tables:
        assert table.dtypes.tolist() == X.dtypes.tolist()
        for name in ("color", "grade", "code", "constant", "day"):
            pd.testing.assert_series_equal(
                table[name].value_counts().sort_index(),
                X[name].value_counts().sort_index(),
                check_index_type=False,
            )
        assert table["income"].isna().sum() == X["income"].isna().sum()
    for a, b in pairs:
        kept = np.mean([association(table[a], table[b]) for table in tables])
        assert kept == pytest.approx(association(X[a], X[b]), abs=0.06)
    of_gaps = np.mean([association(table["color"], table["income"].isna()) for table in tables])
    assert of_gaps == pytest.approx(association(X["color"], X["income"].isna()), abs=0.1)


def test_weighted_margins_are_those_of_repeated_rows():
    X = correlated(2)
    weight = np.where(X[:, 0] > 0, 4.0, 1.0)
    repeated = np.repeat(X, weight.astype(int), axis=0)
    assert spearman(X) < spearman(repeated) or spearman(X) > spearman(repeated)  # they differ
    tables = drawn(X, weight=weight)
    means = np.mean([np.average(table, axis=0, weights=weight) for table in tables], axis=0)
    np.testing.assert_allclose(means, repeated.mean(0), atol=0.03)
    independent = np.mean([np.corrcoef(weight, table[:, 0])[0, 1] for table in tables])
    assert abs(independent) < 0.05


def test_wide_tables_have_no_more_structure_than_noise():
    X = np.random.default_rng(5).normal(size=(150, 200))
    largest = np.linalg.svd(X - X.mean(0), compute_uv=False)[0]
    spread = [np.linalg.svd(table - table.mean(0), compute_uv=False)[0] for table in drawn(X)]
    assert np.mean(spread) == pytest.approx(largest, rel=0.05)


# --- shares of the variance --------------------------------------------------------------------------------------


def eta2(x, labels, weight=None):
    """The share of the variance of a column between the clusters; -1 is noise."""
    weight = np.ones(len(x)) if weight is None else weight
    mean = np.average(x, weights=weight)
    between = 0.0
    for k in set(labels) - {-1}:
        own = labels == k
        between += weight[own].sum() * (np.average(x[own], weights=weight[own]) - mean) ** 2
    return between, weight @ (x - mean) ** 2


def test_shares_are_those_of_the_definition():
    found = null_reference(SCALED, PLANTED, 3)
    labels = SCALED.fit_predict(PLANTED)
    points = StandardScaler().fit_transform(PLANTED)
    sums = np.array([eta2(column, labels) for column in points.T])
    assert found.explained == pytest.approx(sums[:, 0].sum() / sums[:, 1].sum())
    np.testing.assert_allclose(found.to_frame()["explained"], sums[:, 0] / sums[:, 1])


@pytest.mark.parametrize("kind", ["clusters", "noise", "weights"])
def test_statistics_along_axes_are_those_of_the_discriminant_analysis(kind):
    X = PLANTED @ RNG.normal(size=(4, 4))
    labels = KMEANS.fit_predict(X)
    weight = np.ones(len(X))
    if kind == "noise":
        labels[::9] = -1
    if kind == "weights":
        weight = RNG.integers(1, 4, len(X)).astype(float)
    members = (labels[:, None] == np.arange(3)).astype(float)
    centered = X - np.average(X, axis=0, weights=weight)
    found = Clustering(X, members, weight).shares(pd.DataFrame(X))

    means = members.T @ (centered * weight[:, None]) / (weight @ members)[:, None]
    between = means.T @ (means * (weight @ members)[:, None])
    total = centered.T @ (centered * weight[:, None])
    shares, axes = linalg.eigh(between, total)
    repeated = np.repeat(centered, weight.astype(int), axis=0) @ axes[:, shares > 1e-9]
    assert found.along == pytest.approx(shares.sum())
    assert found.apart == pytest.approx(-np.log(1 - shares).sum())
    assert found.two_modes == pytest.approx(-np.mean(repeated**4, 0).min() * len(repeated) ** 2)


def test_axes_of_more_columns_than_rows_are_the_same_for_any_clusters():
    points = np.random.default_rng(0).normal(size=(30, 40))
    shares = []
    for sizes in ([10, 10, 10], [5, 5, 20]):
        members = np.eye(3)[np.repeat([0, 1, 2], sizes)]
        shares.append(Clustering(points, members, np.ones(30)).shares(pd.DataFrame(points)))
    for of_clusters in shares:
        np.testing.assert_allclose(of_clusters.statistics[:3], [2, -2 * np.log(1e-9), -30])


def shares_of(statistics):
    """One table per row, of which `columns` has the square root of the last number."""
    return [Shares(0.0, *row[:3], np.sqrt(row[3:])) for row in np.array(statistics, dtype=float)]


EVIDENCE = {  # statistics of four tables: mean of 1 / p over the statistics
    "the largest of all": ([[9, 9, 9, 9], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]], [4, 1, 4 / 3, 2]),
    "of one": ([[9, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]], [7 / 4, 5 / 4, 11 / 6, 7 / 2]),
    "ties": ([[5, 1, 1, 1], [5, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], [5 / 4, 5 / 4, 1, 1]),
    "ties but for rounding": ([[5, 1, 1, 1], [5 + 1e-12, 1, 1, 1], [1] * 4, [1] * 4], [5 / 4, 5 / 4, 1, 1]),
}


@pytest.mark.parametrize("case", EVIDENCE)
def test_evidence_is_the_mean_of_reciprocal_p_values(case):
    statistics, expected = EVIDENCE[case]
    np.testing.assert_allclose(evidence_of(shares_of(statistics)), expected)


def test_tables_with_the_same_ranks_have_the_same_evidence_to_the_bit():
    evidence = evidence_of(shares_of([[5, 4, 3, 2], [4, 5, 4, 1], [3, 3, 5, 3], [2, 2, 2, 4], [1, 1, 1, 5]]))
    evidence = [
        *evidence,
        *evidence_of(shares_of([[2, 5, 3, 4], [1, 4, 4, 5], [3, 3, 5, 3], [4, 2, 2, 2], [5, 1, 1, 1]])),
    ]
    assert evidence[0] == evidence[5]
    assert evidence[1] == evidence[6]


def test_noise_is_in_no_cluster():
    X = np.concatenate([PLANTED[:, :3], RNG.uniform(-20, 20, (15, 3))])
    model = DBSCAN(1.2, min_samples=5)
    labels = model.fit_predict(X)
    assert (labels == -1).sum() > 5
    assert labels.max() > 0
    sums = np.array([eta2(column, labels) for column in X.T])
    found = null_reference(model, X, 3)
    assert found.explained == pytest.approx(sums[:, 0].sum() / sums[:, 1].sum())


def test_categories_have_the_share_of_their_indicators_and_gaps_are_left_out():
    X = mixed_table(300)[["color", "income"]]
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["color"]), (SimpleImputer(), ["income"])), KMEANS
    )
    labels = model.fit_predict(X)
    frame = null_reference(model, X, 2).to_frame()
    indicators = pd.get_dummies(X["color"]).to_numpy(dtype=float)
    sums = np.sum([eta2(column, labels) for column in indicators.T], axis=0)
    assert frame.loc["color", "explained"] == pytest.approx(sums[0] / sums[1])
    known = X["income"].notna().to_numpy()
    between, total = eta2(X["income"].to_numpy()[known], labels[known])
    assert frame.loc["income", "explained"] == pytest.approx(between / total)


def test_columns_of_one_value_have_no_share():
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=90)})
    frame["constant"] = 0.1  # whose mean is another number by rounding
    frame["one level"] = pd.Categorical(["a"] * 90, ["a", "b"])
    frame["one value and gaps"] = np.where(frame["x"] > 0, 3.0, np.nan)
    frame["gaps"] = np.nan
    by_x = make_pipeline(make_column_transformer(("passthrough", ["x"])), KMEANS)
    table = null_reference(by_x, frame, 2).to_frame()
    assert table["explained"].notna().to_dict() == {name: name == "x" for name in frame}


def test_weights_are_repeated_rows_in_the_shares_and_zeros_are_left_out():
    weight = RNG.integers(0, 4, len(PLANTED)).astype(float)
    found = null_reference(SCALED, PLANTED, 2, sample_weight=weight)
    repeated = null_reference(SCALED, np.repeat(PLANTED, weight.astype(int), axis=0), 2)
    kept = null_reference(SCALED, PLANTED[weight > 0], 2, sample_weight=weight[weight > 0])
    assert found.explained == pytest.approx(repeated.explained)
    np.testing.assert_allclose(found.to_frame()["explained"], repeated.to_frame()["explained"])
    pd.testing.assert_frame_equal(found.to_frame(), kept.to_frame())


# --- the comparison ----------------------------------------------------------------------------------------------


MODELS = {
    "k-means": KMEANS,
    "behind a scaler": SCALED,
    "behind principal components": make_pipeline(StandardScaler(), PCA(2), KMEANS),
    "a mixture": GaussianMixture(3, random_state=0),
    "without a seed": AgglomerativeClustering(3),
    "by density": DBSCAN(1.6),
    "a tree": IMM(3, random_state=0),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("behind a scaler", "without a seed")))
        for name in MODELS
    ],
)
def test_planted_clusters_are_above_and_one_cloud_is_not(name):
    found = null_reference(MODELS[name], PLANTED)
    assert found.above
    assert found.explained > found.reference
    assert (found.to_frame()["share"][:3] > 0.9).all()
    cloud = null_reference(MODELS[name], BLOB)
    assert not cloud.above


def test_a_column_without_clusters_is_below():
    frame = null_reference(KMEANS, pd.DataFrame(PLANTED, columns=list("abcd"))).to_frame()
    assert frame.index.tolist() == list("abcd")
    assert frame.columns.tolist() == ["explained", "reference", "share"]
    assert frame.loc["d", "share"] < 1
    assert frame.loc["d", "explained"] < frame.loc["d", "reference"]


def test_two_modes_of_one_column_are_evidence():
    x = np.concatenate([RNG.normal(size=200), RNG.normal(6, 1, 200)])[:, None]
    assert null_reference(KMeans(2, n_init=3, random_state=0), x).above
    assert not null_reference(KMeans(2, n_init=3, random_state=0), RNG.normal(size=(400, 1))).above


def test_mixed_tables():
    X = mixed_table(300).drop(columns="day")
    steps = make_column_transformer(
        (OneHotEncoder(), ["color", "grade", "code"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["income", "constant"]),
    )
    frame = null_reference(make_pipeline(steps, KMEANS), X).to_frame()
    assert np.isnan(frame.loc["constant", "share"])
    assert frame["share"].drop("constant").between(0, 1).all()


def test_results_depend_on_the_seed_alone():
    first, again, other = (null_reference(SCALED, BLOB, 5, random_state=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first.to_frame(), again.to_frame())
    assert (first.evidence == again.evidence).all()
    assert first.explained == other.explained  # the model has a seed of its own
    assert first.reference != other.reference


def test_a_fitted_model_stays_as_it_is():
    model = KMeans(3, n_init=1, random_state=0).fit(PLANTED)
    labels = model.labels_.copy()
    null_reference(model, PLANTED, 2)
    assert (model.labels_ == labels).all()


def frames():
    X = pd.DataFrame(PLANTED, columns=list("abcd"))
    yield "array", PLANTED
    yield "tensor", torch.from_numpy(PLANTED)
    yield "list", PLANTED.tolist()
    yield "frame", X
    yield "sparse", sparse.csr_matrix(PLANTED)
    yield "arrow", pa.Table.from_pandas(X, preserve_index=False)
    yield "polars", pl.DataFrame(dict(X))


def test_tables_of_all_kinds_have_one_answer(tmp_path):
    pd.DataFrame(PLANTED, columns=list("abcd")).to_csv(tmp_path / "table.csv", index=False)
    expected = null_reference(KMEANS, PLANTED, 3)
    for name, X in [*frames(), ("file", tmp_path / "table.csv")]:
        found = null_reference(KMEANS, X, 3)
        assert found.explained == pytest.approx(expected.explained), name
        np.testing.assert_allclose(found.evidence, expected.evidence, rtol=1e-5, err_msg=name)


def test_columns_are_selected_by_the_names_of_a_fitted_model():
    X = pd.DataFrame(PLANTED, columns=list("abcd"))
    model = KMeans(3, n_init=3, random_state=0).fit(X[["b", "a"]])
    assert null_reference(model, X, 2).to_frame().index.tolist() == ["b", "a"]


class NoClone:
    def fit(self, X):
        self.labels_ = np.zeros(len(X))
        return self


REFUSED = {
    "labels": (GROUPS, PLANTED, TypeError, "labels alone don't tell how they were found"),
    "labels as a list": ([*GROUPS], PLANTED, TypeError, "Pass the clusterer"),
    "a network": (neonxc.neuralize(KMeans(3, random_state=0).fit(PLANTED), PLANTED), PLANTED, TypeError, "itself"),
    "no clone": (NoClone(), PLANTED, TypeError, "inherits sklearn.base.BaseEstimator"),
    "distances": (DBSCAN(metric="precomputed"), np.eye(5), TypeError, "matrix of distances"),
    "texts": (
        make_pipeline(CountVectorizer(), KMEANS),
        ["a b", "b c", "c d"],
        ValueError,
        "texts have no columns",
    ),
    "one row of numbers": (KMEANS, np.arange(5.0), ValueError, "shape"),
    "noise alone": (DBSCAN(1e-9), BLOB, ValueError, "finds no clusters"),
    "constants alone": (KMeans(1), np.ones((9, 2)), ValueError, "not constant"),
    "infinite values": (KMEANS, np.where(BLOB > 2, np.inf, BLOB), ValueError, "infinite"),
    "objects": (KMEANS, pd.DataFrame({"a": [[1], [2], [3]]}), ValueError, "objects"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_pass(case):
    model, X, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        null_reference(model, X)


def test_trees_of_given_labels_are_refused():
    tree = IMM(3).fit(PLANTED, labels=GROUPS)
    with pytest.raises(TypeError, match="was given labels"):
        null_reference(tree, PLANTED)


@pytest.mark.parametrize("tables", [0, 1.5, "19"])
def test_the_number_of_tables_is_checked(tables):
    with pytest.raises((TypeError, ValueError), match="tables"):
        null_reference(KMEANS, BLOB, tables)


SENTENCES = {
    (0.45, 0.34, True): "explain at most 34% of the variance; this one explains 45%.",
    (0.30, 0.34, True): "explain up to 34% of the variance; this one explains 30%, and yet more of single columns",
    (
        0.35,
        0.34,
        False,
    ): "explain at most 34% of the variance; this one explains 35%, but no more of single columns",
    (0.30, 0.34, False): "explain up to 34% of the variance; this one explains 30%: one cloud without clusters",
}


@pytest.mark.parametrize("case", SENTENCES)
def test_sentences(case):
    explained, reference, is_above = case
    evidence = np.array([2.0 if is_above else -1.0, 0, 1])
    columns = pd.DataFrame({"explained": [0.5, 0.1], "reference": [0.2, 0.2], "share": [1.0, 0.5]}, ["a", "b"])
    found = NullReference(explained, reference, evidence, columns)
    assert isinstance(found, Result)
    assert found.above == is_above
    first, second = found.lines()
    assert first.startswith(
        "Clusterings of tables with the same columns and correlations, but no clusters, explain"
    )
    assert SENTENCES[case] in first
    assert second == "1 of 2 columns differs more between the clusters than in any of them."
    assert found.sentence() == f"{first} {second}"
    assert found.sentence() in str(found).replace("\n", " ")
    assert "significan" not in str(found)


def test_iris_is_above():
    found = null_reference(SCALED, load_iris(as_frame=True).data)
    assert found.above
    assert found.to_markdown().count("|") > 20


def test_blobs_of_sklearn_are_above():
    X, _ = make_blobs(200, centers=3, random_state=3)
    assert null_reference(KMEANS, X).above


def test_one_cluster_explains_nothing():
    found = null_reference(KMeans(1), BLOB, 3)
    assert not found.above
    assert found.to_frame()["share"].max() == 0
    assert found.explained == pytest.approx(0, abs=1e-12)


def test_columns_of_times_have_shares():
    X = mixed_table(200)[["day", "income"]].fillna({"income": 0.0})
    X["zone"] = X["day"].dt.tz_localize("UTC")
    X["hour"] = X["day"].dt.time
    model = make_pipeline(make_column_transformer(("passthrough", ["income"])), KMEANS)
    frame = null_reference(model, X, 2).to_frame()
    assert frame["share"].between(0, 1).all()
    assert frame.loc["day", "explained"] == frame.loc["zone", "explained"]


def test_very_wide_tables_are_refused():
    with pytest.raises(ValueError, match="at most 1000: pass the clusterer fewer columns"):
        null_reference(KMEANS, np.random.default_rng(0).normal(size=(20, 1001)))
