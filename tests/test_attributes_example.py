"""examples/attributes.py: its columns against drawings by hand and a slow count, and what a run writes."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
import typer
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from neonxc.evaluation import waes
from neonxc.trees import CART

GUIDE = Path(__file__).parent.parent / "docs" / "spaces.md"


@pytest.fixture(scope="module")
def attributes(example):
    return example("attributes")


def drawn(*rows):
    """An image [1, 1, H, W] of which # is ink."""
    return torch.tensor([[[[float(pixel == "#") for pixel in row] for row in rows]]])


RING = drawn(".....", ".###.", ".#.#.", ".###.", ".....")
EIGHT = drawn("###", "#.#", "###", "#.#", "###")
BAR = drawn("..#..", "..#..", "..#..")
SLASH = drawn("...#", "..#.", ".#..", "#...")
DIAMOND = drawn(".#.", "#.#", ".#.")  # closed by corners alone
U = drawn("#..#", "#..#", "#..#", "####")
TWO = drawn("###", "..#", "###", "#..", "###")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (RING, {"holes": 1, "ink": 100 * 8 / 25, "aspect": 1, "symmetry": 100, "slant": 0, "upper hole": 100 / 9}),
        (EIGHT, {"holes": 2, "aspect": 3 / 5, "upper ink": 100 * 8 / 13, "column strokes": 5 / 3}),
        (BAR, {"holes": 0, "aspect": 1 / 3, "foot": 100 / 3, "ink": 20, "row strokes": 1, "column strokes": 1}),
        (SLASH, {"slant": 45, "symmetry": 0, "holes": 0, "row strokes": 1, "aspect": 1, "upper ink": 50}),
        (SLASH.flip(3), {"slant": -45}),
        (DIAMOND, {"holes": 1, "symmetry": 100}),
        (U, {"top bay": 100 * 6 / 16, "holes": 0, "row strokes": 7 / 4, "upper left bay": 0}),
        (TWO, {"upper left bay": 100 * 2 / 15, "lower right bay": 100 * 2 / 15, "holes": 0, "lower left bay": 0}),
        (TWO.flip(3), {"upper right bay": 100 * 2 / 15, "lower left bay": 100 * 2 / 15}),
    ],
)
def test_columns_of_drawings_by_hand(attributes, image, expected):
    frame = attributes.attributes(image)
    assert {name: frame[name].item() for name in expected} == pytest.approx(expected)


def slowly(ink):
    """All columns of one image [H, W] of bool, pixel by pixel."""
    ys, xs = np.nonzero(ink)
    top, bottom, left, right = ys.min(), ys.max(), xs.min(), xs.max()
    height, width = bottom - top + 1, right - left + 1
    area = height * width

    def upper(y):
        return 2 * y <= top + bottom

    def direction(y, x):
        """The only side on which there is no ink, or None."""
        sides = {"left": ink[y, :x], "right": ink[y, x + 1 :], "top": ink[:y, x], "bottom": ink[y + 1 :, x]}
        free = [side for side, pixels in sides.items() if not pixels.any()]
        return free[0] if len(free) == 1 and not ink[y, x] else None

    seen, holes, in_upper_hole = np.pad(ink, 1), -1, 0  # the first region that is found is the one outside
    for start in np.ndindex(seen.shape):
        if seen[start]:
            continue
        todo, region = [start], []
        seen[start] = True
        while todo:
            y, x = todo.pop()
            region.append((y - 1, x - 1))
            for one in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if min(one) >= 0 and one[0] < seen.shape[0] and one[1] < seen.shape[1] and not seen[one]:
                    seen[one] = True
                    todo.append(one)
        in_upper_hole += sum(upper(y) for y, _ in region) if holes >= 0 else 0
        holes += 1

    box = ink[top : bottom + 1, left : right + 1]
    bays = [(direction(y, x), upper(y)) for y, x in np.ndindex(ink.shape)]
    at = np.flatnonzero(ink[bottom - int(0.15 * (height - 1) + 0.5)])
    dy, dx = ys - ys.mean(), xs - xs.mean()
    return {
        "ink": 100 * len(ys) / ink.size,
        "aspect": width / height,
        "slant": np.degrees(np.arctan2(-(dy * dx).sum(), (dy**2).sum())),
        "symmetry": 100 * (box & box[:, ::-1]).sum() / len(ys),
        "upper ink": 100 * upper(ys).sum() / len(ys),
        "foot": 100 * (at.max() - at.min() + 1) / height if len(at) else 0,
        "row strokes": sum(1 + (np.diff(np.flatnonzero(row)) > 1).sum() for row in box if row.any()) / height,
        "column strokes": sum(1 + (np.diff(np.flatnonzero(c)) > 1).sum() for c in box.T if c.any()) / width,
        "holes": holes,
        "upper hole": 100 * in_upper_hole / area,
        "top bay": 100 * sum(side == "top" for side, _ in bays) / area,
        **{
            f"{half} {side} bay": 100 * bays.count((side, half == "upper")) / area
            for half in ("upper", "lower")
            for side in ("left", "right")
        },
    }


