"""Figures: what is in them, not how they look (that is for eyes)."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.cluster import DBSCAN, KMeans
from turns import slow

import neonxc
from neonxc import plot
from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import in_words, plural
from neonxc.common.shortening import shortened

rng = np.random.default_rng(0)
PHOTO = rng.random((12, 16, 3))


def drawn(axes):
    return np.asarray(axes.images[-1].get_array(), dtype=float)


def frame(axes):
    return axes.spines["top"].get_edgecolor()


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def labels(figure):
    return [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]


def test_overlay_is_zero_centred_and_robust_and_sums_channels():
    heatmap = rng.normal(size=(3, 12, 16))
    heatmap[0, 0, 0] = 1e6
    figure = plot.overlay(PHOTO, torch.as_tensor(heatmap), title="cat", smooth=0)
    image = figure.axes[0].images[-1]
    low, high = image.get_clim()
    assert 1e6 > -low == high == pytest.approx(plot.heatmap_limit(heatmap.sum(0)))
    assert_allclose(drawn(figure.axes[0]), heatmap.sum(0))
    assert image.get_cmap()(0.5)[:3] == pytest.approx((1, 1, 1), abs=0.04)
    assert titles(figure) == ["cat"]
    assert plot.heatmap_limit(np.zeros((3, 3))) == 1.0


def assert_alike(found, expected):
    for axes, reference in zip(found.axes, expected.axes, strict=True):
        for image, other in zip(axes.images, reference.images, strict=True):
            assert_allclose(image.get_array(), other.get_array(), atol=5e-3)
        assert [bar.get_width() for bar in axes.patches] == [bar.get_width() for bar in reference.patches]


@pytest.mark.parametrize("shape", [(1, 12, 16), (12, 16, 1), (12, 16)])
def test_grey_images(shape):
    grey = rng.random(shape)
    maps = rng.normal(size=(1, 12, 16))
    color = np.repeat(grey.reshape(12, 16, 1), 3, axis=2)
    assert_alike(plot.overlay(grey, maps[0]), plot.overlay(color, maps[0]))
    assert_alike(
        plot.contact_sheet(torch.as_tensor(grey)[None], maps, [0]), plot.contact_sheet([color], maps, [0])
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, *slow(torch.int64)], ids=str)
def test_tensors_of_any_type_are_drawn_alike(dtype):
    whole = torch.randint(2, (4, 12, 16)).double()
    values = whole.to(dtype).requires_grad_(dtype.is_floating_point)
    photo = torch.as_tensor(PHOTO)

    def figures(x):
        yield plot.overlay((photo * 255).byte().movedim(2, 0), x[:3], region=x[3, :3, :4])
        yield plot.contact_sheet([photo, photo], x[:2], x[3, 0, :2], smooth=0)
        yield plot.contact_sheet(photo.to(x.dtype if dtype.is_floating_point else None)[None], x[None, :2])
        yield plot.bars(dict(zip("abc", x[0, 0], strict=False)))
        yield plot.bars(x[1, 0])

    for found, expected in zip(figures(values), figures(whole), strict=True):
        assert_alike(found, expected)
    texts = {str(plot.text([["a", "b", "c"]], x[0, :1, :3], known=x[1, :1, :3])) for x in (values, whole)}
    assert len(texts) == 1


@pytest.mark.parametrize("same", [True, False])
def test_heatmaps_of_a_cluster_have_one_scale(same):
    maps = rng.normal(size=(3, 2, 12, 16)) * np.reshape([1e-3, 1, 1, 0.1, 0, 1], (3, 2, 1, 1))
    figure = plot.contact_sheet([PHOTO] * 3, maps, same_clusters=same, smooth=0)
    found = np.array([axes.images[-1].get_clim()[1] for axes in figure.axes[:-1]]).reshape(3, 3)[:, 1:]
    own = np.array([[plot.heatmap_limit(heatmap) for heatmap in row] for row in maps])
    assert_allclose(found, np.tile([own[1, 0], max(own[:, 1])], (3, 1)) if same else own)


def test_contact_sheet_puts_every_map_in_its_place():
    photos = [PHOTO, rng.random((8, 20, 3))]
    maps = [rng.normal(size=(3, 12, 16)), rng.normal(size=(3, 8, 20))]
    clusters = [rng.integers(0, 3, (3, 4)), rng.integers(0, 3, (2, 5))]
    figure = plot.contact_sheet(photos, maps, clusters, row_titles=["a", "b"], smooth=0)
    grid = np.array(figure.axes[:-1]).reshape(2, 5)
    assert titles(figure) == ["photo", "clusters", "cluster 0", "cluster 1", "cluster 2"]
    assert labels(figure) == ["a", "b"]
    for row in range(2):
        assert_array_equal(drawn(grid[row, 1]), clusters[row])
        assert_array_equal([drawn(axes) for axes in grid[row, 2:]], maps[row])
    key = grid[0, 1].images[-1]
    assert [frame(axes) for axes in grid[0, 2:]] == [key.cmap(key.norm(k)) for k in range(3)]


def test_a_blur_keeps_the_sum_and_follows_the_size_of_the_photo():
    for factor in (1, 2):
        heatmap = np.zeros((40 * factor, 60 * factor))
        heatmap[20 * factor, 30 * factor] = 1.0
        found = drawn(plot.overlay(np.full((*heatmap.shape, 3), 0.5), heatmap, smooth=0.05).axes[0])
        assert found.sum() == pytest.approx(1)
        assert found.max() == pytest.approx(1 / (2 * np.pi * (2 * factor) ** 2), rel=0.02)


def test_a_line_lies_between_the_region_and_the_rest():
    region = [[True, True, False, False]] * 4
    figure = plot.overlay(np.full((40, 60, 3), 0.5), np.zeros((40, 60)), region=region, color="tab:blue")
    (line,) = figure.axes[0].collections
    assert_allclose(line.get_paths()[0].vertices[:, 0], 29.5, atol=1)
    assert matplotlib.colors.same_color(line.get_edgecolor(), "tab:blue")
    for all_or_none in (True, False):
        figure = plot.overlay(PHOTO, PHOTO[..., 0], region=np.full((4, 4), all_or_none))
        assert not figure.axes[0].collections


def test_typical_patches_stand_above_their_cluster():
    patches = [[np.full((4, 4, 3), k / 4)] * (k + 3) for k in range(3)]
    figure = plot.contact_sheet([PHOTO], rng.normal(size=(1, 3, 12, 16)), [np.zeros((3, 4), int)], patches=patches)
    grid = np.array(figure.axes[:-1]).reshape(2, 5)
    assert [axes.get_title() for axes in grid[0, 2:]] == ["cluster 0", "cluster 1", "cluster 2"]
    for k, axes in enumerate(grid[0, 2:]):
        assert (drawn(axes) == k / 4).all(axis=2).sum() == 16 * (k + 3)
        assert frame(axes) == frame(grid[1, 2 + k])
    assert [axes.get_xlabel() for axes in grid[1, 2:]] == ["", "not in this photo", "not in this photo"]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def cells(figure):
    """The frames of a sheet of whole photos in inches, their colours, and the pixels in the middle of each."""
    frames = figure.axes[0].collections[0]
    pixels = drawn(figure.axes[0]) / 255
    boxes = [path.get_extents() for path in frames.get_paths()]
    middles = [
        (round(figure.dpi * (box.y0 + box.y1) / 2), round(figure.dpi * (box.x0 + box.x1) / 2)) for box in boxes
    ]
    return boxes, [*map(tuple, frames.get_edgecolors())], [pixels[at][:3] for at in middles]


def test_whole_photos_are_grouped_by_cluster():
    photos = [np.full((12 + n, 16, 3), n / 5) for n in range(5)]
    maps = [np.full((12 + n, 16), (-1.0) ** n) for n in range(5)]
    clusters = [1, 0, 1, 1, 0]
    figure = plot.contact_sheet(photos, maps, clusters, row_titles=list("abcde"), smooth=0)
    few = "cluster 0\n2 photos"
    most = "cluster 1\n3 photos"
    assert texts(figure) == [few, "b", "e", most, "a", "c", "d"]
    assert texts(plot.contact_sheet(photos, maps, clusters, column_titles=["few", "most"])) == ["few", "most"]
    boxes, colors, middles = cells(figure)
    shapes = [(box.width, round(box.height / box.width * 16)) for box in boxes]
    assert shapes == [(pytest.approx(1.6), 12 + n) for n in (1, 4, 0, 2, 3) for _ in range(2)]
    assert colors == [colors[0]] * 4 + [colors[-1]] * 6
    assert colors[0] != colors[-1]
    assert_allclose([color[0] for color in middles[::2]], [n / 5 for n in (1, 4, 0, 2, 3)], atol=0.01)
    is_red = [color[0] > color[2] for color in middles[1::2]]
    assert is_red == [False, True, True, True, False]
    ends = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert ends == ["against", "0", "for"]


@pytest.mark.parametrize("dpi", [50, 200, *slow(300)])
def test_a_sheet_of_whole_photos_looks_the_same_in_any_resolution(dpi, tmp_path):
    figure = plot.contact_sheet([PHOTO] * 5, [PHOTO[..., 0]] * 5, [0, 1, 0, 0, 0])
    figure.savefig(tmp_path / "sheet.png", dpi=dpi)
    saved = pyplot.imread(tmp_path / "sheet.png")
    pixels = drawn(figure.axes[0]) / 255
    boxes, _, _ = cells(figure)
    for box in boxes:
        # the middle of a pixel of the photo, which is a square in the picture
        place = (box.y0 + 5.5 / 12 * box.height, box.x0 + 7.5 / 16 * box.width)
        row, column = (int(dpi * length) for length in place)
        expected = pixels[tuple(int(figure.dpi * length) for length in place)]
        assert_allclose(saved[row, column, :3], expected[:3], atol=0.02)


def test_whole_photos_need_titles_of_all_clusters():
    maps = [PHOTO[..., 0]]
    refused("2 clusters .* column_titles, got 1", plot.contact_sheet, [PHOTO], maps, [1], column_titles=["few"])


def test_every_cluster_has_a_map():
    places = [np.arange(12).reshape(3, 4) % 5]
    sheet = plot.contact_sheet
    refused(r"3 maps per photo for 5 .*NEON\.heatmaps", sheet, [PHOTO], rng.normal(size=(1, 3, 12, 16)), places)
    channels = np.abs(rng.normal(size=(12, 16))) * np.reshape([1, 0.8, -1.1], (1, 3, 1, 1))
    sheet([PHOTO], channels, places, column_titles=["red", "green", "blue"])
    refused("3 heatmaps .* column_titles, got 1", sheet, [PHOTO], channels, column_titles=["red"])
    refused("cluster_maps with one integer per photo", sheet, [PHOTO], channels[0, :1])


def test_colors_of_clusters_are_distinct():
    figure = plot.contact_sheet([PHOTO], rng.normal(size=(1, 40, 12, 16)), [np.arange(40)[None]])
    assert len({frame(axes) for axes in figure.axes[2:42]}) == 40


def names(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_bars_show_the_largest_and_sum_up_the_rest():
    figure = plot.bars([0.1, -3.0, 2.0, 0.2], [*"abcd"], most=2)
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([-3.0, 2.0, 0.3])
    assert names(figure) == ["b", "c", "2 further columns: +0.3"]
    long = plot.bars([1.0, 2.0], ["largest mean of the concave points", "meanOfAllConcavePointsOfTheNuclei"])
    assert names(long) == ["meanOfAllConcavePointsOfThe…", "largest mean of the concave…"]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_rest_does_not_dwarf_what_is_named(sign):
    relevance = pd.Series(sign * np.linspace(1.2, 0.1, 2000), [f"gene {i}" for i in range(2000)])
    figure = plot.bars(relevance, most=500)
    assert names(figure)[-1] == f"1980 further columns: {relevance[20:].sum():+.0f}"
    assert len(names(figure)) == 21
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert abs(widths[-1]) <= abs(widths[0]) + 1e-12
    assert np.sign(widths[-1]) == sign


def test_bars_keep_the_names_they_are_given_with():
    row = pd.Series({"age": 2.0, "income": -1.0}, name="patient 7")
    own = [row.to_frame().T, row, dict(row), pd.Series([2.0, 1.0], name=3)]  # a row's number says nothing
    figures = [*map(plot.bars, own), plot.bars(row, ["a", "b"], title="mine")]
    assert [titles(figure) for figure in figures] == [["patient 7"], ["patient 7"], [], [], ["mine"]]
    assert [names(figure) for figure in figures] == [["age", "income"]] * 3 + [["x0", "x1"], ["a", "b"]]


def test_summary_bars_has_a_panel_for_every_cluster():
    X = rng.normal(size=(60, 5))
    summary = neonxc.NEON(neonxc.neuralize(KMeans(4, n_init=2, random_state=0).fit(X), X)).summary(X)
    panels = [axes.get_title() for axes in plot.summary_bars(summary).axes if axes.axison]
    assert panels == [f"cluster {k}: {summary.sizes[k]} points" for k in range(4)]
    refused("a ClusterSummary; got ndarray", plot.summary_bars, X, error=TypeError)


def test_noise_is_called_noise():
    X = np.r_[rng.normal(size=(30, 2)) / 9, rng.normal(size=(30, 2)) / 9 + 3, [[9.0, 9.0]]]
    summary = neonxc.NEON(neonxc.neuralize(DBSCAN(0.5).fit(X), X)).summary(X)
    panels = [axes.get_title() for axes in plot.summary_bars(summary).axes if axes.axison]
    assert panels == ["cluster 0: 30 points", "cluster 1: 30 points", "noise: 1 point"]


@pytest.mark.parametrize(
    ("label", "name"),
    [(-1, "noise"), (np.int64(-1), "noise"), (0, "cluster 0"), ("-1", "cluster -1"), ("a", "cluster a")],
)
def test_names_of_clusters(label, name):
    assert cluster_text(label) == name


@pytest.mark.parametrize(
    ("text", "n_max", "beginning"),
    [
        ("one two", 7, "one two"),
        ("one two three", 8, "one two…"),
        ("one two three", 9, "one two…"),
        ("one, two", 6, "one…"),
        ("a supercalifragilistic", 12, "a supercali…"),  # behind its first word there would be little left
        ("supercalifragilistic", 12, "supercalifr…"),
        ("one two", 4, "one…"),
    ],
)
def test_texts_end_behind_a_word(text, n_max, beginning):
    assert shortened(text, n_max) == beginning
    assert len(beginning) <= n_max


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "row", "1 row"),
        (0, "row", "0 rows"),
        (1.0, "row", "1 row"),
        (2.5, "entry", "2.5 entries"),
        (2, "day", "2 days"),
    ],
)
def test_plurals(number, noun, text):
    assert plural(number, noun) == text


@pytest.mark.parametrize(("items", "text"), [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_enumerations(items, text):
    assert in_words(items) == text


def test_figures_stay_out_of_pyplots_registry(tmp_path):
    before = pyplot.get_fignums()
    plot.overlay(PHOTO, np.zeros((12, 16))).savefig(tmp_path / "a.pdf")  # nothing but white
    assert pyplot.get_fignums() == before
    assert (tmp_path / "a.pdf").stat().st_size > 0
    assert matplotlib.get_backend().lower() == "agg"
