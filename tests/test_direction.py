"""One rule for what a column says of a cluster, and the rows that are shown as typical of it."""

from functools import cache
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import neonxc
from neonxc import NEON, neuralize
from neonxc.attribution.direction import Direction, of_category, of_number, of_term, present_first
from neonxc.attribution.moments import Moments
from neonxc.data.sparse import SparseRows

pytestmark = pytest.mark.usefixtures("without_reality")

# --- words, arrows and numbers -----------------------------------------------------------------------------

CASES = {
    "high": (of_number(1116, 582.3, 2.4), "high", "↑ 1116 vs 582.3", "high x"),
    "low": (of_number(1.2, 3.4, -0.5), "low", "↓ 1.2 vs 3.4", "low x"),
    "medium": (of_number(102.7, 99.74, 0.28), "medium", "≈ 102.7 vs 99.74", "medium x"),
    "extreme": (of_number(0.1, 0.2, -0.1, deviation=9.0), "extreme", "↕ 0.1 vs 0.2", "extreme x"),
    "far and wide": (of_number(5.0, 0.2, 3.0, deviation=9.0), "high", "↑ 5 vs 0.2", "high x"),
    "constant": (of_number(2.0, 2.0, 0.0), "medium", "= 2 vs 2", "medium x"),
    "rounding": (of_number(2.0 + 1e-15, 2.0, 0.0), "medium", "= 2 vs 2", "medium x"),
    "alike": (of_number(89.56, 89.58, -0.001, deviation=1.1), "medium", "= 89.56 vs 89.58", "medium x"),
    "narrow": (of_number(89.56, 89.58, -0.001, deviation=0.5), "medium", "≈ 89.56 vs 89.58", "medium x"),
    "near": (of_number(2924.0001, 2924.0004, -3.0), "low", "↓ 2924.0001 vs 2924.0004", "low x"),
    "infinite": (of_number(4.0, 1.0, inf), "high", "↑ 4 vs 1", "high x"),
    "missing": (of_number(nan, 3.2, nan, known=0.2), "missing", "missing vs 3.2", "x is missing"),
    "missing on both sides": (
        of_number(3.0, 3.2, -0.1, known=0.2, known_elsewhere=0.3),
        "medium",
        "≈ 3 vs 3.2",
        "",
    ),
    "alone": (of_number(3.0, nan, nan), "typical", "3", "typical x"),
    "unknown": (of_number(nan, 3.0, nan), "", "", ""),
    "category": (of_category("yes", 0.98, 0.53, 0.4), "is yes", "is yes 98% vs 53%", "x is yes"),
    "near categories": (of_category("yes", 0.524, 0.521, 0.01), "is yes", "is yes 52.4% vs 52.1%", "x is yes"),
    "term": (of_term(0.8, 0.1, 0.5), "high", "↑ in 80% vs 10%", "x"),
    "absent term": (of_term(0.0, 0.1, 0.2), "low", "↓ in 0% vs 10%", "no x"),
}


@pytest.mark.parametrize("name", CASES)
def test_words_arrows_and_numbers(name):
    direction, word, comparison, statement = CASES[name]
    assert (direction.word, direction.comparison()) == (word, comparison)
    if statement:
        assert direction.statement("x") == statement
    reads_alike = name in ("constant", "rounding", "alike", "near categories", "unknown")
    assert direction.is_reason == (not reads_alike)


