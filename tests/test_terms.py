"""Texts behind a vectorizer: counts, weights of terms, and where the terms stand."""

import copy
import functools
import re
import time
from collections import Counter
from unicodedata import category, normalize

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

import neonxc
from neonxc import NEON, highlights, neuralize
from neonxc.models import WordVectors

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


def composed(text):
    return normalize("NFKC", text).lower()


def behind(*steps, on=TEXTS):
    return make_pipeline(*steps, kmeans()).fit(on)


PIPELINES = {
    "tf-idf": [TfidfVectorizer()],
    "binary": [CountVectorizer(binary=True, dtype=np.float32)],
    "sublinear": [TfidfVectorizer(sublinear_tf=True, norm="l1", use_idf=False)],
    "no norm": [TfidfVectorizer(norm=None, smooth_idf=False)],
    "lsa": [
        CountVectorizer(stop_words="english", ngram_range=(1, 2)),
        TfidfTransformer(sublinear_tf=True),
        TruncatedSVD(5, random_state=0),
        Normalizer(),
    ],
    "nested": [make_pipeline(CountVectorizer(), TfidfTransformer())],
    "characters": [TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3))],
}


@functools.cache
def fitted(name):
    pipeline = behind(*PIPELINES[name])
    return pipeline, neuralize(pipeline, TEXTS)


# --- networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_decisions_and_relevance(name, tmp_path):
    pipeline, net = fitted(name)
    for texts in (TEXTS, OTHERS):
        assert_array_equal(net.predict(texts), pipeline.predict(texts))
    relevance = NEON(net).attribute(TEXTS)
    summary = NEON(net).summary(TEXTS)
    assert list(relevance.columns) == net.inputs.encoding.names == net.feature_names_
    counts = net.inputs.encoding.encode(TEXTS)
    labels = net.predict(TEXTS)
    logits = net(torch.from_numpy(counts.toarray()))
    assert_allclose(relevance.to_numpy().sum(1), logits.amax(1), atol=1e-10)
    assert_allclose(NEON(net).attribute(counts), relevance, atol=1e-12)  # counts are taken, too
    means = relevance.groupby(labels).mean()
    assert_allclose(summary.relevance, means, atol=1e-10)
    assert summary.top(0, 1)[0][0] == means.loc[0].idxmax()
    contains = pipeline[0].transform(TEXTS).toarray() > 0
    assert_allclose(summary.values.means, [contains[labels == k].mean(0) for k in net.classes_])
    assert_allclose(summary.values.overall, contains.mean(0))
    assert re.search(r"\(↑ in \d+% vs \d+%, V = ", str(summary))
    neonxc.save(net, tmp_path / "net.safetensors")
    loaded = neonxc.load(tmp_path / "net.safetensors")
    pd.testing.assert_frame_equal(NEON(loaded).attribute(TEXTS), relevance)


def test_beta_is_that_of_the_vectors_also_after_a_later_fit():
    """The pipeline's own last columns, explained without any vectorizer: same logits, so the same beta."""
    pipeline, net = copy.deepcopy(fitted("tf-idf"))
    inner = neuralize(pipeline[-1], pipeline[:-1].transform(TEXTS))
    assert net.beta == pytest.approx(inner.beta)
    found = NEON(net).attribute(TEXTS)
    pipeline.fit(OTHERS)
    pd.testing.assert_frame_equal(NEON(net).attribute(TEXTS), found)


def test_surrogates_and_reports_of_texts():
    steps = TfidfVectorizer(stop_words="english"), DBSCAN(0.85, min_samples=2, metric="cosine")
    pipeline = make_pipeline(*steps).fit(TEXTS)
    net = neuralize(pipeline, TEXTS)
    assert net.fidelity_ > 0.9
    assert NEON(net).summary(TEXTS).top(0, 1)[0][0] in pipeline[0].vocabulary_
    for rule in neonxc.explain(fitted("tf-idf")[0], TEXTS, fast=True).to_frame()["rule"]:
        assert re.match("with(out)? [a-z]+", rule)


