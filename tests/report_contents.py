"""Contents of reports to try the page on: as a report has them, but computed in a few plain lines."""

import base64
import io
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.tree import DecisionTreeClassifier

from neonxc.common.colours import colors
from neonxc.common.numbers import shares
from neonxc.report.contents import (
    Card,
    Caution,
    Change,
    Column,
    Contents,
    Curve,
    Figure,
    Item,
    Pair,
    PointMap,
    Reproduce,
    RuleText,
    Statement,
    TreeNode,
    Trust,
)
from neonxc.report.page import render

HELP = [
    "Share of the points to which the tree gives their own cluster. 100% would be a tree that says the same.",
    "Cost of the tree's clusters over that of the clustering itself. 1 would be no loss.",
    "Area under the curve of flipping: how soon the columns said to matter decide the cluster, 0 to 100.",
    "Adjusted Rand index with the same clustering from other starts. 1 would be no difference.",
]
SQL = """SELECT *, CASE
  WHEN "proline" <= 755 AND "od280" <= 2.19 THEN 1
  WHEN "proline" <= 755 THEN 0
  ELSE 2
END AS cluster FROM points"""
PYTHON = """def cluster(x):
    if x["proline"] <= 755:
        return 1 if x["od280"] <= 2.19 else 0
    return 2
"""


def wine(k=3):
    return table(load_wine(as_frame=True).data, k, "Wine: three kinds by their chemistry")


