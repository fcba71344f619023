"""The page of a report: what is in it without a browser, and that nothing in it is obeyed."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import report_contents as reports

from neonxc.common import colours as colors
from neonxc.report import charts
from neonxc.report.charts import curves
from neonxc.report.contents import Column, Contents, Curve, PointMap, Reproduce, Statement, TreeNode, Trust
from neonxc.report.page import HERE, as_json, embedded, page_data, render
from neonxc.report.tree import outline

VOID = {"meta", "img", "input", "br", "link"}
KINDS = ["wine", "many", "photos", "regions", "texts", "hostile", "noise"]


class Reader(HTMLParser):
    """The page as a browser takes it: elements with attributes, and what can be read."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.read, self.scripts = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.read).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.elements[-5:]

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] not in ("style", "title"):
            self.read.append(data)


@pytest.fixture(scope="module", params=KINDS)
def report(request):
    contents, page = reports.contents(request.param)
    return contents, page, Reader(page)


def empty(**parts):
    points = PointMap([], None, [], [], [], [], [], [], [], [], [], [], "", "")
    reproduce = Reproduce([], [], [])
    bare = Contents(
        "Nothing", "table", "", 0, 0, 0, "", [], [], [], [], [], [], [], points, Trust(), reproduce, ""
    )
    return replace(bare, **parts)


def normal(text):
    """Text as the page shows it: without control characters or half characters, spaces run together."""
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\ufffd", text)
    return " ".join(text.encode("utf-8", "replace").decode().split())


def test_all_that_matters_is_in_the_static_page(report):
    contents, _, page = report
    said = [contents.title, contents.verdict, contents.what, *contents.notes, *contents.trust.notes]
    said += [part for figure in contents.figures for part in (figure.label, figure.text, figure.help)]
    said += [warning.text for warning in contents.warnings]
    for card in contents.cards:
        said += [card.name, f"{card.size:,} points", *(rule.text for rule in card.rules)]
        said += [statement.text for statement in card.statements]
        said += [item.name for item in (*card.prototypes, *card.borderline)]
    said += [item.name for item in contents.trust.disagreements]
    said += [node.text for node in contents.tree]
    said += [part for name, value in contents.reproduce.versions for part in (name, value)]
    said += [part for title, _, source in contents.reproduce.code for part in (title, source)]
    missing = [text for text in said if normal(text) not in page.text]
    assert missing == []


def test_every_element_is_closed_every_link_leads_somewhere_and_every_id_is_there_once(report):
    _, _, page = report  # Reader has compared opening and closing tags
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert {link for link in links if link[0] != "#" or link[1:] not in ids} - {"#point"} == set()


def test_nothing_is_obeyed(report):
    contents, _, page = report
    assert [attributes for tag, attributes in page.elements if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
    ]
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    for _, attributes in page.elements:
        assert re.match("data:image/", attributes.get("src", "data:image/"))
        assert attributes.get("href", "#").startswith("#")
    styles = {attributes["style"] for _, attributes in page.elements if "style" in attributes}
    assert all(re.fullmatch(r"width:[\d.]+%", style) for style in styles)
    assert {tag for tag, _ in page.elements} & {"b", "iframe", "object", "base", "form", "link"} == set()
    assert (page.text.count("{{ 7 * 7 }}") > 3) == (contents.title == reports.HOSTILE[0])  # no template either


def test_no_address_of_a_network(report):
    _, source, _ = report
    outside = re.sub(r'<script type="application/json".*?</script>', "", source, flags=re.S)
    outside = outside.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|src=\"//|url\(|@import", outside)


def test_the_policy_names_the_script(report):
    import base64
    import hashlib

    _, _, page = report
    (policy,) = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_island_holds_the_points(report):
    contents, _, page = report
    data = json.loads(page.scripts[0])
    points = contents.points
    tags, tints = [one[0] for one in data["clusters"]], [one[2] for one in data["clusters"]]
    assert data == json.loads(json.dumps(page_data(contents, tags, tints)))
    assert [one[1] for one in data["clusters"]] == [card.name for card in contents.cards]
    assert [one[0] for one in data["columns"]] == [column.name for column in contents.columns]
    assert data["points"]["rows"] == points.rows
    assert data["points"]["names"] == points.names
    words = data["points"]["words"]
    for at in range(0, len(points.rows), 37):
        strongest = data["points"]["strongest"][at]
        for j, thousandths, value in zip(strongest[::3], strongest[1::3], strongest[2::3], strict=True):
            shown = words[value[0]] if isinstance(value, list) else value
            assert str(shown) == str(points.values[j][at]) or float(shown) == float(points.values[j][at])
            assert thousandths / 1000 == pytest.approx(points.relevance[j][at], abs=0.0005001)
        if points.relevance:
            left = {j for j in range(len(points.relevance))} - set(strongest[::3])
            least = min(map(abs, strongest[1::3])) if len(strongest) == 30 else 0
            assert all(abs(points.relevance[j][at]) * 1000 <= least + 0.501 for j in left)
        change, packed = points.changes[at], data["points"]["changes"][at]
        assert (change is None) == (packed is None)
        if change:
            assert packed[0] == change.cluster
            assert packed[1] == pytest.approx(change.distance, rel=1e-3)
            assert [move[0] for move in packed[2]] == [column for column, _ in change.values]