def test_columns_that_are_distributed_alike_are_no_reasons():
    """Of a column that has nothing to do with the clusters, no report says that it is medium."""
    labels = np.arange(600) % 3
    member = np.arange(600) // 3  # the number of a row in its cluster
    X = pd.DataFrame({"size": 3 * labels + np.random.default_rng(0).normal(size=600)})
    X["turn"] = (member * 37 + labels) % 200
    X["flag"] = np.where((member + labels // 2) % 2, "yes", "no")
    description = neonxc.describe(X, labels=labels, fast=True)
    said = {statement.text for cluster in description.clusters for statement in cluster.statements}
    assert said == {"low size", "medium size", "high size"}  # the middle one is narrower than the others


@pytest.mark.parametrize(
    ("own", "others", "is_reason"),
    [(0.5, 0.52, False), (0.5, 0.6, True), (0.01, 0.012, False), (0.01, 0.05, True), (1 + 1e-16, 1.0, False)],
)
def test_fractions_read_alike_by_cohens_h(own, others, is_reason):
    assert of_category("yes", own, others, 0.1).is_reason == is_reason


def test_what_reads_alike_is_no_reason():
    for direction in (of_category("yes", 0.5, 0.5, 0.0), of_term(0.5, 0.5, 0.0), of_number(7.0, 7.0, 0.0)):
        assert not direction.is_reason
    assert Direction("is yes", 1.0, 1.0, 0.0, "category").numbers() == ("100%", "100%")


def test_steps_have_the_digits_that_they_need():
    for after, before, wanted in [(12, 52, "52 → 12"), (2924.1, 2924.2, "2924.2 → 2924.1"), (2, 2, "2 → 2")]:
        assert of_number(after, before, after - before).step() == wanted
    assert of_category("Pro", 0.8, 0.1, 0.5).step() == "is Pro 10% → 80%"
    assert of_term(0.8, 0.1, 0.5).step() == "in 10% → 80%"


def test_present_words_come_before_absent_ones():
    java = of_term(0.0, 0.6, 0.5)
    rust = of_term(0.5, 0.1, 0.4)
    tiny = of_term(0.2, 0.1, 0.1)
    against = of_term(0, 1, 1)
    assert present_first([(java, 0.9), (rust, 0.5), (tiny, 0.01), (against, -0.4)]) == [1, 0, 2, 3]
    assert present_first([(java, 0.9), (against, 0.8)]) == [0, 1]  # nothing present remains
    counts = of_number(0.1, 4.0, -2.0, present=0.1)  # such as those of a gene that the cluster does not express
    assert present_first([(counts, 0.9), (rust, 0.5)]) == [1, 0]
    assert not of_number(-3.0, 4.0, -2.0).is_absence


# --- every place says the same -----------------------------------------------------------------------------

TEXTS = ["java code", "java test code", "code java", "soup salt", "salt bread", "bread soup salt"] * 4


def mixed():
    draw = np.random.default_rng(0)
    k = np.repeat([0, 1, 2], 60)
    frame = pd.DataFrame(
        {
            "sum": np.exp(draw.normal(5 + k, 0.6)),
            "visits": draw.poisson(3 + 3 * k).astype(float),
            "paid": draw.random(180) < np.array([0.9, 0.5, 0.52])[k],
            "plan": np.array(["S", "M", "L"])[np.where(draw.random(180) < 0.8, k, 0)],
        }
    )
    frame.loc[draw.random(180) < 0.1, "visits"] = np.nan
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["sum", "visits"]),
        (OneHotEncoder(), ["paid", "plan"]),
    )
    return make_pipeline(columns, KMeans(3, n_init=2, random_state=0)).fit(frame), frame


def truths():
    draw = np.random.default_rng(1)
    k = np.repeat([0, 1], 50)
    frame = pd.DataFrame(
        {"x": draw.normal(4 * k), "yes": draw.random(100) < 0.2 + 0.6 * k, "same": np.ones(100, bool)}
    )
    return KMeans(2, n_init=2, random_state=0).fit(frame), frame


def scaled(data, k, offset=0.0):
    X = pd.DataFrame(data) + offset
    X.columns = X.columns.astype(str)
    return make_pipeline(StandardScaler(), KMeans(k, n_init=2, random_state=0)).fit(X), X


def outliers():
    X = np.random.default_rng(0).normal(size=(150, 3))
    X[:8, 0] = np.tile([-9, 9], 4) + np.arange(8)
    frame = pd.DataFrame(X, columns=[*"abc"])
    return make_pipeline(StandardScaler(), DBSCAN(1.2, min_samples=4)).fit(frame), frame


TABLES = {
    "wine": lambda: scaled(load_wine().data, 3),
    "wine in 8": lambda: scaled(load_wine().data, 8),
    "cancer": lambda: scaled(load_breast_cancer().data, 4),
    "iris": lambda: scaled(load_iris().data, 3),
    "segments": lambda: scaled(make_blobs(210, 19, centers=7, cluster_std=6, random_state=0)[0], 7),
    "skewed": lambda: scaled(np.exp(2 * make_blobs(200, 4, centers=3, random_state=0)[0] / 5), 3),
    "offset": lambda: scaled(make_blobs(90, 4, centers=3, random_state=1)[0], 3, offset=1e8),
    "mixed": mixed,
    "truths": truths,
    "outliers": outliers,
    "texts": lambda: (make_pipeline(TfidfVectorizer(), KMeans(2, n_init=2, random_state=0)).fit(TEXTS), TEXTS),
}


@cache
def fitted(name):
    model, X = TABLES[name]()
    return neuralize(model, X), X


KINDS = ("wine", "mixed", "truths", "outliers", "texts")  # numbers, categories, truth values, noise and terms
LARGE = ("cancer", "segments")


