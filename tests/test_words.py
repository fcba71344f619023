"""Documents as means of word vectors: the vectors, and one relevance per word."""

import gzip
import itertools
import json
import time
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils import Bunch
from torch.testing import assert_close
from turns import every
from witnesses import contrast_relevance, neuron

import neonxc
from neonxc import NEON, neuralize
from neonxc.data import words
from neonxc.models import KernelKMeans, WordVectors

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOPICS = ["salt soup spoon pepper bread", "star planet moon orbit comet", "violin sonata chord tempo melody"]


def vocabulary(V, d):
    """Random vectors in float64 for the words aaaa, bbbb, ..."""
    rng = np.random.default_rng(0)
    weights = rng.random(V) + 0.2
    return WordVectors([LETTERS[i] * 4 for i in range(V)], rng.normal(size=(V, d)), weights)


def some_ids(V, N=40, T=9):
    """Documents of different length, with unknown words in between."""
    rng = np.random.default_rng(1)
    ids = rng.integers(-1, V, size=(N, T))
    ids[np.arange(T) >= rng.integers(1, T + 1, size=N)[:, None]] = -1
    ids[:, 0] = rng.integers(0, V, size=N)
    return torch.from_numpy(ids)


def documents(n=60, seed=0):
    """Texts on three topics, with stop words and punctuation."""
    rng = np.random.default_rng(seed)
    return [
        "The " + ", ".join(rng.choice(TOPICS[i % 3].split(), size=rng.integers(3, 8))) + " (and a few)."
        for i in range(n)
    ]


# --- words and numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 12 Mice_and MEN2go, naïve Straße — Ελλάδα", "mice and men naïve straße ελλάδα"),
        ("हिन्दी में किताब, और पानी।", "हिन्दी में किताब और पानी"),
        ("தமிழ் மொழி; বাংলা ভাষা", "தமிழ் மொழி বাংলা ভাষা"),
        ("كِتَابٌ جميل؟ في می\u200cخواهم", "كِتَابٌ جميل می\u200cخواهم"),
        ("שָׁלוֹם, ג'ירפה; м’ята 'слово'", "שָׁלוֹם ג'ירפה м'ята слово"),
        ('צה"ל, ארה״ב; "עולם"', 'צה"ל ארה"ב עולם'),
        ("Ինչո՞ւ եկար, սպասի՛ր։", "ինչո՞ւ եկար սպասի՛ր"),
        ("La intel·ligència · col·lecció 2·3 א·ב", "intel·ligència col·lecció"),
        ("ꦧꦱꦗꦮ ᬩᬮᬶ", "ꦧ ꦱ ꦗ ꦮ ᬩ ᬮᬶ"),
        ("한국어는 '책'은 AI가", "한국어는 책 은 ai가"),
        ("我喜欢AI猫2年。", "我 喜 欢 猫 年"),
        ("私はコーヒーと人々がらーめん", "私 は コーヒー と 人々 が らー め ん"),
        ("น้ำใจดี มากๆ ๒๕", "น้ำ ใ จ ดี ม า กๆ"),
        ("ខ្មែរ မြန်မာ ລາວ", "ខ្មែ រ မြ န် မာ ລ າ ວ"),
        ("አማርኛ ქართული ශ්\u200dරී", "አማርኛ ქართული ශ්\u200dරී"),
        ("co\u00adop \u200fשלום\u200e \ufeffHawaiʻi 👩🏽\u200d🚀", "coop שלום hawaiʻi"),
        ("ΟΔΟΣ İSPARTA Straße DON'T l’homme", "οδος isparta straße don homme"),
    ],
)
def test_words_of_the_world(text, expected):
    words = vocabulary(2, 2)
    for form in ("NFC", "NFD"):
        written = normalize(form, text)
        found = words.tokenize([written])[0]
        spans = words.spans([written])[0]
        assert found == [normalize("NFC", word) for word in expected.split()]
        assert words.tokenize([written[start:stop] for start, stop in spans]) == [[word] for word in found]


