"""Slow, literal re-implementations of what the papers define: loops over points, clusters and features.

Nothing here comes from the package; NumPy in float64 throughout.
"""

from itertools import permutations

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer


def blobs(n=90, d=4, k=4, seed=0, spread=0.6):
    """Points around `k` places, in columns of very different scales and offsets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(k, d))[np.arange(n) % k] * 2 + spread * rng.normal(size=(n, d))
    return X * 3.0 ** np.arange(d) + 5 * np.arange(d)


def near(X, n=100, seed=1):
    """New points: mixtures of two given ones, so that many lie between clusters."""
    rng = np.random.default_rng(seed)
    share = rng.random((n, 1)) * 1.6 - 0.3
    return share * X[rng.integers(len(X), size=n)] + (1 - share) * X[rng.integers(len(X), size=n)]


# --- logits ------------------------------------------------------------------------------------------------


def neuron(c, k):
    """Weight and bias of the neuron that compares two centers (Prop. 1, layer 1)."""
    return 2 * (c - k), k @ k - c @ c


def two_layer_logits(x, centers):
    """Prop. 1: K (K - 1) linear neurons, then the minimum of each cluster's K - 1."""
    logits = np.full((len(x), len(centers)), np.inf)
    for c, k in permutations(range(len(centers)), 2):
        w, b = neuron(centers[c], centers[k])
        logits[:, c] = np.minimum(logits[:, c], x @ w + b)
    return logits


def subcluster_logits(x, centers, labels):
    """A cluster is as far as its nearest subcentroid; the logit is the margin to the nearest other cluster."""
    far = ((x[:, None] - centers) ** 2).sum(axis=2)
    of_each = np.array([far[:, labels == label].min(axis=1) for label in np.unique(labels)])
    return np.transpose([np.delete(of_each, c, 0).min(axis=0) - own for c, own in enumerate(of_each)])


def hierarchy_paths(root, shift=0.0):
    """{leaf label: [(node center, sibling center), ...]} of scikit-learn's bisecting tree."""
    paths = {}

    def walk(node, path):
        if node.left is None:
            paths[int(node.label)] = path
            return
        for child, sibling in ((node.left, node.right), (node.right, node.left)):
            walk(child, [*path, (child.center + shift, sibling.center + shift)])

    walk(root, [])
    return paths


def hierarchy_logits(x, paths):
    """Per leaf the minimum over its path of how much farther the sibling is."""
    farther = [[((x - s) ** 2 - (x - c) ** 2).sum(axis=1) for c, s in paths[leaf]] for leaf in sorted(paths)]
    return np.transpose([np.min(each, axis=0) for each in farther])


def evidence(logits):
    """The contrasts of each point's own cluster; a competitor's logit is minus its contrast."""
    return [np.delete(-row, row.argmax()) for row in np.asarray(logits.detach())]


def harmonic_beta(logits):
    """One over the mean of ``(K - 1) / sum_k 1 / h_k``."""
    return 1 / np.mean([len(h) / (1 / h).sum() for h in evidence(logits)])


# --- relevance ---------------------------------------------------------------------------------------------


def softmin(h, beta):
    if np.isinf(beta):
        weights = (h == h.min()).astype(float)
    else:
        weights = np.exp(-beta * (h - h.min()))
    return weights / weights.sum()


def contrast_relevance(h, beta):
    """Eq. 2 for f >= 0; for f < 0 the logit is shared among the clusters that beat the target alone."""
    f = h.min()
    share = softmin(h, beta)
    if f >= 0:
        return share * f
    share = np.where(h < 0, share, 0.0)
    return share * h * f / (share * h).sum()


def shared(x, weights, references, h, beta):
    """Eqs. 2 and 4: contrasts ``w_k (x - m_k)`` with their reference points m_k, down to the features."""
    relevance = np.zeros_like(x)
    for w, m, R_k in zip(weights, references, contrast_relevance(h, beta), strict=True):
        parts = (x - m) * w
        if R_k != 0:
            relevance += parts / parts.sum() * R_k
    return relevance


def neon(x, centers, c, beta, affine=None, center=0.0, scale=1.0, competitor=None):
    """Relevance [d] of f_c at one point. `affine`: (A, b) from x to the space of the centers.

    A reference point is the raw point that maps to the mid-point of two centers and is nearest to `center` in
    units of `scale`.
    """
    rivals = [k for k in range(len(centers)) if k != c] if competitor is None else [competitor]
    A, b = affine or (np.eye(len(x)), 0.0)
    neurons = [neuron(centers[c], centers[k]) for k in rivals]
    references = [nearest_preimage(A, b, (centers[c] + centers[k]) / 2, center, scale) for k in rivals]
    h = np.array([w @ (A @ x + b) + bias for w, bias in neurons])
    return shared(x, [A.T @ w for w, _ in neurons], references, h, beta)


