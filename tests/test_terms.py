"""Texts behind a vectorizer: counts, weights of terms, and where the terms stand."""

import copy
import functools
import re
from collections import Counter
from importlib import import_module
from unicodedata import category, normalize

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

import neonxc
from neonxc import NEON
from neonxc.common import storage
from neonxc.data.frames import read_texts
from neonxc.inputs.terms import Terms

TEXTS = [
    "Simmer the onions in butter, then stir in the flour and the stock.",
    "Stir the soup, add salt and pepper, and simmer until the onions are soft.",
    "Butter and flour make the sauce thick; salt makes it taste.",
    "A pinch of salt, a little pepper: the soup, the soup needs no more.",
    "The probe took pictures of the moons while it was in orbit around Saturn.",
    "Two moons orbit Mars, and the larger one is falling towards the planet.",
    "Astronomers found a planet in orbit around a star like our sun.",
    "The telescope shows the rings of Saturn and the moons of Jupiter.",
    "The violins repeat the theme, and the orchestra answers with a loud chord.",
    "She played the sonata slowly, and every chord was a surprise.",
    "Play the theme again, a little slower, and hold the last chord.",
    "In the second movement the violins play the theme of the sonata.",
]
OTHERS = ["Salt on the moons of Mars!", "???", "A theme, a chord, a planet."]


def kmeans():
    return KMeans(3, n_init=5, random_state=0)


def shouted(text):
    return text.upper()


def composed(text):
    return normalize("NFKC", text).lower()


PIPELINES = {
    "tf-idf": lambda: make_pipeline(TfidfVectorizer(), kmeans()),
    "counts": lambda: make_pipeline(CountVectorizer(), kmeans()),
    "binary": lambda: make_pipeline(CountVectorizer(binary=True, dtype=np.float32), kmeans()),
    "sublinear": lambda: make_pipeline(TfidfVectorizer(sublinear_tf=True, norm="l1", use_idf=False), kmeans()),
    "no norm": lambda: make_pipeline(TfidfVectorizer(norm=None, smooth_idf=False), kmeans()),
    "two steps": lambda: make_pipeline(CountVectorizer(), TfidfTransformer(sublinear_tf=True), kmeans()),
    "lsa": lambda: make_pipeline(
        CountVectorizer(stop_words="english", ngram_range=(1, 2)),
        TfidfTransformer(),
        TruncatedSVD(5, random_state=0),
        Normalizer(),
        kmeans(),
    ),
    "nested": lambda: Pipeline(
        [("terms", make_pipeline(CountVectorizer(), TfidfTransformer())), ("km", kmeans())]
    ),
    "characters": lambda: make_pipeline(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3)), kmeans()),
}


@functools.cache
def unchanged(name):
    pipeline = PIPELINES[name]().fit(TEXTS)
    return pipeline, neonxc.neuralize(pipeline, TEXTS)


def fitted(name):
    return copy.deepcopy(unchanged(name))


# --- networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_decisions_and_relevance(name, tmp_path):
    pipeline, net = fitted(name)
    np.testing.assert_array_equal(net.predict(TEXTS), pipeline.predict(TEXTS))
    np.testing.assert_array_equal(net.predict(OTHERS), pipeline.predict(OTHERS))
    relevance = NEON(net).attribute(TEXTS)
    assert list(relevance.columns) == net.inputs.encoding.names == net.feature_names_
    counts = net.inputs.encoding.encode(TEXTS)
    logits = net(torch.from_numpy(counts.toarray()))
    np.testing.assert_allclose(relevance.to_numpy().sum(1), logits.amax(1), atol=1e-10)
    np.testing.assert_allclose(NEON(net).attribute(counts), relevance, atol=1e-12)  # counts are taken, too
    means = relevance.groupby(net.predict(TEXTS)).mean()
    summary = NEON(net).summary(TEXTS)
    np.testing.assert_allclose(summary.relevance, means.to_numpy(), atol=1e-10)
    assert summary.top(0, 1)[0][0] == means.loc[0].idxmax()
    contains = pipeline[0].transform(TEXTS).toarray() > 0
    labels = net.predict(TEXTS)
    np.testing.assert_allclose(summary.values.means, [contains[labels == k].mean(0) for k in net.classes_])
    np.testing.assert_allclose(summary.values.overall, contains.mean(0))
    assert re.search(r"\(↑ in \d+% vs \d+%, V = ", str(summary))

    neonxc.save(net, tmp_path / "net.safetensors")
    loaded = neonxc.load(tmp_path / "net.safetensors")
    pd.testing.assert_frame_equal(NEON(loaded).attribute(TEXTS), relevance)
    np.testing.assert_array_equal(loaded.predict(OTHERS), pipeline.predict(OTHERS))


