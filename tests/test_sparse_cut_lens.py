"""IMM, EMN, CART and SpEx as sparse cuts of two graphs (SpEx paper, Sections 2 and 3, and its appendix).

By brute force over all cuts of a node. The vertices of a node are its points and, for IMM and EMN, its centers.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spex_witnesses import (
    centers_clique,
    cheeger,
    clique_adjacency,
    conductance,
    crossing,
    degree_clique,
    grow,
    independent_sets,
    inside,
    leaf_numbers,
    leaf_rows,
    node_cuts,
    normalized_cut,
    objective,
    ratio_cut,
    side,
    single_edge,
    sparsity,
    stars,
    volume,
)
from tree_witnesses import cuts, data, emn_ratio, gini, inner_nodes, labels_below, mistakes, parted, separating

from neonxc.trees import CART, EMN, IMM

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


@st.composite
def graphs(draw):
    """Points, some of them equal, and a weighted graph on them: cliques, near points, or any; isolated points."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(2, 14)), draw(st.integers(1, 3))
    X = rng.normal(size=(n, d)) * 2.0 ** rng.integers(-2, 3, (n, 1)) + 3 * rng.integers(0, 2, (n, 1))
    X[rng.random(n) < 0.2] = X[0]
    near = ((X[:, None] - X) ** 2).sum(2) < 2
    kind = draw(st.sampled_from(["cliques", "near", "any"]))
    A = {
        "cliques": clique_adjacency(rng.integers(0, 4, n), draw(st.sampled_from(["unit", "size"]))),
        "near": near * (1 - np.eye(n)),
        "any": np.triu(rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.4), 1),
    }[kind]
    A = A if kind != "any" else A + A.T
    assume(A.sum() > 0 and bool(node_cuts(X)))
    return X, A


def attained(scores, best=min):
    """Where the best score is attained, but for rounding."""
    scores = np.array(scores)
    return np.isclose(scores, best(scores), rtol=1e-9, atol=0)


# --- cuts and sparsity (Section 2, and Section 3 before 3.1) -----------------------------------------------


@given(graphs())
def test_classical_cuts_are_sparsities(case):
    X, A = case
    n = len(X)
    s, t = np.random.default_rng(n).permutation(n)[:2]
    clique, by_degree, edge = 1 - np.eye(n), degree_clique(A), single_edge(n, s, t)
    for cut in node_cuts(X):
        S = side(X, cut)
        assert sparsity(A, clique, S) * A.sum() / clique.sum() == pytest.approx(ratio_cut(A, S) / n)
        if min(volume(A, S), volume(A, ~S)) > 0:
            assert normalized_cut(A, S) == pytest.approx(conductance(A, S) + conductance(A, ~S))
            per_volume = sparsity(A, by_degree, S) / by_degree.sum()
            assert per_volume * A.sum() ** 2 == pytest.approx(normalized_cut(A, S))
            assert cheeger(A, S) <= normalized_cut(A, S) * NEAR
            assert normalized_cut(A, S) <= 2 * cheeger(A, S) * NEAR
        assert sparsity(A, edge, S) == (2 * crossing(A, S) / A.sum() if S[s] != S[t] else np.inf)


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


@given(clusterings())
def test_modified_cart_takes_the_cut_of_greatest_conductance_between_independent_sets(case):
    X, H = case.values, independent_sets(case.labels)
    G, total = degree_clique(H), H.sum()
    sides = [side(X, cut) for cut in node_cuts(X)]
    modified = [impurity(H, S, volume) for S in sides]
    conductances = [normalized_cut(H, S) for S in sides]
    # As ψ(S) = 1 - 2 α(S) / vol(S). The paper halves the last term, as if α counted an edge in both directions.
    for S, score, value in zip(sides, modified, conductances, strict=True):
        assert value == pytest.approx(2 - total * score)
        assert sparsity(H, G, S) == pytest.approx(value * G.sum() / total**2)
    assert np.array_equal(attained(conductances, max), attained([sparsity(G, H, S) for S in sides]))
    assert min(modified) == pytest.approx(modified[int(np.argmax(conductances))])