def many(k=50, n=2_000, d=20):
    """Many clusters, and columns with long names, one of them with categories."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 3, (k, d))
    names = [
        f"measurement_{at:02d}_of_the_quarterly_customer_survey_in_thousands" if at % 5 == 1 else f"spending_{at}"
        for at in range(d)
    ]
    X = pd.DataFrame(centers[rng.integers(0, k, n)] + rng.normal(0, 1, (n, d)), columns=names)
    X["region"] = rng.choice(["North", "South and the islands", "East", "West"], n)
    return table(X, k, "Customers in fifty segments")


def table(X, k, title):
    numbers = X.select_dtypes("number")
    mean, spread = numbers.mean().to_numpy(), numbers.std().to_numpy()
    Z = (numbers.to_numpy() - mean) / spread
    columns = [
        Column(str(name), "number", float(mean[at]), float(spread[at]))
        if name in numbers
        else Column(str(name), "category")
        for at, name in enumerate(X)
    ]
    model = KMeans(k, n_init=1, random_state=0).fit(Z)
    y, centers = model.labels_, model.cluster_centers_
    distances = ((Z[:, None] - centers) ** 2).sum(-1)
    others = distances.copy()
    others[np.arange(len(Z)), y] = np.inf
    rival = others.argmin(1)
    logit = others.min(1) - distances.min(1)
    relevance = (Z - centers[rival]) ** 2 - (Z - centers[y]) ** 2
    relevance = np.pad(relevance, ((0, 0), (0, len(columns) - Z.shape[1])))
    total, relevance = np.abs(relevance).sum(1), shares(relevance)
    tree = DecisionTreeClassifier(max_leaf_nodes=2 * k if k < 10 else k + 5, random_state=0).fit(
        numbers.to_numpy(), y
    )
    leaf = tree.apply(numbers.to_numpy())
    nodes, texts, order = _nodes(tree, numbers, y)
    given = tree.predict(numbers.to_numpy())
    tints = colors(k)
    cards, printed = [], [[_printed(value) for value in X[name]] for name in X]
    for c in range(k):
        mine = y == c
        mean_relevance = shares((relevance[mine] * total[mine, None]).mean(0))
        statements = [
            _statement(X[columns[j].name], j, mine, float(mean_relevance[j]))
            for j in np.argsort(-np.abs(mean_relevance))[: 5 if k < 10 else 4]
        ]
        rules = [
            RuleText(
                texts[node],
                int((leaf == node).sum()),
                float(((leaf == node) & mine).sum() / mine.sum()),
                float(mine[leaf == node].mean()),
                order[node],
            )
            for node in np.unique(leaf)
            if np.bincount(y[leaf == node], minlength=k).argmax() == c
        ]
        rules.sort(key=lambda rule: -rule.coverage)
        rows = np.flatnonzero(mine)[np.argsort(-logit[mine])]
        name = " and ".join(statement.text for statement in statements[:2])
        cards.append(
            Card(
                str(c), name, int(mine.sum()), float(mine.mean()), tints[c], rules, statements,
                [_item(r, printed, relevance, logit, rival) for r in rows[:3]],
                [_item(r, printed, relevance, logit, rival) for r in rows[::-1][:3]],
                float((given[mine] == c).mean()), 0.9 - 0.1 * (c % 4),
                int(np.bincount(rival[mine], minlength=k).argmax()),
            )
        )  # fmt: skip
    pairs = []
    for a in range(k):
        for b in range(a + 1, k):
            if k > 10 and b not in (a + 1, cards[a].nearest) and cards[b].nearest != a:
                continue
            share = (centers[a] - centers[b]) ** 2 * np.where(np.arange(Z.shape[1]) % 5 == 4, -0.2, 1)
            first = np.argsort(-np.abs(share))[:6]
            j = int(first[0])
            of_pair = centers[[a, b]] * spread + mean
            cut = _printed((centers[a, j] + centers[b, j]) / 2 * spread[j] + mean[j])
            low, high = (a, b) if centers[a, j] < centers[b, j] else (b, a)
            pairs.append(
                Pair(
                    a, b,
                    [
                        (int(i), float(share[i] / np.abs(share).sum()), *(_printed(v) for v in of_pair[:, i]))
                        for i in first
                    ],
                    [(low, f"{columns[j].name} ≤ {cut}"), (high, f"{columns[j].name} > {cut}")], 0.97,
                )
            )  # fmt: skip
    axes = PCA(2).fit(Z)
    place = axes.transform(Z)
    place = ((place - place.min(0)) / np.ptp(place, 0).max() * 1000).round().astype(int)
    points = PointMap(
        list(range(len(X))), None, place[:, 0].tolist(), (1000 - place[:, 1]).tolist(), y.tolist(), rival.tolist(),
        [order[node] for node in leaf], logit.tolist(), printed, relevance.T.tolist(),
        total.tolist(),
        [_change(Z[r], centers, y[r], rival[r], mean, spread) for r in range(len(X))],
        "PCA: {:.0%} and {:.0%} of the variance".format(*axes.explained_variance_ratio_), _drawn(place, y, tints),
    )  # fmt: skip
    fidelity = float((given == y).mean())
    worst = sorted(range(k), key=lambda c: cards[c].fidelity)[:2]
    grid = np.linspace(0, 1, 14)
    seeds = [float(adjusted_rand_score(y, KMeans(k, n_init=1, random_state=s).fit_predict(Z))) for s in (1, 2, 3)]
    return Contents(
        title, "table", f"k-means in {k} clusters of {len(X):,} points in {len(columns)} standardised columns.",
        len(X), k, 0,
        f"A tree with {tree.get_n_leaves()} rules reproduces {fidelity:.1%} of the clustering. "
        f"The columns that its rules use are the ones that the clusters rest on.",
        [
            Figure("fidelity", "Fidelity", fidelity, f"{fidelity:.1%}", HELP[0]),
            Figure("price", "Price", 1.08, "1.08×", HELP[1]),
            Figure("auc", "Flipping", 71.3, "71.3", HELP[2]),
            Figure("stability", "Stability", float(np.mean(seeds)), f"{np.mean(seeds):.2f}", HELP[3]),
        ],
        [Caution(f"The rules of {len(worst)} clusters hold for fewer of their points than the others'.", worst)],
        ["12 missing values were replaced by the columns' medians."],
        columns, cards, pairs, nodes, points,
        Trust(
            [
                Curve("NEON", grid.tolist(), (1 - (1 - grid) ** 3).tolist(), "AUC 71.3"),
                Curve("gradient × input", grid.tolist(), (1 - (1 - grid) ** 2.6).tolist(), "AUC 70.1"),
                Curve("random", grid.tolist(), grid.tolist(), "AUC 52.0"),
            ],
            [
                Curve("ExShallow", [3, 4, 6, 9], [1.21, 1.12, 1.08, 1.06]),
                Curve("ExKMC", [3, 4, 6, 9], [1.3, 1.2, 1.07, 1.04]),
            ],
            seeds, [_item(r, printed, relevance, logit, rival) for r in np.flatnonzero(given != y)[:4]],
            ["The network gives the clustering's own answer for all points."],
        ),
        Reproduce(
            [("neonxc", "0.2.0"), ("scikit-learn", "1.9.0"), ("torch", "2.15.0")],
            [("model", f"KMeans(n_clusters={k}, n_init=1, random_state=0)"), ("rules", "ExShallow")],
            [
                ("The rules as SQL", "sql", SQL),
                ("The rules in Python", "python", PYTHON),
            ],
        ),
        "2026-03-01T09:30:00",
    )  # fmt: skip


def photos(k=4, tile=48):
    """Photos in clusters by their hue: no columns, no tree of columns."""
    rng = np.random.default_rng(1)
    base = wine(k)
    tints = colors(k)

    def item(row, c):
        code = [int(tints[c][at : at + 2], 16) for at in (1, 3, 5)]
        photo = np.clip(np.array(code) + rng.normal(0, 50, (tile, tile, 3)), 0, 255)
        photo[tile // 4 : tile // 2, tile // 3 : -tile // 3] //= 3
        heat = photo * 0.5 + np.hypot(*np.mgrid[-1 : 1 : tile * 1j, -1 : 1 : tile * 1j])[..., None] * [120, 20, 30]
        return Item(
            row, f"IMG_{row:04d}.jpg", 2.5 - row / 100, (c + 1) % k, picture=webp(photo), heatmap=webp(heat)
        )

    cards = [
        replace(
            card, name=name, statements=[replace(s, bins=[], inside=[], outside=[]) for s in card.statements[:3]],
            prototypes=[item(10 * c + i, c) for i in range(6)],
            borderline=[item(10 * c + 6 + i, c) for i in range(4)],
        )
        for c, (card, name) in enumerate(zip(base.cards, ["sky", "fire", "leaves", "flowers"][:k], strict=True))
    ]  # fmt: skip
    trust = replace(base.trust, disagreements=[item(7, 0)])
    points = replace(base.points, values=[], relevance=[], changes=[None] * len(base.points.rows))
    points.names = [f"IMG_{row:04d}.jpg" for row in points.rows]
    return replace(base, title="Photos by hue", kind="images", cards=cards, trust=trust, points=points)


def regions():
    """One photo, and clusters of its locations."""
    base = photos(3, 64)
    return replace(
        base, title="A cat in three parts", kind="locations", photo=base.cards[0].prototypes[0].picture,
        regions=base.cards[1].prototypes[0].heatmap, pairs=[], tree=[],
        cards=[
            replace(card, heatmap=card.prototypes[0].heatmap, prototypes=[], borderline=[], rules=[])
            for card in base.cards
        ],
        points=replace(base.points, leaf=[-1] * len(base.points.rows)),
    )  # fmt: skip


def texts():
    """Texts with highlighted words."""
    base = wine()
    said = (
        "The launch of the new satellite was put off: its orbit <b>had</b> to be computed again, "
        "and the rocket's engine failed a test."
    )
    marks = [(said.index(word), said.index(word) + len(word), value) for word, value in TERMS]

    def item(row, c):
        return Item(row, f"document {row}", 1.7, (c + 1) % 3, text=said, marks=marks)

    cards = [
        replace(card, name=name, prototypes=[item(i, c) for i in range(2)], borderline=[item(5, c)])
        for c, (card, name) in enumerate(zip(base.cards, ["space", "cars", "hockey"], strict=True))
    ]
    trust = replace(base.trust, disagreements=[item(9, 0)])
    return replace(base, title="Newsgroups", kind="texts", cards=cards, trust=trust)


def noise():
    """Wine with five points of noise and their card."""
    base = wine()
    base.points.cluster[:5] = [-1] * 5
    of_noise = replace(
        base.cards[0], label="-1", name="noise", size=5, rules=[], rivals=[(1, 3), (0, 2)], fidelity=None
    )  # fmt: skip
    return replace(base, noise=5, cards=[*base.cards, of_noise])


TERMS = [("launch", 0.4), ("satellite", 1.0), ("orbit", 0.8), ("rocket", 0.6), ("engine", -0.7), ("test", -0.2)]
HOSTILE = [
    "<script>alert(1)</script>",
    "\"quoted\" 'name' & \\ {{ 7 * 7 }}",
    "two\nlines </script><!-- <script>",
    "שלום עולם \u202eevil",
    "🦊🏳️‍🌈 fox \u2028 end",
    "a" * 120,
    "\ud800 half \x00 nothing",
]


def hostile():
    """Names that want to be obeyed, wherever there is a name; and one cluster of them is noise's."""
    base = wine()
    column = [replace(one, name=HOSTILE[at % len(HOSTILE)]) for at, one in enumerate(base.columns)]
    base.points.names = [HOSTILE[row % len(HOSTILE)] for row in base.points.rows]
    base.points.cluster[0] = -1
    base.points.values[0] = [HOSTILE[row % len(HOSTILE)] for row in base.points.rows]
    for c, card in enumerate(base.cards):
        card.name, card.label = HOSTILE[c], HOSTILE[c + 1]
        card.color = "red;background:url(https://example.org)" if c == 0 else card.color
        for at, statement in enumerate(card.statements):
            statement.text = HOSTILE[at]
        for rule in card.rules:
            rule.text = HOSTILE[0]
        for at, item in enumerate(card.prototypes):
            item.name, item.picture = HOSTILE[at], "https://example.org/a.png"
            item.values = [(j, HOSTILE[0], value) for j, _, value in item.values]
    for pair in base.pairs:
        pair.rules = [(c, HOSTILE[2]) for c, _ in pair.rules]
    for node in base.tree:
        node.text = HOSTILE[2]
    base.trust.flipping[0].name = HOSTILE[0]
    code = [(HOSTILE[0], HOSTILE[1], HOSTILE[2])]
    return replace(
        base, title=HOSTILE[0], what=HOSTILE[2], verdict=HOSTILE[1], columns=column, noise=1, notes=HOSTILE,
        reproduce=Reproduce([("a", HOSTILE[0])], [(HOSTILE[2], HOSTILE[1])], code),
        warnings=[Caution(HOSTILE[0], [0])], figures=[replace(base.figures[0], help=HOSTILE[0], text=HOSTILE[4])],
    )  # fmt: skip


