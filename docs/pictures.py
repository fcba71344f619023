"""Draw the pictures of the documentation, and check that they show what the current code computes.

    python -m docs.pictures                        draw all that are out of date
    python -m docs.pictures moves report-light     draw these
    python -m docs.pictures --check [NAMES...]     say which are out of date, without drawing
    python -m docs.pictures --list                 name all pictures, and what draws them

The pictures of long runs are copied from the folder of the run; naming them here then records what they show.

``TABLE`` has an entry for every file in ``docs/images``: a function, or the command of a long run and the file
with its figures. A function yields a ``Picture`` for each of its files: what it shows, and how it is drawn. What
it shows is recorded in ``docs/images/inputs.json`` whenever it is drawn (see ``docs/inputs.py``).
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from functools import cache, partial
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, Protocol
from unittest import mock

import numpy as np
import skimage.data
import torch
import typer
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image, ImageChops
from sklearn.cluster import KMeans
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_sample_image, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from torch import Tensor, nn

import neonxc
from docs import gallery
from docs.inputs import Inputs, Record, difference
from neonxc import plot
from neonxc.cli.heatmaps import heatmaps
from neonxc.cli.photos import extractor
from neonxc.common.colours import colors
from neonxc.data.table import Table
from neonxc.evaluation import KDEImputer, compare, null_reference
from neonxc.evaluation.copula import Copula
from neonxc.lrp import LRP, Composite, Flat, Gamma, WSquare, ZPlus, presets
from neonxc.models import BetaInterpretable, efficientnet_lite0, to_tensor
from neonxc.plot.heat import add_scale, as_image, draw_heatmap, smoothed
from neonxc.plot.images import cluster_colors
from neonxc.plot.shared import AGAINST, FOR
from neonxc.report.report import Report
from neonxc.trees import ExShallow, plot_tree, trade_off

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
IMAGES = DOCS / "images"
RECORDED = IMAGES / "inputs.json"
N_FREQUENT = 48  # of 256 colours; 33 cover more than 1 in 10,000 pixels of the report on wine each
PAGE = sorted(path for path in (ROOT / "neonxc/report").iterdir() if path.suffix in (".html", ".css", ".js"))

sys.path += [str(ROOT / "examples"), str(ROOT / "examples" / "papers")]


class Picture(NamedTuple):
    """A picture that can be drawn."""

    file: str  # in docs/images
    shows: object  # its words and numbers; of many photos, those of the first
    draw: Callable[[], None] | None  # writes the file; None if a long run does


def figure_of(file: str, figure: Figure, dpi: int = 110) -> Picture:
    """Return the picture of a figure."""
    return Picture(file, figure, lambda: figure.savefig(IMAGES / file, dpi=dpi))


@cache
def photos() -> dict[str, Tensor]:
    """Load photos that are part of scikit-image and scikit-learn."""
    pictures = {name: getattr(skimage.data, name)()[..., :3] for name in ("chelsea", "coffee", "astronaut")}
    pictures |= {name: load_sample_image(f"{name}.jpg") for name in ("china", "flower")}
    return {name: to_tensor(picture, 320) for name, picture in pictures.items()}


def spatial_clusters() -> Iterator[Picture]:
    """The sheet of the command for five photos, which is checked by two small ones."""

    def sheet(chosen: dict[str, Tensor], clusters: int) -> Figure:
        with saved_figures() as figures, TemporaryDirectory() as folder:
            heatmaps(list(chosen.items()), clusters, folder, extractor())
        return figures["contact-sheet.png"]

    def draw() -> None:
        save_small(sheet(photos(), 5), "spatial-clusters.png", 1500)

    small = {name: photos()[name][:, :128, :128] for name in ("chelsea", "coffee")}
    yield Picture("spatial-clusters.png", sheet(small, 3), draw)


def one_photo() -> Iterator[Picture]:
    """One photo's clusters as the code of the guide draws them."""
    photo = photos()["chelsea"]
    features = efficientnet_lite0(block=10, normalize=True)
    x = features.preprocess(photo[None])
    kmeans = KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy())
    net = neonxc.neuralize(kmeans, x, features)
    sheet = plot.contact_sheet([photo], neonxc.NEON(net).heatmaps(x), net.predict(x))
    yield Picture("chelsea.png", sheet, lambda: save_small(sheet, "chelsea.png", 1254))


def whole_photos() -> Iterator[Picture]:
    """Three parts of each photo, in clusters, and why each part is in its cluster."""
    features = efficientnet_lite0(block=15, pool="avg")
    parts = torch.stack([photo[:, 40:264, i : i + 224] for photo in photos().values() for i in (0, 48, 96)])
    x = features.preprocess(parts)
    kmeans = KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy())
    net = neonxc.neuralize(kmeans, x, features)

    def sheet(n: int) -> Figure:
        relevance = neonxc.NEON(net).attribute(x[:n]).sum(1)
        return plot.contact_sheet(parts[:n], relevance, net.predict(x[:n]))

    yield Picture("photo-clusters.png", sheet(1), lambda: save_small(sheet(len(x)), "photo-clusters.png", 1100))


