"""Draw the pictures of the documentation: ``python docs/figures.py``."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import skimage.data
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image, ImageChops
from sklearn.cluster import KMeans
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_sample_image, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

import neonxc
from neonxc import plot
from neonxc.cli.heatmaps import heatmaps
from neonxc.cli.photos import extractor
from neonxc.data.table import Table
from neonxc.evaluation import KDEImputer, compare, null_reference
from neonxc.evaluation.copula import Copula
from neonxc.lrp import LRP, Composite, Flat, Gamma, WSquare, ZPlus, presets
from neonxc.models import BetaInterpretable, efficientnet_lite0, to_tensor
from neonxc.plot.heat import add_scale, as_image, draw_heatmap, smoothed
from neonxc.plot.images import cluster_colors
from neonxc.trees import ExShallow, plot_tree, trade_off

IMAGES = Path(__file__).parent / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def photos() -> dict:
    from skimage import data

    found = {name: to_tensor(getattr(data, name)()[..., :3], 320) for name in ("chelsea", "coffee", "astronaut")}
    return found | {name: to_tensor(load_sample_image(f"{name}.jpg"), 320) for name in ("china", "flower")}


def spatial_clusters() -> None:
    """The sheet of the command for five photos, and one photo's clusters as the code of the guide draws them."""
    with TemporaryDirectory() as folder:
        heatmaps(list(photos().items()), 5, folder, extractor())
        reduced(Image.open(Path(folder) / "contact-sheet.png"), "spatial-clusters.png", 1500)
    photo, features = photos()["chelsea"], efficientnet_lite0(block=10, normalize=True)
    x = features.preprocess(photo[None])
    kmeans = KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy())
    net = neonxc.neuralize(kmeans, x, features)
    sheet = plot.contact_sheet([photo], neonxc.NEON(net).heatmaps(x), net.predict(x))
    save_small(sheet, "chelsea.png", 1254)


def whole_photos() -> None:
    """Three parts of each photo, in clusters, and why each part is in its cluster."""
    features = efficientnet_lite0(block=15, pool="avg")
    parts = torch.stack([photo[:, 40:264, i : i + 224] for photo in photos().values() for i in (0, 48, 96)])
    x = features.preprocess(parts)
    kmeans = KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy())
    net = neonxc.neuralize(kmeans, x, features)
    relevance = neonxc.NEON(net).attribute(x).sum(1)
    save_small(plot.contact_sheet(parts, relevance, net.predict(x)), "photo-clusters.png", 1100)


def concepts() -> None:
    """What makes a cluster of locations that joins foliage, a face and hair."""
    features, side = efficientnet_lite0(block=12), 224
    ends = slice(side), slice(-side, None)
    pictures = [*photos().values(), to_tensor(skimage.data.rocket(), 320)]
    x = features.preprocess(torch.stack([photo[:, i, j] for photo in pictures for j in ends for i in ends]))
    kmeans = KMeans(10, n_init=4, random_state=0).fit(features.points(x).numpy())
    net = neonxc.neuralize(kmeans, x, features)
    cluster = int(net.predict(x)[8:12].flatten().mode().values)  # most locations of the astronaut
    found = neonxc.concepts(net, x, layer="blocks.10", cluster=cluster)
    found = found.named(cluster, {1: "foliage", 2: "face", 3: "hair", 4: "edges"})
    save_small(plot.concepts(found, net, x, cluster), "concepts.png", 1100)