def long(base=None):
    """Names without a blank that are wider than every screen."""
    base, name = base or wine(), "name_" * 70
    for card in base.cards:
        card.name = card.label = name
        for item in (*card.prototypes, *card.borderline):
            item.name, item.text = name, item.text and name
            item.values = [(j, name, value) for j, _, value in item.values]
        for statement in card.statements:
            statement.text = statement.inside_typical = name
        for rule in card.rules:
            rule.text = name
    for node in base.tree:
        node.text = node.text and name
    for pair in base.pairs:
        pair.relevance = [(j, share, name, name) for j, share, *_ in pair.relevance]
    base.points.names = [name] * len(base.points.rows)
    base.points.values = [[name] * len(base.points.rows) for _ in base.points.values]
    return replace(base, title=name, what=name, columns=[replace(one, name=name) for one in base.columns])


def long_texts():
    return long(texts())


@cache
def contents(name):
    """The contents of one of the functions here, and their page: made once, to be read only."""
    made = globals()[name]()
    return made, render(made)


def webp(pixels):
    buffer = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(buffer, "webp", quality=60)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def _drawn(place, y, tints):
    paths = "".join(
        f'<path stroke="{tint}" d="{"".join(f"M{x} {1000 - up}h0" for x, up in place[y == c])}"/>'
        for c, tint in enumerate(tints)
    )
    start = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 1020 1020">'
    return start + f'<g stroke-width="12" stroke-linecap="round">{paths}</g></svg>'