def test_the_longest_words_of_a_vocabulary_are_found_where_there_are_no_blanks():
    words = WordVectors(["喜欢", "猫", "北京大学", "北京", "café"], np.eye(5))
    text = normalize("NFD", "我喜欢北京大学。北京的猫 Cafe\u0301")
    assert words.tokenize([text]) == [["我", "喜欢", "北京大学", "北京", "的", "猫", "café"]]
    assert words.encode([text]).tolist() == [[-1, 0, 2, 3, -1, 1, 4]]
    refused(r"words needs distinct.*'café'", WordVectors, ["café", "cafe\u0301"], np.eye(2))
    with pytest.warns(UserWarning, match="without blanks between words, such as .日.: every character gets a"):
        learned = WordVectors.from_texts(["猫狗猫狗", "日月日月", "कि ता"] * 3, 2, min_count=3, random_state=0)
    assert {*learned.words} == {*"猫狗日月", "कि", "ता"}


def test_numbers_keep_in_step_with_the_words():
    words = WordVectors(["cat", "dog"], np.eye(2))
    texts = ["A cat, a bird; the DOG!", "Dog"]
    for given in (texts, pd.Series(texts, index=[1, 0]), iter(texts)):
        assert words.encode(given).tolist() == [[0, -1, -1, 1], [1, -1, -1, -1]]
    assert_close(words.points(iter(texts)), words(words.encode(texts)))
    assert words.covers([*texts, "no such", ""]).tolist() == [True, True, False, False]
    net = neuralize(np.eye(2), features=words)
    assert_array_equal(NEON(net).summary(iter(texts)).sizes, NEON(net).summary(texts).sizes)
    for bad, message in (
        (pd.Series(["cat", "bird"], index=["x", "y"]), r"text 1 has no word of the vocabulary: 'bird'"),
        ("cat", "a single one is"),
        ([], "texts is empty"),
        (["cat", np.nan], "text 1 is a float"),
    ):
        refused(message, words.points, bad)
    refused("this network has none", NEON, net, neonxc.lrp.presets.epsilon())
    refused("heatmaps need a network with a feature", NEON(net).heatmaps, words.encode(texts))
    refused("no points between a baseline and a text", NEON, net, baseline=0.0)
    refused(r"pass one of its columns, as X\['text'\]", net.predict, pd.DataFrame({"text": texts}))
    ids = words.encode(texts).numpy()
    assert_array_equal(net.predict(pd.DataFrame(ids)), net.predict(ids))


# --- where vectors come from -------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 50])
def test_vectors_are_singular_vectors_of_information_scaled_by_roots(window):
    texts = documents(90)
    words = WordVectors.from_texts(texts, 4, window=window, random_state=0)
    assert sorted(words.words) == sorted(" ".join(TOPICS).split())  # no stop word
    known = [[words.words.index(word) for word in text if word in words.words] for text in words.tokenize(texts)]
    counts = np.zeros((len(words.words),) * 2)
    for text in known:
        for i, j in itertools.permutations(range(len(text)), 2):
            counts[text[i], text[j]] += max(0, 1 - (abs(i - j) - 1) / window)
    smooth = counts.sum(0) ** 0.75
    information = np.zeros(counts.shape)
    for i, j in zip(*counts.nonzero(), strict=True):
        joint = counts[i, j] / counts.sum()
        word = counts[i].sum() / counts.sum()
        information[i, j] = max(0, np.log(joint / (word * smooth[j] / smooth.sum())))
    U, S, _ = np.linalg.svd(information)
    # alike up to the sign of each direction, which gram matrices don't see
    gram = (words.vectors @ words.vectors.T).numpy()
    assert_allclose(gram, U[:, :4] * S[:4] @ U[:, :4].T, atol=1e-5)
    unit = WordVectors.from_texts(texts, 4, window=window, random_state=0, unit_norm=True)
    assert_close(unit.vectors, words.vectors / words.vectors.norm(dim=1, keepdim=True))


def test_which_words_are_kept():
    texts = ["one two two three three three", "three two the"] * 2
    make = lambda **options: WordVectors.from_texts(texts, 1, random_state=0, **options)  # noqa: E731
    assert make(min_count=3, stop_words=None).words == ["three", "two"]
    assert make(min_count=1, stop_words=["TWO"]).words == ["three", "one", "the"]
    assert make(min_count=1, max_words=2, stop_words=None).words == ["three", "two"]
    words = make(min_count=1, stop_words=None, idf=True)
    found = dict(zip(words.words, words.weights.tolist(), strict=True))
    assert found["three"] == pytest.approx(1)
    assert found["one"] == pytest.approx(1 + np.log(5 / 3))