def sanity() -> None:
    """What is left of heatmaps if blocks are shuffled, and the maps of a photo's own and its runner-up cluster."""
    features = efficientnet_lite0(block=15, pool="avg")
    crops = torch.stack(
        [photo[:, :320, part] for photo in photos().values() for part in (slice(320), slice(-320, None))]
    )
    x = features.preprocess(crops)
    net = neonxc.neuralize(KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy()), x, features)
    shuffled = [net]
    for blocks in (["15"], ["14", "13", "12"]):
        shuffled.append(copy.deepcopy(shuffled[-1]))
        generator = torch.Generator().manual_seed(0)
        for name, value in shuffled[-1].inputs.module.net.blocks.named_parameters():
            if name.partition(".")[0] in blocks:
                value.data = value.data.flatten()[torch.randperm(value.numel(), generator=generator)].view_as(
                    value
                )
    photo, one = crops[0], x[:1]
    own, second = net(one)[0].topk(2).indices.tolist()
    explainers = {"LRP-γ": None, "zero_gamma": presets.zero_gamma()}
    maps = [
        neonxc.NEON(copied, rules).heatmaps(one, [own])[0, 0]
        for rules in explainers.values()
        for copied in shuffled
    ]
    titles = ["trained network", "last block shuffled", "last four shuffled"] * 2
    titles = [f"{name}: {title}" for name, title in zip(np.repeat([*explainers], 3), titles, strict=True)]
    drawn_maps(photo, maps, titles, 3, "sanity-blocks.png")
    both = neonxc.NEON(net).heatmaps(one, [own, second])[0]
    drawn_maps(photo, [*both], [f"own cluster {own}", f"runner-up, cluster {second}"], 2, "sanity-runner-up.png")


def drawn_maps(photo: Any, maps: list[Any], titles: list[str], across: int, name: str) -> None:
    """Draw heatmaps of one photo beside each other."""
    rows = -(-len(maps) // across)
    figure = Figure(figsize=(2.6 * across, 2.8 * rows), layout="compressed", dpi=200)
    grid = np.atleast_1d(figure.subplots(rows, across)).ravel()
    for axes, heatmap, title in zip(grid, maps, titles, strict=True):
        draw_heatmap(axes, as_image(photo), smoothed(heatmap.numpy()))
        axes.set_title(title, fontsize=8)
    add_scale(figure, [*grid], below=True)
    save_small(figure, name, 360 * across)


def save_small(figure: Figure, name: str, width: int) -> None:
    """Write a figure of photos, so many pixels wide, in 256 colours."""
    buffer = BytesIO()
    figure.savefig(buffer)
    reduced(Image.open(buffer), name, width)


def reduced(picture: Image.Image, name: str, width: int) -> None:
    """Write a picture in 256 colours, and in fewer pixels."""
    size = width, round(picture.height * width / picture.width)
    picture = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    palette = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    picture.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(IMAGES / name, optimize=True)


def flipping() -> None:
    X = scale(load_wine().data)
    net = neonxc.neuralize(KMeans(6, n_init=10, random_state=0).fit(X), X)
    found = compare(net, X, imputer=KDEImputer(X), repeats=30)
    found.plot().savefig(IMAGES / "flipping-curves.png", dpi=110)


def rules() -> None:
    features = efficientnet_lite0(block=10)
    net, photo = features.net, to_tensor(data_chelsea(), 224)[:, :, 50:274]
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
    maps = torch.stack([LRP(net, c).attribute(x, 285)[0].sum(0) for c in composites.values()])
    sheet = plot.contact_sheet([photo], maps[None], column_titles=list(composites), smooth=0)
    save_small(sheet, "rules.png", 1463)


def data_chelsea() -> Any:
    from skimage import data

    return data.chelsea()


def wine() -> None:
    data = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(data)
    neon = neonxc.NEON(neonxc.neuralize(model, data))
    plot.summary_bars(neon.summary(data), most=6).savefig(IMAGES / "wine-summary.png", dpi=110)
    after = data.copy()
    after.loc[(neon.net.predict(data) == 1) & (data["alcohol"] > 13.1), "proline"] += 3000
    after.loc[(neon.net.predict(data) == 2) & (data["alcohol"] < 13.7), ["flavanoids", "hue"]] -= [2, 0.5]
    neonxc.moves(neon.net, data, after.iloc[3:].rename(index=int)).plot().savefig(IMAGES / "moves.png", dpi=110)


def trees() -> None:
    reference = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0))
    tree = ExShallow(reference=reference, refine=True).fit(load_wine(as_frame=True).data).tree_
    plot_tree(tree).figure.savefig(IMAGES / "wine-tree.png", dpi=110)
    digits = load_digits().data
    pixels = [f"row {i // 8} column {i % 8}" for i in range(64)]
    ten = ExShallow(10, random_state=0).fit(digits)
    plot_tree(ten, feature_names=pixels, X=digits).figure.savefig(IMAGES / "digits-tree.png", dpi=110)
    found = trade_off(digits, centers=KMeans(10, n_init=10, random_state=0).fit(digits).cluster_centers_)
    found.plot().figure.savefig(IMAGES / "front.png", dpi=110)