def concepts() -> Iterator[Picture]:
    """What makes a cluster of locations that joins foliage, a face and hair."""
    features = efficientnet_lite0(block=12)
    side = 224
    ends = slice(side), slice(-side, None)
    pictures = [*photos().values(), to_tensor(skimage.data.rocket(), 320)]
    x = features.preprocess(torch.stack([photo[:, i, j] for photo in pictures for j in ends for i in ends]))
    kmeans = KMeans(10, n_init=4, random_state=0).fit(features.points(x).numpy())
    net = neonxc.neuralize(kmeans, x, features)
    cluster = int(net.predict(x)[8:12].flatten().mode().values)  # most locations of the astronaut

    def sheet() -> Figure:
        parts = neonxc.concepts(net, x, layer="blocks.10", cluster=cluster)
        parts = parts.named(cluster, {1: "foliage", 2: "face", 3: "hair", 4: "edges"})
        return plot.concepts(parts, net, x, cluster)

    centroids = kmeans.cluster_centers_
    few = neonxc.concepts(net, x[8:12], layer="blocks.10", cluster=cluster, n_concepts=2)
    shows = [centroids, cluster, plot.concepts(few, net, x[8:12], cluster)]
    yield Picture("concepts.png", shows, lambda: save_small(sheet(), "concepts.png", 1100))


def mostly_blue() -> Iterator[Picture]:
    """Digits whose heatmaps are mostly blue for their own cluster, and those with a baseline."""
    data = load_digits()
    x = torch.from_numpy(data.images[:, None] / 16)
    classes = torch.from_numpy(data.target).long()
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()  # the same on all machines
    network = nn.Sequential(features, nn.Linear(32, 10).double())
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(15):
        for rows in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), classes[rows]).backward()
            optimizer.step()

    points = features(x).detach().numpy()
    net = neonxc.neuralize(KMeans(10, n_init=2, random_state=0).fit(points), x, features)
    neon = neonxc.NEON(net)
    maps = neon.attribute(x[:100]).sum(1)
    bluest = (maps.clamp(min=0).sum((1, 2)) / maps.abs().sum((1, 2))).argsort()[:4].tolist()
    figure = Figure((8, 3.2), layout="compressed", dpi=200)
    grid = figure.subplots(2, 8)
    for place, row in enumerate(bluest):
        cluster = net.classes_[int(net(x[[row]]).argmax())]
        for line, options in enumerate(({}, {"baseline": 0.0})):
            heatmap = neon.heatmaps(x[[row]], [cluster], **options)[0, 0]
            grid[line, 2 * place].imshow(x[row, 0], cmap="gray_r")
            grid[line, 2 * place].axis("off")
            draw_heatmap(grid[line, 2 * place + 1], np.ones((8, 8)), heatmap.numpy())
    grid[0, 0].set_title("without a baseline", fontsize=8, loc="left")
    grid[1, 0].set_title("baseline=0.0, 6 passes", fontsize=8, loc="left")
    add_scale(figure, [*grid.ravel()], below=True)
    yield Picture("mostly-blue.png", figure, lambda: save_small(figure, "mostly-blue.png", 900))


def sanity() -> Iterator[Picture]:
    """What is left of heatmaps if blocks are shuffled, and the maps of a photo's own and its runner-up cluster."""
    features = efficientnet_lite0(block=15, pool="avg")
    crops = torch.stack(
        [photo[:, :320, part] for photo in photos().values() for part in (slice(320), slice(-320, None))]
    )
    x = features.preprocess(crops)
    net = neonxc.neuralize(KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy()), x, features)
    last = shuffled(net, ["15"])
    last_four = shuffled(last, ["14", "13", "12"])
    networks = {"trained network": net, "last block shuffled": last, "last four shuffled": last_four}
    photo = crops[0]
    one = x[:1]
    own, second = net(one)[0].topk(2).indices.tolist()

    def blocks(explainers: dict[str, Composite | None], chosen: list[str]) -> Figure:
        maps = {
            f"{rule}: {title}": neonxc.NEON(networks[title], rules).heatmaps(one, [own])[0, 0]
            for rule, rules in explainers.items()
            for title in chosen
        }
        return map_figure(photo, maps, len(chosen))

    def draw() -> None:
        every = blocks({"LRP-γ": None, "zero_gamma": presets.zero_gamma()}, list(networks))
        save_small(every, "sanity-blocks.png", 900)

    yield Picture("sanity-blocks.png", blocks({"LRP-γ": None}, ["last four shuffled"]), draw)
    both = neonxc.NEON(net).heatmaps(one, [own, second])[0]
    maps = {f"own cluster {own}": both[0], f"runner-up, cluster {second}": both[1]}
    runner_up = map_figure(photo, maps, 2)
    yield Picture("sanity-runner-up.png", runner_up, lambda: save_small(runner_up, "sanity-runner-up.png", 600))


def shuffled(net: Any, blocks: list[str]) -> Any:
    """Return a copy of a network with the weights of these blocks in another order."""
    net = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(0)
    for name, value in net.inputs.module.net.blocks.named_parameters():
        if name.partition(".")[0] in blocks:
            order = torch.randperm(value.numel(), generator=generator)
            value.data = value.data.flatten()[order].view_as(value)
    return net


