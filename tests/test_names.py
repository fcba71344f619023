"""Names of clusters: the blind test against a witness, judges, candidates, namers, and what is refused."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from sklearn.cluster import DBSCAN, KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import neonxc
from neonxc.attribution.direction import CLEAR
from neonxc.data.table import Table
from neonxc.evaluation import StatementJudge, TextJudge, WordJudge, validate_names
from neonxc.naming.blind_test import MIN_ROWS, blind_test, passing
from neonxc.naming.candidates import TableCandidates
from neonxc.naming.choice import BONUS, SOFTNESS, Search

WINE = load_wine(as_frame=True).data
IRIS = load_iris(as_frame=True)
IRIS_NAMES = ["low petal width (cm)", "medium petal length (cm)", "high petal width (cm)"]
VIOLIN = ["violin", "cello", "strings", "bow", "orchestra", "melody", "concert", "sonata"]
MATCH = ["goal", "match", "keeper", "referee", "league", "stadium", "striker", "penalty"]
OVEN = ["oven", "flour", "butter", "dough", "bread", "sugar", "yeast", "pastry"]


def texts_of(topics, n=40):
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(topic, 5)) for topic in topics for _ in range(n)]


TEXTS = texts_of([VIOLIN, MATCH, OVEN])
TOPICS = np.repeat(["music", "sport", "baking"], 40)


@pytest.fixture(scope="module")
def wine():
    return neonxc.neuralize(make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(WINE), WINE)


# --- the blind test -----------------------------------------------------------------------------------------


def witness(scores, groups, weight):
    """The definition, row by row and pair by pair."""
    n, k = scores.shape
    share = np.zeros((k, k + 1))
    for i, j in product(range(n), range(k)):
        others = [scores[i, other] for other in range(k) if other != j]
        if not np.isnan(scores[i, j]) and all(np.isnan(s) or scores[i, j] > s + 1e-9 for s in others):
            share[groups[i], j] += weight[i]
    total = np.array([weight[groups == c].sum() for c in range(k)])
    share[:, k] = total - share.sum(1)
    share /= total[:, None]
    n_rows = np.array([weight[groups == c].sum() ** 2 / (weight[groups == c] ** 2).sum() for c in range(k)])
    passed = []
    for c in range(k):
        a = share[c, c]
        good = n_rows[c] >= MIN_ROWS
        for j in set(range(k)) - {c}:
            p = share[c, j]
            good &= a - p > np.sqrt((a + p - (a - p) ** 2) / n_rows[c])
            p = share[j, c]
            if n_rows[j] >= MIN_ROWS:
                good &= a - p > np.sqrt(a * (1 - a) / n_rows[c] + p * (1 - p) / n_rows[j])
        passed.append(good)
    return share, n_rows, passed


@pytest.mark.parametrize("seed", range(12))
def test_blind_test(seed):
    generator = np.random.default_rng(seed)
    k = 2 + seed % 4
    groups = np.concatenate([np.arange(k), generator.integers(k, size=60)])
    scores = generator.integers(4, size=(len(groups), k)) + 1.5 * (groups[:, None] == np.arange(k))
    scores[generator.random(scores.shape) < 0.1] = np.nan
    weight = np.ones(len(groups)) if seed % 2 else generator.integers(1, 4, len(groups)).astype(float)
    test = blind_test(scores, groups, weight)
    share, n_rows, passed = witness(scores, groups, weight)
    np.testing.assert_allclose(test.shares, share)
    np.testing.assert_allclose(test.n_rows, n_rows)
    assert test.passed.tolist() == passed
    np.testing.assert_allclose(test.taken, np.diag(share) / share[:, :-1].sum(0))
    confused = share[:, :-1] + share[:, :-1].T - 9 * np.eye(k)
    assert [test.rival(c) for c in range(k)] == [int(row.argmax()) if row.max() > 0 else None for row in confused]


def test_ties_and_silence_are_wrong():
    groups = np.repeat([0, 1], 20)
    for scores in ([[1.0, 1.0], [1.0, 1.0]], [[np.nan, np.nan]] * 2, [[0.3, 0.3 + 1e-13], [0.3 + 1e-13, 0.3]]):
        test = blind_test(np.repeat(scores, 20, axis=0), groups)
        assert test.accuracy.tolist() == [0, 0]
        assert test.shares[:, -1].tolist() == [1, 1]
        assert not test.passed.any()


def is_true(words, inside, outside):
    """Whether a statement is true of the rows of a cluster, by Cohen's d or the shares of a category."""
    if " is " in words:
        column, category = words.split(" is ")
        return (inside[column] == category).mean() > (outside[column] == category).mean()
    word, column = words.rsplit(" ", 1)
    own = inside[column]
    others = outside[column]
    squares = ((own - own.mean()) ** 2).sum() + ((others - others.mean()) ** 2).sum()
    d = (own.mean() - others.mean()) / np.sqrt(squares / (len(own) + len(others) - 2))
    ranges = {
        "high": (CLEAR, np.inf),
        "low": (-np.inf, -CLEAR),
        "rather high": (0, np.inf),
        "rather low": (-np.inf, 0),
    }
    lowest, highest = ranges.get(word, (-CLEAR, CLEAR))
    return lowest <= d <= highest