def test_beta_is_that_of_the_vectors_also_after_a_later_fit():
    """The pipeline's own last columns, explained without any vectorizer: same logits, so the same beta."""
    pipeline, net = fitted("tf-idf")
    Z = pipeline[:-1].transform(TEXTS)
    inner = neonxc.neuralize(pipeline[-1], Z)
    assert net.beta == pytest.approx(inner.beta)
    found = NEON(net).attribute(TEXTS)
    np.testing.assert_allclose(found.to_numpy().sum(1), NEON(inner).attribute(Z.toarray()).sum(1))
    pipeline.fit(OTHERS)
    pd.testing.assert_frame_equal(NEON(net).attribute(TEXTS), found)


def test_surrogate_of_texts():
    pipeline = make_pipeline(
        TfidfVectorizer(stop_words="english"), DBSCAN(0.85, min_samples=2, metric="cosine")
    ).fit(TEXTS)
    net = neonxc.neuralize(pipeline, TEXTS)
    assert net.fidelity_ > 0.9
    assert NEON(net).summary(TEXTS).top(0, 1)[0][0] in pipeline[0].vocabulary_


def test_forms_of_texts():
    pipeline, net = fitted("tf-idf")
    expected = NEON(net).attribute(TEXTS)
    series = pd.Series(TEXTS, index=[f"d{i}" for i in range(12)])
    assert list(NEON(net).attribute(series).index) == list(series.index)
    for texts in (series, np.array(TEXTS), np.array(TEXTS, dtype=object), iter(TEXTS)):
        np.testing.assert_allclose(NEON(net).attribute(texts), expected)
    np.testing.assert_allclose(net.batch(TEXTS).tensor, net.inputs.encoding.encode(TEXTS).toarray())
    np.testing.assert_array_equal(neonxc.neuralize(pipeline).predict(TEXTS), net.predict(series))


# --- highlights --------------------------------------------------------------------------------------------

ANALYZERS = [
    {},
    {"ngram_range": (1, 3)},
    {"ngram_range": (2, 2), "stop_words": "english"},
    {"strip_accents": "unicode"},
    {"strip_accents": "ascii", "ngram_range": (1, 2)},
    {"lowercase": False},
    {"token_pattern": r"(\w)\w*"},
    {"tokenizer": str.split, "token_pattern": None, "stop_words": ["soup"]},
    {"preprocessor": shouted},
    {"preprocessor": composed},
]
PIECES = [
    "Salt",
    "the",
    "soup",
    "Été",
    "à",
    "Zürich",
    "İstanbul",
    "ΣΑΣ",
    "ﬁne",
    "ete\u0301",
    "x",
    "  ",
    "\n",
    ",-",
]


@given(text=st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join), options=st.sampled_from(ANALYZERS))
def test_terms_are_found_where_the_analyzer_finds_them(text, options):
    vectorizer = CountVectorizer(**options).fit([" ".join(PIECES), "the soup"])
    spans, occurrences = import_module("neonxc.attribution.highlighting")._occurrences(Terms(vectorizer), text)
    assert Counter(term for term, _ in occurrences) == Counter(vectorizer.build_analyzer()(text))
    assert all(atoms and all(0 <= atom < len(spans) for atom in atoms) for _, atoms in occurrences)