def map_figure(photo: Tensor, maps: dict[str, Tensor], across: int) -> Figure:
    """Draw heatmaps of one photo beside each other, by title."""
    rows = -(-len(maps) // across)
    figure = Figure(figsize=(2.6 * across, 2.8 * rows), layout="compressed", dpi=200)
    grid = np.atleast_1d(figure.subplots(rows, across)).ravel()
    for axes, (title, heatmap) in zip(grid, maps.items(), strict=True):
        draw_heatmap(axes, as_image(photo), smoothed(heatmap.numpy()))
        axes.set_title(title, fontsize=8)
    add_scale(figure, [*grid], below=True)
    return figure


def save_small(figure: Figure, file: str, width: int) -> None:
    """Write a figure of photos without its margins, so many pixels wide, in 256 colours."""
    buffer = BytesIO()
    figure.savefig(buffer)
    picture = trimmed(Image.open(buffer).convert("RGB"), 12)
    size = width, round(picture.height * width / picture.width)
    save_colours(picture.resize(size, Image.Resampling.LANCZOS), file)


def trimmed(picture: Image.Image, margin: int) -> Image.Image:
    """Cut white margins off, except for so many pixels."""
    left, top, right, bottom = ImageChops.invert(picture).getbbox() or (0, 0, *picture.size)
    right = min(right + margin, picture.width)
    bottom = min(bottom + margin, picture.height)
    return picture.crop((max(left - margin, 0), max(top - margin, 0), right, bottom))


def save_colours(picture: Image.Image, file: str) -> None:
    """Write a picture in 256 colours: its most frequent ones as they are, and others that cover the rest.

    Those of the median cut, the default, are up to 91 of 255 away from the colours of a report: a cluster has
    another colour in its picture than on its page. Frequent ones, such as white, would be replaced by means with
    similar ones if they are not set apart.
    """
    pixels = np.asarray(picture).astype(int)
    codes = pixels @ [65536, 256, 1]  # one number per pixel
    every, counts = np.unique(codes, return_counts=True)
    frequent = every[np.argsort(-counts, kind="stable")][:N_FREQUENT]
    rest = picture.quantize(256 - N_FREQUENT, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    indices = np.array(picture.quantize(palette=rest, dither=Image.Dither.FLOYDSTEINBERG))
    palette = np.zeros((256, 3), dtype=np.uint8)
    covering = np.reshape(rest.getpalette(), (-1, 3))[: 256 - N_FREQUENT]
    palette[: len(covering)] = covering
    for index, code in enumerate(frequent, start=256 - N_FREQUENT):
        palette[index] = code >> 16, code >> 8 & 255, code & 255
        indices[codes == code] = index
    few = Image.fromarray(indices)
    few.putpalette(palette.ravel().tolist())
    few.save(IMAGES / file, optimize=True)


def flipping() -> Iterator[Picture]:
    """Curves of pixel-flipping of six clusters of wine."""
    X = scale(load_wine().data)
    net = neonxc.neuralize(KMeans(6, n_init=10, random_state=0).fit(X), X)
    yield figure_of("flipping-curves.png", compare(net, X, imputer=KDEImputer(X), repeats=30).plot())


def rules() -> Iterator[Picture]:
    """Heatmaps of one photo by six sets of propagation rules; one of them is checked."""
    features = efficientnet_lite0(block=10)
    photo = to_tensor(skimage.data.chelsea(), 224)[:, :, 50:274]
    x = features.preprocess(photo[None])
    low, high = features.pixel_range()
    composites = {
        "gamma": presets.gamma(),
        "paper, z^B": presets.paper(low, high),
        "epsilon": presets.epsilon(),
        "z+": Composite(ZPlus()),
        "w2, then gamma": Composite(Gamma(0.25), {0: WSquare()}),
        "flat, then gamma": Composite(Gamma(0.25), {0: Flat()}),
    }

    def sheet(names: list[str]) -> Figure:
        maps = [LRP(features.net, composites[name]).attribute(x, 285)[0].sum(0) for name in names]
        return plot.contact_sheet([photo], torch.stack(maps)[None], column_titles=names, smooth=0)

    shows = [list(composites), sheet(["paper, z^B"])]
    yield Picture("rules.png", shows, lambda: save_small(sheet(list(composites)), "rules.png", 1463))


def wine() -> Iterator[Picture]:
    """What describes three clusters of wine, what moved wines that were measured again, and another model."""
    data = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(data)
    neon = neonxc.NEON(neonxc.neuralize(model, data))
    yield figure_of("wine-summary.png", plot.summary_bars(neon.summary(data), most=6))
    after = data.copy()
    labels = neon.net.predict(data)
    after.loc[(labels == 1) & (data["alcohol"] > 13.1), "proline"] += 3000
    after.loc[(labels == 2) & (data["alcohol"] < 13.7), ["flavanoids", "hue"]] -= [2, 0.5]
    moves = neonxc.moves(neon.net, data, after.iloc[3:].rename(index=int))
    yield figure_of("moves.png", moves.plot())
    scaler = StandardScaler().fit(data)
    scaler.scale_[4] /= 3
    other = make_pipeline(scaler, KMeans(3, n_init=10, random_state=1).fit(scaler.transform(data)))
    yield figure_of("two-models.png", neonxc.compare_clusterings(model, other, data, random_state=0).plot())


def trees() -> Iterator[Picture]:
    """A tree of three clusters of wine, one of ten clusters of digits, and the cost and length of fourteen."""
    reference = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0))
    tree = ExShallow(reference=reference, refine=True).fit(load_wine(as_frame=True).data).tree_
    yield figure_of("wine-tree.png", plot_tree(tree).figure)
    digits = load_digits().data
    pixels = [f"row {i // 8} column {i % 8}" for i in range(64)]
    ten = ExShallow(10, random_state=0).fit(digits)
    yield figure_of("digits-tree.png", plot_tree(ten, feature_names=pixels, X=digits).figure)
    compared = trade_off(digits, centers=KMeans(10, n_init=10, random_state=0).fit(digits).cluster_centers_)
    yield figure_of("front.png", compared.plot().figure)