@pytest.mark.parametrize(
    ("name", "weighted"),
    [
        # by default, one table of each kind has weights, and small others none
        pytest.param(name, weighted, marks=[pytest.mark.slow] * (weighted != (name in KINDS) or name in LARGE))
        for name in TABLES
        for weighted in (False, True)
    ],
)
def test_summary_report_and_contrast_say_the_same(name, weighted):
    net, X = fitted(name)
    weight = np.random.default_rng(0).integers(1, 4, len(X)) if weighted else None
    summary = NEON(net).summary(X, sample_weight=weight)
    report = neonxc.explain(net, X, fast=True, sample_weight=weight)
    frame = summary.to_frame()
    columns = [column.name for column in report.description.columns]
    n_checked = 0
    for card in report.description.clusters:
        labels = [str(label) for label in summary.classes.tolist()]
        if card.label not in labels:
            continue
        k = labels.index(card.label)
        for statement in card.statements:
            name_of_column = columns[statement.column]
            direction = summary.values.described(k, summary.feature_names.index(name_of_column))
            words = direction.statement(name_of_column)
            if card.label == "-1":
                words = words.removeprefix("medium ")
            assert statement.text == words
            assert (statement.inside_typical, statement.outside_typical) == direction.numbers()
            assert statement.effect == direction.effect_size()
            assert statement.inside_typical != statement.outside_typical
            assert frame.loc[(summary.classes[k], name_of_column), "direction"] == direction.arrow
            if direction.kind == "number" and direction.word in ("high", "low"):
                assert (direction.word == "high") == (direction.own > direction.others) == (direction.effect > 0)
            n_checked += 1
        for reason in summary.reasons(summary.classes[k], 3):
            assert " vs " in reason
    assert n_checked
    if not weighted and len(summary.classes) == 2 and name != "outliers":
        contrast = neonxc.contrast(net, X, *summary.classes.tolist())
        for i in range(len(columns)):
            assert contrast.values.described(0, i) == summary.values.described(0, i)


def test_truth_values_and_categories_have_shares():
    net, X = fitted("truths")
    own = net.predict(X)
    values = NEON(net).summary(X).values
    k = int(np.argmax([X["yes"][own == label].mean() for label in net.classes_]))
    direction = values.described(k, 1)
    assert direction.word == "is true"
    assert direction.own == X["yes"][own == k].mean()
    assert direction.others == X["yes"][own != k].mean()
    assert not values.described(0, 2).is_reason
    statements = neonxc.explain(net, X, fast=True).description.clusters[k].statements
    assert "yes is true" in [statement.text for statement in statements]
    assert not any("same" in statement.text for statement in statements)


def test_a_name_needs_two_sides_that_read_differently():
    """The column `same` is next to constant, and the relevance of the contract is that of its few other values."""
    draw = np.random.default_rng(0)
    k = np.repeat([0, 1], 100)
    X = pd.DataFrame({"x": draw.normal(5 * k), "same": np.full(200, 2924.0), "contract": ["yes"] * 200})
    columns = make_column_transformer((StandardScaler(), ["x", "same"]), (OneHotEncoder(), ["contract"]))
    net = neuralize(make_pipeline(columns, KMeans(2, n_init=2, random_state=0)).fit(X), X)
    contents = neonxc.explain(net, X, fast=True).description
    # they are the upper and the lower half
    assert sorted(card.name for card in contents.clusters) == ["rather high x", "rather low x"]
    assert {statement.text for card in contents.clusters for statement in card.statements} == {"high x", "low x"}
    assert all("same" not in reason for label in (0, 1) for reason in NEON(net).summary(X).reasons(label))


def test_absent_words_come_last():
    net, X = fitted("texts")
    for label, card in zip(net.classes_, neonxc.explain(net, X, fast=True).description.clusters, strict=True):
        absent = [statement.text.startswith("no ") for statement in card.statements if statement.relevance > 0.05]
        assert absent == sorted(absent)
        assert not card.name.startswith("no ")
        arrows = [reason.split("(")[1][0] for reason in NEON(net).summary(X).reasons(label, 4)]
        assert arrows == sorted(arrows)  # ↑ before ↓


# --- moments -----------------------------------------------------------------------------------------------