@pytest.mark.parametrize("text", ["</script>", "<!-- <script>", "\u2028\u2029", "\ud800", "&lt;", '"\\'])
def test_json_breaks_out_of_nothing(text):
    written = as_json({"a": [text, math.nan, math.inf, 2.0]})
    assert json.loads(written) == {"a": [text, None, None, 2]}
    assert not set("<>&\u2028\u2029\ud800") & set(written)


def test_sizes():
    assert len((HERE / "report.js").read_bytes()) <= 25_000
    assert len(render(empty()).encode()) <= 50_000
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 3, (8, 20))
    X = pd.DataFrame(centers[rng.integers(0, 8, 10_000)] + rng.normal(0, 1, (10_000, 20)))
    X.columns = [f"column number {at}" for at in range(20)]
    contents = reports.table(X, 8, "Ten thousand rows")
    data = page_data(contents, ["0"] * 8, ["#000000"] * 8)
    assert len(contents.points.rows) == 10_000
    assert len(data["points"]["rows"]) <= 4_100
    rows = set(data["points"]["rows"])
    assert {item.row for card in contents.cards for item in (*card.prototypes, *card.borderline)} <= rows
    assert 500_000 < len(render(contents).encode()) <= 1_000_000


def test_only_what_is_needed_is_unfolded():
    page = Reader(reports.contents("many")[1])
    cards = [attributes for tag, attributes in page.elements if attributes.get("class") == "card"]
    assert [("open" in card) for card in cards] == [at < 12 for at in range(50)]
    assert all(
        "open" in row
        for row in [a for _, a in Reader(reports.contents("wine")[1]).elements if a.get("class") == "card"]
    )


def test_pages_are_the_same_each_time_and_can_be_written(report):
    contents, page, _ = report
    assert render(contents) == page
    page.encode("utf-8")


def test_empty_parts_are_left_out():
    page = Reader(render(empty()))
    headings = [attributes.get("id") for tag, attributes in page.elements if tag == "section"]
    assert headings == ["verdict", "reproduce"]
    full = [
        attributes.get("id")
        for tag, attributes in Reader(reports.contents("wine")[1]).elements
        if tag == "section"
    ]
    assert full == ["verdict", "map", "clusters", "versus", "tree", "trust", "reproduce"]


def test_an_item_without_a_rival_names_none():
    contents = reports.photos()
    for card in contents.cards:
        card.prototypes = [replace(card.prototypes[0], rival=-1)]
        card.borderline, card.nearest, card.fidelity = [], None, None
    page = Reader(render(replace(contents, pairs=[], tree=[], trust=Trust(), warnings=[])))
    assert not [tag for tag, attributes in page.elements if attributes.get("class") == "chip" and tag == "a"]


def test_a_frame_holds_the_whole_page_and_no_rights():
    contents, page = reports.contents("hostile")
    (frame,) = Reader(embedded(contents)).elements
    assert frame[0] == "iframe"
    assert frame[1]["sandbox"] == "allow-scripts"
    assert frame[1]["srcdoc"] == page


def nested(tree, at=0):
    """The tree as nested lists, by recursion."""
    node = tree[at]
    return [at] if node.left < 0 else [at, nested(tree, node.left), nested(tree, node.right)]


@pytest.mark.parametrize("seed", range(5))
def test_the_outline_nests_as_the_tree_does(seed):
    rng = np.random.default_rng(seed)
    tree = []

    def grow(parent, depth):
        at = len(tree)
        tree.append(TreeNode(parent, -1, -1, "", 0, int(rng.integers(1, 9)), 0))
        if depth and rng.random() < 0.7:
            tree[at].left = grow(at, depth - 1)
            tree[at].right = grow(at, depth - 1)
        return at

    grow(-1, 6)
    written, rows = "", outline(tree)
    for row in rows:
        inner = tree[row.at].left >= 0
        written += f",[{row.at}" + ("" if inner else "]") + "]" * row.closing
    assert json.loads(written.lstrip(",")) == nested(tree)
    for row in rows:
        inside = {at for at in range(len(tree)) if _under(tree, at, row.at)}
        assert inside == set(range(row.at, row.end))
        assert row.answer == ("" if row.at == 0 else "yes" if tree[tree[row.at].parent].left == row.at else "no")
        assert not row.unfolded or row.at == 0 or rows[tree[row.at].parent].unfolded