# Words of fewer than three letters count where letters are not written apart
NO_WORDS = "the 0 1\nCat 9 9\nU.S. 3 3\nnew york 5 5\ncat 7 7\n6 1 1\nox 1 1\nを2 1 1\nकि। 1 1\nв 1 1\n"
FILE = f"cat 1 2.5\n{NO_WORDS}我们 -1 1e-2\nน้ำ 2 1\nnai\u0308ve 3 1\nnaïve 4 1\nони 5 1\n"


@pytest.mark.parametrize(("header", "packed"), [("", False), ("16 2\n", True)])
def test_vectors_of_a_file(tmp_path, header, packed):
    path = tmp_path / ("vectors.txt" + ".gz" * packed)
    write = gzip.open if packed else open
    read = WordVectors.from_file
    write(path, "wt", encoding="utf-8").write(header + FILE)
    words = read(path)
    assert words.words == ["cat", "我们", "น้ำ", "naïve", "они"]
    assert_close(words.vectors, torch.tensor([[1, 2.5], [-1, 0.01], [2, 1], [3, 1], [5, 1]]))
    assert read(path, stop_words=["我们"], max_words=3).words == ["cat", "the", "น้ำ"]
    assert read(path, keep=["naïve", "Cat", "moon"]).words == ["cat", "naïve"]
    refused("none of the words to keep", read, path, keep=["moon"])
    for line in ("dog 1", "dog 1 x", "dog", "dog 1 nan"):
        write(path, "wt").write(f"cat 1 2\n{line}\n")
        refused(r"line 2 needs a word and 2 numbers|'dog' needs a finite vector", read, path)
    refused(r"none\.txt", read, tmp_path / "none.txt", error=FileNotFoundError)


# --- relevance ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "d", "T"), [(0.0, 4, 9), (0.4, 1, 9), (np.inf, 6, 1)])
def test_words_of_kmeans_by_loops(beta, d, T):
    """Eq. 4 word by word, literally: T inputs of d dimensions each, of one big linear layer."""
    words = vocabulary(10, d)
    ids = some_ids(10, T=T)
    known = (ids.numpy() >= 0) * words.weights.numpy()[ids]
    shares = known / known.sum(1, keepdims=True)
    vectors = words.vectors.numpy()[ids]
    points = (shares[:, :, None] * vectors).sum(1)  # weighted means of known words
    assert_allclose(words(ids.int()), points, rtol=1e-12)
    model = KMeans(4, n_init=2, random_state=0).fit(points)
    mu = model.cluster_centers_
    neon = NEON(neuralize(model, ids, words), beta=beta)
    for target, competitor in ((None, None), (2, None), (0, 1)):
        relevance = neon.attribute(ids, target=target, competitor=competitor).numpy()
        assert not np.signbit(relevance[known == 0]).any()  # a table would show -0.0
        for n, x in enumerate(points):
            c = int(model.labels_[n]) if target is None else target
            rivals = [k for k in range(4) if k != c] if competitor is None else [competitor]
            h = np.array([w @ x + b for w, b in (neuron(mu[c], mu[k]) for k in rivals)])
            parts = [(vectors[n] - (mu[c] + mu[k]) / 2) @ neuron(mu[c], mu[k])[0] for k in rivals]
            wanted = contrast_relevance(h, beta) / h @ parts * shares[n]
            assert_allclose(relevance[n], wanted, atol=1e-10)


@pytest.mark.parametrize(
    "model",
    [
        BisectingKMeans(4, random_state=0),
        KernelKMeans(3, 3, gamma=1.5, random_state=0),
        make_pipeline(StandardScaler(), KMeans(4, n_init=2, random_state=0)),
        GaussianMixture(3, covariance_type="tied", random_state=0),
    ],
    ids=["hierarchy", "supports", "pipeline", "tied"],
)
def test_words_share_what_the_dimensions_share(model):
    """The logit, less what the prior probabilities of a mixture contribute."""
    words = vocabulary(15, 5)
    ids = some_ids(15, N=700)
    points = words(ids)
    net = neuralize(model.fit(points.numpy()), ids, words)
    relevance = NEON(net).attribute(ids)
    whole = NEON(neuralize(model, points)).attribute(points).sum(1)
    assert_close(relevance.sum(1), whole, rtol=1e-8, atol=1e-8)
    for n in (0, 255, 256, 699):  # across the seams of chunks
        alone = NEON(net).attribute(ids[n : n + 1])[0]
        assert_close(alone, relevance[n], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [make_pipeline(Normalizer(), KMeans(3)), GaussianMixture(3)])
