"""Slow, literal code of what the SpEx paper defines, on dense adjacency matrices [n, n].

Nothing here comes from the package; NumPy in float64 throughout. A cut is (feature, low, high): points with a
value of at most `low` go left, the others, of at least `high`, go right. A side S of a cut is a mask of vertices.
"""

from itertools import pairwise

import numpy as np

TIE = 1e-12  # conductances lie in [0, 1]: scores within this of the best are equal but for rounding

# --- graphs ------------------------------------------------------------------------------------------------


def clique_adjacency(labels, weights="unit"):
    """Points of a cluster are adjacent; "size": with weight 1 / (|C| - 1), so that degrees are 1 (Cor. A.5)."""
    labels = np.asarray(labels)
    A = (labels[:, None] == labels).astype(np.float64)
    np.fill_diagonal(A, 0)
    if weights == "size":
        size = (labels[:, None] == labels).sum(1)
        A /= np.maximum(size - 1, 1)[:, None]
    return A


def independent_sets(labels):
    """Points of different clusters are adjacent."""
    labels = np.asarray(labels)
    return (labels[:, None] != labels).astype(np.float64)


def stars(labels, centers):
    """On points, then centers: a point is adjacent to its center. `centers`: the labels of those in the node."""
    labels, centers = np.asarray(labels), np.asarray(centers)
    n, k = len(labels), len(centers)
    A = np.zeros((n + k, n + k))
    A[:n, n:] = labels[:, None] == centers
    return np.maximum(A, A.T)


def centers_clique(n, k):
    """On n points, then k centers: the centers are adjacent, the points isolated."""
    A = np.zeros((n + k, n + k))
    A[n:, n:] = 1 - np.eye(k)
    return A


def single_edge(vertices, s, t):
    """One edge."""
    A = np.zeros((vertices, vertices))
    A[s, t] = A[t, s] = 1
    return A


# --- what a cut costs --------------------------------------------------------------------------------------


def crossing(A, S):
    """e(S, X∖S): weight of the edges between S and all other vertices."""
    return A[S][:, ~S].sum()


def volume(A, S):
    """vol(S): weighted degrees."""
    return A[S].sum()


def inside(A, S):
    """α(S): weight of the edges with both ends in S."""
    return A[S][:, S].sum() / 2


def conductance(A, S):
    """ψ(S) of Eq. 1, on the whole graph; 1 where S has no volume."""
    return crossing(A, S) / volume(A, S) if volume(A, S) > 0 else 1.0


def sparsity(G, H, S):
    """(G, H)-sparsity of Section 3: share of G's edges that are cut over that of H's; inf if none of H's is."""

    def share(A):
        return crossing(A, S) / A.sum() if A.sum() > 0 else 0.0

    return share(G) / share(H) if share(H) > 0 else np.inf


# --- cuts by coordinates -----------------------------------------------------------------------------------


def node_cuts(X):
    """All cuts that differ: gaps between neighbouring values, lowest feature first, then lowest threshold."""
    return [
        (feature, low, high) for feature in range(X.shape[1]) for low, high in pairwise(np.unique(X[:, feature]))
    ]


def side(X, cut):
    """Who goes left."""
    return X[:, cut[0]] <= cut[1]


def members(n, rows):
    """Some rows as a mask."""
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask


def cut_score(A, rows, left):
    """CutScore of Algorithm 1: conductances of the two sides of a node, each against all other points."""
    return conductance(A, members(len(A), rows[left])) + conductance(A, members(len(A), rows[~left]))


def best_cut(X, A, rows):
    """(score, cut) of a node, the first of those that are best; None where its points are all equal."""
    found = [(cut_score(A, rows, side(X[rows], cut)), cut) for cut in node_cuts(X[rows])]
    if not found:
        return None
    least = min(score for score, _ in found)
    return next((least, cut) for score, cut in found if score <= least + TIE)


# --- trees -------------------------------------------------------------------------------------------------


def grow(X, A, max_leaves):
    """Algorithm 1: nested (feature, low, high, left, right), with the rows of a leaf as an array.

    The leaf is split whose split lowers the sum of conductances most (Eq. 4), or raises it least; of equal ones
    that which was made first, a left child before its sibling. It ends early where no leaf has different points.
    """
    X = np.asarray(X, dtype=np.float64)
    rows, best, children = [np.arange(len(X))], [best_cut(X, A, np.arange(len(X)))], {}
    open_ = [0]
    while len(open_) < max_leaves:
        gains = {
            leaf: conductance(A, members(len(X), rows[leaf])) - best[leaf][0]
            for leaf in open_
            if best[leaf] is not None
        }
        if not gains:
            break
        most = max(gains.values())
        leaf = min(leaf for leaf, gain in gains.items() if gain >= most - TIE)
        cut = best[leaf][1]
        left = side(X[rows[leaf]], cut)
        children[leaf] = (*cut, len(rows), len(rows) + 1)
        open_.remove(leaf)
        open_ += [len(rows), len(rows) + 1]
        for part in (rows[leaf][left], rows[leaf][~left]):
            rows.append(part)
            best.append(best_cut(X, A, part))

    def nested(node):
        if node not in children:
            return rows[node]
        feature, low, high, left, right = children[node]
        return (feature, low, high, nested(left), nested(right))

    return nested(0)


def leaf_rows(tree):
    """The rows of every leaf of such a tree, from left to right."""
    return [tree] if isinstance(tree, np.ndarray) else leaf_rows(tree[3]) + leaf_rows(tree[4])
