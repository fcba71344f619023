"""Clusterings that are fitted on the device, and networks of all families."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import cluster
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import neonxc
from neonxc.evaluation import ZeroImputer, pixel_flipping
from neonxc.head import bisecting_head, centroid_head, linear_head, with_noise
from neonxc.models import SCAN, BetaInterpretable, KCenter, KernelKMeans, StronglyInterpretable, patterns
from neonxc.models.scan import RandomWarp
from neonxc.trees import IMM, KernelExKMC

from .data import CENTERS, IMAGES, LABELS, POINTS, TEXTS, WEIGHT, X, Y, kmeans
from .table import entry


class Embedded(nn.Module):
    """DEC's way: a module with centers."""

    def __init__(self):
        super().__init__()
        self.cluster_centers = nn.Parameter(CENTERS.clone())

    def forward(self, x):
        return 1 / (1 + torch.cdist(x, self.cluster_centers).square())


def linear():
    torch.manual_seed(0)
    return nn.Linear(3, 4).double()


# what is explained, and how it is called with the points; fitted on the CPU, as scikit-learn's are
FAMILIES = {
    "KMeans": kmeans,
    "MiniBatchKMeans": lambda: cluster.MiniBatchKMeans(3, n_init=1, random_state=0),
    "BisectingKMeans": lambda: cluster.BisectingKMeans(4, random_state=0),
    "MeanShift": lambda: cluster.MeanShift(bandwidth=2.0),
    "AffinityPropagation": lambda: cluster.AffinityPropagation(random_state=0),
    "Birch": lambda: cluster.Birch(n_clusters=3, threshold=0.8),
    "BayesianGaussianMixture": lambda: BayesianGaussianMixture(n_components=3, random_state=0),
    "KernelKMeans": lambda: KernelKMeans(3, 2, random_state=0),
    "classical kernel k-means": lambda: KernelKMeans(3, objective="feature", random_state=0),
    "KCenter": lambda: KCenter(3),
    "IMM": lambda: IMM(3, random_state=0),
    "KernelExKMC": lambda: KernelExKMC(3, random_state=0),
    "DBSCAN": lambda: cluster.DBSCAN(1.5),
    "agglomerative": lambda: cluster.AgglomerativeClustering(3),  # one for all that remember labels alone
    "pipeline": lambda: make_pipeline(StandardScaler(), PCA(2), kmeans()),
    "pipeline with a tree": lambda: make_pipeline(StandardScaler(), IMM(3, random_state=0)),
}
FAMILIES |= {
    f"GaussianMixture, {kind}": partial(GaussianMixture, 3, covariance_type=kind, random_state=0)
    for kind in ("full", "tied", "diag", "spherical")
}


def explained(net, x, at):
    """All that a network of points and its explanation say."""
    neon = neonxc.NEON(net)
    found = [net(x), net.predict(x), net.assign(x) == net.noise_position]
    found += [net.beta, net.heuristic_beta(x, "least")]
    found += [neon.attribute(x), neon.attribute(x, target=1), neon.attribute(x, 1, 0), neon.residual(x)]
    found += [neon.attribute(x, at(torch.arange(len(x)) % 2)), neon.attribute((x,))]
    summary = neon.summary(x)
    return [*found, summary.relevance, summary.prototypes, net.batch(x).tensor]


def neuralized(make, at):
    model = make().fit(POINTS)
    x = at(X)
    moved = at(neonxc.neuralize(model, POINTS))
    return [
        *explained(neonxc.neuralize(model, x), x, at),
        moved(x),
        moved.predict(x),
        neonxc.NEON(moved).attribute(x),
    ]


SAME_HEADS = {"MiniBatchKMeans", "MeanShift", "AffinityPropagation"}  # as that of KMeans
for name, make in FAMILIES.items():
    covers = "neuralize NEON NeuralizedClustering ClusterSummary"
    entry(covers, name=f"neuralize: {name}", slow=name in SAME_HEADS)(partial(neuralized, make))


