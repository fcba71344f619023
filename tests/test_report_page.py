"""The page of a report: what is in it without a browser, and that nothing in it is obeyed."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import report_contents as reports

from neonxc.common import colours

VOID = {"meta", "img", "input", "br", "link"}


class Reader(HTMLParser):
    """The page as a browser takes it: elements with attributes, and what can be read."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.elements = []
        self.read = []
        self.scripts = []
        self.parents = {}
        self.feed(page)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.read).split())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag == "script":
            self.scripts.append("")
        if "data-node" in attributes:  # of the tree: inside which other one it is
            outer = [inside["data-node"] for _, inside in self.open if "data-node" in inside]
            self.parents[int(attributes["data-node"])] = int(outer[-1]) if outer else -1
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        inside = self.open[-1][0] if self.open else ""
        if inside == "script":
            self.scripts[-1] += data
        elif inside not in ("style", "title"):
            self.read.append(data)

    def all(self, name, value):
        """Attributes of the elements that have this one."""
        return [found for _, found in self.elements if found.get(name) == value]


@pytest.fixture(scope="module", params=reports.KINDS)
def report(request):
    page = reports.report(request.param).html()
    return reports.report(request.param).description, page, Reader(page)


def changed(name="wine", **parts):
    """The source of the page of a report with some other contents."""
    made = reports.report(name)
    return replace(made, description=replace(made.description, **parts)).html()


def normal(text):
    """Text as the page shows it: without control characters or half characters, spaces run together."""
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\ufffd", text)
    return " ".join(text.encode("utf-8", "replace").decode().split())


def test_all_that_matters_is_in_the_static_page(report):
    contents, _, page = report
    trust = contents.trust
    made = contents.reproduce
    said = [contents.title, contents.verdict, contents.source, *contents.notes, *trust.comparisons]
    said += [part for figure in contents.figures for part in (figure.label, figure.text, figure.help)]
    said += [part for card in contents.clusters for part in (card.name, f"{card.size:,} points")]
    said += [part.text for card in contents.clusters for part in (*card.rules, *card.statements)]
    said += [item.name for card in contents.clusters for item in (*card.prototypes, *card.borderline)]
    said += [item.name for item in trust.disagreements]
    said += [part.text for part in (*contents.warnings, *contents.tree)]
    said += [part for pair in (*made.versions, *(code[::2] for code in made.code)) for part in pair]
    assert [text for text in said if normal(text) not in page.text] == []


def test_a_page_is_well_formed_and_the_same_each_time(report):
    contents, source, page = report  # Reader has compared opening and closing tags
    source.encode("utf-8")
    assert changed("wine", **vars(contents)) == source
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert links <= {"#point", *(f"#{i}" for i in ids)}


def test_nothing_is_obeyed_and_nothing_is_loaded(report):
    # SECURITY.md: HTML is escaped.
    # SECURITY.md: Names of columns, values of cells, texts and labels are escaped
    # SECURITY.md: A report is one file
    contents, source, page = report
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    for tag, attributes in page.elements:
        assert tag not in ("b", "iframe", "object", "base", "form", "link")
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("src", "data:image/").startswith("data:image/")
        assert attributes.get("href", "#").startswith("#")
        assert re.fullmatch(r"width:[\d.]+%", attributes.get("style", "width:0%"))
    assert (page.text.count("{{ 7 * 7 }}") > 3) == (contents.title == reports.HOSTILE[0])  # no template either
    outside = source.replace(page.scripts[0], "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|src=\"//|url\(|@import", outside)
    (policy,) = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")