def interpretable() -> None:
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
    figure.savefig(IMAGES / "interpretable-price.png", dpi=110)


def cost() -> None:
    """How time grows: measured by the benchmark, and predicted by its model."""
    report = json.loads((Path(__file__).parent / "benchmarks" / "growth.json").read_text())
    rows = [row for row in report["tables"]["Measured and predicted"]["rows"] if row["axis"] != "supports"]
    names = list(dict.fromkeys(row["what"] for row in rows))
    figure, color = Figure(figsize=(9.6, 3.4), layout="constrained"), cluster_colors(len(names))
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
    handles, labels = axes["n"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(IMAGES / "cost-growth.png", dpi=110)


def report() -> None:
    """The first screens of a report, in light and in dark, and the pictures of the gallery."""
    from gallery import patients, photos, texts, wine

    first = wine()
    photograph(first, IMAGES / "report-light.png", "1200,1500", "--blink-settings=preferredColorScheme=1")
    photograph(first, IMAGES / "report-dark.png", "1200,1500", "--blink-settings=preferredColorScheme=0")
    for make in (patients, photos, texts):
        photograph(make(), IMAGES / f"report-{make.__name__}.png", "1200,1500")


def words() -> None:
    """Three texts of the guide, and why the last is not in another cluster; a browser takes the picture."""
    guide = (Path(__file__).parent / "words.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", guide, flags=re.S)
    names: dict[str, Any] = {}
    for block in code[:2]:  # the texts, and their relevance
        exec(block, names)
    net, chosen = names["net"], [4, 10, 17, 17]
    ids, texts = names["ids"][chosen], [names["texts"][n] for n in chosen]
    clusters = net.predict(ids).tolist()
    relevance = names["relevance"][chosen]
    relevance[-1:] = neonxc.NEON(net).attribute(ids[-1:], competitor=clusters[1])
    headings = [f"cluster {k}" for k in clusters]
    headings[-1] += f" and not cluster {clusters[1]}"
    page = plot.text(texts, relevance, names["words"].spans(texts), known=ids >= 0, headings=headings)
    photograph(page, IMAGES / "words.png")


def architecture() -> None:
    """The objects that a user meets, and which of them owns which."""
    blue, green, grey = "#dbe7f5", "#dcefdc", "#eeeeee"
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
        patch = FancyBboxPatch((x - 0.07, y - 0.085), 0.14, 0.17, shape, facecolor=color, edgecolor="none")
        patches[name] = axes.add_patch(patch)
        axes.text(x, y + 0.045, name, ha="center", va="center", fontsize=9, weight="bold")
        axes.text(x, y - 0.03, holds, ha="center", va="center", fontsize=8, color="#444444")
    for start, end, label in [*((*pair, None) for pair in owns), *makes]:
        (x, y, *_), (to_x, to_y, *_) = boxes[start], boxes[end]
        style = {"arrowstyle": "-|>", "color": "#555555", "linestyle": "-" if label is None else (0, (4, 3))}
        ends = {"patchA": patches[start], "patchB": patches[end], "shrinkA": 2, "shrinkB": 2}
        axes.annotate("", (to_x, to_y), (x, y), arrowprops=style | ends)
        if label:
            axes.text((x + to_x) / 2 + 0.008, (y + to_y) / 2, label, fontsize=8, color="#555555", va="center")
    figure.savefig(IMAGES / "architecture.png", dpi=130)


def photograph(page: Any, path: Path, size: str = "860,1400", *more: str) -> None:
    """A page as a browser shows it, cut to what is on it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"{path.name} is left as it is: no browser of {BROWSERS}")
        return
    with TemporaryDirectory() as folder:
        page.save(Path(folder) / "page.html")
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/user",
        ]
        shot = [
            f"--window-size={size}",
            "--force-device-scale-factor=1.5",
            f"--screenshot={folder}/page.png",
            *more,
        ]
        subprocess.run([browser, *options, *shot, f"file://{folder}/page.html"], check=True, capture_output=True)
        image = Image.open(f"{folder}/page.png").convert("RGB")
    left, top, right, bottom = ImageChops.invert(image).getbbox() or (0, 0, *image.size)
    ends = max(left - 20, 0), max(top - 20, 0), min(right + 20, image.width), min(bottom + 20, image.height)
    image.crop(ends).quantize(128).save(path, optimize=True)


# --- is it real? -------------------------------------------------------------------------------------------------


def without_clusters() -> None:
    """Iris, a table with the same columns and correlations but no clusters, and what both clusterings explain."""
    data = load_iris(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0))
    result = null_reference(model, data)
    drawn: Any = Copula(Table.read(data)).draw(np.random.default_rng(0))
    figure = Figure((10, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for axes, rows, title in ((left, data, "iris"), (middle, drawn, "the same columns and correlations")):
        labels = model.fit_predict(rows)
        axes.scatter(rows.iloc[:, 2], rows.iloc[:, 3], 12, labels, cmap=cluster_colors(3))
        axes.set(title=title, xlabel=data.columns[2], ylabel=data.columns[3])
    frame = result.to_frame()
    rows_of_columns = np.arange(len(frame))
    right.barh(rows_of_columns + 0.2, frame["explained"], 0.35, label="iris")
    right.barh(rows_of_columns - 0.2, frame["reference"], 0.35, color="#bbbbbb", label="at most, of 19 tables")
    right.set(title="share between the clusters", yticks=rows_of_columns, yticklabels=frame.index, xlim=(0, 1))
    right.invert_yaxis()
    right.legend(loc="lower center", bbox_to_anchor=(0.5, -0.4), ncols=2, fontsize=8, frameon=False)
    figure.savefig(IMAGES / "without-clusters.png", dpi=110)


def separation() -> None:
    """Three clusters of two clouds, and the density along the axis of each pair that the guide judges."""
    guide = (Path(__file__).parent / "separation.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", guide, flags=re.S)
    names: dict[str, Any] = {}
    exec(code[0], names)
    X, labels, pairs = names["X"], names["model"].labels_, names["found"].to_frame()
    means = np.stack([X[labels == k].mean(axis=0) for k in range(3)])
    figure = Figure((9, 2.8), layout="constrained")
    axes = figure.subplots(1, 1 + len(pairs), width_ratios=[1.4, *[1] * len(pairs)])
    colors = np.array(cluster_colors(3).colors)
    axes[0].scatter(*X.T, s=6, c=colors[labels])
    axes[0].set(title="k-means with three clusters", xticks=[], yticks=[], aspect="equal")
    for k, mean in enumerate(means):
        axes[0].text(
            *mean, str(k), weight="bold", ha="center", va="center", bbox={"fc": "white", "ec": "none", "pad": 1}
        )
    for place, pair in zip(axes[1:], pairs.itertuples(), strict=True):
        along = (X - means[pair.a]) @ (means[pair.b] - means[pair.a])
        z = along / np.square(means[pair.b] - means[pair.a]).sum()
        for cluster in (pair.a, pair.b):
            place.hist(z[labels == cluster], np.linspace(-1, 2, 40), color=colors[cluster], alpha=0.8)
        place.set(title=f"{pair.a} and {pair.b}: {pair.verdict}", xticks=[0, 1], yticks=[])
        place.set_xticklabels([str(pair.a), str(pair.b)])
    figure.savefig(IMAGES / "separation.png", dpi=110)


def names() -> None:
    """Which name the rows of each cluster of wines choose."""
    X = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    named = neonxc.name_clusters(neonxc.neuralize(model, X), X)
    plot.confusions(named).savefig(IMAGES / "names.png", dpi=130)


if __name__ == "__main__":
    spatial_clusters()
    whole_photos()
    sanity()
    concepts()
    rules()
    wine()
    trees()
    interpretable()
    cost()
    words()
    report()
    flipping()
    architecture()
    without_clusters()
    separation()
    names()
