"""IMM, EMN and CART as sparse cuts of two graphs (SpEx paper, Section 3).

By brute force over all cuts of a node. The vertices of a node are its points and, for IMM and EMN, its centers.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spex_witnesses import (
    centers_clique,
    crossing,
    independent_sets,
    inside,
    node_cuts,
    side,
    single_edge,
    sparsity,
    stars,
)
from tree_witnesses import cuts, data, emn_ratio, gini, inner_nodes, labels_below, mistakes, parted, separating

from neonxc.trees import CART, EMN, IMM, SpExClique

NEAR = 1 + 1e-9
seeds = st.integers(0, 2**32 - 1)


@st.composite
def clusterings(draw, least=2, most=5):
    """Points with few or many distinct values, in clusters whose means differ."""
    case = data(
        draw(seeds),
        draw(st.integers(4, 24)),
        draw(st.integers(1, 3)),
        draw(st.integers(least, most)),
        kind=draw(st.sampled_from(["grid", "fine"])),
        random_labels=draw(st.booleans()),
    )
    assume(len(np.unique(case.centers, axis=0)) == case.k)
    return case


def attained(scores, best=min):
    """Where the best score is attained, but for rounding."""
    scores = np.array(scores)
    return np.isclose(scores, best(scores), rtol=1e-9, atol=0)


# --- IMM (Section 3.1) -------------------------------------------------------------------------------------


def farthest(centers):
    """Two centers at the greatest Manhattan distance."""
    far = np.abs(centers[:, None] - centers).sum(2)
    return np.unravel_index(far.argmax(), far.shape)


def counted(labels, own, left, centers_left):
    """Mistakes, by their definition, without a graph: points parted from a center that is in the node."""
    place = {int(c): i for i, c in enumerate(own)}
    still = np.isin(labels, own)
    with_center = np.array([centers_left[place[int(c)]] for c in labels[still]], dtype=bool)
    return mistakes(with_center, left[still], np.ones(still.sum()))


def nodes_of(tree, case):
    """(points, labels, clusters whose centers are there, centers) of every inner node."""
    for node, rows, _ in inner_nodes(tree, case.values):
        own = np.sort(labels_below(tree, node))
        yield case.values[rows], case.labels[rows], own, case.centers[own]


@given(clusterings())
def test_modified_imm_takes_the_sparsest_cut_of_stars_and_the_edge_of_the_farthest_centers(case):
    for X, labels, own, centers in nodes_of(IMM().fit(case.X, labels=case.labels).tree_, case):
        s, t = farthest(centers)
        star, edge = stars(labels, own), single_edge(len(X) + len(own), len(X) + s, len(X) + t)
        all_cuts = cuts(X, centers)
        sides = [parted(X, centers, cut) for cut in all_cuts]
        modified = [counted(labels, own, left, right) if right[s] != right[t] else np.inf for left, right in sides]
        sparsities = [sparsity(star, edge, np.concatenate(both)) for both in sides]
        assert np.array_equal(attained(modified), attained(sparsities))
        for both, score in zip(sides, modified, strict=True):
            assert counted(labels, own, *both) == crossing(star, np.concatenate(both))
            assert score >= counted(labels, own, *both)


@given(clusterings(most=2))
def test_imm_is_its_modified_form_for_two_clusters(case):
    tree = IMM().fit(case.X, labels=case.labels).tree_
    star, edge = stars(case.labels, [0, 1]), single_edge(len(case.X) + 2, len(case.X), len(case.X) + 1)
    vertices = np.concatenate([case.values, case.centers])
    best = min(
        sparsity(star, edge, np.concatenate(parted(case.values, case.centers, cut)))
        for cut in cuts(case.values, case.centers)
    )
    S = vertices[:, int(tree.feature[0])] <= float(tree.threshold[0])
    assert sparsity(star, edge, S) == best


@given(clusterings())
def test_least_mistakes_times_the_greatest_distance_of_centers_is_at_most_the_cost(case):
    """Lemma A.10 at one node, with its cost in Manhattan distances, for IMM as well as for its modified form."""
    tree = IMM().fit(case.X, labels=case.labels).tree_
    for X, labels, own, centers in nodes_of(tree, case):
        s, t = farthest(centers)
        sides = [parted(X, centers, cut) for cut in separating(X, centers)]
        least = min(counted(labels, own, left, right) for left, right in sides if right[s] != right[t])
        still = np.isin(labels, own)
        cost = np.abs(X[still] - case.centers[labels[still]]).sum()
        assert least * np.abs(centers[s] - centers[t]).sum() <= cost * NEAR
    s, t = farthest(case.centers)
    cost = np.abs(case.values - case.centers[case.labels]).sum()
    assert float(tree.mistakes[0]) * np.abs(case.centers[s] - case.centers[t]).sum() <= cost * NEAR


# --- EMN (Section 3.2) -------------------------------------------------------------------------------------


@given(clusterings())
def test_emn_takes_the_sparsest_cut_of_stars_and_the_clique_of_centers_but_for_a_factor_of_two(case):
    tree = EMN().fit(case.X, labels=case.labels).tree_
    for (node, rows, _), (X, labels, own, centers) in zip(
        inner_nodes(tree, case.values), nodes_of(tree, case), strict=True
    ):
        star, clique = stars(labels, own), centers_clique(len(X), len(own))
        k, still = len(own), np.isin(labels, own)
        place = np.searchsorted(own, labels[still])

        def ratio(left, right, still=still, place=place):
            return emn_ratio(right[place], left[still], np.ones(still.sum()), right)

        sides = [parted(X, centers, cut) for cut in separating(X, centers)]
        ratios = np.array([ratio(*both) for both in sides])
        for (left, right), value in zip(sides, ratios, strict=True):
            S, lesser = np.concatenate([left, right]), min(right.sum(), (~right).sum())
            assert lesser / 2 <= crossing(clique, S) / k <= lesser
            assert value <= crossing(star, S) / (crossing(clique, S) / k) <= 2 * value
        sparsities = np.array([sparsity(star, clique, np.concatenate(both)) for both in sides])
        assert ratios[sparsities.argmin()] <= 2 * ratios.min() * NEAR

        values = X[:, int(tree.feature[node])], centers[:, int(tree.feature[node])]
        chosen = [part <= float(tree.threshold[node]) for part in values]
        assert len(rows) == len(X)
        assert ratio(*chosen) == pytest.approx(ratios.min(), abs=1e-12)
        assert sparsity(star, clique, np.concatenate(chosen)) <= 2 * sparsities.min() * NEAR


# --- CART (Section 3.3) ------------------------------------------------------------------------------------


def impurity(H, S, size):
    """Two-way impurity, Eq. 5; `size` of a side: its points, or (the modified form) its volume in H."""
    return 2 / size(H, S | ~S) * (inside(H, S) / size(H, S) + inside(H, ~S) / size(H, ~S))


def points(H, S):
    return S.sum()


def toy():
    """Figure 2 of the paper, to the right: two large clusters side by side, above both a small and wide one."""
    x = np.concatenate([np.linspace(-2, -1, 40), np.linspace(1, 2, 40), np.linspace(-2, 2, 10)])
    return np.column_stack([x, np.repeat([0.0, 0.0, 1.0], [40, 40, 10])]), np.repeat([0, 1, 2], [40, 40, 10])


@given(clusterings())
def test_impurity_is_weight_inside_the_sides_of_independent_sets(case):
    X, labels, n = case.values, case.labels, len(case.X)
    H, one = independent_sets(labels), np.ones(n)
    scores = []
    for cut in node_cuts(X):
        S = side(X, cut)
        by_shares = (gini(labels[S], one[S]) + gini(labels[~S], one[~S])) / n
        assert impurity(H, S, points) == pytest.approx(by_shares, abs=1e-12)
        scores.append(impurity(H, S, points))
    tree = CART(max_leaves=2).fit(case.X, labels=labels).tree_
    if tree.n_leaves == 2:
        S = X[:, int(tree.feature[0])] <= float(tree.threshold[0])
        assert impurity(H, S, points) == pytest.approx(min(scores), abs=1e-12)


def test_cart_parts_the_large_clusters_where_spex_finds_a_cut_without_mistakes():
    X, labels = toy()
    tree = CART(3).fit(X, labels=labels)
    assert int(tree.tree_.feature[0]) == 0  # vertical, through the wide one
    assert -1 < float(tree.tree_.threshold[0]) < 1
    assert (tree.labels_ != labels).any()
    for weights in ("unit", "size"):
        found = SpExClique(3, clique_weights=weights).fit(X, labels=labels)
        assert (int(found.tree_.feature[0]), float(found.tree_.threshold[0])) == (1, 0.5)  # horizontal
        assert np.array_equal(found.labels_, labels)