def test_cart_parts_the_large_clusters_where_spex_finds_a_cut_without_mistakes():
    X, labels = toy()
    H = independent_sets(labels)
    tree = CART(3).fit(X, labels=labels)
    assert int(tree.tree_.feature[0]) == 0  # vertical, through the wide one
    assert -1 < float(tree.tree_.threshold[0]) < 1
    assert (tree.labels_ != labels).any()
    modified = max(node_cuts(X), key=lambda cut: normalized_cut(H, side(X, cut)))
    assert modified[0] == 0
    for weights in ("unit", "size"):
        tree = grow(X, clique_adjacency(labels, weights), 3)
        assert tree[:3] == (1, 0.0, 1.0)  # horizontal
        assert all(len(set(labels[leaf_numbers(tree) == leaf])) == 1 for leaf in range(3))


# --- SpEx (Section 2.2) ------------------------------------------------------------------------------------


@given(graphs())
def test_spex_takes_the_sparsest_cut_of_a_graph_and_its_degrees(case):
    """At the root; below, SpEx goes on with conductances in the whole graph, not in that of the node's points."""
    X, A = case
    assume(A.sum(1).min() > 0)
    scores = [sparsity(A, degree_clique(A), side(X, cut)) for cut in node_cuts(X)]
    chosen = sparsity(A, degree_clique(A), side(X, grow(X, A, 2)[:3]))
    assert chosen == pytest.approx(min(scores), abs=1e-12)


@given(graphs())
def test_every_split_of_spex_lowers_the_sum_of_conductances_most(case):
    X, A = case
    for leaves in range(1, 4):
        before, after = grow(X, A, leaves), grow(X, A, leaves + 1)
        splits = []
        for leaf, rows in enumerate(leaf_rows(before)):
            for cut in node_cuts(X[rows]):
                numbers = leaf_numbers(before)
                numbers[rows[side(X[rows], cut)]] = leaves
                masks = [numbers == number for number in range(leaves + 1)]
                splits.append((sum(conductance(A, mask) for mask in masks), leaf, cut))
        if not splits:
            assert len(leaf_rows(after)) == len(leaf_rows(before)) <= leaves
            break
        assert len(leaf_rows(after)) == leaves + 1
        assert objective(A, after) == pytest.approx(min(splits)[0])


def test_points_without_edges_have_conductance_one():
    """So that a cluster of one point is not parted for nothing, ahead of a cut between the others."""
    A = clique_adjacency([2, 0, 0, 0, 1, 1, 1])
    assert conductance(A, np.arange(7) == 0) == 1
    assert grow(np.arange(7.0)[:, None], A, 2)[:3] == (0, 3.0, 4.0)


# --- Theorem 2.2 and Corollary A.5 -------------------------------------------------------------------------


def expectations(X, A):
    """Mean squared distance of adjacent points, over that of two points drawn by degree: the theorem's ratio."""
    far = ((X[:, None] - X) ** 2).sum(2)
    share = A.sum(1) / A.sum()
    everywhere = share @ far @ share
    return (A * far).sum() / A.sum() / everywhere if everywhere > 0 else np.inf


def least(score, X, A):
    """Over all cuts by a coordinate that have volume on both sides."""
    sides = [side(X, cut) for cut in node_cuts(X)]
    return min(
        (score(A, S) for S in sides if volume(A, S) > 0 and volume(A, ~S) > 0),
        default=0.0,
    )


@given(graphs())
def test_some_cut_has_a_conductance_within_the_root_of_twice_the_ratio(case):
    """Theorem 2.2 with the lesser volume as denominator, and with Cheeger's factor 2 under the root."""
    X, A = case
    ratio = expectations(X, A)
    assert least(cheeger, X, A) <= np.sqrt(2 * ratio) * NEAR
    assert least(normalized_cut, X, A) <= 2 * np.sqrt(2 * ratio) * NEAR


