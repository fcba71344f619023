"""Measures of explanations and of clusterings."""

import torch
from torch import nn

import neonxc
from neonxc import evaluation as ev
from neonxc import lrp
from neonxc.evaluation import methods
from neonxc.models import WordVectors

from .data import CENTERS, IMAGES, LABELS, POINTS, TEXTS, WEIGHT, X, Y, features, kmeans
from .table import entry


def curves(found):
    return [found.auc, found.auc_stderr, found.auc_per_input, found.curve, found.logit_curve, found.known]


def explained(at):
    x = at(X)
    net = neonxc.neuralize(at(CENTERS), x)
    return net, x, neonxc.NEON(net).attribute(x)


@entry("evaluation.pixel_flipping evaluation.Flipping evaluation.ZeroImputer evaluation.MeanImputer")
def flipping(at):
    net, x, relevance = explained(at)
    found = [
        ev.pixel_flipping(net, x, relevance, imputer)
        for imputer in (ev.ZeroImputer(), ev.MeanImputer(x), ev.MeanImputer(POINTS))
    ]
    groups = at(torch.tensor([0, 1, 1]))
    for options in (
        {"mode": "remove"},
        {"groups": groups},
        {"groups": [0, 1, 1], "target": at(Y)},
        {"order": "least", "target": 1},
    ):
        found.append(ev.pixel_flipping(net, x, relevance, ev.ZeroImputer(), **options))
    linear = at(nn.Linear(3, 3).double().requires_grad_(False))
    torch.nn.init.eye_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    return [curves(one) for one in [*found, ev.pixel_flipping(linear, x, relevance, ev.MeanImputer(x))]]


@entry("evaluation.pixel_flipping evaluation.KDEImputer evaluation.Imputer", draws=True)
def flipping_with_draws(at):
    net, x, relevance = explained(at)
    imputers = [None, ev.KDEImputer(x), ev.KDEImputer(POINTS, 0.5)]
    return [curves(ev.pixel_flipping(net, x, relevance, one, repeats=2)) for one in imputers]


@entry("evaluation.pixel_flipping evaluation.BlurImputer")
def flipping_of_images(at):
    x = at(IMAGES)
    net = nn.Sequential(nn.Flatten(), neonxc.neuralize(at(IMAGES[:2].flatten(1))))
    options = ({}, {"groups": "channels"}, {"groups": 4}, {"mode": "remove", "steps": 5})
    return [curves(ev.pixel_flipping(net, x, x - 0.5, ev.BlurImputer(2.0), **one)) for one in options]


@entry(
    "evaluation.pixel_flipping evaluation.WordImputer evaluation.compare evaluation.methods.word_methods",
    draws=True,
)
def flipping_of_words(at):
    words = at(WordVectors(["cat", "dog", "sun", "moon"], torch.randn(4, 3, dtype=torch.float64)))
    net = neonxc.neuralize(kmeans(2).fit(words.points(TEXTS).cpu().numpy()), TEXTS, words)
    ids = at(words.encode(TEXTS))
    relevance = neonxc.NEON(net).attribute(ids)
    found = []
    for imputer in (None, ev.WordImputer(ids), ev.WordImputer(words.encode(TEXTS))):
        found.append(curves(ev.pixel_flipping(net, ids, relevance, imputer, repeats=2)))
    table = methods.word_methods(ev.WordImputer(ids))
    return [*found, compared(ev.compare(net, ids, table, repeats=2)), compared(ev.compare(net, ids, repeats=2))]


def compared(found):
    return [{name: curves(one) for name, one in some.items()} for some in (found.results, found.reversed)]


@entry(
    "evaluation.compare evaluation.Comparison evaluation.methods.default_methods evaluation.methods.neon "
    "evaluation.methods.nca evaluation.methods.random evaluation.methods.squared "
    "evaluation.methods.gradient evaluation.methods.sensitivity evaluation.methods.gradient_x_input",
    draws=True,
)
def comparison(at):
    net, x, _ = explained(at)
    found = [ev.compare(net, x[:8], repeats=2), ev.compare(net, x[:8], baseline=at(X.mean(0)), repeats=2)]
    found.append(
        ev.compare(net, x[:8], {"all alike": at(torch.ones(8, 3)), "NEON": methods.neon}, ev.MeanImputer(x))
    )
    assert str(found[0])
    return [compared(one) for one in found]