def _printed(value):
    return value if isinstance(value, str) else f"{value:.4g}"


def _statement(series, j, mine, relevance):
    if series.dtype.kind not in "fi":
        names = sorted(series.unique())
        inside, outside = ([float((series[part] == name).mean()) for name in names] for part in (mine, ~mine))
        typical = series[mine].mode()[0], series[~mine].mode()[0]
        return Statement(j, relevance, f"{series.name} is {typical[0]}", names, inside, outside, *typical)
    edges = np.histogram_bin_edges(series, 12)
    inside, outside = (np.histogram(series[part], edges)[0] / part.sum() for part in (mine, ~mine))
    typical = float(series[mine].median()), float(series[~mine].median())
    text = f"{'high' if typical[0] > typical[1] else 'low'} {series.name}"
    return Statement(j, relevance, text, edges.tolist(), inside.tolist(), outside.tolist(), *typical)


def _item(row, printed, relevance, logit, rival):
    best = np.argsort(-np.abs(relevance[row]))[:5]
    values = [(int(j), printed[j][row], float(relevance[row, j])) for j in best]
    return Item(int(row), str(row), float(logit[row]), int(rival[row]), values)


def _change(z, centers, c, other, mean, spread):
    normal = centers[other] - centers[c]
    j = int(np.abs(normal).argmax())
    step = ((z - centers[other]) @ (z - centers[other]) - (z - centers[c]) @ (z - centers[c])) / 2 / normal[j]
    return Change(int(other), float(abs(step)), [(j, _printed((z[j] + step) * spread[j] + mean[j]))])


def _nodes(tree, frame, y):
    """The nodes in preorder, the rule of every leaf by scikit-learn's number, and what number a node has here."""
    t, nodes, texts, order = tree.tree_, [], {}, {}

    def visit(node, parent, path):
        at = order[node] = len(nodes)
        counts = t.value[node][0] * t.n_node_samples[node]
        text = "" if t.feature[node] < 0 else f"{frame.columns[t.feature[node]]} ≤ {t.threshold[node]:.4g}"
        samples = int(t.n_node_samples[node])
        mistakes = round(samples - counts.max()) if t.feature[node] < 0 else 0
        nodes.append(TreeNode(parent, -1, -1, text, int(counts.argmax()), samples, mistakes))
        if t.feature[node] < 0:
            texts[node] = " and ".join(path)
            return at
        nodes[at].left = visit(t.children_left[node], at, [*path, text])
        nodes[at].right = visit(t.children_right[node], at, [*path, text.replace("≤", ">")])
        nodes[at].mistakes = nodes[nodes[at].left].mistakes + nodes[nodes[at].right].mistakes
        return at

    visit(0, -1, [])
    return nodes, texts, order