def nearest_preimage(A, b, z, center, scale):
    """Of all x with ``A x + b = z`` the one nearest to `center` in units of `scale`."""
    step, *_ = np.linalg.lstsq(A * scale, z - b - (A * center).sum(axis=1), rcond=None)
    return center + scale * step


def folded(steps, x):
    """(A, b) of fitted pipeline steps at one point, a Normalizer's norm held constant."""
    A = np.eye(len(x))
    b = np.zeros(len(x))
    for step in steps:
        z = A @ x + b
        if step is None or step == "passthrough":
            continue
        if isinstance(step, Pipeline):
            M, v = folded([inner for _, inner in step.steps], z)
        elif isinstance(step, Normalizer):
            M = np.eye(len(z)) / np.linalg.norm(z, {"l1": 1, "l2": 2, "max": np.inf}[step.norm])
            v = 0.0
        else:  # from its values at zero and at the unit vectors
            v = step.transform(np.zeros((1, len(z))))[0]
            M = (step.transform(np.eye(len(z))) - v).T
        A = M @ A
        b = M @ b + v
    return A, b


def pipeline_neon(model, x, c, beta, data):
    """:func:`neon` for a point of raw columns and a Pipeline fitted on `data`."""
    *steps, final = [step for _, step in model.steps]
    spread = data.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    return neon(x, final.cluster_centers_, c, beta, folded(steps, x), data.mean(axis=0), scale)


def on_the_way(values, own, steps, late=False):
    """Relevance and standard errors on the path from a baseline: steps 2 to 5 of the Notes of NEON.

    `values` tells the relevance of single features at a point that has a share of every group of features, whose
    numbers are `own`: first in the middle of the straight line's halves, then where groups come in or go out.
    """
    if late:
        return greedily(values, own, steps)
    # passes on which groups come in, and those on which they go out
    ways = ([], [])
    size = own.max() + 1
    for step in range(steps):
        share = np.full(size, (step + 0.5) / 2)
        if step >= 2:
            totals = [np.bincount(own, np.sum(way, axis=0)) for way in ways]
            sums = sum(total / np.abs(total).sum() for total in totals)
            order = [group for group in np.argsort(-sums, kind="stable") if sums[group] != 0]
            time = (((step - 2) // 2 + 0.5) * (5**0.5 - 1) / 2) % 1
            share = np.zeros(size)
            share[order] = 1 / (1 + np.exp(-10 * (time - (np.arange(len(order)) + 0.5) / len(order))))
            share = 1 - share if step % 2 else share
        for way in ways if step < 2 else [ways[step % 2]]:
            way.append(values(share))
    return mean_of_ways(ways, own)


def mean_of_ways(ways, own):
    """Means of the relevance over the passes of both ways, brought to one size and averaged, and their errors."""
    passes = [np.stack([np.bincount(own, one) for one in way]) for way in ways]
    sizes = [np.abs(way.mean(0)).sum() for way in passes]
    factors = np.mean(sizes) / sizes
    errors = [way.std(0, ddof=1) / len(way) ** 0.5 for way in passes]
    return factors @ [np.mean(way, axis=0) for way in ways] / 2, factors @ errors / 2


def greedily(values, own, steps):
    """:func:`on_the_way` for an input that is decided late, whose groups come in one after the other."""
    n = own.max() + 1
    points = steps - 2
    straight = [values(np.full(n, t)) for t in (0.25, 0.75)]
    comes = list(straight)
    goes = list(straight)

    def shares(way):
        total = np.bincount(own, np.sum(way, axis=0))
        return total / np.abs(total).sum()

    def order(scores):
        return [group for group in np.argsort(-scores, kind="stable") if scores[group] != 0]

    for step in range(points // 3):
        first = order(shares(goes))
        time = ((step + 0.5) * (5**0.5 - 1) / 2) % 1
        share = np.ones(n)
        share[first] = 1 - 1 / (1 + np.exp(-10 * (time - (np.arange(len(first)) + 0.5) / len(first))))
        share[[group for group in range(n) if group not in first]] = 1
        goes.append(values(share))
    effect = set(order(shares(straight)))
    entered = []
    rest = points - points // 3
    for step in range(rest):
        share = np.full(n, 0.25)
        share[entered] = 1
        comes.append(values(share))
        scores = shares(comes[-1:]) + shares(goes)
        waiting = [group for group in np.argsort(-scores, kind="stable") if group in effect - set(entered)]
        entered += waiting[: round(len(effect) * (step + 1) / rest) - len(entered)]
    relevance, errors = mean_of_ways((comes, goes), own)
    totals = np.bincount(own, relevance)
    absolute = np.bincount(own, np.abs(relevance))
    change = np.zeros(n)
    change[entered] = np.sort(totals[entered])[::-1] - totals[entered]
    return relevance + np.abs(relevance) * (change / np.where(absolute > 0, absolute, 1))[own], errors
