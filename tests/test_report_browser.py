"""The page of a report in a browser: what it does, that it asks for nothing, and that everybody can use it."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import report_contents as reports

from neonxc.common import colours

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.slow  # a browser for all of them
FOLDER = TemporaryDirectory()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        try:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"))
        except playwright.Error as error:
            pytest.skip(f"no browser: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@cache
def file(name):
    """The address of the page of a report, written once."""
    path = Path(FOLDER.name, f"{name}.html")
    path.write_text(reports.report(name).html(), encoding="utf-8")
    return path.as_uri()


def watched(page, trouble):
    """The page, of which all that it says to the console or asks for comes into a list."""
    # the tests look at the map's pixels
    page.on("console", lambda one: "getImageData" in one.text or trouble.append(one.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda one: one.url.startswith(("file:", "data:", "about:")) or trouble.append(one.url))
    return page


@pytest.fixture(scope="module")
def pages(browser):
    """Pages of contexts with some options, opened once, and what they say and ask for."""
    opened = {}
    trouble = []

    def page_of(**options):
        key = repr(sorted(options.items()))
        if key not in opened:
            page = browser.new_context(reduced_motion="reduce", **options).new_page()
            page.set_default_timeout(5_000)
            opened[key] = watched(page, trouble)
        return opened[key]

    return page_of, trouble


@pytest.fixture
def visit(pages):
    """Load a page anew -> it and its contents; whatever it writes to the console or asks for fails the test."""
    page_of, trouble = pages
    trouble.clear()

    def load(name="wine", width=1400, **options):
        page = page_of(**options)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(file(name))
        return page, reports.report(name).description

    yield load
    assert trouble == []


def dimmed(page, kind):
    return page.eval_on_selector_all(f"{kind}.dim", "all => all.map((one) => Number(one.dataset.k))")


def place(page, at):
    """A point's place on the map, as the script computes it."""
    points = page.evaluate("JSON.parse(document.getElementById('data').textContent).points")
    wide = page.evaluate("document.getElementById('canvas').clientWidth")
    scale = (wide - 40) / 1000
    return {"x": 20 + points["x"][at] * scale, "y": 20 + points["y"][at] * scale}


def test_map_hover_and_click(visit):
    page, contents = visit()
    points = contents.points
    k = contents.points.cluster[17]
    page.locator("#canvas").hover(position=place(page, 17))
    assert page.locator("#tip").is_visible()
    assert contents.clusters[k].name in page.locator("#tip").inner_text()
    assert dimmed(page, ".card") == [one for one in range(3) if one != k]
    page.locator("#canvas").click(position=place(page, 17))
    row = int(page.locator("#row").input_value())
    assert (points.x[row], points.y[row]) == (points.x[17], points.y[17])
    page.locator("h1").hover()
    assert dimmed(page, ".card") == []
    assert page.locator("#tip").is_hidden()


def test_map_draws_every_cluster_and_the_legend_keeps_them_highlighted(visit):
    page, contents = visit()
    count = """colors => {
      const canvas = document.getElementById("canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return colors.map((color) => {
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
        const far = (i) => Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b);
        return data.filter((_, i) => i % 4 === 0 && far(i) < 12 && data[i + 3] > 150).length;
      });
    }"""
    tints = colours.colors(contents.k)
    before = page.evaluate(count, tints)
    assert min(before) > 500
    page.locator(".entry[data-k='1']").click()
    after = page.evaluate(count, tints)
    assert after[0] < before[0] / 5
    assert after[1] > before[1] / 2
    assert page.locator(".entry[data-k='1']").get_attribute("aria-pressed") == "true"
    for entries, others in ("", [0, 2]), ("2", [0]), ("12", []):
        for k in entries:
            page.locator(f".entry[data-k='{k}']").click()
        page.locator("h1").hover()
        assert dimmed(page, ".card") == others