@entry("evaluation.methods.neon_with evaluation.methods.integrated_gradients evaluation.methods.pda")
def single_methods(at):
    net, x, _ = explained(at)
    target = at(Y)
    some = at(X.mean(0))
    table = [
        methods.neon_with(beta=2.0),
        methods.integrated_gradients(4),
        methods.integrated_gradients(4, X.mean(0)),
    ]
    table += [methods.pda(), methods.pda(ev.MeanImputer(x), "indicator", groups=torch.tensor([0, 1, 1]))]
    table += [
        methods.integrated_gradients(4, some),
        methods.neon,
        methods.gradient,
        methods.sensitivity,
        methods.squared,
    ]
    return [method(net, x, target) for method in table]


@entry("evaluation.methods.shapley_sampling", draws=True)
def methods_that_draw(at):
    net, x, _ = explained(at)
    groups = torch.tensor([0, 1, 1])
    table = [methods.shapley_sampling(2), methods.shapley_sampling(2, at(groups), baseline=at(X.mean(0)))]
    table += [methods.pda(ev.KDEImputer(x), repeats=2), methods.random()]
    return [method(net, x, at(Y)) for method in table]


@entry("evaluation.calibrate_by_flipping evaluation.Calibration", draws=True)
def calibration(at):
    net, x, _ = explained(at)
    found = ev.calibrate_by_flipping(net, x, repeats=2, factors=(0.5, 1.0))
    return [found.betas, found.auc_per_input, str(found) != ""]


@entry("evaluation.choose_k evaluation.Choice")
def number_of_clusters(at):
    found = ev.choose_k(at(X), (2, 3))
    return [found.to_frame(), found.k, found.reason]


@entry("evaluation.null_reference evaluation.NullReference")
def tables_without_clusters(at):
    found = ev.null_reference(kmeans(), at(X), 3, sample_weight=at(WEIGHT))
    return [found.to_frame(), found.explained, found.reference, found.evidence, found.above]


@entry("evaluation.separation evaluation.Separation")
def separated(at):
    found = ev.separation(at(X), at(Y))
    return [found.to_frame(), found.rows, found.sentences()]


@entry(
    "evaluation.kmeans_cost evaluation.kcenter_cost evaluation.cost_ratio evaluation.surrogate_cost "
    "evaluation.label_agreement evaluation.clustering_accuracy evaluation.interpretability "
    "evaluation.interpretabilities evaluation.wad evaluation.waes"
)
def costs(at):
    x = at(X)
    y = at(Y)
    weight = at(WEIGHT)
    centers = at(CENTERS)
    other = at(Y.roll(5))
    tree = neonxc.trees.IMM(3).fit(x, centers=centers).tree_
    found = [
        ev.kmeans_cost(x, y),
        ev.kmeans_cost(x, LABELS, weight),
        ev.kcenter_cost(x, y),
        ev.kcenter_cost(x, y, "gower"),
    ]
    found += [
        ev.cost_ratio(x, other, y),
        ev.cost_ratio(x, other, centers, weight),
        ev.cost_ratio(x, y, CENTERS.numpy()),
    ]
    found += [ev.surrogate_cost(x, y, centers, weight), ev.surrogate_cost(x, tree.apply(x), CENTERS.tolist())]
    found += [ev.label_agreement(y, other), ev.clustering_accuracy(y, other), ev.interpretability(y, other)]
    return [*found, ev.interpretabilities(y, other), ev.wad(tree), ev.waes(tree)]


@entry("evaluation.sanity evaluation.Sanity lrp.presets.zero_gamma")
def sanity_checks(at):
    x = at(IMAGES)
    net = at(features())
    pooled = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    explained = neonxc.neuralize(pooled(x).detach()[:2], x, pooled)
    chosen = {"NEON": methods.neon, "zero": methods.neon_with(lrp.presets.zero_gamma())}
    found = [ev.sanity(explained, x, chosen), ev.sanity(neonxc.neuralize(at(CENTERS), at(X)), at(X))]
    return [[one.per_input, one.rows_, one.to_frame()] for one in found]


@entry("evaluation.segmentation_match evaluation.SegmentationMatch")
def segmentation(at):
    x = at(IMAGES[:2])
    net = at(features())
    points = net(x).detach().permute(0, 2, 3, 1).flatten(0, 2)
    model = kmeans(2).fit(points.cpu().numpy())
    maps = neonxc.NEON(neonxc.neuralize(model, x, net)).heatmaps(x)
    masks = torch.zeros(2, 2, 8, 8, dtype=torch.bool)
    masks[:, 0, :, :4] = True
    masks[:, 1, :, 4:] = True
    found = [ev.segmentation_match(maps, one) for one in (at(masks), masks, [at(masks[0]), masks[1].numpy()])]
    return [[one.score_per_image, one.pairs, one.cosines] for one in found]
