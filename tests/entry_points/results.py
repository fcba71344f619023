"""What is made of explanations: contrasts, counterfactuals, reports, files, pictures."""

import tempfile
from pathlib import Path

import pytest
import torch
from sklearn.cluster import Birch
from sklearn.mixture import GaussianMixture
from torch import nn

import neonxc
from neonxc import evaluation, plot
from neonxc.models import KCenter, KernelKMeans
from neonxc.trees import ExShallow

from .data import CENTERS, IMAGES, POINTS, X, Y, features, locations
from .table import entry


@entry("contrast", "Contrast")
def contrast(at):
    x = at(X)
    found = neonxc.contrast(neonxc.neuralize(at(CENTERS), x), x, 0, 1)
    return [found.relevance, found.accuracy, str(found.top())]


def counterfactuals(models, at):
    x, found = at(X), []
    for model in models:
        for options in ({}, {"target": 1, "fixed": [1], "bounds": {0: (-9, 9)}, "spread": at(X.std(0))}):
            one = neonxc.counterfactual(neonxc.neuralize(model, x), x[:2], **options)
            found += [one.points, str(one)]
    return found


@entry("counterfactual", "Counterfactual")
def counterfactual(at):
    tree = ExShallow(3, random_state=0).fit(at(X), labels=at(Y))
    return counterfactuals([at(CENTERS), Birch(n_clusters=3, threshold=1.5).fit(POINTS), tree], at)


@entry("counterfactual", slow=True)
def counterfactual_of_curved_clusters(at):
    models = [KernelKMeans(3, 2, random_state=0), GaussianMixture(3, random_state=0)]
    return counterfactuals([model.fit(POINTS) for model in models], at)


@entry("explain", "Report")
def report(at):
    x, pages = at(X), []
    net = neonxc.neuralize(at(CENTERS), x)
    for given in (net, ExShallow(3, random_state=0).fit(x, labels=at(Y))):
        pages.append(neonxc.explain(given, x))
    return [[str(page), page.to_frame(), bool(page.html())] for page in pages]


@entry("explain", slow=True)
def report_of_labels(at):
    with pytest.warns(UserWarning, match="surrogate"):
        return str(neonxc.explain(at(Y), at(X)))


@entry("explain", slow=True)
def report_of_images(at):
    x = at(IMAGES)
    model = neonxc.models.KernelKMeans(3, 1, random_state=0).fit(locations())
    return str(neonxc.explain(model, x, at(features())))


@entry("save", "load")
def files(at):
    x, found = at(X), []
    made = [KernelKMeans(3, 2, random_state=0).fit(POINTS), ExShallow(3, random_state=0).fit(x, labels=at(Y))]
    made += [KCenter(3).fit(x), neonxc.neuralize(at(CENTERS), x), at(neonxc.neuralize(made[0], POINTS))]
    network = neonxc.neuralize(
        at(torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).double()), at(IMAGES), at(features())
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved")
        for one in made:
            neonxc.save(one, path)
            again = neonxc.load(path)
            again = at(again) if isinstance(again, nn.Module) else again
            found += [one.predict(x), again.predict(x)]
        neonxc.save(made[1].tree_, path)
        found.append(neonxc.load(path).predict(x))
        neonxc.save(network, path)
        again = at(neonxc.load(path, features=features()))
        found += [network.predict(at(IMAGES)), again.predict(at(IMAGES)), neonxc.NEON(again).heatmaps(at(IMAGES))]
    return found


@entry("to_shap")
def shap(at):
    pytest.importorskip("shap")
    x = at(X)
    net = neonxc.neuralize(at(CENTERS), x)
    found = neonxc.to_shap(neonxc.NEON(net).attribute(x), net, x)
    return [found.values, found.base_values, found.data]


@entry(
    *("plot.bars", "plot.summary_bars", "plot.overlay", "plot.contact_sheet", "plot.heatmap_limit"),
    *("plot.flipping_curves", "plot.text", "plot.HighlightedText"),
)
def pictures(at):
    x, photos = at(X), at(IMAGES)
    neon = neonxc.NEON(neonxc.neuralize(at(CENTERS), x))
    relevance, maps = neon.attribute(x), photos.mean(1, keepdim=True) - 0.5
    flipped = evaluation.pixel_flipping(neon.net, x, relevance, evaluation.ZeroImputer())
    figures = [plot.bars(relevance[0]), plot.summary_bars(neon.summary(x)), plot.overlay(photos[0], maps[0, 0])]
    figures += [plot.contact_sheet(photos, maps, (maps[:, 0] > 0).long()), plot.flipping_curves({"NEON": flipped})]
    return [len(figures), plot.heatmap_limit(maps), str(plot.text([["a", "b", "c"]], relevance[:1]))]
