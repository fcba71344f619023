"""What is made of explanations: contrasts, counterfactuals, reports, files, pictures."""

import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from sklearn.cluster import Birch
from sklearn.mixture import GaussianMixture
from test_markers import planted
from torch import nn

import neonxc
from neonxc import evaluation, plot
from neonxc.models import SCAN, BetaInterpretable, KCenter, KernelKMeans, StronglyInterpretable
from neonxc.trees import ExShallow

from .data import CENTERS, CORNERS, IMAGES, POINTS, X, Y, features, locations
from .table import entry


@entry("contrast Contrast")
def contrast(at):
    x = at(X)
    found = neonxc.contrast(neonxc.neuralize(at(CENTERS), x), x, 0, 1)
    return [found.relevance, found.accuracy, str(found.top())]


@entry("markers Markers")
def markers(at):
    cells = planted()
    found = neonxc.markers(cells, "type")
    return [found.to_frame()["f_beta"], found.rules.predict(at(torch.tensor(cells.X.toarray())))]


@entry(
    "name_clusters ClusterNames Evidence NameContrast evaluation.validate_names evaluation.BlindTest "
    "evaluation.StatementJudge plot.confusions"
)
def names(at):
    x = at(torch.cat([X] * 4))
    net = neonxc.neuralize(at(CENTERS), x)
    named = neonxc.name_clusters(net, x)
    asked = neonxc.name_clusters(net, x, namer=lambda evidence: evidence.statements[0].partition(" (")[0])
    plot.confusions(named)
    tested = neonxc.evaluation.validate_names(named, x, net.predict(x))
    return [str(named), named.confusions, str(asked), tested.to_frame(), tested.test.passed]


@entry("layers Layers Split plot.layers")
def layers(at):
    x = at(torch.cat([X] * 4))
    coarse = neonxc.neuralize(at(CENTERS), x).predict(x)
    found = neonxc.layers(torch.stack([coarse, 2 * coarse + (x[:, 0] > 0)], 1), x)
    plot.layers(found)
    rules = [split.rules.predict(x) for split in found.splits if split.rules is not None]
    return [str(found), found.to_frame()["kept"], *(split.codes for split in found.splits), *rules]


@entry("moves Moves Move")
def moves(at):
    x = at(X)
    found = neonxc.moves(neonxc.neuralize(at(CENTERS), x), x, x[torch.arange(len(x) - 1, -1, -1)])
    return [found.table, *(move.relevance for move in found.moves), str(found)]


@entry("compare_clusterings ClusteringComparison")
def compare_clusterings(at):
    x = at(X)
    found = neonxc.compare_clusterings(neonxc.neuralize(at(CENTERS), x), at(Y), x)
    return [found.table, found.to_frame()["jaccard"], str(found)]


def counterfactuals(models, at):
    x = at(X)
    found = []
    for model in models:
        for options in ({}, {"target": 1, "fixed": [1], "bounds": {0: (-9, 9)}, "spread": at(X.std(0))}):
            one = neonxc.counterfactual(neonxc.neuralize(model, x), x[:2], **options)
            found += [one.points, str(one)]
    return found


@entry("counterfactual Counterfactual")
def counterfactual(at):
    tree = ExShallow(3, random_state=0).fit(at(X), labels=at(Y))
    return counterfactuals([at(CENTERS), Birch(n_clusters=3, threshold=1.5).fit(POINTS), tree], at)


@entry("counterfactual", slow=True)
def counterfactual_of_curved_clusters(at):
    models = [KernelKMeans(3, 2, random_state=0), GaussianMixture(3, random_state=0)]
    return counterfactuals([model.fit(POINTS) for model in models], at)


@entry("describe explain Description Report", draws=True)
def report(at):
    x = at(X)
    net = neonxc.neuralize(at(CENTERS), x)
    page = neonxc.explain(net, x)
    described = neonxc.describe(net, x)
    return [str(page), page.to_frame(), bool(page.html()), [cluster.size for cluster in described.clusters]]


