"""Reports to try the page on: each is made once, by neonxc.explain on small data, and is to be read only."""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import cycle
from unittest import mock

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc.models import FeatureExtractor

TEXTS = ["the sun and the moon shine", "salt the soup, not the sun", "a car and its engine", "stir the soup"] * 6
HOSTILE = [
    "<script>alert(1)</script>",
    "\"quoted\" 'name' & \\ {{ 7 * 7 }}",
    "two\nlines </script><!-- <script>",
    "שלום עולם \u202eevil",
    "🦊🏳️‍🌈 fox \u2028 end",
    "a" * 120,
    "\ud800 half \x00 nothing",
]
KINDS = ["wine", "many", "photos", "regions", "texts", "hostile", "noise"]
MEANT = {"kind", "key", "created", "marks"}  # texts that the page compares with its own
BESIDE = {"verdict", "figures", "warnings", "notes", "effect", "axes", "trust", "reproduce"}


@cache
def report(name):
    """The report that one of the functions here makes."""
    torch.manual_seed(0)
    return globals()[name]()


WINE = load_wine(as_frame=True).data[::2].reset_index(drop=True)


@cache
def model():
    return make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(WINE)


def wine():
    return neonxc.explain(model(), WINE, title="Wine")


def many(k=24, n=150, d=11):
    """Many clusters, and columns with long names, one of them with categories."""
    rng = np.random.default_rng(0)
    names = [f"measurement_{j:02d}_of_the_quarterly_customer_survey" if j % 5 == 1 else f"x{j}" for j in range(d)]
    X = pd.DataFrame(rng.normal(0, 3, (k, d))[np.arange(n) % k] + rng.normal(0, 1, (n, d)), columns=names)
    X["region"] = rng.choice(["North", "South and the islands", "East", "West"], n)
    # Whether clusters are separated is asked of all pairs of neighbours, which takes seconds
    unasked = mock.Mock(side_effect=ValueError("is not asked here"))
    with mock.patch("neonxc.evaluation.real.separation", unasked):
        return neonxc.explain(X, clusters=k, fast=True)


def extractor(**options):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.ReLU()).eval()
    return FeatureExtractor(net, "1", mean=(0.0,) * 3, std=(1.0,) * 3, **options)


def images():
    x = torch.rand(12, 3, 16, 16) * 0.2
    x[:6, 0] += 0.7
    return x


def photos():
    """Photos in clusters by their hue: whole images."""
    features = extractor(pool="avg")
    model = KMeans(2, n_init=1, random_state=0).fit(features.points(images()).numpy())
    return neonxc.explain(model, images(), features, row_names=[f"IMG_{i}.jpg" for i in range(12)])


def regions():
    """Clusters of the locations of one photo."""
    x = images()[:1]
    features = extractor()
    model = KMeans(3, n_init=1, random_state=0).fit(features.points(x).numpy())
    return neonxc.explain(model, x, features, fast=True)


def texts():
    """Texts with highlighted words."""
    model = make_pipeline(TfidfVectorizer(), KMeans(3, n_init=1, random_state=0)).fit(TEXTS)
    return neonxc.explain(model, TEXTS, fast=True)


def noise():
    """Three blobs, and noise with a card of its own."""
    X = make_blobs(40, centers=3, cluster_std=0.6, random_state=0)[0]
    X[:5] = [[9, 9], [-9, 9], [9, -9], [-9, -9], [0, 12]]
    return neonxc.explain(DBSCAN(1.2).fit(X), pd.DataFrame(X, columns=["a", "b"]), fast=True)


def hostile():
    """Texts that want to be obeyed, wherever there is a text, and a value that JSON does not know."""
    made = renamed(report("wine"), cycle(HOSTILE), MEANT)
    found = made.description
    points = replace(found.points, names=np.resize(HOSTILE, len(found.points.rows)).tolist())
    columns = [replace(found.columns[0], mean=np.nan, spread=np.inf), *found.columns[1:]]
    # What is ours is short: names of figures, curves and parameters
    figures = [replace(one, label=HOSTILE[0], text=HOSTILE[4]) for one in found.figures]
    flipping, cost = (
        [replace(one, name=HOSTILE[0], text="") for one in lines]
        for lines in (found.trust.flipping, found.trust.cost)
    )
    trust = replace(found.trust, flipping=flipping, cost=cost)
    pairs = [(HOSTILE[2], HOSTILE[1]), ("a", HOSTILE[0])]
    reproduce = replace(found.reproduce, versions=pairs, parameters=pairs)
    other = {"points": points, "columns": columns, "figures": figures, "trust": trust, "reproduce": reproduce}
    return replace(made, description=replace(found, **other))


def numbered():
    """Points whose names are the numbers of other rows, as in a data frame of which rows were dropped."""
    made = report("wine")
    points = made.description.points
    names = [str(row + 1) for row in points.rows]
    return replace(made, description=replace(made.description, points=replace(points, names=names)))


def long(name="wine"):
    """Names without a blank that are wider than every screen."""
    return renamed(report(name), cycle(["name_" * 70]), MEANT | BESIDE)


def long_texts():
    return long("texts")


def renamed(value, texts, kept):
    """A report, or a part of it, with other texts but for those of the fields `kept`."""
    if isinstance(value, str):
        return value and next(texts)
    if isinstance(value, (list, tuple)):
        return type(value)(renamed(part, texts, kept) for part in value)
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value) if field.name not in kept]
    return replace(value, **{name: renamed(getattr(value, name), texts, kept) for name in names})