@pytest.mark.parametrize("name", ["tf-idf", "lsa"])
def test_highlights(name):
    _, net = fitted(name)
    relevance = NEON(net).attribute(TEXTS)
    marks = neonxc.highlights(net, TEXTS, relevance)
    there = net.inputs.encoding.encode(TEXTS).toarray() > 0
    for row, (text, found) in enumerate(zip(TEXTS, marks, strict=True)):
        stops = [0, *(stop for _, stop, _ in found)]
        assert all(
            stop <= start < end <= len(text) for stop, (start, end, _) in zip(stops[:-1], found, strict=True)
        )
        total = relevance.to_numpy()[row][there[row]].sum()
        assert sum(value for *_, value in found) == pytest.approx(total, abs=1e-12)
    page = neonxc.plot.text(
        TEXTS,
        [[value for *_, value in found] for found in marks],
        [[(start, stop) for start, stop, _ in found] for found in marks],
    )
    assert "soup" in page.html()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strip_accents": "unicode"},
        {"tokenizer": list, "token_pattern": None},
        {"preprocessor": composed},
        {"preprocessor": composed, "tokenizer": list, "token_pattern": None},
    ],
)
def test_marks_stay_with_their_characters(options):
    texts = ["cafe\u0301 soup", "U\u0308ber soup", "हिन्दी soup"]
    net = neonxc.neuralize(make_pipeline(CountVectorizer(**options), KMeans(2, n_init=1)).fit(texts))
    for text, marks in zip(texts, neonxc.highlights(net, texts, NEON(net).attribute(texts)), strict=True):
        stops = [0, *(stop for _, stop, _ in marks)]
        assert all(before <= start for before, (start, *_) in zip(stops, marks, strict=False))
        if "tokenizer" not in options:
            assert not any(category((text + " ")[stop]).startswith("M") for _, stop, _ in marks)


def test_shares_of_words():
    """Of "the soup, the soup": a word has half of its own term, and half of what each pair around it has."""
    vectorizer = CountVectorizer(ngram_range=(1, 2)).fit(["the soup the soup"])
    pipeline = make_pipeline(vectorizer, KMeans(2, n_init=1)).fit(["the soup the soup", "soup"])
    net = neonxc.neuralize(pipeline)
    worth = {"the": 1.0, "soup": 10.0, "the soup": 100.0, "soup the": 1000.0}
    marks = neonxc.highlights(net, ["The soup, the soup"], [[worth[name] for name in net.feature_names_]])[0]
    assert [mark[:2] for mark in marks] == [(0, 3), (4, 8), (10, 13), (14, 18)]
    np.testing.assert_allclose([mark[2] for mark in marks], [25.5, 530, 525.5, 30])


class Stemmed(CountVectorizer):
    def build_analyzer(self):
        analyze = super().build_analyzer()
        return lambda text: [word[:4] for word in analyze(text)]