def near(found, expected):
    """Whether nested lists hold the same, numbers up to their rounding."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[key], expected[key]) for key in found)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(near, found, expected))
    if isinstance(expected, float) and not math.isfinite(expected):
        return found is None
    return found == (pytest.approx(expected, rel=1e-3, abs=6e-4) if isinstance(expected, float) else expected)


def test_the_island_holds_the_points(report):
    contents, _, page = report
    data = json.loads(page.scripts[0])
    assert not set("<>&\u2028\u2029\ud800") & set(page.scripts[0])  # it breaks out of nothing
    assert [cluster["name"] for cluster in data["clusters"]] == [card.name for card in contents.clusters]
    expected = contents.to_dict()
    for part in ("columns", "pairs", "points"):
        assert near(data[part], expected[part])
    assert data["colors"] == colours.colors(contents.k)


def test_sizes():
    contents = reports.report("wine").description
    points = contents.points
    n = 4_000

    def many(values):
        return [values[i % len(points.rows)] for i in range(n)]

    lists = {name: many(getattr(points, name)) for name in POINTS} | {"rows": [*range(n)], "leaf": [0] * n}
    lists |= {name: [*map(many, getattr(points, name))] for name in ("values", "relevance")}
    page = changed(points=replace(points, **lists))
    rows = set(json.loads(Reader(page).scripts[0])["points"]["rows"])
    assert {item.row for card in contents.clusters for item in (*card.prototypes, *card.borderline)} <= rows
    assert 500_000 < len(page.encode()) <= 1_500_000


POINTS = ["x", "y", "cluster", "competitor", "logit", "total", "changes"]
NO_POINTS = {name: [] for name in [*POINTS, "rows", "leaf", "values", "relevance"]}
BARE = {name: [] for name in ["figures", "warnings", "notes", "columns", "clusters", "pairs", "tree"]}


def sections(page):
    return [attributes.get("id") for tag, attributes in Reader(page).elements if tag == "section"]


def test_empty_parts_are_left_out():
    page = changed(points=replace(reports.report("wine").description.points, **NO_POINTS), **BARE)
    assert sections(page) == ["verdict", "reproduce"]
    assert len(page.encode()) <= 50_000
    assert len(Reader(page).scripts[1].encode()) <= 25_000
    photos = reports.report("photos").description
    item = replace(photos.clusters[0].prototypes[0], competitor=-1)
    alone = replace(photos.clusters[0], prototypes=[item], borderline=[], nearest=None, fidelity=None)
    trust = replace(photos.trust, disagreements=[])
    page = Reader(changed("photos", **BARE | {"clusters": [alone], "columns": photos.columns, "trust": trust}))
    assert not any("href" in chip for chip in page.all("class", "chip"))
    full = ["verdict", "map", "clusters", "versus", "tree", "trust", "reproduce"]
    assert sections(reports.report("wine").html()) == full


def test_only_what_is_needed_is_unfolded():
    for name, k in (("many", 24), ("wine", 3)):
        cards = Reader(reports.report(name).html()).all("class", "card")
        assert [("open" in card) for card in cards] == [at < 12 for at in range(k)]


def test_a_frame_holds_the_whole_page_and_no_rights():
    hostile = reports.report("hostile")
    ((tag, frame),) = Reader(hostile._repr_html_()).elements
    assert (tag, frame["sandbox"], frame["srcdoc"]) == ("iframe", "allow-scripts", hostile.html())


def test_the_outline_nests_as_the_tree_does():
    source = reports.report("many").html()
    tree = reports.report("many").description.tree
    page = Reader(source)
    assert page.parents == {at: node.parent for at, node in enumerate(tree)}
    ends = {int(a["data-node"]): int(a["data-end"]) for _, a in page.elements if "data-node" in a}
    for at, node in enumerate(tree):
        assert ends[at] == (ends[node.right] if node.text else at + 1)
        assert not node.text or (node.left, node.right) == (at + 1, ends[node.left])
    answers = ["yes" if tree[node.parent].left == at else "no" for at, node in enumerate(tree) if at]
    assert re.findall("<span class=answer>(yes|no)</span>", source) == answers
    inner = [node.samples for node in tree if node.text]
    opened = ["open" in found for found in re.findall("<details(.*?)><summary class=node>", source)]
    assert sorted(np.array(inner)[opened]) == sorted(inner)[-16:] != sorted(inner)


def test_values_as_they_are_printed():
    """Numbers with their standardised values, and shares."""
    contents = reports.report("wine").description
    column = replace(contents.columns[0], mean=10.0, spread=2.0, unit="mg")
    printed = {
        "1,013 mg": ("+501.50", "1,013 mg"), "−7": ("−8.50", "−7"), -3.10: ("−6.55", "−3.1 mg"),
        1234.56: ("+612.28", "1235 mg"), 132900.4: ("+66445.20", "132,900 mg"), 1e-7: ("−5.00", "1e−07 mg"),
        0: ("−5.00", "0 mg"), "x-y": ("", "x-y"), None: ("", "missing"),
    }  # fmt: skip
    (card, *others) = contents.clusters
    item = contents.clusters[0].prototypes[0]
    items = [replace(item, values=[(0, value, 0.5)]) for value in printed]
    shares = {0.5: "50%", 0.001: "0.1%", 0.9996: "99.9%", 1.0: "100%", 0.0: "0%"}
    rules = [replace(card.rules[0], coverage=share) for share in shares]
    signed = {0.2: "+20%", -0.2: "−20%", 0.0: "0%", 1e-3: "+0.1%", math.nan: "–", -0.996: "−99.6%"}
    said = [replace(card.statements[0], relevance=share) for share in signed]
    cards = [replace(card, prototypes=items, borderline=[], rules=rules, statements=said), *others]
    page = changed(columns=[column, *contents.columns[1:]], clusters=cards).partition('id="c1"')[0]
    assert re.findall(r'<td class="for s9">(?:<data value="(.*?)">)?([^<]*)', page) == [*printed.values()]
    assert re.findall("covers (.*?) ·", page) == [*shares.values()]
    assert re.findall("</svg><span class=n>(.*?)</span>", page) == [*signed.values()]
    for parts in ({"kind": "category"}, {"spread": 0.0}):
        again = changed(columns=[replace(column, **parts), *contents.columns[1:]], clusters=cards)
        assert "1,013 mg</data>" not in again


def drawn(*statements):
    """The part of the page that shows these statements, given by what is other than usual, of a card."""
    first, *others = reports.report("wine").description.clusters
    first = replace(first, statements=[replace(first.statements[0], **parts) for parts in statements])
    return changed(clusters=[first, *others]).partition("<h4>Relevant columns")[2].partition("</ul>")[0]


def test_distributions():
    shares = {"inside": [0.25, 0.75], "outside": [1.0, 0.0]}
    histogram = drawn({"bins": [0.0, 1.0, 3.0], "inside_typical": 2.0, **shares})
    assert 'd="M0 32V24H40V8H120V32"' in histogram  # the second bin is twice as wide
    assert 'd="M0 32V0H40V32H120V32"' in histogram
    assert 'aria-label="typically 2 inside the cluster' in histogram
    categories = drawn({"bins": ["<b>", "c"], **shares})
    assert categories.count("<g>") == 2
    assert "<title>&lt;b&gt;: 25% inside, 100% outside</title>" in categories
    assert "distribution" not in drawn({"inside": [], "outside": []})
    assert "nan" not in drawn({"bins": [1.0, 1.0], "inside": [1.0], "outside": [1.0]})


@pytest.mark.parametrize(
    ("labels", "tags"),
    [
        (["a", "banana", "bananas"], ["a", "banana", "banan…"]),
        (["Dendritic", "CD34+", "CD34"], ["Dendr…", "CD34+", "CD34"]),
        (["CD4+/CD25 T Reg", "CD4+/CD45RO+ Memory", "CD14+ Monocyte"], ["CD4…Reg", "CD4…ory", "CD14+…"]),
        (["north of here 1", "north of here 12", "north"], ["nor…e 1", "nor…12", "north"]),
        (["begin" + "x" * 30, "beginy" + "x" * 30, ""], ["begin" + "x" * 30, "beginy" + "x" * 30, ""]),
    ],
)
def test_chips_of_labels_that_begin_alike_differ(labels, tags):
    first = reports.report("wine").description.clusters[0]
    page = changed(clusters=[replace(first, label=label) for label in labels])
    shown = json.loads(page.partition('type="application/json" id=data>')[2].partition("</script>")[0])["clusters"]
    assert [cluster["tag"] for cluster in shown] == tags
    assert re.findall('<summary><span class="chip whole">.*?<bdi>(.*?)</bdi>', page) == labels


def test_bars_start_at_zero():
    def bars(*shares):
        page = drawn(*({"relevance": share} for share in shares))
        return re.findall(r'<rect class=(for|against) x="(.*?)%" width="(.*?)%"', page)

    assert bars(-0.25, 0.75, math.nan) == [("against", "0", "25"), ("for", "25", "75"), ("for", "25", "0")]
    assert bars(0.0)[0][2] == "0"


def test_labels_of_curves_do_not_meet():
    trust = reports.report("wine").description.trust
    line = replace(trust.flipping[0], x=[0, 1], y=[0, 1])
    lines = [replace(line, name=f"<method {at}>", text=f"AUC {at}") for at in range(5)]
    page = changed(trust=replace(trust, flipping=lines, cost=[replace(line, x=[3], y=[1.1])]))
    flipping, cost = re.findall(r"<svg class=curves.*?</svg>", page, flags=re.S)
    places = [float(y) for y in re.findall(r'class=name x="\d+" y="([\d.]+)"', flipping)]
    assert min(np.diff(places)) >= 38
    assert 0 < places[0] < places[-1] < 250
    assert "<method" not in flipping
    assert "nan" not in cost


# Machado, Oliveira and Fernandes (2009): protanopia and deuteranopia of severity 1, for linear RGB; then
# Ottosson (2020): from linear RGB to cone responses, and from their cube roots to OKLab
MATRICES = """
 0.152286      1.052583     -0.204868       0.114503      0.786281      0.099216
