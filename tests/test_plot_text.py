"""Highlighted documents: what is written, and that nothing in a text is obeyed."""

import re
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusals

from neonxc import plot


class Reader(HTMLParser):
    """The texts of the documents as a browser shows them, and their words with what is said about them."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.bodies = []
        self.words = []
        self.depth = 0
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        if self.depth:
            self.words.append([attributes["class"], attributes.get("title"), attributes.get("style"), ""])
        if self.depth or attributes.get("class") == "body":
            self.depth += 1
            self.bodies += [""] * (self.depth == 1)

    def handle_endtag(self, tag):
        self.depth = max(0, self.depth - 1)

    def handle_data(self, data):
        if self.depth:
            self.bodies[-1] += data
        if self.depth == 2:
            self.words[-1][3] += data


def test_the_text_as_it_was_and_each_words_relevance():
    text = "A red <b>apple</b> & a 'blue' sky."
    spans = [(2, 5), (9, 14), (24, 28), (30, 33)]
    relevance = [0.4, 0.1, -0.4, 0.0]
    known = [True, True, True, False]
    names = {"headings": ["fruit"], "notes": ["own: art"], "title": "Why"}
    highlighted = plot.text([text], [relevance], [spans], known=[known], **names)
    page = Reader(highlighted.html())
    assert page.bodies == [text]
    assert "b" not in page.tags
    assert [one[1:] for one in page.words if one[0] == "word"] == [
        ["+0.4", "background: rgb(178 24 43 / 0.620)", "red"],
        ["+0.1", None, "apple"],  # it does not matter
        ["-0.4", "background: rgb(33 102 172 / 0.620)", "blue"],
    ]
    assert [text for name, _, _, text in page.words if name == "out"][-1] == "' sky."
    shown = "Why\n\nfruit  own: art  (sum +0.1)\nA +red+ <b>apple</b> & a '-blue-' sky."
    assert str(highlighted) == shown


EVIL = '"><script>alert(1)</script>'


@example(words=[EVIL], heading=EVIL, seed=0)
@given(
    words=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5),
    heading=st.text(max_size=8),
    seed=st.integers(0, 99),
)
def test_whatever_a_text_holds_is_only_shown(words, heading, seed):
    relevance = np.random.default_rng(seed).normal(size=(1, len(words)))
    page = plot.text([words], relevance, headings=[heading], notes=[heading], title=heading)
    allowed = {"html", "head", "meta", "title", "style", "body", "section", "h2", "p", "span", "article", "header"}
    assert set(Reader(page.html(page=True)).tags) <= allowed | {"h3", "div"}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", str(page))


def test_a_page_is_whole_and_loads_nothing(tmp_path):
    path = tmp_path / "page.html"
    highlighted = plot.text([["ein", "Wörtchen"]], torch.tensor([[0.1, 0.2, 0.0]]))
    highlighted.save(path)
    page = path.read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert not re.search(r"(src|href)=|@import|url\(", page)
    assert "Wörtchen" in page
    assert "<html" not in highlighted.html()
    assert highlighted._repr_html_() == highlighted.html()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [({}, [1, 0, 0.9, 1]), ({"limit": "joint"}, [1, 0, 0.9, 0.1]), ({"limit": 0.25}, [1, 0, 1, 0.4])],
)
def test_scales_of_each_document_and_of_all(limit, expected):
    page = plot.text([["aaa", "bbb", "ccc"], ["ddd"]], [[1.0, -0.5, 0.9], [0.1]], **limit)
    found = [one.strength(piece) for one in page.documents for piece in one.pieces if piece.relevance]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(8))
def test_marked_are_the_fewest_words_that_carry_half(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=int(rng.integers(1, 9))) * rng.integers(1, 9)
    page = plot.text([[f"w{i}" for i in range(len(values))]], [values])
    marked = re.findall(r"([+-])w(\d)\1", str(page))
    assert all((sign == "+") == (values[int(i)] > 0) for sign, i in marked)
    largest = np.argsort(-np.abs(values))
    n = np.searchsorted(np.abs(values)[largest].cumsum(), np.abs(values).sum() / 2)
    assert sorted(int(i) for _, i in marked) == sorted(largest[: n + 1])
    assert page.html().count('style="background') == len(marked) + 2  # and two of the legend


def test_equal_words_are_marked_alike_and_nothing_where_nothing_matters():
    assert str(plot.text([["a", "b", "a"]], [[1.0, 0.1, 1.0]])).endswith("\n+a+ b +a+")
    page = plot.text([["aaa", "bbb", "ccc"]], [[0.0, 1.0, 0.0]])  # unknown are those without relevance
    assert [piece.text for piece in page.documents[0].pieces] == ["aaa ", "bbb", " ccc"]
    page = plot.text([["aaa", "bbb"]], [[0.0, 0.0]], known=torch.tensor([[True, False]]))
    assert [piece.relevance for piece in page.documents[0].pieces] == [0.0, None]
    assert "aaa" in page.html()
    assert str(page) == "(sum +0)\naaa bbb"


def test_labels_as_headings():
    labels = torch.tensor([2, -1, 0])
    page = plot.text([["a"]] * 3, [[1.0]] * 3, headings=labels)
    assert [document.heading for document in page.documents] == ["cluster 2", "noise", "cluster 0"]
    assert plot.text([["a"]], [[1.0]], headings=np.array(["sun"])).documents[0].heading == "sun"


def test_arguments_from_a_frame_are_taken_in_order():
    frame = pd.DataFrame({"heading": ["H0", "H1", "H2"], "text": ["aaa", "bbb", "ccc"]}, index=[2, 0, 1])
    spans = pd.Series([[(0, 3)]] * 3, index=["x", "y", "z"])
    relevance = pd.DataFrame([[1.0], [2.0], [3.0]])
    page = plot.text(frame["text"], relevance, spans, headings=frame["heading"], notes=iter("abc"))
    assert " ".join(str(page).split()) == "H0 a (sum +1) +aaa+ H1 b (sum +2) +bbb+ H2 c (sum +3) +ccc+"


def test_every_text_has_its_own_direction_and_turns_nothing_round():
    page = plot.text(
        [["שלום", "ab\u202ec"]], [[1.0, 2.0]], headings=["אשכול!"], notes=["הערה!"], title="מילים!\u2066"
    )
    for text in ("אשכול!", "הערה!", "מילים!"):
        assert f' dir="auto">{text}' in page.html()
    for written in (page.html(), str(page)):
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", written)


BAD = {
    r"\[text\]": ["abc", [[1.0]]],
    "spans are needed": [["abc"], [[1.0]]],
    "spans are needed.*": [[["abc"]], [[1.0]], [[(0, 3)]]],
    "one row of numbers": [[["abc"]], [1.0]],
    "one row of numbers.*": [[["abc"]], [[1.0], [2.0]]],
    "document 0 has 2 words": [[["abc", "def"]], [[1.0]]],
    "not finite": [[["abc"]], [[np.nan]]],
    "not in order": [["abc def"], [[1.0, 1.0]], [[(4, 7), (0, 3)]]],
    "not in order.*": [["abc"], [[1.0]], [[(0, 9)]]],
}
ONE = [["abc"]], [[1.0]]
test_bad_documents_say_what_is_needed = refusals(
    {message: partial(plot.text, *arguments) for message, arguments in BAD.items()}
    | {
        "headings needs one entry": partial(plot.text, *ONE, headings="c"),
        "limit needs": [partial(plot.text, *ONE, limit=limit) for limit in (-1.0, "x")],
        "2 words, but known for 1": partial(plot.text, [["abc", "def"]], [[1.0, 2.0]], known=[[True]]),
    }
)