def test_forms_of_texts():
    pipeline, net = fitted("tf-idf")
    expected = NEON(net).attribute(TEXTS)
    series = pd.Series(TEXTS, index=[f"d{i}" for i in range(12)])
    assert list(NEON(net).attribute(series).index) == list(series.index)
    for texts in (series, np.array(TEXTS), iter(TEXTS), tuple(TEXTS)):
        assert_allclose(NEON(net).attribute(texts), expected)
    assert_allclose(NEON(net).attribute((TEXTS[0],)), expected[:1])
    assert_allclose(net(net.batch(TEXTS).tensor).amax(1), expected.to_numpy().sum(1), atol=1e-10)
    for texts in (TEXTS, net.inputs.read(TEXTS).tensor, pipeline[:-1].transform(TEXTS)):
        refused(r"net\(net.batch\(x\).tensor\)", net, texts, error=TypeError)  # and this is what works
    assert_array_equal(neuralize(pipeline).predict(TEXTS), net.predict(series))


# --- highlights --------------------------------------------------------------------------------------------

ANALYZERS = [
    {},
    {"ngram_range": (2, 2), "stop_words": "english"},
    {"strip_accents": "unicode"},
    {"strip_accents": "ascii", "ngram_range": (1, 2)},
    {"lowercase": False},
    {"token_pattern": r"(\w)\w*"},
    {"tokenizer": str.split, "token_pattern": None, "stop_words": ["soup"]},
    {"preprocessor": str.upper},
    {"preprocessor": composed},
]
WORDS = "Salt the soup Été à Zürich İstanbul ΣΑΣ ﬁne ete\u0301 x"
PIECES = [*WORDS.split(), "  ", "\n", ",-"]


@functools.cache
def network_of(number):
    """Of the words above."""
    texts = [WORDS, "the soup"]
    vectorizer = CountVectorizer(**ANALYZERS[number])
    return neuralize(make_pipeline(vectorizer, KMeans(2, n_init=1)).fit(texts)), vectorizer.fit(texts)


@given(
    text=st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join), number=st.sampled_from(range(len(ANALYZERS)))
)
def test_relevance_of_terms_is_marked_where_the_analyzer_finds_them(text, number):
    net, vectorizer = network_of(number)
    analyze = vectorizer.build_analyzer()
    worth = dict(zip(net.feature_names_, 1.5 ** np.arange(len(net.feature_names_)), strict=True))
    (marks,) = highlights(net, [text], [list(worth.values())])
    assert sum(value for *_, value in marks) == pytest.approx(sum(worth.get(term, 0) for term in {*analyze(text)}))
    assert_in_order(text, marks)
    if "ngram_range" not in ANALYZERS[number]:
        often = Counter(analyze(text))
        for start, stop, value in marks:
            assert value == pytest.approx(sum(worth[term] / often[term] for term in analyze(text[start:stop])))


def assert_in_order(text, marks):
    stops = [0, *(stop for _, stop, _ in marks)]
    assert all(before <= start < stop for before, (start, stop, _) in zip(stops, marks, strict=False))
    assert stops[-1] <= len(text)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"strip_accents": "unicode"}, {"preprocessor": composed}),
        {"preprocessor": composed, "tokenizer": list, "token_pattern": None},
    ],
)
def test_marks_stay_with_their_characters(options):
    texts = ["cafe\u0301 soup", "U\u0308ber soup", "हिन्दी soup"]
    net = neuralize(behind(CountVectorizer(**options), on=texts))
    for text, marks in zip(texts, highlights(net, texts, NEON(net).attribute(texts)), strict=True):
        assert_in_order(text, marks)
        if "tokenizer" not in options:
            assert not any(category((text + " ")[stop]).startswith("M") for _, stop, _ in marks)