def test_noise_has_a_card_as_clusters_have(visit):
    page, _ = visit("noise")
    page.locator(".entry[data-k='-1']").click()
    page.locator("h1").hover()
    assert dimmed(page, ".card") == [0, 1, 2]
    for order in ("name", "given"):
        page.locator("#sort").select_option(order)
    assert page.eval_on_selector_all(".card", "all => all.map((one) => one.id)") == ["c0", "c1", "c2", "c-1"]
    page.locator("#row").fill("3")
    assert page.locator("#detail h3").text_content() == "row 3 is × noise"
    page.locator("#detail h3 a").click()
    assert page.url.endswith("#c-1")


def test_a_point_by_its_row_by_an_item_and_by_keyboard(visit):
    page, contents = visit()
    points = contents.points
    tree = contents.tree
    assert (
        f"row {contents.clusters[0].prototypes[0].row}" in page.locator("#detail h3").inner_text()
    )  # to begin with
    page.locator("#row").fill("43")
    detail = page.locator("#detail").inner_text()
    path = [points.leaf[43]]
    while tree[path[0]].parent >= 0:
        path.insert(0, tree[path[0]].parent)
    marked = "all => all.map((one) => Number(one.closest('li').dataset.node))"
    assert page.eval_on_selector_all(".onpath", marked) == path
    change = points.changes[43]
    said = ["row 43", contents.clusters[points.cluster[43]].name, *(tree[node].text for node in path)]
    said += [f"logit {points.logit[43]:.3g}", f"{change.distance:.3g} standard deviations"]
    assert [text for text in [*said, change.values[0][1].replace("-", "−")] if text not in detail] == []
    shares = page.locator("#detail .fall > .n").all_text_contents()
    *parts, total = [float(text.replace("−", "-")) for text in shares]
    assert total == pytest.approx(points.logit[43], rel=0.01)
    assert sum(parts) == pytest.approx(total, abs=0.02 * abs(total) + 0.1)

    page.locator("#row").fill("99999")
    assert page.locator("#row").get_attribute("aria-invalid") == "true"
    page.locator("#c1 a[data-row]").first.click()
    assert page.locator("#row").input_value() == str(contents.clusters[1].prototypes[0].row)

    def at():
        return points.rows.index(int(page.locator("#row").input_value()))

    page.locator("#canvas").focus()
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"):
        before = at()
        page.keyboard.press(key)
        after = at()
        if after != before:
            axis = points.x if key in ("ArrowRight", "ArrowLeft") else points.y
            assert (axis[after] > axis[before]) == (key in ("ArrowRight", "ArrowDown"))


def test_sort_and_filter(visit):
    page, contents = visit("many")
    cards = contents.clusters
    order = "all => all.filter((one) => !one.hidden).map((one) => Number(one.dataset.k))"

    def shown(by=None):
        if by is not None:
            page.locator("#sort").select_option(by)
        return page.eval_on_selector_all(".card", order)

    assert [cards[k].size for k in shown("size")] == sorted((card.size for card in cards), reverse=True)
    assert [cards[k].fidelity for k in shown("fidelity")] == sorted(card.fidelity for card in cards)
    n_clusters = len(cards)
    assert shown("given") == list(range(n_clusters))
    page.locator("#filter").fill(cards[7].name.upper())
    assert 7 in shown()
    assert len(shown()) < n_clusters
    assert page.locator("#found").inner_text() == f"{len(shown())} of {n_clusters}"
    page.locator("#filter").fill("")
    assert len(shown()) == n_clusters
    for opened in (n_clusters, 0):
        page.locator("#unfold").click()
        assert page.locator(".card[open]").count() == opened
    page.locator(".entry[data-k='20']").focus()
    assert len(dimmed(page, ".card")) == n_clusters - 1
    assert len(dimmed(page, ".leaf")) > 0.8 * n_clusters
    page.locator("#a").select_option("17")  # only known pairs are offered
    offered = page.eval_on_selector_all("#b option", "all => all.map((one) => Number(one.value))")
    pairs = [{pair.a, pair.b} for pair in contents.pairs]
    assert offered == [k for k in range(n_clusters) if {k, 17} in pairs]


