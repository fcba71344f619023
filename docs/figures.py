"""Draw the pictures of the documentation: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path

from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_image, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import plot
from neonxc.models import efficientnet_lite0, to_tensor

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


def wine() -> None:
    data = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(data)
    neon = neonxc.NEON(neonxc.neuralize(model, data))
    plot.summary_bars(neon.summary(data), most=6).savefig(IMAGES / "wine-summary.png", dpi=110)


if __name__ == "__main__":
    spatial_clusters()
    wine()