-0.003882     -0.048116      1.051998
 0.367322      0.860646     -0.227968       0.280085      0.672501      0.047413
-0.011820      0.042940      0.968881
 0.4122214708  0.5363325363  0.0514459929   0.2119034982  0.6806995451  0.1073969566
 0.0883024619  0.2817188376  0.6299787005
 0.2104542553  0.7936177850 -0.0040720468   1.9779984951 -2.4285922050  0.4505937099
 0.0259040371  0.7827717662 -0.8086757660
"""


def seen(codes):
    """Colours [n, 3] in OKLab for normal vision and two kinds of colour blindness, [3, n, 3]."""
    *blindness, cones, oklab = np.array(MATRICES.split(), float).reshape(4, 3, 3).transpose(0, 2, 1)
    part = np.asarray(codes) / 255
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    views = np.stack([light, *(np.clip(light @ matrix, 0, 1) for matrix in blindness)])
    return np.cbrt(views @ cones) @ oklab


def test_colors_are_told_apart_by_all_readers_and_seen_on_both_papers():
    many = colours.colors(60)
    assert (colours.colors(5), len(set(many)), colours.colors(300)[60:120]) == (many[:5], 60, many)
    light = np.array([colours.luminance(color) for color in many])
    assert ((1.05 / (light + 0.05)) > 1.9).all()  # on white
    assert (((light + 0.05) / 0.05) > 3).all()  # on black
    views = seen([[*bytes.fromhex(color[1:])] for color in many])
    for k, least in [(12, 0.07), (50, 0.03)]:
        apart = np.linalg.norm(views[:, :k, None] - views[:, None, :k], axis=-1) + 9 * np.eye(k)
        assert apart.min() > least
    for color, tone in zip(many, light, strict=True):
        on = 1.0 if colours.ink(color) == "#ffffff" else 0.0
        assert (max(on, tone) + 0.05) / (min(on, tone) + 0.05) >= 4.5