def test_units(visit):
    page, contents = visit()
    item = contents.clusters[0].prototypes[0]
    (j, *_), *_ = item.values
    cell, detail = (page.locator(f"{part} data").first for part in ("#c0 tbody tr:nth-child(2)", "#detail .fall"))
    printed = [cell.inner_text(), str(contents.points.values[j][item.row])]
    z = (float(printed[1].replace(",", "")) - contents.columns[j].mean) / contents.columns[j].spread
    scaled = [cell.get_attribute("value"), f"{z:+.2f}".replace("-", "−")]
    for texts in (printed, scaled, printed):
        assert [cell.inner_text(), detail.inner_text()] == texts
        page.locator("#units").click()
    page.locator("#row").fill("3")  # written anew, in the unit that was chosen
    assert detail.inner_text()[0] in "+−"
    page.locator("#units").click()
    assert detail.inner_text()[0] != "+"


def test_a_waterfall_groups_absent_words(visit):
    page, contents = visit("texts")
    labels = page.locator("#detail .fall > span:nth-child(3n + 1)").all_inner_texts()
    points = contents.points
    at = contents.points.rows.index(int(page.locator("#row").input_value()))
    absent = [j for j, values in enumerate(points.values) if values[at] == 0 and points.relevance[j][at]]
    assert contents.columns[absent[0]].is_sparse
    assert f"{len(absent)} absent words" in labels
    assert not any(f"{contents.columns[j].name} = 0" in label for j in absent for label in labels)


def test_a_against_b(visit):
    page, contents = visit()
    page.locator("#b").select_option("2")
    (pair,) = [pair for pair in contents.pairs if (pair.a, pair.b) == (0, 2)]
    text = page.locator("#duel").inner_text()
    assert all(contents.columns[j].name in text for j, *_ in pair.relevance)
    signs = "all => all.map((one) => one.className)"
    bars = ["against" if share < 0 else "for" for _, share, *_ in pair.relevance]
    assert page.eval_on_selector_all("#duel .track i", signs) == bars
    j, _, *typical = pair.relevance[0]
    for a, b, shown in (("0", "2", typical), ("2", "0", typical[::-1])):
        assert (page.locator("#a").input_value(), page.locator("#b").input_value()) == (a, b)
        cells = page.locator("#duel .duel > span").all_inner_texts()
        assert cells[5:8] == [contents.columns[j].name, *shown]
        page.locator("#swap").click()


def test_tree_folds_and_highlights(visit):
    page, contents = visit()
    node = page.locator("#t1 > details")
    assert node.evaluate("one => one.open")
    node.locator("> summary > code").click()
    assert not node.evaluate("one => one.open")
    node.locator("> summary").press("Enter")
    assert node.evaluate("one => one.open")
    leaf = next(at for at, one in enumerate(contents.tree) if one.left < 0)
    page.locator(f"#t{leaf} .name").hover()
    k = contents.tree[leaf].cluster
    assert dimmed(page, ".card") == [one for one in range(3) if one != k]


def test_theme(visit):
    (page, _) = visit(color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.locator("#theme").click()
    assert page.evaluate(paper) != light
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    assert visit(color_scheme="dark")[0].evaluate(paper) != light
    page.locator("#theme").click()
    assert page.evaluate(paper) == light


def test_copy(visit):
    page, contents = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator(".copy").first.click()
    playwright.expect(page.locator(".copy").first).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == contents.reproduce.code[0][2]


def test_photos_and_texts_of_a_point(visit):
    page, _ = visit("photos")
    page.locator("#c1 a[data-row]").nth(3).click()
    assert page.locator("#detail img").count() == 2
    assert page.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth)")
    page, contents = visit("texts")
    page.locator("#c1 a[data-row]").first.click()
    item = contents.clusters[1].prototypes[0]
    for sign, kind in ((1, "for"), (-1, "against")):
        marked = [item.text[start:end] for start, end, value in sorted(item.marks) if sign * value > 0]
        assert page.locator(f"#detail mark.{kind}").all_inner_texts() == marked