@entry("neuralize")
def neuralized_tensors(at):
    x = at(X)
    found = []
    modules = [linear(), nn.Sequential(linear(), nn.Softmax(1)), Embedded()]
    for model in (at(CENTERS), CENTERS.numpy(), *map(at, modules)):
        found.append(explained(neonxc.neuralize(model, x), x, at))
    found.append(explained(neonxc.neuralize(at(linear())), x, at))
    return found


@entry("head.centroid_head head.linear_head head.bisecting_head head.with_noise NeuralizedClustering")
def heads(at):
    centers = at(CENTERS)
    x = at(X)
    of_two = at(torch.tensor([0, 1, 1]))
    weights = at(torch.tensor([0.0, -1.0, -0.5]).double())
    made = [centroid_head(centers), centroid_head(centers, of_two), linear_head(centers)]
    made += [centroid_head(centers, of_two, gamma=0.5, log_weights=weights), linear_head(centers, centers[:, 0])]
    made.append(bisecting_head([(0, -1), (1, 2)], centers[:2], centers[1:]))
    radius, space, shares = (at(torch.full((3,), value, dtype=torch.float64)) for value in (4.0, 1.0, 1 / 3))
    nets = [neonxc.NeuralizedClustering(head) for head in made]
    nets.append(neonxc.NeuralizedClustering(with_noise(made[0], radius, space, shares), classes=[0, 1, 2, -1]))
    return [explained(net, x, at) for net in nets]


@entry("neuralize")
def neuralized_labels(at):
    x = at(X)
    with pytest.warns(UserWarning, match="surrogate"):  # of few points
        nets = [neonxc.neuralize(labels=labels, X=x) for labels in (at(Y), LABELS)]
    return [explained(net, x, at) for net in nets]


@entry("neuralize NEON")
def other_types_of_numbers(at):
    net = neonxc.neuralize(at(CENTERS), at(X))
    found = []
    for x in (at(X).float(), at(X).half(), (at(X) * 3).long()):
        found += [net.predict(x), neonxc.NEON(net).attribute(x), neonxc.NEON(net).summary(x).relevance]
    return [*found, at(neonxc.neuralize(kmeans().fit(POINTS))).float()(at(X).float())]


@entry("neuralize")
def soft_clusterings(at):
    x = at(X)
    models = (kmeans().fit(POINTS), GaussianMixture(3, random_state=0).fit(POINTS), at(linear()))
    nets = [
        neonxc.neuralize(models[0], x, stiffness=0.5),
        neonxc.neuralize(models[0], x, stiffness=0.5, threshold=0.6),
    ]
    nets += [neonxc.neuralize(model, x, threshold=0.7) for model in models[1:]]
    return [explained(net, x, at) for net in nets]


@entry("neuralize NEON")
def table_with_categories(at):
    frame = pd.DataFrame(POINTS, columns=["a", "b", "c"]).assign(d=np.where(LABELS == 1, "x", "y"))
    frame.loc[::7, "a"] = np.nan
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    pipe = make_pipeline(make_column_transformer((numbers, ["a", "b", "c"]), (OneHotEncoder(), ["d"])), kmeans())
    net = at(neonxc.neuralize(pipe.fit(frame), frame))
    neon = neonxc.NEON(net)
    x = net.batch(frame).tensor
    found = [net.calibrate(frame).beta, net.predict(frame), neon.attribute(frame), neon.summary(frame).relevance]
    flipped = pixel_flipping(net, frame, neon.attribute(frame), ZeroImputer()).curve
    return [*found, x, net(x), neon.attribute(x), flipped]