@entry("explain", draws=True, slow=True)
def report_of_a_tree(at):
    x = at(X)
    return str(neonxc.explain(ExShallow(3, random_state=0).fit(x, labels=at(Y)), x))


@entry("explain", slow=True)
def report_of_labels(at):
    with pytest.warns(UserWarning, match="surrogate"):
        return str(neonxc.explain(at(Y), at(X)))


@entry("explain", draws=True, slow=True)
def report_of_images(at):
    x = at(IMAGES)
    model = neonxc.models.KernelKMeans(3, 1, random_state=0).fit(locations())
    return str(neonxc.explain(model, x, at(features())))


def kept(made, x, at):
    """What is saved and loaded predicts the same; a network is moved back, estimators go where the points are."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved")
        for one in made:
            neonxc.save(one, path)
            again = neonxc.load(path)
            again = at(again) if isinstance(again, nn.Module) else again
            found += [one.predict(x), again.predict(x)]
    return found


@entry("save load")
def files(at):
    x = at(X)
    images = at(IMAGES)
    tree = ExShallow(3, random_state=0).fit(x, labels=at(Y))
    beta = BetaInterpretable(3, 0.6).fit(x, foi=at(Y))
    strong = StronglyInterpretable(3).fit(x, foi=at(Y))
    net = neonxc.neuralize(at(CENTERS), x)
    of_maps = neonxc.neuralize(at(CORNERS), images, at(features()))
    found = kept([tree, tree.tree_, KCenter(3).fit(x), beta, strong, net, neonxc.neuralize(tree, x)], x, at)
    with tempfile.TemporaryDirectory() as folder:
        neonxc.save(of_maps, Path(folder, "saved"))
        again = at(neonxc.load(Path(folder, "saved"), features=features()))
    return [*found, of_maps.predict(images), again.predict(images), neonxc.NEON(again).heatmaps(images)]


@entry("save load", draws=True)
def files_of_what_draws(at):
    x = at(X)
    images = at(IMAGES.repeat(3, 1, 1, 1).float())
    scan = SCAN(2, pretext=None, n_neighbors=3, n_heads=1, head_epochs=1, epochs=0, random_state=0)
    scan.fit(images)
    made = kept([scan, neonxc.neuralize(scan, images)], images, at)
    return [*made, *kept([KernelKMeans(3, 2, random_state=0).fit(x)], x, at)]


@entry("to_shap")
def shap(at):
    pytest.importorskip("shap")
    x = at(X)
    net = neonxc.neuralize(at(CENTERS), x)
    found = neonxc.to_shap(neonxc.NEON(net).attribute(x), net, x)
    return [found.values, found.base_values, found.data]


@entry(
    "plot.bars plot.summary_bars plot.overlay plot.contact_sheet plot.heatmap_limit plot.flipping_curves "
    "plot.text plot.HighlightedText"
)
def pictures(at):
    x = at(X)
    photos = at(IMAGES)
    neon = neonxc.NEON(neonxc.neuralize(at(CENTERS), x))
    relevance = neon.attribute(x)
    maps = photos[:, :2] - 0.5
    flipped = evaluation.pixel_flipping(neon.net, x, relevance, evaluation.ZeroImputer())
    figures = [plot.bars(relevance[0]), plot.summary_bars(neon.summary(x)), plot.overlay(photos[0], maps[0, 0])]
    figures += [plot.contact_sheet(photos, maps, (maps[:, 0] > 0).long()), plot.flipping_curves({"NEON": flipped})]
    return [len(figures), plot.heatmap_limit(maps), str(plot.text([["a", "b", "c"]], relevance[:1]))]


@entry("plot.to_tensorboard")
def tensorboard(at):
    writer = Mock()
    images = at(IMAGES)
    net = neonxc.neuralize(at(CORNERS), images, at(features()))
    plot.to_tensorboard(writer, 0, net, images)
    return [call.args[1] for call in writer.method_calls[1:]]