def test_a_number_that_is_a_name_finds_the_point_of_this_name(visit):
    page, contents = visit("numbered")
    names = contents.points.names
    assert page.locator("#row").input_value() in names
    page.locator("#row").fill("43")
    assert page.locator("#detail h3").text_content().startswith("43 ")
    page.locator("#row").blur()
    page.locator("#canvas").click(position=place(page, 17))
    shown = page.locator("#row").input_value()
    assert page.locator("#detail h3").text_content().startswith(f"{shown} ")
    page.locator("#row").fill("0")  # no name, but a row
    assert page.locator("#detail h3").text_content().startswith("1 ")


def test_hostile_names_are_shown_and_nothing_else(visit):
    (page, contents) = visit("hostile")
    said = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    assert page.locator("h1").inner_text() == contents.title
    for at in (0, 3, 60):
        page.locator("#canvas").click(position=place(page, at))
    page.locator("#a").select_option("1")
    page.locator("#row").fill(reports.HOSTILE[1])
    assert reports.HOSTILE[1] in page.locator("#detail h3").inner_text()
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert said == []


@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("name", [*reports.KINDS, "long", "long_texts"])
def test_no_page_is_wider_than_its_window(visit, name, width):
    page, contents = visit(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#theme").click()
    assert page.locator("nav").evaluate("one => one.getBoundingClientRect().top") < 10  # still there: it sticks
    if name == "long":  # names are wrapped or cut
        assert page.locator(".rows").first.evaluate("one => one.scrollWidth") <= 2000  # not as wide as its names
        assert page.locator(".card h3 .cut").first.get_attribute("title") == contents.title


@pytest.mark.parametrize(("name", "scheme"), [("wine", "dark"), ("texts", "light"), ("noise", "light")])
def test_axe_finds_nothing_serious(visit, name, scheme):
    page, _ = visit(name, color_scheme=scheme, bypass_csp=True)  # axe is a script of its own
    found = axe.Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in serious] == []


def test_all_can_be_reached_by_keyboard(visit):
    (page, _) = visit()
    reached = set()
    about = """() => {
      const one = document.activeElement;
      if (one === document.body) return null;
      return [one.id || one.className || one.textContent, getComputedStyle(one).outlineStyle];
    }"""
    for start in ("#theme", "#row", "#clusters a >> nth=-1", "#swap", "#trust a >> nth=-1"):
        page.locator(start).first.focus()
        for _ in range(16):
            page.keyboard.press("Tab")
            found = page.evaluate(about)
            if found is None:  # behind the last one
                break
            assert found[1] != "none"
            reached.add(found[0].split()[0])
    assert {"canvas", "entry", "row", "sort", "filter", "unfold", "a", "b", "node", "chip", "copy"} <= reached


def test_without_javascript_it_can_be_read(visit):
    page, contents = visit(java_script_enabled=False)
    for gone in ("#canvas", "#point", "#sort", "#units", "#a", ".copy"):
        assert page.locator(gone).first.is_hidden()
    text = page.locator("main").inner_text()
    for part in (
        *contents.tree,
        *(part for card in contents.clusters for part in (card.rules[0], card.statements[0])),
    ):
        assert part.text in text
    page.locator(".tile summary").first.click()
    for shown in (".atlas .legend", ".pairs table", ".tile p"):
        assert page.locator(shown).first.is_visible()


def test_print_unfolds_everything_and_takes_the_controls_away(visit):
    page, contents = visit("many")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".card[open]").count() == contents.k
    for gone in ("header", "#sort", "#unfold", ".copy"):
        assert page.locator(gone).first.is_hidden()
    for shown in ("#canvas", f"#c{contents.k - 1} .rules"):
        assert page.locator(shown).first.is_visible()
    assert contents.figures[0].help in page.locator("#verdict").inner_text()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".card[open]").count() == 12
    page.emulate_media(media="screen")


def test_in_a_frame_of_a_notebook(browser):
    page = watched(browser.new_page(), trouble := [])
    page.set_content(f"<p>notebook</p>{reports.report('wine')._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("#row").fill("43")
    playwright.expect(frame.locator("#detail h3")).to_contain_text("row 43")
    frame.locator("#theme").click()
    frame.locator(".copy").first.click()
    playwright.expect(frame.locator(".copy").first).to_have_text("Copied")
    page.close()
    assert trouble == []