@entry("neuralize NEON highlights")
def texts_behind_a_vectorizer(at):
    pipe = make_pipeline(TfidfVectorizer(), kmeans()).fit(TEXTS)
    net = at(neonxc.neuralize(pipe, TEXTS))
    neon = neonxc.NEON(net)
    relevance = neon.attribute(TEXTS)
    sparse = pipe[0].transform(TEXTS)
    counts = at(neonxc.neuralize(pipe[1], sparse))
    return [
        *(net.predict(TEXTS), net.calibrate(TEXTS).beta, relevance, neon.summary(TEXTS).relevance),
        [str(one) for one in neonxc.highlights(net, TEXTS, relevance)],
        *(
            counts.predict(sparse),
            neonxc.NEON(counts).attribute(sparse),
            neonxc.NEON(counts).summary(sparse).relevance,
        ),
    ]


def kernel_kmeans(options, fitting, at):
    x = at(X)
    model = KernelKMeans(3, random_state=0, **options).fit(
        x, **{name: at(value) for name, value in fitting.items()}
    )
    found = [model.labels_, model.predict(x), model.transform(x), model.score(x), model.predict(POINTS)]
    return [*found, *explained(neonxc.neuralize(model, x), x, at)]


for name, (options, fitting) in {
    "KernelKMeans": ({"n_support": 3, "n_init": 2}, {}),
    "KernelKMeans, k-means": ({"n_support": 1, "init": "random"}, {"sample_weight": WEIGHT}),
    "KernelKMeans, weighted": ({"n_support": 3, "weighted": True}, {}),
    "KernelKMeans, in batches": ({"n_support": 2, "batch_size": 20}, {}),
    "KernelKMeans, feature": ({"objective": "feature"}, {"sample_weight": WEIGHT}),
    "KernelKMeans, labels": ({"n_support": 3}, {"labels": Y}),
}.items():
    entry("models.KernelKMeans", name=name, draws=True)(partial(kernel_kmeans, options, fitting))


@entry("models.KCenter models.BetaInterpretable models.StronglyInterpretable models.patterns")
def interpretable(at):
    x = at(X)
    foi = at((X[:, 0] > 1).long())
    found = []
    models = [
        KCenter(3),
        KCenter(3, "cosine", init="random", random_state=0),
        KCenter(3, "gower"),
        KCenter(3, "canberra"),
    ]
    for model in models:
        model.fit(x)
        found += [model.labels_, model.cluster_centers_, model.predict(x), model.score(x)]
    found += explained(neonxc.neuralize(models[0], x), x, at)
    strong = StronglyInterpretable(3).fit(x, foi=foi)
    found += [strong.labels_, strong.predict(x, foi=foi), strong.cluster_centers_]
    far = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    found.append(BetaInterpretable(3, 0.6, metric="precomputed").fit(far, foi=foi).predict(far))
    for objective in ("kcenter", "kmeans", "kmedian"):
        model = BetaInterpretable(3, 0.6, objective, n_init=2, random_state=0).fit(x, foi=foi)
        found += [model.labels_, model.predict(x), model.score(x), model.cluster_centers_]
    return [*found, str(patterns(x, at(Y)))]


@entry("models.SCAN models.scan.RandomWarp", draws=True)
def scan(at):
    images = at(IMAGES.float().repeat(6, 1, 1, 1))
    torch.manual_seed(0)
    model = SCAN(
        2, nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()), n_neighbors=3, n_heads=2, pretext_epochs=1,
        head_epochs=1, epochs=1, self_label_epochs=1, self_label_threshold=0.1, batch_size=12, random_state=0,
    ).fit(images)  # fmt: skip
    own = SCAN(2, n_neighbors=3, n_heads=1, pretext=None, head_epochs=1, epochs=0, random_state=0)
    net = neonxc.neuralize(model, images)
    found = [
        model.labels_,
        model.predict(images),
        model.predict_proba(images),
        model.transform(images),
        net(images),
    ]
    found += [neonxc.NEON(net).attribute(images), own.fit(images).labels_, RandomWarp()(images)]
    return found
