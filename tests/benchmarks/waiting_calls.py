"""Calls that people wait for outside of reports: a name, a function that prepares the call, and a goal in seconds.

Times of relevance over those of a gradient are in `tests.benchmarks.attribution` and `tests.benchmarks.heatmaps`.
Nothing is imported before a task is prepared, so that an older checkout can run the tasks, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

Run = Callable[[], Any]
CALLS_OF_ROW = 100  # of a single row, which takes less than a clock of processor time can tell


def of_one_row(method: Literal["attribute", "predict"], kind: Literal["frame", "array", "tensor"]) -> Run:
    """Prepare calls for one row of wine."""
    import torch
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_wine

    import neonxc

    X = load_wine(as_frame=True).data
    row = X.iloc[:1]
    if kind != "frame":
        X = X.to_numpy()
        row = X[:1]
    if kind == "tensor":
        row = torch.tensor(row)
    net = neonxc.neuralize(KMeans(3, n_init=1, random_state=0).fit(X), X)
    call = net.predict if method == "predict" else neonxc.NEON(net).attribute

    def run() -> None:
        for _ in range(CALLS_OF_ROW):
            call(row)

    return run


def tensorboard_sheet() -> Run:
    """Prepare the sheet of 64 images in 10 clusters that training writes to TensorBoard."""
    import torch
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from sklearn.cluster import KMeans

    import neonxc
    from neonxc import plot
    from neonxc.models import FeatureExtractor, vgg_small

    class Writer:
        def add_figure(self, _tag: str, figure: Any, _step: int) -> None:
            FigureCanvasAgg(figure).draw()

        def add_histogram(self, *_: Any) -> None:
            """Do nothing."""

        add_scalar = add_histogram

    torch.manual_seed(0)
    features = FeatureExtractor(vgg_small(width=8, in_channels=3).eval(), "features.block2", pool="avg")
    images = torch.rand(64, 3, 8, 8)
    images = torch.nn.functional.interpolate(images, (64, 64), mode="bicubic").clamp(0, 1)
    model = KMeans(10, n_init=1, random_state=0).fit(features.points(images).numpy())
    net = neonxc.neuralize(model, images, features=features)
    return lambda: plot.to_tensorboard(Writer(), 0, net, images)


def surrogate_of_labels() -> Run:
    """Prepare the surrogate of the labels of 5,000 rows."""
    from sklearn.datasets import make_blobs

    import neonxc

    X, labels = make_blobs(5000, 20, centers=8, cluster_std=4.0, random_state=0)
    return lambda: neonxc.neuralize(labels=labels, X=X)


def neuralized_hdbscan() -> Run:
    """Prepare the network of an HDBSCAN of 20,000 rows."""
    from sklearn.cluster import HDBSCAN
    from sklearn.datasets import make_blobs

    import neonxc

    X, _ = make_blobs(20_000, 20, centers=8, cluster_std=2.0, random_state=0)
    model = HDBSCAN(min_cluster_size=30, copy=True).fit(X)
    return lambda: neonxc.neuralize(model, X)


CALLS: list[tuple[str, Callable[[], Run], float]] = [
    ("TensorBoard's sheet, 64 images, 10 clusters", tensorboard_sheet, 0.3),
    ("attribute one row of a frame, 100 times", partial(of_one_row, "attribute", "frame"), 0.1),
    ("attribute one row of an array, 100 times", partial(of_one_row, "attribute", "array"), 0.05),
    ("attribute one row of a tensor, 100 times", partial(of_one_row, "attribute", "tensor"), 0.04),
    ("predict one row of an array, 100 times", partial(of_one_row, "predict", "array"), 0.03),
    ("surrogate of labels, 5,000 x 20", surrogate_of_labels, 4.5),
    ("neuralize HDBSCAN, 20,000 x 20", neuralized_hdbscan, 2.5),
]