def _under(tree, at, above):
    while at != above and at >= 0:
        at = tree[at].parent
    return at == above


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[
            (0, "0"),
            (1234.56, "1235"),
            (132900.4, "132,900"),
            ("186,061", "186,061"),
            (0.12345, "0.1235"),
            (-3.10, "−3.1"),
            (1e-7, "1e−07"),
            (2.5e15, "2.5e+15"),
        ],
        *[(None, ""), ("x-y", "x-y"), (math.nan, "–"), (100, "100"), (1_000_000, "1,000,000"), (True, "true")],
    ],
)
def test_numbers(value, text):
    assert charts.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "50%"),
        (0.001, "0.1%"),
        (0.9996, "99.9%"),
        (-0.996, "−99.6%"),
        (1.0, "100%"),
        (0.0, "0%"),
        (None, "–"),
        (-0.2, "−20%"),
    ],
)
def test_shares(value, text):
    assert charts.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.2, "+20%"), (-0.2, "−20%"), (0.0, "0%"), (1e-3, "+0.1%"), (math.nan, "–")]
)
def test_signed_shares(value, text):
    assert charts.signed(value) == text


def test_standardised_values():
    column = Column("a", mean=10.0, spread=2.0, unit="mg")
    assert charts.standardised(column, "1,013 mg") == "+501.50"
    assert charts.standardised(column, "−7") == "−8.50"
    assert charts.standardised(column, 11) == "+0.50"
    assert charts.standardised(column, "missing") is None
    assert charts.standardised(Column("a", "category"), "3") is None
    assert charts.standardised(Column("a", mean=1.0, spread=0.0), "3") is None


# Machado, Oliveira and Fernandes (2009): protanopia and deuteranopia of severity 1, for linear RGB
BLINDNESS = [
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
]
# Ottosson (2020): from linear RGB to cone responses, and from their cube roots to OKLab
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def seen(codes):
    """Colours [n, 3] in OKLab for normal vision and two kinds of colour blindness, [3, n, 3]."""
    part = np.asarray(codes) / 255
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    views = np.stack([light, *(np.clip(light @ np.array(matrix).T, 0, 1) for matrix in BLINDNESS)])
    return np.cbrt(views @ np.array(CONES).T) @ np.array(OKLAB).T


def test_colors_are_told_apart_by_all_readers_and_seen_on_both_papers():
    many = colors.colors(60)
    assert colors.colors(5) == many[:5]
    assert len(set(many)) == 60
    assert colors.colors(3_000)[60:120] == many
    light = np.array([colors.luminance(color) for color in many])
    assert ((1.05 / (light + 0.05)) > 1.9).all()  # on white
    assert (((light + 0.05) / 0.05) > 3).all()  # on black
    codes = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in many])
    for k, least in [(6, 0.07), (12, 0.07), (50, 0.03)]:
        views = seen(codes[:k])
        apart = np.linalg.norm(views[:, :, None] - views[:, None], axis=-1) + 9 * np.eye(k)
        assert apart.min() > least
    for color, tone in zip(many, light, strict=True):
        on = 1.0 if colors.ink(color) == "#ffffff" else 0.0
        assert (max(on, tone) + 0.05) / (min(on, tone) + 0.05) >= 4.5


def test_distributions():
    histogram = Statement(0, 0.5, "high a", [0.0, 1.0, 3.0], [0.25, 0.75], [1.0, 0.0], 2.0, 0.5)
    drawn = charts.distribution(histogram)
    assert 'd="M0 32V24H40V8H120V32"' in drawn  # the second bin is twice as wide
    assert 'd="M0 32V0H40V32H120V32"' in drawn
    assert 'aria-label="typically 2 inside the cluster, 0.5 outside"' in drawn
    some = Statement(0, 0.5, "a is <b>", ["<b>", "c"], [1.0, 0.0], [0.5, 0.5], "<b>", "c")
    drawn = charts.distribution(some)
    assert drawn.count("<g>") == 2
    assert "<title>&lt;b&gt;: 100% inside, 50% outside</title>" in drawn
    assert charts.distribution(Statement(0, 0.5, "no columns")) == ""
    constant = Statement(0, 0.0, "a", [1.0, 1.0], [1.0], [1.0], 1.0, 1.0)
    assert "nan" not in charts.distribution(constant)


def test_bars_start_at_zero():
    assert 'class=against x="0%" width="25%"' in charts.bar(-1, -1, 3)
    assert 'class=for x="25%" width="75%"' in charts.bar(3, -1, 3)
    assert 'width="0%"' in charts.bar(0, 0, 0)
    assert 'width="0%"' in charts.bar(math.nan, 0, 1)


def test_labels_of_curves_do_not_meet():
    lines = [Curve(f"<method {at}>", [0, 1], [0, 1], f"AUC {at}") for at in range(5)]
    drawn = curves(lines, "known", "kept", True)
    places = [float(y) for y in re.findall(r'class=name x="\d+" y="([\d.]+)"', drawn)]
    assert all(after - before >= 38 for before, after in pairwise(places))
    assert max(places) < 250
    assert "<method" not in drawn
    assert "nan" not in curves([Curve("one", [3], [1.1])], "leaves", "cost", False)