def halves(text):
    return [text[: len(text) // 2]]


@pytest.mark.parametrize(
    ("vectorizer", "message"),
    [
        (Stemmed(), r"Stemmed has an analyzer of its own, which does not tell where in a text its terms are"),
        (
            CountVectorizer(analyzer=halves),
            r'needs a vectorizer with analyzer="word".* got analyzer=<function halves',
        ),
        (CountVectorizer(analyzer="char_wb"), r"needs a vectorizer with .* got analyzer='char_wb'"),
        (CountVectorizer(preprocessor=lambda text: text + " end"), r"preprocessor does not tell where"),
        (CountVectorizer(tokenizer=str.split, token_pattern=None), r"makes the token 'absent'"),
    ],
)
def test_terms_that_can_not_be_placed(vectorizer, message):
    net = neonxc.neuralize(make_pipeline(vectorizer, KMeans(2, n_init=1, random_state=0)).fit(TEXTS))
    if "absent" in message:
        net.inputs.encoding.vectorizer.tokenizer = lambda text: ["absent"]
    with pytest.raises(ValueError, match=message):
        neonxc.highlights(net, TEXTS, np.zeros((len(TEXTS), net.inputs.encoding.width)))


# --- errors ------------------------------------------------------------------------------------------------


def test_unusable_texts():
    pipeline, net = fitted("tf-idf")
    for entry in (net.predict, NEON(net).attribute, NEON(net).summary, net.calibrate):
        with pytest.raises(ValueError, match=r"X needs a sequence of strings; a single one is \[text\]"):
            entry("a text")
        with pytest.raises(ValueError, match=r"X needs a sequence of strings; text 1 is a NoneType"):
            entry(["a text", None])
        with pytest.raises(ValueError, match=r"X is empty"):
            entry([])
        with pytest.raises(
            ValueError, match=rf"X has 3 features, the clustering was fitted on {net.inputs.encoding.width}"
        ):
            entry(np.zeros((2, 3)))
    message = r"net\(x\) takes a tensor, got list: net\(net\.inputs\.read\(x\)\.tensor\)"
    with pytest.raises(TypeError, match=message):
        net(TEXTS)
    with pytest.raises(ValueError, match="behind features= or a vectorizer"):
        neonxc.neuralize(pipeline, TEXTS, torch.nn.Identity())


def test_every_line_of_a_file_is_a_text(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("a\u2028b\r\n\n c\x0bd\x85e \n\u3000\n".encode("utf-8-sig"))
    assert read_texts(path) == ["a\u2028b", "c\x0bd\x85e"]


def test_what_is_refused():
    pipeline, net = fitted("tf-idf")
    files = make_pipeline(CountVectorizer(), kmeans()).fit(TEXTS)
    files[0].input = "filename"
    hashing = make_pipeline(HashingVectorizer(), kmeans()).fit(TEXTS)
    imputer = make_pipeline(CountVectorizer(), SimpleImputer(), kmeans()).fit(TEXTS)
    plain, two = neonxc.neuralize(pipeline[-1]), np.zeros((2, 2))
    for call, message in (
        (lambda: neonxc.neuralize(hashing, TEXTS), r"step 'hashingvectorizer': a HashingVectorizer does not know"),
        (lambda: neonxc.neuralize(files), r"CountVectorizer needs input='content', got 'filename'"),
        (lambda: neonxc.neuralize(imputer, TEXTS), r"X is sparse, as counts of terms are; encoders and imputers"),
        (lambda: neonxc.neuralize(imputer), r"a vectorizer a pipeline has numbers, and no vectorizer, encoder"),
        (lambda: neonxc.highlights(net, TEXTS, two), r"relevance needs shape \(12, \d+\), got \(2, 2\)"),
        (lambda: neonxc.highlights(plain, TEXTS, two), r"highlights needs the network of a pipeline that begins"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("option", ["tokenizer", "preprocessor", "analyzer", "strip_accents"])
def test_functions_are_not_saved(option, tmp_path):
    function = str.split if option in ("tokenizer", "analyzer") else shouted
    options = {option: function} | ({"token_pattern": None} if option == "tokenizer" else {})
    net = neonxc.neuralize(make_pipeline(CountVectorizer(**options), kmeans()).fit(TEXTS), TEXTS)
    assert net.predict(TEXTS).shape == (12,)
    with pytest.raises(TypeError, match=rf"can't save a CountVectorizer with a function as its {option}"):
        neonxc.save(net, tmp_path / "net")


def test_what_a_file_holds(tmp_path):
    words = {"stop_words": ["the", "a"], "vocabulary": {"soup": 1, "salt": 0, "chord": 2}}
    net = neonxc.neuralize(make_pipeline(CountVectorizer(**words), KMeans(2, random_state=0)).fit(TEXTS))
    neonxc.save(net, tmp_path / "net")
    kind, plain, tensors = storage.read(tmp_path / "net", {storage.KIND})
    stored = plain["parts"]["features"]["values"]
    assert stored["names"] == ["salt", "soup", "chord"]
    assert stored["options"]["stop_words"] == ["a", "the"]
    stemmed = neonxc.neuralize(make_pipeline(Stemmed(), kmeans()).fit(TEXTS))
    with pytest.raises(TypeError, match=r"can't save a Stemmed, a class of its own"):
        neonxc.save(stemmed, tmp_path / "other")
    stored["names"].pop()
    storage.write(tmp_path / "net", kind, plain, tensors)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "net"))):
        neonxc.load(tmp_path / "net")