@pytest.mark.parametrize("k", [3, 6, 10])
def test_candidates_are_true_among_all_rows(k):
    """A statement that is true against a sibling, or of ranks alone, may contradict the cards of a report."""
    generator = np.random.default_rng(k)
    table = load_iris(as_frame=True).data
    table.columns = ["a", "b", "c", "d"]
    groups = KMeans(k, n_init=3, random_state=0).fit_predict(table)
    table["e"] = np.where(generator.random(len(table)) < 0.5, groups % 3, 2).astype(str)
    candidates = TableCandidates(Table.read(table), groups, k, StatementJudge(table))
    for cluster in range(k):
        statements = candidates.of_cluster(cluster)
        assert len(statements) > 2
        inside = table[groups == cluster]
        outside = table[groups != cluster]
        assert [one.words for one in statements if not is_true(one.words, inside, outside)] == []


@pytest.mark.parametrize("weighted", [False, True])
def test_the_search_computes_the_quality_of_every_candidate(weighted):
    generator = np.random.default_rng(1)
    groups = np.repeat(np.arange(3), [30, 20, 5])
    weight = generator.integers(1, 4, 55).astype(float) if weighted else None
    scores = [generator.integers(5, size=(55, 6)) + 2.0 * (groups == k)[:, None] for k in range(3)]
    scores[1][:9, 2] = np.nan
    search = Search(scores, groups, weight)
    temperature = SOFTNESS * np.std([of_cluster[:, 0] for of_cluster in scores])
    mass = np.ones(55) if weight is None else weight
    n_rows = blind_test(scores[0][:, :3], groups, weight).n_rows
    chosen = [3, 1, 5]
    for k in range(3):
        others = [j for j in range(3) if j != k]
        qualities = []
        for candidate in range(6):
            shares = np.zeros((3, 4))
            for row in range(55):
                own = np.nan_to_num(scores[k][row, candidate], nan=-np.inf)
                of_others = np.nan_to_num([scores[j][row, chosen[j]] for j in others], nan=-np.inf)
                best = of_others.max()
                wins = 0.0 if own == best else 1 / (1 + np.exp((best - own) / temperature))
                rival = others[of_others.argmax()] if (of_others == best).sum() == 1 else 3
                shares[groups[row], k] += mass[row] * wins
                shares[groups[row], rival] += mass[row] * (own != best) * (1 - wins)
            shares /= np.bincount(groups, mass)[:, None]
            passed = passing(shares[:, :3], n_rows) & (n_rows >= MIN_ROWS)
            qualities.append(np.diag(shares).sum() + BONUS * passed.sum())
        np.testing.assert_allclose(search.qualities(k, chosen), qualities)
    best = search.best(np.random.RandomState(0))
    for k in range(3):  # no single change is better
        qualities = search.qualities(k, best)
        assert qualities[best[k]] >= qualities.max() - 0.0051


def test_many_clusters_have_the_statements_of_the_largest_effects():
    labels = np.repeat(np.arange(31), 20)
    noise = np.random.default_rng(0).normal(size=(2, 620))
    table = pd.DataFrame(
        {"steps": labels + noise[0] / 9, "ends": (labels == 0) - 1.0 * (labels == 30) + noise[1] / 9}
    )
    net = neonxc.neuralize(KMeans(31, init=table.groupby(labels).mean(), n_init=1).fit(table), table)
    named = neonxc.name_clusters(net, table)
    assert [named.names[k] for k in (0, 30)] == ["high ends, low steps", "low ends, high steps"]
    assert named.passed[0]
    assert named.passed[30]


# --- judges -------------------------------------------------------------------------------------------------

