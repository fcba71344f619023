"""Explainers by trees, and what is read off a tree."""

from functools import partial
from inspect import signature
from unittest import mock

import torch
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
import neonxc.trees
from neonxc.evaluation import agreement, wad, waes
from neonxc.trees import ExShallow, export_graphviz, export_text, plot_tree, render_rules, trade_off
from neonxc.trees.graph import as_graph, knn_graph

from .data import CENTERS, POINTS, WEIGHT, X, Y
from .table import entry


def said(tree):
    """What a tree consists of."""
    return [tree.feature, tree.threshold, tree.children, tree.samples, tree.spread, tree.bounds, export_text(tree)]


def fitted(model, x, *others):
    found = [model.labels_, model.cluster_centers_, model.predict(x), model.score(x), model.inertia_]
    found += [
        model.tree_.apply(x),
        model.tree_.predict(x),
        model.tree_.leaf_of(x).tolist(),
        str(model.tree_.rules()),
    ]
    return [*found, model.predict(POINTS), *others]


def grown(Explainer, at):
    """The ways to fit that an explainer has."""
    x = at(X)
    options = signature(Explainer).parameters
    always = {"random_state": 0, "n_trials": 3}
    few = {"max_bins": 8, "max_leaves": 5, "metric": "l1", "leaf_labels": "majority"}
    graph = (torch.cdist(X, X) < 2).double().fill_diagonal_(0)
    found = []
    net = None
    for own, fitting in (
        ({}, {}),
        (few, {"labels": Y.tolist(), "sample_weight": at(WEIGHT)}),
        ({"max_leaves": 4, "refine": True, "base": "none"}, {"labels": at(Y - 1)}),
        ({}, {"centers": at(CENTERS)}),
        ({}, {"graph": at(graph)}),
    ):
        own = always | own
        own = {name: value for name, value in own.items() if name in options}
        if fitting.keys() <= signature(Explainer.fit).parameters.keys():
            model = Explainer(3, **own).fit(x, **fitting)
            found += fitted(model, x)
            net = neonxc.neuralize(model, x) if len(model.tree_.label.unique()) > 2 else net  # -1 and two labels
    if net is None:  # too few points for more than one cluster
        return found
    neon = neonxc.NEON(net)
    found += [net(x), net.predict(x), neon.attribute(x), neon.attribute(x, 0, 1), neon.thresholds(x), net.beta]
    return [*found, neon.summary(x).relevance]


SAME_SEARCH = {"EMN", "KernelIMM", "KernelExpand"}  # as those of IMM and KernelExKMC
for name in neonxc.trees.__all__:
    Explainer = getattr(neonxc.trees, name)
    if hasattr(Explainer, "fit"):
        entry(f"trees.{name}", name=name, slow=name in SAME_SEARCH)(partial(grown, Explainer))


@entry("trees.IMM trees.EMN trees.ExGreedy trees.ExKMC trees.CART")
def columns_of_many_values(at):
    """Which are searched bin by bin."""
    X = torch.randn(600, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = at(X)
    centers = at(X[:4] * 2)
    trees = neonxc.trees
    models = [trees.IMM(4), trees.EMN(4), trees.ExGreedy(4), trees.ExKMC(4, max_leaves=6), trees.CART(4)]
    with mock.patch("neonxc.trees.cuts.codes.HISTOGRAM", 0):  # as of columns of many more values
        return [model.fit(x, centers=centers).labels_ for model in models]


@entry("trees.IMM trees.KernelIMM trees.ExShallow")
def references_and_features(at):
    x = at(X)
    medians = neonxc.trees.IMM(3, metric="l1", random_state=0).fit(x)
    taylor = neonxc.trees.KernelIMM(3, features="taylor", random_state=0).fit(x)
    pipe = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0))
    scaled = ExShallow(3, reference=pipe, random_state=0).fit(x.float(), sample_weight=at((WEIGHT > 1.2).double()))
    return [*fitted(medians, x), *fitted(taylor, x), scaled.labels_, scaled.score(x), scaled.predict(x.half())]


@entry(
    "trees.export_text trees.export_graphviz trees.plot_tree rules.Rules rules.render_rules trees.Rules "
    "trees.render_rules trees.ThresholdTree"
)
def rules_of_a_tree(at):
    x = at(X)
    labels = at(Y)
    tree = ExShallow(3, random_state=0).fit(x, labels=labels).tree_
    rules = tree.rules()
    found = [
        rules.predict(x),
        str(rules.measure(x, labels)),
        str(rules.measure(x, labels, at(WEIGHT))),
        render_rules(tree),
    ]
    found += [export_text(tree), export_graphviz(tree), bool(plot_tree(tree))]
    return [*found, wad(tree), waes(tree), tree.to_sklearn().predict(POINTS)]


@entry("trees.trade_off trees.TradeOff trees.Candidate")
def choice_of_a_tree(at):
    x = at(X)
    models = {"IMM": neonxc.trees.IMM(3, random_state=0), "shallow": ExShallow(3, random_state=0)}
    found = [
        trade_off(x, labels=at(Y), candidates=models),
        trade_off(x, centers=at(CENTERS), candidates=models, sample_weight=at(WEIGHT)),
    ]
    return [[some.to_markdown(), [one.explainer.labels_ for one in some]] for some in found]


@entry("trees.graph.as_graph trees.graph.knn_graph trees.graph.Graph")
def graphs(at):
    near = knn_graph(at(X), 4)
    dense = as_graph(at((torch.cdist(X, X) < 2).double().fill_diagonal_(0)), len(X))
    pair = as_graph((at(torch.tensor([[0, 1], [1, 2]])), at(torch.ones(2))), 3, device=at.device)
    return [[g.degree, g.take(at(torch.arange(2))).degree] for g in (near, dense.to(at.device), pair)]


@entry("evaluation.agreement evaluation.Agreement")
def network_and_tree(at):
    x = at(X)
    net = neonxc.neuralize(at(CENTERS), x)
    tree = ExShallow(3, random_state=0).fit(x, labels=at(Y))
    found = agreement(net, tree, x)
    return [found.network, found.tree, found.correlation, found.same, found.rows, str(found.to_frame())]