def interpretable() -> Iterator[Picture]:
    """What a share of one range of body mass costs, and what is in the clusters."""
    patients = load_diabetes(as_frame=True, scaled=False).data

    def fitted(beta: float) -> BetaInterpretable:
        return BetaInterpretable(5, beta, metric="gower").fit(patients, foi="bmi")

    betas = [0.3 + 0.05 * i for i in range(15)]
    free = fitted(0.0).objective_
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    price, *bars = figure.subplots(1, 4, width_ratios=[1.7, 1, 1, 1])
    price.plot(
        betas, [fitted(min(beta, 1.0)).objective_ / free for beta in betas], "o-", color="0.25", markersize=4
    )
    price.axhline(1, color="0.6", linewidth=1)
    price.set(xlabel="β", ylabel="radius over that of β = 0", title="price of interpretability")
    color = cluster_colors(4)
    for ax, beta in zip(bars, (0.0, 0.8, 1.0), strict=True):
        model = fitted(beta)
        counts = np.stack([np.bincount(model.foi_codes_[model.labels_ == c], minlength=4) for c in model.classes_])
        shares = counts / counts.sum(1, keepdims=True)
        for value, name in enumerate(model.foi_values_):
            below = shares[:, :value].sum(1)
            ax.bar(model.classes_, shares[:, value], bottom=below, color=color(value), label=name)
        ax.set(title=f"β = {beta:g}", ylim=(0, 1), xlabel="cluster", xticks=model.classes_)
        if ax is not bars[0]:
            ax.set_yticklabels([])
    bars[0].set_ylabel("share of the cluster")
    handles, names = bars[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower right", ncols=4, frameon=False, fontsize=8)
    yield figure_of("interpretable-price.png", figure)


def cost() -> Iterator[Picture]:
    """How time grows: measured by the benchmark, and predicted by its model."""
    report = json.loads((DOCS / "benchmarks" / "growth.json").read_text())
    rows = [row for row in report["tables"]["Measured and predicted"]["rows"] if row["axis"] != "supports"]
    names = list(dict.fromkeys(row["what"] for row in rows))
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    color = cluster_colors(len(names))
    axes = dict(zip(("n", "d", "k", "leaves"), figure.subplots(1, 4, sharey=True), strict=True))
    for axis, ax in axes.items():
        for number, name in enumerate(names):
            own = [row for row in rows if (row["what"], row["axis"]) == (name, axis)]
            sizes = [row["size"] for row in own]
            ax.loglog(sizes, [row["ms"] for row in own], "o", color=color(number), markersize=4, label=name)
            ax.loglog(sizes, [row["predicted ms"] for row in own], "-", color=color(number), linewidth=1)
        sizes = sorted({row["size"] for row in rows if row["axis"] == axis})[:: 2 if axis == "n" else 1]
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        ax.minorticks_off()
        ax.set_xlabel({"n": "rows n", "d": "columns d", "k": "clusters k"}.get(axis, axis))
    axes["n"].set_ylabel("milliseconds")
    axes["n"].set_title("points: measured, lines: predicted", fontsize=8, loc="left")
    handles, labels = axes["n"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    yield figure_of("cost-growth.png", figure)


def wine_report() -> Iterator[Picture]:
    """The first screens of a report, in light and in dark, and on a phone."""
    report = gallery.wine()
    shows = [report.to_dict(), PAGE]
    for scheme in ("light", "dark"):
        file = f"report-{scheme}.png"
        yield Picture(file, shows, partial(photograph, report, file, Screen(1280, 1500, scheme)))
    yield Picture("report-phone.png", shows, partial(phones, report, "report-phone.png"))


def patients_report() -> Iterator[Picture]:
    """The first screen of a report of a table with words and gaps."""
    yield first_screen("report-patients.png", gallery.patients())


def photos_report() -> Iterator[Picture]:
    """The first screen of a report of locations of photos."""
    yield first_screen("report-photos.png", gallery.photos())


def texts_report() -> Iterator[Picture]:
    """The first screen of a report of texts."""
    yield first_screen("report-texts.png", gallery.texts())


def first_screen(file: str, report: Report) -> Picture:
    """Return the picture of what a wide screen shows first."""
    return Picture(file, [report.to_dict(), PAGE], partial(photograph, report, file, Screen(1280, 1500)))


def words() -> Iterator[Picture]:
    """Three texts of the guide, and why the last is not in another cluster."""
    names = of_guide("words.md", 2)  # the texts, and their relevance
    net = names["net"]
    chosen = [4, 10, 17, 17]
    ids = names["ids"][chosen]
    texts = [names["texts"][n] for n in chosen]
    clusters = net.predict(ids).tolist()
    relevance = names["relevance"][chosen]
    relevance[-1:] = neonxc.NEON(net).attribute(ids[-1:], competitor=clusters[1])
    headings = [f"cluster {k}" for k in clusters]
    headings[-1] += f" and not cluster {clusters[1]}"
    page = plot.text(texts, relevance, names["words"].spans(texts), known=ids >= 0, headings=headings)
    yield Picture("words.png", [page.html(), relevance], partial(photograph, page, "words.png", Screen(860)))


def rings() -> Iterator[Picture]:
    """The figure of the guide to trees of kernel clusterings."""
    with saved_figures() as figures:
        of_guide("kernel_trees.md", 2)
    yield figure_of("kernel-trees-rings.png", figures["kernel-trees-rings.png"], 100)


def priced_tree() -> Iterator[Picture]:
    """The tree of the guide to criteria of one's own."""
    with saved_figures() as figures:
        of_guide("extend.md", 3)
    yield figure_of("extend-tree.png", figures["extend-tree.png"])


def spex_toys() -> Iterator[Picture]:
    """Figure 2 of the SpEx paper."""
    from papers.spex_toys import figure_2

    yield figure_of("spex-figure2.png", figure_2())


def tree_networks() -> Iterator[Picture]:
    """Trees on the channels of a network, for five photos; a small one is checked."""
    from tree_networks import cluster_sheet, explained, threshold_sheet

    features = efficientnet_lite0(block=14)
    small = [explained("chelsea", photos()["chelsea"][:, :128, :128], features, 3)]

    def draw(sheet: Callable[[list[Any]], Figure], file: str) -> None:
        every = [explained(name, photo, features, 4) for name, photo in photos().items()]
        save_small(sheet(every), file, 900)

    for sheet, file in (
        (cluster_sheet, "tree-networks-clusters.png"),
        (threshold_sheet, "tree-networks-thresholds.png"),
    ):
        yield Picture(file, sheet(small), partial(draw, sheet, file))


def collage_maps() -> Iterator[Picture]:
    """A collage, its segments and what each method matches with them; checked by a small one."""
    from papers.segmentation import BLOCKS, all_maps, collage, extractors, rules, sheet

    blocks = BLOCKS["efficientnet"].split(",")
    raw, unit = extractors("efficientnet", int(blocks[len(blocks) // 2]), "default", "cpu")

    def drawn(n: int, size: int, without: tuple[str, ...] = ()) -> Figure:
        scenes = [collage((0, i), size) for i in range(n)]
        inputs = [raw.preprocess(scene.photo[None]) for scene in scenes]
        maps = all_maps(raw, unit, inputs, rules("paper", raw))
        return sheet(scenes[0], {name: maps[name] for name in maps if not name.startswith(without)}, 0)

    file = "segmentation-efficientnet-collages-paper-maps.png"
    # the thresholds of NetDissect are values of locations, so that the last bit decides about these
    shows = drawn(1, 96, ("NetDissect",))
    yield Picture(file, shows, lambda: save_small(drawn(24, 224), file, 1250))


def spiral() -> Iterator[Picture]:
    """Clusters of the locations of a spiral, by block; checked by a small one."""
    from papers.segmentation import CURVED, spiral_sheet

    blocks = [int(block) for block in CURVED["efficientnet"].split(",")]

    def drawn(blocks: list[int], size: int, clusters: int) -> Figure:
        return spiral_sheet("efficientnet", blocks, "default", "paper", size, clusters)

    file = "segmentation-spiral-efficientnet.png"
    yield Picture(file, drawn(blocks[1:2], 96, 4), lambda: save_small(drawn(blocks, 448, 8), file, 1100))


def segmentation() -> Iterator[Picture]:
    """Cosines of heatmaps and masks by block, as the benchmark has measured them."""
    from papers.segmentation import RULES, TITLES, K, chart

    report = json.loads((DOCS / "benchmarks" / "segmentation.json").read_text(encoding="utf-8"))
    name = f"{TITLES['efficientnet']}, {TITLES['collages']}"
    scores = report["scores"][f"{name}, paper"]
    n_images = len(next(iter(next(iter(scores["0"].values())).values())))
    title = f"{name}: {RULES['paper']}; {n_images} images of 224 pixels, K = {K}"
    figure = chart({float(sigma): of_blur for sigma, of_blur in scores.items()}, title)
    file = "segmentation-efficientnet-collages-paper.png"
    yield Picture(file, figure, lambda: save_small(figure, file, 1200))


def interpretable_methods() -> Iterator[Picture]:
    """The objective against interpretability, as the benchmark has measured them."""
    from papers.beta_interpretable import plot_trade_off

    report = json.loads((DOCS / "benchmarks" / "interpretable.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    for ax, data in zip(figure.subplots(1, 2), ("Adult", "Communities"), strict=True):
        rows = report["tables"][f"Figure 2: {data}, k = 5"]["rows"]
        plot_trade_off(ax, [row | {"method": row["method"].partition(",")[0], "data": data} for row in rows])
    figure.axes[-1].legend()
    yield figure_of("interpretable-trade-off.png", figure)


def badges() -> Iterator[Picture]:
    """The two badges of the README, from what the package says about itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minor = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    for file, left, right in (
        ("python.svg", "Python", " | ".join(minor)),
        ("license.svg", "license", (ROOT / "LICENSE").read_text(encoding="utf-8").splitlines()[0]),
    ):
        image = badge(left, right.replace(" License", ""))
        yield Picture(file, image, partial((IMAGES / file).write_text, image, encoding="utf-8"))


def badge(left: str, right: str) -> str:
    """Draw a name on grey and its value on blue."""
    name_width = 14 + 7 * len(left)
    value_width = 14 + 7 * len(right)
    width = name_width + value_width
    label = f"{left}: {right}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}">',
        f"<title>{label}</title>",
        f'<rect width="{name_width}" height="20" rx="3" fill="#4a4a4a"/>',
        f'<rect x="{name_width - 3}" width="{value_width + 3}" height="20" rx="3" fill="#1f5f8b"/>',
        f'<rect x="{name_width - 3}" width="6" height="20" fill="#1f5f8b"/>',
        '<g fill="#fff" text-anchor="middle" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11">',
        f'<text x="{name_width / 2}" y="14">{left}</text>',
        f'<text x="{name_width + value_width / 2}" y="14">{right}</text>',
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def architecture() -> Iterator[Picture]:
    """The objects that a user meets, and which of them owns which."""
    blue = "#dbe7f5"
    green = "#dcefdc"
    grey = "#eeeeee"
    boxes = {  # name: place, color, what it holds
        "what is passed": (0.09, 0.88, grey, "frames, arrays, tensors,\ntexts, images"),
        "Table": (0.09, 0.5, grey, "the tensor, and the way\nback to the caller's type"),
        "NeuralizedClustering": (0.4, 0.88, blue, "classes_, beta, fidelity_"),
        "Inputs": (0.3, 0.5, blue, "read, write,\nfeatures, explain"),
        "Head": (0.5, 0.5, blue, "logits of points"),
        "encoding or network": (0.22, 0.12, blue, "Encoding, Terms,\nnet.features"),
        "Detection": (0.39, 0.12, blue, "neurons"),
        "Grouping": (0.55, 0.12, blue, "members of clusters"),
        "Competition": (0.71, 0.12, blue, "rivals, or a path"),
        "NEON": (0.71, 0.88, blue, "composite, head_rule,\nalong"),
        "Question": (0.71, 0.63, blue, "target, competitor"),
        "Answer": (0.71, 0.38, blue, "values, contrasts,\nweights, relevance"),
        "tree explainer": (0.91, 0.88, green, "criterion, growth"),
        "ThresholdTree": (0.91, 0.63, green, "nodes, encoding"),
        "Rules": (0.91, 0.38, green, "conditions, counts"),
    }
    owns = [
        ("NeuralizedClustering", "Inputs"),
        ("NeuralizedClustering", "Head"),
        ("Inputs", "encoding or network"),
        *(("Head", stage) for stage in ("Detection", "Grouping", "Competition")),
        ("NEON", "NeuralizedClustering"),
        ("tree explainer", "ThresholdTree"),
    ]
    makes = [
        ("what is passed", "Table", "is read"),
        ("Table", "Inputs", ""),
        ("NEON", "Question", "asks"),
        ("Question", "Answer", "is answered"),
        ("Head", "Answer", ""),
        ("ThresholdTree", "Rules", "is described by"),
    ]
    figure = Figure((11, 4.8), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    patches = {}
    for name, (x, y, color, holds) in boxes.items():
        shape = "round,pad=0,rounding_size=0.012"
        patch = FancyBboxPatch((x - 0.076, y - 0.085), 0.152, 0.17, shape, facecolor=color, edgecolor="none")
        patches[name] = axes.add_patch(patch)
        axes.text(x, y + 0.045, name, ha="center", va="center", fontsize=9, weight="bold")
        axes.text(x, y - 0.03, holds, ha="center", va="center", fontsize=8, color="#444444")
    for start, end, label in [*((*pair, None) for pair in owns), *makes]:
        x, y, *_ = boxes[start]
        to_x, to_y, *_ = boxes[end]
        style = {"arrowstyle": "-|>", "color": "#555555", "linestyle": "-" if label is None else (0, (4, 3))}
        ends = {"patchA": patches[start], "patchB": patches[end], "shrinkA": 2, "shrinkB": 2}
        axes.annotate("", (to_x, to_y), (x, y), arrowprops=style | ends)
        if label:
            axes.text((x + to_x) / 2 + 0.008, (y + to_y) / 2, label, fontsize=8, color="#555555", va="center")
    yield figure_of("architecture.png", figure, 130)


# --- is it real? -------------------------------------------------------------------------------------------------


def without_clusters() -> Iterator[Picture]:
    """Iris, a table with the same columns and correlations but no clusters, and what both clusterings explain."""
    data = load_iris(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0))
    result = null_reference(model, data)
    drawn: Any = Copula(Table.read(data)).draw(np.random.default_rng(0))
    figure = Figure((11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 0.8])
    kinds = ((left, data, "iris"), (middle, drawn, "the same columns and correlations,\nno clusters"))
    for axes, rows, title in kinds:
        labels = model.fit_predict(rows)
        by_length = rows.iloc[:, 2].groupby(labels).mean().rank()  # so that both tables have the same colors
        axes.scatter(rows.iloc[:, 2], rows.iloc[:, 0], 12, by_length[labels], cmap=cluster_colors(3))
        axes.set(title=title, xlabel=data.columns[2], ylabel=data.columns[0])
    frame = result.to_frame()
    rows_of_columns = np.arange(len(frame))
    right.barh(rows_of_columns - 0.2, frame["explained"], 0.35, label="iris")
    right.barh(
        rows_of_columns + 0.2, frame["reference"], 0.35, color="#bbbbbb", label="largest of 19 tables without"
    )
    right.set(title="share of variance between\nthe clusters", xlim=(0, 1))
    right.set_yticks(rows_of_columns, [name.removesuffix(" (cm)") for name in frame.index])
    right.invert_yaxis()
    figure.legend(loc="outside lower right", ncols=2, fontsize=9, frameon=False)
    yield figure_of("without-clusters.png", figure)


def separation() -> Iterator[Picture]:
    """Three clusters of two clouds, and the density along the axis of each pair that the guide judges."""
    names = of_guide("separation.md", 1)
    X = names["X"]
    labels = names["model"].labels_
    pairs = names["found"].to_frame()
    means = np.stack([X[labels == k].mean(axis=0) for k in range(3)])
    figure = Figure((10, 3), layout="constrained")
    axes = figure.subplots(1, 1 + len(pairs), width_ratios=[1.3, *[1] * len(pairs)])
    colors = np.array(cluster_colors(3).colors)
    axes[0].scatter(*X.T, s=6, c=colors[labels])
    axes[0].set(title="k-means with three clusters", xticks=[], yticks=[])
    axes[0].set_aspect("equal", adjustable="datalim")
    for k, mean in enumerate(means):
        axes[0].text(
            *mean, str(k), weight="bold", ha="center", va="center", bbox={"fc": "white", "ec": "none", "pad": 1}
        )
    for place, pair in zip(axes[1:], pairs.itertuples(), strict=True):
        along = (X - means[pair.a]) @ (means[pair.b] - means[pair.a])
        z = along / np.square(means[pair.b] - means[pair.a]).sum()
        parts = [z[labels == cluster] for cluster in (pair.a, pair.b)]
        place.hist(parts, np.linspace(-1, 2, 40), color=colors[[pair.a, pair.b]], stacked=True)
        place.set(title=f"{pair.a} and {pair.b}: {pair.verdict}", ylabel="rows")
        place.set_xticks([0, 1], [f"middle of {pair.a}", f"middle of {pair.b}"])
    yield figure_of("separation.png", figure)


def names() -> Iterator[Picture]:
    """Which name the rows of each cluster of wines choose."""
    X = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    named = neonxc.name_clusters(neonxc.neuralize(model, X), X)
    yield figure_of("names.png", plot.confusions(named), 130)


def layers() -> Iterator[Picture]:
    """The splits of a dendrogram of wines."""
    found = of_guide("layers.md", 1)["found"]
    yield figure_of("layers.png", plot.layers(found), 130)


# --- how they are drawn -----------------------------------------------------------------------------------


def of_guide(name: str, n_blocks: int) -> dict[str, Any]:
    """Run the first blocks of Python of a guide, and return the names that they define."""
    guide = (DOCS / name).read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()):
        for code in re.findall(r"```python\n(.*?)```", guide, flags=re.S)[:n_blocks]:
            exec(compile(code, name, "exec", dont_inherit=True), names)  # without this file's __future__
    return names


@contextmanager
def saved_figures() -> Iterator[dict[str, Figure]]:
    """Collect figures by the names of their files, where other code would write them."""
    figures: dict[str, Figure] = {}

    def collect(figure: Figure, path: str | Path, **options: object) -> None:
        figures[Path(path).name] = figure
        Path(path).touch()

    with mock.patch.object(Figure, "savefig", collect):
        yield figures


class Page(Protocol):
    """What writes itself as a page."""

    def save(self, path: Path) -> object: ...


class Screen(NamedTuple):
    """Where a page is read."""

    width: int  # in pixels of the page
    height: int = 1400
    scheme: str = "light"  # or "dark"
    scale: float = 1.5  # pixels of the picture for each


def photograph(page: Page, file: str, screen: Screen) -> None:
    """Write what a browser shows of a page."""
    save_colours(shown(page, screen), file)


def phones(page: Page, file: str) -> None:
    """Write what phones show of a page, in light and in dark."""
    screens = [shown(page, Screen(390, 844, scheme)) for scheme in ("light", "dark")]
    gap = 30
    both = Image.new("RGB", (sum(one.width for one in screens) + gap, max(one.height for one in screens)), "white")
    both.paste(screens[0], (0, 0))
    both.paste(screens[1], (screens[0].width + gap, 0))
    save_colours(both, file)


def shown(page: Page, screen: Screen) -> Image.Image:
    """Take a picture of a page, and cut the empty lines below its last words."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder) / "page.html"
        page.save(path)
        browser = started.chromium.launch(executable_path=shutil.which("chromium"))
        opened = browser.new_page(
            viewport={"width": screen.width, "height": screen.height},
            device_scale_factor=screen.scale,
            color_scheme=screen.scheme,
        )
        opened.goto(path.as_uri())
        image = Image.open(BytesIO(opened.screenshot())).convert("RGB")
        browser.close()
    background = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    box = ImageChops.difference(image, background).getbbox()
    bottom = image.height if box is None else min(box[3] + 20, image.height)
    return image.crop((0, 0, image.width, bottom))


# --- the table and the command ----------------------------------------------------------------------------


class Entry(NamedTuple):
    """Pictures that are drawn together."""

    files: str  # in docs/images, separated by blanks
    make: Callable[[], Iterator[Picture]]
    is_slow: bool = False  # takes more than some seconds to check

    @property
    def source(self) -> str:
        return f"docs.pictures.{self.make.__name__}"

    def pictures(self) -> Iterator[Picture]:
        """Compute what each picture shows."""
        yield from self.make()


class LongRun(NamedTuple):
    """Pictures that a long run of an example draws, and the file that it writes its figures to."""

    files: str
    command: str
    figures: str | None  # in docs/benchmarks; None where a run leaves nothing but the picture
    is_slow: bool = False

    @property
    def source(self) -> str:
        return self.command

    def pictures(self) -> Iterator[Picture]:
        """Return what each picture shows: the figures of the run, its command, and the colours that all share."""
        shows: list[object] = [self.command, FOR, AGAINST, *colors(10)]
        if self.figures is not None:
            report = json.loads((DOCS / "benchmarks" / self.figures).read_text(encoding="utf-8"))
            shows.append({name: part for name, part in report.items() if name != "machine"})
        for file in self.files.split():
            yield Picture(file, shows, None)


TABLE: list[Entry | LongRun] = [
    Entry("python.svg license.svg", badges),
    Entry("architecture.png", architecture),
    Entry("wine-summary.png moves.png two-models.png", wine),
    Entry("wine-tree.png digits-tree.png front.png", trees, is_slow=True),
    Entry("kernel-trees-rings.png", rings),
    Entry("extend-tree.png", priced_tree),
    Entry("spex-figure2.png", spex_toys),
    Entry("interpretable-price.png", interpretable, is_slow=True),
    Entry("interpretable-trade-off.png", interpretable_methods),
    Entry("cost-growth.png", cost),
    Entry("flipping-curves.png", flipping, is_slow=True),
    Entry("words.png", words),
    Entry("report-light.png report-dark.png report-phone.png", wine_report),
    Entry("report-patients.png", patients_report, is_slow=True),
    Entry("report-photos.png", photos_report, is_slow=True),
    Entry("report-texts.png", texts_report, is_slow=True),
    Entry("spatial-clusters.png", spatial_clusters, is_slow=True),
    Entry("chelsea.png", one_photo, is_slow=True),
    Entry("photo-clusters.png", whole_photos, is_slow=True),
    Entry("mostly-blue.png", mostly_blue, is_slow=True),
    Entry("concepts.png", concepts, is_slow=True),
    Entry("sanity-blocks.png sanity-runner-up.png", sanity, is_slow=True),
    Entry("rules.png", rules, is_slow=True),
    Entry("tree-networks-clusters.png tree-networks-thresholds.png", tree_networks, is_slow=True),
    Entry("segmentation-efficientnet-collages-paper.png", segmentation),
    Entry("segmentation-efficientnet-collages-paper-maps.png", collage_maps, is_slow=True),
    Entry("segmentation-spiral-efficientnet.png", spiral, is_slow=True),
    LongRun("scan-mnist.png", "python examples/papers/scan.py", "scan.json"),
    LongRun("flipping-figure9.png flipping-figure10.png", "python examples/papers/flipping.py", "neon_paper.json"),
    LongRun(
        "attributes-columns.png attributes-leaves.png attributes-tree.png", "python examples/attributes.py", None
    ),
    LongRun("sentences.png", "python examples/sentences.py", None),
    LongRun("pair.png", "python examples/pairs.py", None),
    Entry("without-clusters.png", without_clusters),
    Entry("separation.png", separation),
    Entry("names.png", names),
    Entry("layers.png", layers),
]


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Pictures, with or without .png.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Say which are out of date; draw nothing.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Name all pictures, and what draws them.")] = False,
) -> None:
    """Draw pictures of the documentation: those that are named, or all that are out of date."""
    if list_all:
        for entry in TABLE:
            for file in entry.files.split():
                typer.echo(f"{file:52} {entry.source}")
        return
    chosen = files_of(names or [])
    if check:
        messages = outdated(chosen)
        for message in messages:
            typer.echo(message)
        raise typer.Exit(bool(messages))
    for picture in pictures(chosen):
        record = record_of(picture)
        if not names and out_of_date(picture.file, record) is None:
            continue
        if picture.draw is not None:
            picture.draw()
        elif not names:  # whoever names it has copied it from the folder of the run
            typer.echo(f"{picture.file} comes from a long run, see --list: copy it, then name it to this command")
            continue
        write_record(picture.file, record)
        typer.echo(picture.file)


def files_of(names: list[str]) -> set[str]:
    """Return the files of the pictures with these names, or all."""
    known = [file for entry in TABLE for file in entry.files.split()]
    for name in names:
        if not any(name in (file, Path(file).stem) for file in known):
            raise typer.BadParameter(f"{name!r} is not a picture; --list names all of them")
    return {file for file in known if not names or file in names or Path(file).stem in names}


def pictures(files: set[str]) -> Iterator[Picture]:
    """Compute what the pictures of these files show."""
    for entry in TABLE:
        if files & {*entry.files.split()}:
            yield from (picture for picture in entry.pictures() if picture.file in files)


def outdated(files: set[str]) -> list[str]:
    """Return a message for every picture that shows an older version."""
    messages = (out_of_date(picture.file, record_of(picture)) for picture in pictures(files))
    return [message for message in messages if message is not None]


def out_of_date(file: str, record: Record) -> str | None:
    """Return what to do if a picture shows something else than the current code computes."""
    what = "it was never recorded"
    recorded = read_records().get(file)
    if recorded is not None:
        changed = difference(recorded, record)
        if changed is None:
            return None
        what = f"{changed} changed"
    return f"picture {file} shows an older version ({what}): python -m docs.pictures {Path(file).stem}"


def record_of(picture: Picture) -> Record:
    """Compute what is recorded of a picture."""
    inputs = Inputs()
    inputs.add(picture.shows)
    return inputs.record()


def read_records() -> dict[str, Record]:
    """Return what is recorded, by file."""
    if not RECORDED.exists():
        return {}
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def write_record(file: str, record: Record) -> None:
    """Record what a picture shows, a line per kind of numbers."""
    records = read_records() | {file: record}
    lines = []
    for name in sorted(records):
        numbers = records[name]["numbers"]
        kinds = ",\n".join(
            f"   {json.dumps(kind, ensure_ascii=False)}: {json.dumps(numbers[kind])}" for kind in numbers
        )
        lines.append(f' {json.dumps(name)}: {{"words": "{records[name]["words"]}", "numbers": {{\n{kinds}}}}}')
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