TABLE = pd.DataFrame(
    {
        "age, in years": [1.0, 2.0, 3.0, 4.0, np.nan],
        "work": ["a, b", "a, b", "c", None, "c"],
        "is new": [True, False, False, False, False],
    }
)
STATEMENTS = {
    "high age, in years": [0.125, 0.375, 0.625, 0.875, 0.5],
    "low age, in years": [0.875, 0.625, 0.375, 0.125, 0.5],
    "extreme age, in years": [0.75, 0.25, 0.25, 0.75, 0.5],
    "medium age, in years": [0.25, 0.75, 0.75, 0.25, 0.5],
    "rather high age, in years": [0.0, 0.4, 0.8, 0.8, 0.5],
    "rather low age, in years": [0.8, 0.8, 0.4, 0.0, 0.5],
    "work is a, b": [0.8, 0.8, 0.3, 0.5, 0.3],
    "work is missing": [0.4, 0.4, 0.4, 0.9, 0.4],
    "is new is true": [0.9, 0.4, 0.4, 0.4, 0.4],
    "age, in years is 3": [0.4, 0.4, 0.9, 0.4, 0.5],
    "work is c, high age, in years": [0.2125, 0.3375, 0.7125, 0.6875, 0.65],
    "good wine, work is c": [0.3, 0.3, 0.8, 0.5, 0.8],
    "good wine": [np.nan] * 5,
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_are_ranks(name):
    scores = StatementJudge(TABLE)([name], TABLE)
    np.testing.assert_allclose(scores[:, 0], STATEMENTS[name])


def test_weights_of_statements_repeat_rows():
    weight = np.array([2, 1, 0, 3, 1])
    repeated = TABLE.loc[np.repeat(TABLE.index, weight)]
    names = [*STATEMENTS][:7]
    weighted = StatementJudge(TABLE, sample_weight=weight)(names, TABLE)
    kept = [0, 1, 3, 4]
    np.testing.assert_allclose(weighted[kept], StatementJudge(repeated)(names, TABLE)[kept])


def test_judges_of_texts():
    meaning = TextJudge(TEXTS)
    words = WordJudge(TEXTS)
    names = ["violin, cello, bow", "goal, match, league", "oven, flour, bread"]
    for judge, least in ((meaning, 0.95), (words, 0.8)):
        assert np.mean(np.nan_to_num(judge(names, TEXTS), nan=-9).argmax(1) == np.repeat([0, 1, 2], 40)) > least
    assert np.isnan(meaning(["nonsense"], TEXTS)).all()
    assert np.isnan(words(names, ["butter"])).all()  # no shared word
    assert np.isnan(meaning(names, ["nonsense"])).all()

    letters = TextJudge(TEXTS, lambda texts: torch.tensor([[t.count("a"), t.count("e"), 1.0] for t in texts]))
    assert letters.space(TEXTS).shape == (len(TEXTS), 3)
    refused("encode needs to return vectors", TextJudge, TEXTS, lambda texts: [1.0])


# --- names of anybody ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:no row is sorted by names that the judge can't read")
def test_true_names_pass_and_shuffled_and_doubled_ones_do_not():
    def passed(names):
        return [*validate_names(names, IRIS.data, IRIS.target).passed.values()]

    low, medium, high = IRIS_NAMES
    assert passed(IRIS_NAMES) == [True, True, True]
    assert passed([medium, high, low]) == [False, False, False]
    assert passed([low, high, high]) == [True, False, False]
    assert passed([low, high, "nothing of this table"])[2] is False

    true = {"music": "violin, cello", "sport": "goal, match", "baking": "oven, flour"}
    assert all(validate_names(true, TEXTS, TOPICS).passed.values())
    shuffled = dict(zip(true, [*[*true.values()][1:], true["music"]], strict=True))
    assert not any(validate_names(shuffled, TEXTS, TOPICS).passed.values())
    doubled = {**true, "music": "goal, match"}
    assert validate_names(doubled, TEXTS, TOPICS).passed == {"baking": True, "music": False, "sport": False}


def test_what_a_result_tells():
    labels = IRIS.target.replace({0: "a", 1: "b", 2: "c"})
    named = validate_names([IRIS_NAMES[0], IRIS_NAMES[2], IRIS_NAMES[2]], IRIS.data, labels)
    frame = named.to_frame()
    assert [*frame.columns] == ["name", "accuracy", "taken", "ceiling", "passed", "rival"]
    assert frame["rival"].tolist()[1] == "a"  # the few that are not tied
    assert frame["passed"].tolist() == [True, False, False]
    assert named.titles() == {
        "a": "low petal width (cm)",
        "b": "high petal width (cm) (b) (confused with a)",
        "c": "high petal width (cm) (c) (fits no row)",
    }
    np.testing.assert_allclose(named.confusions.sum(axis=1), 1)
    assert named.confusions.loc["c", "none"] == 1
    assert "1 of 3 names pass" in str(named)
    assert 0.9 < named.ceiling.mean() < 1
    assert named.second_accuracy is None
    again = validate_names(named, IRIS.data, labels)
    pd.testing.assert_frame_equal(again.to_frame(), frame)
    figure = neonxc.plot.confusions(named, title="iris")
    cells = [text.get_text() for text in figure.axes[0].texts]
    assert len(cells) == 12
    assert [label.get_text()[0] for label in figure.axes[0].get_yticklabels()] == ["a", "✗", "✗"]


def test_lists_of_statements_mappings_noise_and_few_rows():
    labels = IRIS.target.to_numpy().copy()
    labels[:45] = -1
    names = {0: ["low petal width (cm)", "low petal length (cm)"], 1: [IRIS_NAMES[1]], 2: [IRIS_NAMES[2]]}
    named = validate_names(names, IRIS.data, labels)
    assert named.clusters == [0, 1, 2]
    assert named.test.n_rows.tolist() == [5, 50, 50]
    assert named.passed == {0: None, 1: True, 2: True}
    assert pd.isna(named.to_frame()["passed"][0])
    assert named.names[0] == named.titles()[0] == "low petal width (cm), low petal length (cm)"
    assert "Not judged" in str(named)


def test_a_weight_of_two_is_a_row_twice_in_shares():
    weight = np.random.default_rng(0).integers(0, 3, 150)
    rows = np.repeat(np.arange(150), weight)
    weighted = validate_names(IRIS_NAMES, IRIS.data, IRIS.target, sample_weight=weight)
    repeated = validate_names(IRIS_NAMES, IRIS.data.iloc[rows], IRIS.target.iloc[rows])
    pd.testing.assert_frame_equal(weighted.confusions, repeated.confusions)
    assert (weighted.test.n_rows < repeated.test.n_rows).all()  # repetition is no evidence


# --- names of clusters --------------------------------------------------------------------------------------


def test_chosen_names_pass_and_are_tested_on_other_rows(wine):
    named = neonxc.name_clusters(wine, WINE)
    assert all(named.passed.values())
    assert named.accuracy > 0.85
    assert all(len(name) <= 2 for name in named.statements)
    assert (named.test.n_rows <= (np.bincount(wine.predict(WINE)) + 1) // 2).all()
    assert neonxc.name_clusters(wine, WINE).names == named.names
    one = neonxc.name_clusters(wine, WINE, words=1)
    assert all(len(name) == 1 for name in one.statements)
    arrays = neonxc.name_clusters(wine, WINE.to_numpy())
    assert arrays.names == named.names
    weighted = neonxc.name_clusters(wine, WINE, sample_weight=np.full(len(WINE), 2.0))
    pd.testing.assert_frame_equal(weighted.to_frame(), named.to_frame())


def test_chosen_names_sort_better_than_the_strongest_statements():
    X = load_digits(as_frame=True).data
    net = neonxc.neuralize(KMeans(10, n_init=1, random_state=0).fit(X), X)

    def strongest(evidence):
        return ", ".join(statement[: statement.rindex(" (")] for statement in evidence.statements[:2])

    assert neonxc.name_clusters(net, X).accuracy > 0.1 + neonxc.name_clusters(net, X, namer=strongest).accuracy


def test_categories_missing_values_truths_and_noise():
    generator = np.random.default_rng(0)
    kinds = np.repeat([0, 1, 2, 3], 60)
    frame = pd.DataFrame({"size": generator.normal(size=240)})
    frame["work, main"] = np.array(["a", "b", "c", "c"])[kinds]
    frame["value"] = np.where(kinds == 3, 4.0, 0.0) + generator.normal(size=240) * 0.1
    frame.loc[kinds == 2, "value"] = np.nan
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = make_column_transformer((numbers, ["value"]), (OneHotEncoder(), ["work, main"]))
    model = make_pipeline(columns, KMeans(4, n_init=5, random_state=0)).fit(frame)
    net = neonxc.neuralize(model, frame)
    named = neonxc.name_clusters(net, frame)
    assert all(named.passed.values())
    assert named.accuracy > 0.95
    names = {kind: named.names[net.predict(frame)[60 * kind]] for kind in range(4)}
    assert "work, main is a" in names[0]
    assert "work, main is b" in names[1]
    assert "value is missing" in names[2]
    assert "high value" in names[3] or "work, main is c" in names[3]

    points = np.concatenate([generator.normal(size=(60, 2)) * 0.1 + [5 * k, 0] for k in range(3)] + [[[50, 50]]])
    net = neonxc.neuralize(DBSCAN(eps=1).fit(points), points)
    named = neonxc.name_clusters(net, points)
    assert named.clusters == [0, 1, 2]
    assert all(named.passed.values())


def test_sparse_tables():
    matrix = TfidfVectorizer().fit_transform(TEXTS)
    net = neonxc.neuralize(KMeans(3, n_init=3, random_state=0).fit(matrix), matrix)
    named = neonxc.name_clusters(net, matrix)
    dense = neonxc.name_clusters(net, matrix.toarray(), judge=StatementJudge(matrix.toarray()))
    assert all(named.passed.values())
    assert abs(named.accuracy - dense.accuracy) < 0.1
    assert all(words.split()[0] in ("high", "low") for name in named.statements for words in name)


def test_names_of_texts():
    net = neonxc.neuralize(make_pipeline(TfidfVectorizer(), KMeans(3, n_init=3, random_state=0)).fit(TEXTS))
    named = neonxc.name_clusters(net, TEXTS)
    assert all(named.passed.values())
    topics = [{*VIOLIN}, {*MATCH}, {*OVEN}]
    for label, name in zip(named.clusters, named.statements, strict=True):
        topic = topics[int(np.flatnonzero(net.predict(TEXTS) == label)[0]) // 40]
        assert topic >= {*name}
    assert named.second_accuracy.mean() < named.accuracy  # most texts have none of the two words
    assert "By the words of the names alone" in str(named)
    assert neonxc.name_clusters(net, TEXTS, judge=WordJudge(TEXTS)).second_accuracy is None


# --- namers -------------------------------------------------------------------------------------------------


def test_a_namer_that_fails_first_is_asked_once_more(wine):
    labels = wine.predict(WINE)
    truth = neonxc.name_clusters(wine, WINE).names
    asked = []

    def namer(evidence):
        asked.append(evidence)
        if evidence.cluster == 2 or evidence.contrast is not None:
            return truth[evidence.cluster]
        return truth[1 - evidence.cluster]

    named = neonxc.name_clusters(wine, WINE, namer=namer)
    assert named.names == truth
    assert all(named.passed.values())
    again = [evidence for evidence in asked if evidence.contrast is not None]
    assert [evidence.cluster for evidence in again] == [0, 1]
    contrast = again[0].contrast
    assert (contrast.rejected, contrast.sibling) == (truth[1], 1)
    assert contrast.statements
    assert contrast.rejected in again[0].prompt()
    assert [evidence.n_rows for evidence in asked[:3]] == np.bincount(labels).tolist()
    for evidence in asked[:3]:
        assert (labels[evidence.rows] == evidence.cluster).all()
        assert len(evidence.examples) == len(evidence.rows) == 5
        assert evidence.statements[0] in str(evidence)


def test_constant_and_right_namers(wine):
    asked = []
    constant = neonxc.name_clusters(wine, WINE, namer=lambda evidence: asked.append(evidence) or "high proline")
    assert not any(constant.passed.values())
    assert constant.accuracy == 0
    assert len(asked) == 6
    truth = neonxc.name_clusters(wine, WINE).names
    asked.clear()
    oracle = neonxc.name_clusters(wine, WINE, namer=lambda one: asked.append(one) or truth[one.cluster])
    assert all(oracle.passed.values())
    assert len(asked) == 3


def test_judges_of_users_get_names_and_rows_as_they_are(wine):
    seen = []

    def judge(names, rows):
        seen.append((names, rows))
        return [[len(name) for name in names]] * len(rows)

    named = neonxc.name_clusters(wine, WINE, judge=judge, namer=lambda evidence: "x" * (evidence.cluster + 1))
    names, rows = seen[-1]
    assert names == ["x", "xx", "xxx"]
    assert list(rows.columns) == list(WINE.columns)
    assert named.test.accuracy.tolist() == [0, 0, 1]
    assert not any(named.passed.values())
    assert np.isnan(named.ceiling).all()

    class InSpace:
        def __call__(self, names, rows):
            return np.zeros((len(rows), len(names)))

        def space(self, rows):
            return rows[["proline"]].to_numpy()

    assert (neonxc.name_clusters(wine, WINE, judge=InSpace(), namer=lambda evidence: "x").ceiling > 0).all()


def test_images_need_a_namer_and_a_judge():
    images = torch.cat([torch.zeros(30, 1, 4, 4), torch.ones(30, 1, 4, 4)]) + 0.01 * torch.rand(60, 1, 4, 4)
    features = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    points = features(images).detach().numpy()
    net = neonxc.neuralize(KMeans(2, n_init=1, random_state=0).fit(points), images, features=features)
    bright = int(net.predict(images)[-1])

    def judge(names, rows):
        brightness = torch.as_tensor(rows).mean(dim=(1, 2, 3))
        return np.stack([brightness if name == "bright" else 1 - brightness for name in names], axis=1)

    def namer(evidence):
        assert evidence.statements == evidence.examples == ()
        return "bright" if evidence.cluster == bright else "dark"

    assert all(neonxc.name_clusters(net, images, namer=namer, judge=judge).passed.values())
    refused("both namer=", neonxc.name_clusters, net, images, namer=namer)
    refused("both namer=", neonxc.name_clusters, net, images)


# --- refusals -----------------------------------------------------------------------------------------------


def test_refusals(wine):
    single = WINE[wine.predict(WINE) == 1]
    cases = [
        (TypeError, "needs a network", lambda: neonxc.name_clusters(KMeans(), WINE)),
        (TypeError, "namer needs a callable", lambda: neonxc.name_clusters(wine, WINE, namer="wine")),
        (TypeError, "judge needs a callable", lambda: neonxc.name_clusters(wine, WINE, judge="wine")),
        (TypeError, "namer needs to return", lambda: neonxc.name_clusters(wine, WINE, namer=lambda evidence: 3)),
        (ValueError, "words needs", lambda: neonxc.name_clusters(wine, WINE, words=0)),
        (ValueError, "at least 2 clusters, got 1", lambda: neonxc.name_clusters(wine, single)),
        (ValueError, "numbers of shape", lambda: neonxc.name_clusters(wine, WINE, judge=lambda names, rows: [1])),
        (ValueError, "weight", lambda: neonxc.name_clusters(wine, WINE, sample_weight=np.zeros(len(WINE)))),
        (ValueError, "one name per cluster, 3, got 1", lambda: validate_names(["a"], IRIS.data, IRIS.target)),
        (ValueError, "single str", lambda: validate_names("a", IRIS.data, IRIS.target)),
        (ValueError, "no name of the clusters", lambda: validate_names({0: "a"}, IRIS.data, IRIS.target)),
        (ValueError, "say nothing", lambda: validate_names(["a", "b", "c"], IRIS.data, IRIS.target)),
        (ValueError, "at least 2 clusters", lambda: validate_names(["a"], IRIS.data, np.zeros(150, int))),
        (ValueError, "pass judge=", lambda: validate_names(["a", "b"], np.zeros((4, 2, 2)), [0, 0, 1, 1])),
    ]  # fmt: skip
    for error, message, call in cases:
        refused(message, call, error=error)


SPELLED = {  # names as people write them, and the same as statements
    "Age is high": "high age",
    "age is Rather Low; Work is A": "rather low age, work is a",
    "High AGE and work is MISSING": "high age, work is missing",
    "work is b and d": "work is b and d",
}


@pytest.mark.parametrize("name", SPELLED)
def test_statements_are_read_as_people_write_them(name):
    work = ["a", "a", "b and d", None] * 5
    rows = pd.DataFrame({"age": np.arange(20.0) * 7 % 20, "work": work})
    judge = StatementJudge(rows)
    np.testing.assert_allclose(judge([name], rows), judge([SPELLED[name]], rows))
    assert len(judge._read(name)) == len(SPELLED[name].split(", "))


def test_names_that_the_judge_cannot_read_are_told():
    rows = pd.DataFrame({"age": np.arange(40.0)})
    labels = np.repeat([0, 1], 20)
    with pytest.warns(UserWarning, match=r"names that the judge can't read: \['pensioners'\]"):
        tested = validate_names(["low age", "pensioners"], rows, labels)
    assert tested.passed[1] is False