def test_what_is_not_linear_in_the_mean_has_no_relevance_of_words(model):
    words = vocabulary(15, 5)
    ids = some_ids(15)
    net = neuralize(model.fit(words(ids).numpy()), ids, words)
    refused("not linear in the mean word vector", NEON(net).attribute, ids)


def test_a_clusters_words_by_loops():
    texts = documents(80)
    words = WordVectors.from_texts(texts, 4, random_state=0)
    net = neuralize(KMeans(3, n_init=2, random_state=0).fit(words.points(texts).numpy()), features=words)
    neon = NEON(net)
    own = net.predict(texts)
    ids = words.encode(texts)
    summary = neon.summary(texts, n_prototypes=2)
    relevance = np.asarray(neon.attribute(texts))
    assert_allclose(neon.summary(ids).relevance, summary.relevance, atol=1e-12)
    expected = np.zeros((3, len(words.words)))
    contains = np.zeros((80, len(words.words)))
    for n, t in np.argwhere(ids.numpy() >= 0):
        expected[own[n], ids[n, t]] += relevance[n, t] / (own == own[n]).sum()
        contains[n, ids[n, t]] = 1
    assert_allclose(summary.relevance, expected, atol=1e-5)
    assert summary.sizes.tolist() == np.bincount(own).tolist()
    assert_allclose(summary.values.means, [contains[own == k].mean(0) for k in range(3)])
    assert_allclose(summary.values.overall, contains.mean(0))
    for k in range(3):  # a cluster's words are those of one topic
        best = {word for word, _ in summary.top(k, 3)}
        assert any(best <= set(topic.split()) for topic in TOPICS)
        assert (own[summary.prototypes[k]] == k).all()


# --- the example -------------------------------------------------------------------------------------------


def test_the_example_writes_a_page(run_example, tmp_path):
    rng = np.random.default_rng(0)
    for name, topic in zip(("food", "science", "art"), TOPICS, strict=True):
        words = (f"{topic} nice old blue red <b>").split()
        texts = [" ".join(rng.choice([*words, *TOPICS[n % 3].split()], size=20)) for n in range(60)]
        (tmp_path / name).write_text("\n%\n".join(texts) + "\n%\n")
    vectors = tmp_path / "vectors.txt"
    out = tmp_path / "page.html"
    known = " ".join(TOPICS) + " nice old blue red"
    vectors.write_text("".join(f"{word} {' '.join(map(str, rng.normal(size=6)))}\n" for word in known.split()))
    run_example("words", "--data", tmp_path, "--out", out, "--vectors", vectors)
    figures = json.loads(out.with_suffix(".json").read_text())
    assert figures["documents"] == sum(cluster["documents"] for cluster in figures["clusters"]) == 180
    assert figures["pairs"]
    assert all(len(set(pair["topics"])) == 2 for pair in figures["pairs"])
    page = out.read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_messages_of_newsgroups_come_without_what_names_the_group(example, monkeypatch, tmp_path):
    def fetch(subset, remove):
        assert set(remove) == {"headers", "footers", "quotes"}
        return Bunch(data=["a text", "A  text\n", "another"], target=np.array([1, 0, 0]), target_names=["x", "y"])

    monkeypatch.setattr("corpora.fetch_20newsgroups", fetch)
    corpora = example("corpora")
    corpus = corpora.newsgroups()
    assert corpus.texts == ["a text", "another"]  # every text once
    assert corpus.labels.tolist() == [1, 0]
    refused("install Debian's package", corpora.fortunes, tmp_path, error=FileNotFoundError)


def test_export():
    words = vocabulary(6, 4)
    ids = some_ids(6, N=24)
    net = neuralize(np.eye(4)[:3], features=words)
    exported = torch.export.export(net, (ids[:12],), strict=False).module()
    assert_close(exported(ids[12:]), net(ids[12:]))


@pytest.mark.parametrize(
    "letters",
    every(2, ["a\u0301", "\u0301", "ក្", "a\u00ad", "\u00ad", "l\u00b7", "a'", "अ्", "\u200d", "aa中", "ab1"]),
)
def test_words_are_found_in_linear_time(letters):
    """Texts of 20,000 characters, whatever they repeat; `is_term` took exponential time for Khmer syllables."""
    for start in ("", "a", "中"):
        for end in ("", "!", "中", "\u00ad"):
            text = start + letters * (20_000 // len(letters)) + end
            before = time.process_time()
            for read in (words.word_spans, words.counted_words, words.term_spans, words.characters, words.is_term):
                read(text)
            assert time.process_time() - before < 1