def test_shares_of_words():
    """Of "the soup, the soup": a word has half of its own term, and half of what each pair around it has."""
    texts = ["the soup the soup", "soup", "the"]
    net = neuralize(behind(CountVectorizer(ngram_range=(1, 2)), on=texts))
    worth = {"the": 1.0, "soup": 10.0, "the soup": 100.0, "soup the": 1000.0}
    marks = highlights(net, ["The soup, the soup"], [[worth[name] for name in net.feature_names_]])[0]
    assert marks == [(0, 3, 25.5), (4, 8, 530), (10, 13, 525.5), (14, 18, 30)]


class Stemmed(CountVectorizer):
    def build_analyzer(self):
        analyze = super().build_analyzer()
        return lambda text: [word[:4] for word in analyze(text)]


def halves(text):
    return [text[: len(text) // 2]]


UNPLACED = {
    r"Stemmed has an analyzer of its own, which does not tell where in a text its terms are": Stemmed(),
    r'needs a vectorizer with analyzer="word".* got analyzer=<function halves': CountVectorizer(analyzer=halves),
    r"needs a vectorizer with .* got analyzer='char_wb'": CountVectorizer(analyzer="char_wb"),
    r"preprocessor does not tell where": CountVectorizer(preprocessor=lambda text: text + " end"),
    r"makes the token 'absent'": CountVectorizer(tokenizer=str.split, token_pattern=None),
}


@pytest.mark.parametrize("message", UNPLACED)
def test_terms_that_can_not_be_placed(message):
    net = neuralize(behind(UNPLACED[message]))
    if "absent" in message:
        net.inputs.encoding.vectorizer.tokenizer = lambda text: ["absent"]
    refused(message, highlights, net, TEXTS, np.zeros((len(TEXTS), net.inputs.encoding.width)))


# --- errors ------------------------------------------------------------------------------------------------

UNUSABLE = {
    r"X needs a sequence of strings; a single one is \[text\]": "a text",
    r"X needs a sequence of strings; text 1 is a NoneType": ["a text", None],
    r"X is empty": [],
    r"X has 3 features, the clustering was fitted on \d+": np.zeros((2, 3)),
    # as iterables, these have their names in place of their texts
    r"X needs a sequence of strings, got a DataFrame: pass one of its columns, as X\['star'\]": pd.DataFrame(
        {"star": TEXTS, "year": range(12)}
    ),
    r"X needs a sequence of strings, got a dict: pass \[\*X.values\(\)\]": dict(
        zip("abcdefghijkl", TEXTS, strict=True)
    ),
    r"X needs a sequence of strings, got a set, which has no order": {*TEXTS},
    r"X needs a sequence of strings, got an array \[12, 1\]: pass X\[:, 0\]": np.array(TEXTS)[:, None],
}


@pytest.mark.parametrize("message", UNUSABLE)
def test_unusable_texts(message):
    _, net = fitted("tf-idf")
    for entry in (net.predict, NEON(net).attribute, NEON(net).summary, net.calibrate):
        refused(message, entry, UNUSABLE[message])


NAMED = {
    "frame": (pd.DataFrame({"planet": TEXTS}), r"a DataFrame: pass one of its columns, as texts\['planet'\]"),
    "dictionary": ({"planet": TEXTS[0], "soup": TEXTS[1]}, r"a dict: pass \[\*texts.values\(\)\]"),
    "set": ({*TEXTS}, r"a set, which has no order: pass sorted\(texts\)"),
}


@pytest.mark.parametrize("name", NAMED)
def test_names_of_texts_are_not_taken_for_texts(name):
    texts, message = NAMED[name]
    words = WordVectors.from_texts(TEXTS, n_dimensions=3, min_count=1)
    words.points(["planet"])  # which is a word
    for entry in (words.points, words.encode, words.covers, words.spans, WordVectors.from_texts):
        refused(f"texts needs a sequence of strings, got {message}", entry, texts)
    message = message.replace("texts", "X")
    pipeline, _ = fitted("tf-idf")
    for entry in (neuralize, neonxc.explain):
        refused(f"X needs a sequence of strings, got {message}", entry, pipeline, texts)


def test_every_line_of_a_file_is_a_text(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("a\u2028b\r\n\n c\x0bd\x85e \n\u3000\n".encode("utf-8-sig"))
    net = neuralize(behind(CountVectorizer(analyzer="char", strip_accents=None, vocabulary="a\u2028b \x0b\x85")))
    found = NEON(net).attribute(path)
    assert_array_equal(found, NEON(net).attribute(["a\u2028b", "c\x0bd\x85e"]))


def test_what_is_refused():
    pipeline, net = fitted("tf-idf")
    files = behind(CountVectorizer())
    hashing = behind(HashingVectorizer())
    files[0].input = "filename"
    imputer = behind(CountVectorizer(), SimpleImputer())
    two = np.zeros((2, 2))
    refused("step 'hashingvectorizer': a HashingVectorizer does not know", neuralize, hashing, TEXTS)
    refused("CountVectorizer needs input='content', got 'filename'", neuralize, files)
    dense = "encoders, imputers and functions such as log1p need a dense table"
    refused(f"X is sparse, as counts of terms are; {dense}: neonxc.neuralize", neuralize, imputer, TEXTS)
    log = behind(CountVectorizer(), FunctionTransformer(np.log1p, accept_sparse=True))
    refused(dense, neuralize, log, TEXTS)
    assert neuralize(log[-1], log[:-1].transform(TEXTS)).agreement_ == 1.0  # what the message advises
    refused("a vectorizer a pipeline has numbers, and no vectorizer, encoder", neuralize, imputer)
    refused("behind features= or a vectorizer", neuralize, pipeline, TEXTS, torch.nn.Identity())
    refused(r"relevance needs shape \(12, \d+\), got \(2, 2\)", highlights, net, TEXTS, two)
    refused("highlights needs the network of a pipeline", highlights, neuralize(pipeline[-1]), TEXTS, two)
    refused(r"net\(x\) takes a tensor, got list: net\(net\.batch", net, TEXTS, error=TypeError)


FUNCTIONS = [{"tokenizer": str.split, "token_pattern": None}, {"analyzer": str.split}]


@pytest.mark.parametrize("options", [*FUNCTIONS, {"preprocessor": str.upper}, {"strip_accents": str.upper}])
def test_functions_are_not_saved(options, tmp_path):
    net = neuralize(behind(CountVectorizer(**options)))
    message = rf"can't save a CountVectorizer with a function as its {next(iter(options))}"
    refused(message, neonxc.save, net, tmp_path / "net", error=TypeError)


def test_what_a_file_holds(tmp_path):
    words = {"stop_words": ["the", "a"], "vocabulary": {"soup": 1, "salt": 0, "chord": 2}}
    net = neuralize(behind(CountVectorizer(**words)))
    neonxc.save(net, tmp_path / "net")
    loaded = neonxc.load(tmp_path / "net")
    assert loaded.feature_names_ == ["salt", "soup", "chord"]
    assert set(loaded.inputs.encoding.vectorizer.stop_words) == {"a", "the"}
    refused(
        "can't save a Stemmed, a class of its own",
        neonxc.save,
        neuralize(behind(Stemmed())),
        tmp_path / "other",
        error=TypeError,
    )
    content = (tmp_path / "net").read_bytes().replace(b"chord", b"salt ")
    (tmp_path / "net").write_bytes(content)
    refused(re.escape(str(tmp_path / "net")), neonxc.load, tmp_path / "net")


def test_loading_a_file_does_not_run_its_pattern(tmp_path):
    """A pattern that takes exponential time to find no word; reading texts with it is the user's choice."""
    vectorizer = CountVectorizer(vocabulary=["sun", "a" * 40], token_pattern=r"(?u)((?:\w+)+)!")
    kmeans = KMeans(2, n_init=1, random_state=0).fit([[0.0, 1.0], [1.0, 0.0]])
    neonxc.save(neonxc.neuralize(make_pipeline(vectorizer, kmeans)), tmp_path / "net")
    before = time.process_time()
    assert neonxc.load(tmp_path / "net").predict(["sun!"]).shape == (1,)
    assert time.process_time() - before < 2
