"""Draw the pictures of the documentation: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_sample_image, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import plot
from neonxc.lrp import LRP, Composite, Flat, Gamma, WSquare, ZPlus, presets
from neonxc.models import efficientnet_lite0, to_tensor
from neonxc.trees import ExShallow, plot_tree, trade_off

IMAGES = Path(__file__).parent / "images"


def photos() -> dict:
    from skimage import data

    found = {name: to_tensor(getattr(data, name)()[..., :3], 320) for name in ("chelsea", "coffee", "astronaut")}
    return found | {name: to_tensor(load_sample_image(f"{name}.jpg"), 320) for name in ("china", "flower")}


def spatial_clusters() -> None:
    features = efficientnet_lite0(block=10, normalize=True)
    sheet = []
    for photo in photos().values():
        x = features.preprocess(photo[None])
        kmeans = KMeans(4, n_init=10, random_state=0).fit(features.points(x).numpy())
        net = neonxc.neuralize(kmeans, x, features)
        sheet.append((photo, neonxc.NEON(net).heatmaps(x)[0], net.predict(x)[0]))
    figure = plot.contact_sheet(*zip(*sheet, strict=True), row_titles=list(photos()))
    figure.savefig(IMAGES / "spatial-clusters.png", dpi=95)
    first = [part[:1] for part in zip(*sheet, strict=True)]
    plot.contact_sheet(*first).savefig(IMAGES / "chelsea.png", dpi=110)


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
    plot.contact_sheet([photo], maps[None], column_titles=list(composites)).savefig(IMAGES / "rules.png", dpi=110)


def data_chelsea() -> Any:
    from skimage import data

    return data.chelsea()


def wine() -> None:
    data = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(data)
    neon = neonxc.NEON(neonxc.neuralize(model, data))
    plot.summary_bars(neon.summary(data), most=6).savefig(IMAGES / "wine-summary.png", dpi=110)


def trees() -> None:
    reference = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0))
    tree = ExShallow(reference=reference, refine=True).fit(load_wine(as_frame=True).data).tree_
    plot_tree(tree).figure.savefig(IMAGES / "wine-tree.png", dpi=110)
    digits = load_digits().data
    found = trade_off(digits, centers=KMeans(10, n_init=10, random_state=0).fit(digits).cluster_centers_)
    found.plot().figure.savefig(IMAGES / "front.png", dpi=110)


if __name__ == "__main__":
    spatial_clusters()
    rules()
    wine()
    trees()