def test_the_bound_says_something_where_the_graph_follows_the_points():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) + np.repeat([[0, 0], [20, 20]], 20, axis=0)
    A = clique_adjacency(np.repeat([0, 1], 20))
    A[0, 39] = A[39, 0] = 1
    assert 0 < least(cheeger, X, A) <= np.sqrt(2 * expectations(X, A)) < 0.2


def test_two_points_break_theorem_2_2_as_it_is_printed():
    X, A = np.array([[0.0], [1.0]]), single_edge(2, 0, 1)
    assert (least(normalized_cut, X, A), expectations(X, A)) == (2, 2)  # 2 is more than the root of 2
    assert least(cheeger, X, A) == 1


def outward_path(growth, m):
    """A path over ±growth^i, the weight of whose edges falls as the square: all cuts are equally sparse."""
    right = growth ** np.arange(m + 1.0)
    right_weight = right[:-1] ** -2.0
    return np.concatenate([-right[::-1], right]), np.concatenate([right_weight[::-1], [growth**2], right_weight])


def path_ratios(position, weight):
    """(least crossing over the lesser volume, ratio of expectations) of a path, in linear time."""
    degree = np.zeros(len(position))
    degree[:-1] += weight
    degree[1:] += weight
    left, right = np.cumsum(degree)[:-1], np.cumsum(degree[::-1])[::-1][1:]
    share = degree / degree.sum()
    variance = share @ position**2 - (share @ position) ** 2
    near = (weight * np.diff(position) ** 2).sum() / weight.sum()
    return (weight / np.minimum(left, right)).min(), near / (2 * variance)


@pytest.mark.parametrize(("growth", "m", "factor"), [(2.0, 10, 1.03), (2.0, 20, 1.15), (1.3, 1300, 1.36)])
def test_the_factor_under_the_root_can_not_be_spared(growth, m, factor):
    position, weight = outward_path(growth, m)
    least_conductance, ratio = path_ratios(position, weight)
    assert least_conductance > factor * np.sqrt(ratio)
    assert least_conductance <= np.sqrt(2 * ratio)
    if m <= 20:
        A = np.diag(weight, 1) + np.diag(weight, -1)
        assert least(cheeger, position[:, None], A) == pytest.approx(least_conductance)
        assert expectations(position[:, None], A) == pytest.approx(ratio)


@given(clusterings(least=1, most=4))
def test_conductance_of_a_k_means_clustering(case):
    """Corollary A.5, for clusters of at least two points, and with what the theorem lacks."""
    X, labels = case.values, case.labels
    kept = np.bincount(labels)[labels] > 1
    X, labels = X[kept], labels[kept]
    assume(len(X) > 0 and bool(node_cuts(X)))
    A = clique_adjacency(labels, "size")
    assert np.allclose(A.sum(1), 1)
    cost = sum(((X[labels == c] - X[labels == c].mean(0)) ** 2).sum() for c in np.unique(labels))
    one = ((X - X.mean(0)) ** 2).sum()
    size = np.bincount(labels)
    exact = sum(
        size[c] / (size[c] - 1) * ((X[labels == c] - X[labels == c].mean(0)) ** 2).sum() for c in np.unique(labels)
    )
    assert expectations(X, A) == pytest.approx(exact / one)
    assert least(cheeger, X, A) <= 2 * np.sqrt(cost / one) * NEAR


def test_corollary_a5_fails_as_it_is_printed():
    """By a factor of 2 for two points, and by almost the root of 2 with the lesser volume as denominator."""

    def printed(X, labels):
        cost = sum(((X[labels == c] - X[labels == c].mean(0)) ** 2).sum() for c in np.unique(labels))
        return np.sqrt(2 * cost / (((X[:, None] - X) ** 2).sum() / len(X)))

    X, labels = np.array([[0.0], [1.0]]), np.zeros(2, dtype=int)
    assert least(normalized_cut, X, clique_adjacency(labels, "size")) == pytest.approx(2 * printed(X, labels))
    X, labels = np.append(np.zeros(19), 1)[:, None], np.repeat(np.arange(10), 2)
    assert least(cheeger, X, clique_adjacency(labels, "size")) > 1.37 * printed(X, labels)
