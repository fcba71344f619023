"""Points on one device, and what was fitted to them on another: answers are where the points are."""

from functools import partial

import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import neonxc
from neonxc import evaluation as ev
from neonxc.models import SCAN, BetaInterpretable, KCenter, KernelKMeans, StronglyInterpretable
from neonxc.trees import CART, ExKMC, ExShallow, KernelExKMC

from .clusterings import FAMILIES
from .data import CENTERS, IMAGES, LABELS, POINTS, X, Y, features, kmeans, locations
from .table import entry

MODELS = {name: FAMILIES[name] for name in ("KMeans", "KernelKMeans", "KCenter")} | {
    "GaussianMixture": FAMILIES["GaussianMixture, full"],
    "ExKMC": lambda: ExKMC(3, max_leaves=4, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), kmeans()),
}


def asked(net, x):
    neon = neonxc.NEON(net)
    summary = neon.summary(x)
    found = [net.predict(x), neon.attribute(x), neon.attribute(x, 1), neon.residual(x)]
    return [*found, summary.relevance, summary.prototypes, net.calibrate(x).beta]


def network(make, at):
    """A network on the CPU asked about points on the device, and the other way round."""
    model = make().fit(POINTS)
    return [asked(neonxc.neuralize(model), at(X)), asked(at(neonxc.neuralize(model, POINTS)), POINTS)]


for name, make in MODELS.items():
    entry("neuralize NEON", name=f"a network elsewhere: {name}")(partial(network, make))


@entry("NEON")
def maps_elsewhere(at):
    net, other = (neonxc.neuralize(kmeans().fit(locations()), IMAGES, features()) for _ in range(2))
    images = at(IMAGES)
    neon = neonxc.NEON(net)
    there = neonxc.NEON(at(other))
    found = [net.predict(images), neon.attribute(images), neon.heatmaps(images), neon.summary(images).relevance]
    return [*found, there.heatmaps(IMAGES.numpy()), there.net.predict(IMAGES.numpy())]


@entry("models.KernelKMeans models.KCenter models.SCAN trees.ExShallow trees.ThresholdTree")
def models_elsewhere(at):
    x = at(X)
    images = at(IMAGES)
    found = []
    fitted = [KernelKMeans(3, 2, random_state=0), KernelKMeans(3, objective="feature", random_state=0), KCenter(3)]
    fitted += [ExShallow(3, random_state=0), CART(3, random_state=0), KernelExKMC(3, random_state=0)]
    fitted += [BetaInterpretable(3, 0.6)]
    for model in fitted:
        found += [model.fit(POINTS).predict(x), model.score(x)]
    found += [StronglyInterpretable(3).fit(POINTS, foi=LABELS).predict(x, foi=at(Y)), fitted[0].transform(x)]
    found += [fitted[3].tree_.apply(x), fitted[3].tree_.predict(x), fitted[3].tree_.rules().predict(x)]
    scan = SCAN(2, nn.Flatten(), pretext=None, n_neighbors=3, n_heads=1, head_epochs=1, epochs=0, random_state=0)
    return [*found, scan.fit(IMAGES.repeat(3, 1, 1, 1)).predict(images), scan.predict_proba(images)]


@entry("trees.ExShallow models.KernelKMeans")
def fitting_to_what_is_elsewhere(at):
    x = at(X)
    found = []
    for options in ({"labels": Y}, {"centers": CENTERS}, {"labels": LABELS, "sample_weight": torch.ones(len(X))}):
        found.append(ExShallow(3, random_state=0).fit(x, **options).labels_)
    found.append(KernelKMeans(3, 2, random_state=0).fit(x, labels=Y, sample_weight=torch.ones(len(X))).labels_)
    return [*found, ExShallow(3, random_state=0).fit(POINTS, labels=at(Y)).labels_]


@entry("evaluation.pixel_flipping evaluation.compare evaluation.agreement contrast counterfactual explain")
def results_elsewhere(at):
    x = at(X)
    tree = ExShallow(3, random_state=0).fit(POINTS, labels=LABELS)
    net = neonxc.neuralize(CENTERS, POINTS)
    relevance = neonxc.NEON(net).attribute(x)
    zero = ev.ZeroImputer()
    found = [
        ev.pixel_flipping(net, x, relevance, zero).curve,
        ev.pixel_flipping(net, x, relevance, ev.MeanImputer(x)).curve,
    ]
    found.append(
        ev.pixel_flipping(net, x, relevance, zero, target=at(Y), groups=at(torch.tensor([0, 1, 1]))).curve
    )
    found.append(ev.compare(net, x, {"NEON": ev.methods.neon, "other": relevance}, zero).results["other"].curve)
    found += [ev.agreement(net, tree, x).same, neonxc.contrast(net, x, 0, 1).relevance]
    found += [neonxc.counterfactual(net, x[:2]).points, str(neonxc.explain(net, x))]
    return [*found, ev.cost_ratio(x, LABELS, CENTERS), ev.kmeans_cost(x, Y), ev.interpretability(at(Y), Y)]