def witness(values, group, k, weight):
    """Means, squares and Cohen's d [k] of one column, by whole weights, in exact steps about a near point."""
    known = ~np.isnan(values)
    x = values[known].repeat(weight[known])
    g = group[known].repeat(weight[known])
    results = []
    for one in range(k):
        own = x[g == one]
        others = x[g != one]
        if not len(own) or not len(others):
            results.append((own.mean() if len(own) else nan, nan, nan))
            continue
        middle = [own[0] + (own - own[0]).mean(), others[0] + (others - others[0]).mean()]
        squares = [((own - middle[0]) ** 2).sum(), ((others - middle[1]) ** 2).sum()]
        deviation = (sum(squares) / max(len(x) - 2, 1)) ** 0.5
        results.append((middle[0], squares[0], (middle[0] - middle[1]) / deviation))
    return np.array(results).T


@pytest.mark.parametrize("form", ["dense", "float32", "missing", "sparse", "column"])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_by_brute_force(form, offset, weighted):
    """Groups near one another at a large offset, beside one that is far away, in chunks of several sizes."""
    draw = np.random.default_rng(0)
    group = draw.integers(0, 3, 400)
    values = draw.normal(size=(400, 2)) + 3 * (group == 1)[:, None] + offset
    values[group == 2] -= offset  # the squares of the other groups are lost about the mean of all
    if form == "float32":
        values = values.astype(np.float32)
    if form == "missing":
        values[draw.random(values.shape) < 0.2] = nan
    weight = draw.integers(1, 4, 400) if weighted else np.ones(400, int)
    moments = Moments(4, 2)  # the last group is empty
    for rows in np.split(np.arange(400), [1, 7, 200]):
        chunk = values[rows]
        mass = weight[rows].astype(float)
        if form == "column":
            for column in (0, 1):
                moments.add_column(column, chunk[:, column], group[rows], mass)
            continue
        if form == "sparse":
            chunk = SparseRows(csr_matrix(chunk), None)
        moments.add(chunk, group[rows], mass if weighted else None)
    pair = moments.cohens_d(np.array([0, 1]))
    for column in (0, 1):
        exact = values[:, column].astype(float)
        means, squares, d = witness(exact, group, 4, weight)
        assert moments.means[:, column].numpy() == pytest.approx(means, rel=1e-14, nan_ok=True)
        assert moments.squares[:3, column].numpy() == pytest.approx(squares[:3], rel=1e-6)
        assert moments.cohens_d()[:3, column] == pytest.approx(d[:3], rel=1e-6)
        assert np.isnan(moments.cohens_d()[3, column])
        near = group < 2
        _, _, of_pair = witness(exact[near], group[near], 2, weight[near])
        assert pair[:, column] == pytest.approx(of_pair, rel=1e-6)


# --- typical rows ------------------------------------------------------------------------------------------


def clusterings():
    X = StandardScaler().fit_transform(load_wine().data)
    yield "k-means", KMeans(3, n_init=2, random_state=0).fit(X), X
    yield "mixture", GaussianMixture(3, random_state=0, reg_covar=0.1).fit(X), X
    yield "HDBSCAN", HDBSCAN(min_cluster_size=10, copy=True).fit(load_iris().data), load_iris().data
    yield "kernel", neonxc.models.KernelKMeans(3, random_state=0).fit(X), X


@pytest.mark.parametrize(("kind", "model", "X"), [*clusterings()])
def test_typical_rows_are_near_the_middle_and_clearly_inside(kind, model, X):
    net = neuralize(model, X)
    logits = net(net.inputs.read(X).tensor).detach().double().numpy()
    own = logits.argmax(axis=1)
    summary = NEON(net).summary(X, n_prototypes=4)
    for k, rows in enumerate(summary.prototypes):
        members = np.flatnonzero(own == k)
        logit = logits[members, k]
        if net.classes_[k] == -1:  # noise has no middle
            assert_array_equal(rows, members[np.argsort(-logit, kind="stable")[:4]])
            continue
        spread = 1 if kind == "k-means" else X.std(axis=0)
        middle = model.cluster_centers_[k] if kind == "k-means" else np.median(X[members], axis=0)
        distance = (((X[members] - middle) / spread) ** 2).sum(axis=1)
        wanted = members[np.lexsort((distance, logit < np.median(logit)))][:4]
        assert_array_equal(rows, wanted)
        is_typical = np.isin(members, rows)
        if len(members) > 20:
            assert np.mean([(distance < one).mean() for one in distance[is_typical]]) < 0.25


def test_reports_and_summaries_show_the_same_typical_rows():
    for name in ("wine", "mixed", "texts", "offset"):
        net, X = fitted(name)
        summary = NEON(net).summary(X)
        for k, card in enumerate(neonxc.explain(net, X, fast=True).description.clusters):
            assert [item.row for item in card.prototypes] == summary.prototypes[k][: len(card.prototypes)].tolist()
            assert not {item.row for item in card.prototypes} & {item.row for item in card.borderline}