@given(seed=st.integers(0, 10**6), height=st.integers(1, 9), width=st.integers(1, 9), share=st.floats(0.1, 0.9))
def test_columns_are_those_of_a_slow_count(attributes, seed, height, width, share):
    images = (torch.rand(3, 1, height, width, generator=torch.Generator().manual_seed(seed)) < share).float()
    images[:, :, height // 2, width // 2] = 1  # some ink
    frame = attributes.attributes(images)
    assert list(frame) == list(attributes.COLUMNS)
    for row, image in zip(frame.to_dict("records"), images, strict=True):
        expected = slowly(image[0].numpy() > 0.5)
        assert row == pytest.approx(expected, rel=1e-6, abs=1e-5)  # some are quotients in float32


def test_columns_do_not_depend_on_the_place_or_on_the_other_images(attributes):
    drawings = [RING, SLASH, U, TWO]
    spaces = [(9 - image.shape[2], 9 - image.shape[3]) for image in drawings]
    pairs = [*zip(drawings, spaces, strict=True)]
    images = torch.cat([F.pad(image, (0, right, 0, below)) for image, (below, right) in pairs])
    moved = torch.cat([F.pad(image, (right, 0, below, 0)) for image, (below, right) in pairs])
    together = attributes.attributes(images)
    pd.testing.assert_frame_equal(together, attributes.attributes(moved))
    alone = pd.concat([attributes.attributes(one[None]) for one in images], ignore_index=True)
    pd.testing.assert_frame_equal(together, alone)
    with pytest.raises(ValueError, match="number 1 has none"):
        attributes.attributes(torch.cat([U, torch.zeros_like(U)]))


def test_clusters_get_the_numbers_of_their_digits(attributes):
    digits = np.arange(40) % 4
    labels = np.array([2, 0, 3, 1])[digits]
    labels[:3] = labels[[1, 2, 0]]  # three wrong ones
    numbers = attributes.renumbered(labels, digits)
    assert (numbers == digits).sum() == 37
    assert len(set(zip(labels, numbers, strict=True))) == 4


def test_tables_count_what_the_trees_do(attributes):
    generator = np.random.default_rng(0)
    labels = np.arange(400) % 10
    frame = pd.DataFrame({"a": labels + generator.normal(0, 0.3, 400), "b": generator.normal(size=400)})
    model = CART(10, max_leaves=10).fit(frame[:200], labels=labels[:200])
    found = model.predict(frame)
    edges = [(0, 10), (10, 20), (0, 1), (5, 6)]  # the first two are inside a cluster
    graph = coo_matrix(([2.0, 1, 1, 1], np.transpose(edges)), shape=(200, 200))
    truth, ours = cells(
        attributes.compared({"all": labels, "tree": found}, {"tree": model}, labels % 5, graph.tocsr())
    )
    assert truth[:6] == [
        "all",
        "",
        "",
        "1.00",
        "1.00",
        f"{adjusted_rand_score(labels[:200] % 5, labels[:200]):.2f}",
    ]
    pairs = ((labels[:200], found[:200]), (labels[200:], found[200:]), (labels[:200] % 5, found[:200]))
    expected = [f"{adjusted_rand_score(*pair):.2f}" for pair in pairs]
    assert len(set(expected)) == 3
    assert ours[:6] == ["tree", "10", f"{waes(model.tree_):.1f}", *expected]
    same = [found[i] == found[j] for i, j in edges]
    assert truth[6] == "60%"
    assert ours[6] == f"{100 * np.dot(same, [2, 1, 1, 1]) / 5:.0f}%"
    counts = cells(attributes.exchanged(model, labels[:200]))
    assert [row[0] for row in counts] == [f"cluster {k}" for k in range(10)]
    counts = np.array([row[1:] for row in counts], int)
    assert (counts[:, -1] == 20).all()
    assert (counts[:, :-1].sum(1) == 20).all()
    assert 200 - np.trace(counts) == sum(rule.mistakes for rule in model.tree_.rules())


def cells(text):
    """Rows of a markdown table without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_guide_defines_the_columns_as_the_example_does(attributes):
    page = GUIDE.read_text(encoding="utf-8")
    rows = dict(cells(next(block for block in page.split("\n\n") if block.startswith("| column"))))
    simple = {column.__name__.replace("_", " "): column.__doc__.rstrip(".") for column in attributes.SIMPLE}
    assert {name: rows[name] for name in simple} == simple
    bays = [name for name in attributes.COLUMNS if name not in simple]
    assert set(rows) - set(simple) == {", ".join(bays)}


def test_without_mnist_the_digits_of_scikit_learn_are_taken(attributes, monkeypatch, capsys):
    def missing(split):
        raise ImportError("MNIST is missing")

    monkeypatch.setattr(attributes, "load_mnist", missing)
    images, digits = attributes.load(quick=False)
    assert images.shape == (1797, 1, 28, 28)
    assert images.amin() >= 0
    assert images.amax() <= 1
    assert (digits == load_digits().target).all()
    assert "MNIST is missing" in capsys.readouterr().out
    assert len(attributes.attributes(images)) == 1797  # all of them have ink


def test_the_code_of_the_guide_runs():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.S):
        exec(block, names)
    assert names["tree"].tree_.n_leaves == 10
    assert names["fidelity"] > 0.3


@pytest.mark.slow
def test_the_example_writes_what_it_says(attributes, tmp_path):
    app = typer.Typer()
    app.command()(attributes.main)
    result = CliRunner().invoke(app, ["--quick", "--out", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    promised = re.findall(r"[\w.]+\.(?:md|txt|png)", result.stdout.splitlines()[-1])
    assert sorted(promised) == sorted(path.name for path in tmp_path.iterdir())
    tables = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert tables.strip() in result.stdout
    trees, clusters = (cells(table) for table in tables.split("### ")[1:])
    assert trees[0][:4] == ["k-means", "", "", "1.00"]
    for name, leaves, size, known, *_ in trees[1:]:
        assert "leaves" not in name or (f", {leaves} leaves" in name and 0.4 < float(known) <= 1)
        assert 1 < float(size) < int(leaves)
    rules = (tmp_path / "rules.txt").read_text(encoding="utf-8")
    heads = re.findall(r"^cluster (\d): (\d+) samples?, (\d+) mistakes?$", rules, flags=re.M)
    counts = np.array([row[1:-1] for row in clusters], int)
    for k, samples, mistakes in np.array(heads, int):
        assert (samples, mistakes) == (counts[:, k].sum(), counts[:, k].sum() - counts[k, k])
