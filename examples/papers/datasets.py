"""Data sets for the tree examples: those of scikit-learn, a folder of tables, and the papers' synthetic ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets


@dataclass(frozen=True)
class Dataset:
    """Points `X` [n, d] and the number of clusters, which is the number of classes if there are labels `y` [n]."""

    name: str
    X: np.ndarray
    k: int
    y: np.ndarray | None = None


TOYS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}


def toys(*names: str) -> list[Dataset]:
    """Load data sets of scikit-learn, by default all four."""
    found = []
    for name in names or TOYS:
        X, y = TOYS[name](return_X_y=True)
        found.append(Dataset(name, X, len(np.unique(y)), y))
    return found


def tables(folder: Path) -> list[Dataset]:
    """Load every NAME.csv.gz or NAME.csv in a folder that has numeric columns and a last column `label`; skip
    others."""
    paths = sorted([*folder.glob("*.csv.gz"), *folder.glob("*.csv")])
    return [data for path in paths if (data := table(path)) is not None]


def table(path: Path) -> Dataset | None:
    """Load one table; return None if its columns are of another kind."""
    try:
        cells = np.genfromtxt(path, delimiter=",", dtype=str, encoding="utf-8")
        if cells.ndim != 2 or cells[0, -1] != "label":
            return None
        X = cells[1:, :-1].astype(np.float64)
    except ValueError:  # rows of different length, or text
        return None
    names, y = np.unique(cells[1:, -1], return_inverse=True)
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    return Dataset(name, X, len(names), y) if np.isfinite(X).all() else None


def synthetic_one(n: int = 5000, d: int = 1000, nu: float = 1000, changed: int = 100, seed: int = 0) -> Dataset:
    """Make Synthetic I, which is hard for CART: three clusters, one of which has only two points, far apart.

    Two points are (nu, 1, ..., 1) and (nu, 0, ..., 0). The first feature of all other points is 0. The other
    features of one half of these points are 1, with `changed` random features set to 0; those of the other half
    are 0, with `changed` random features set to 1.

    From N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020, B.2.
    """
    generator = np.random.default_rng(seed)
    rest = (np.arange(n - 2) % 2)[:, None].astype(np.float64)  # 0, 1, 0, 1, ...
    flipped = generator.random((n - 2, d - 1)).argpartition(changed, axis=1)[:, :changed]
    body = np.repeat(rest, d - 1, axis=1)
    np.put_along_axis(body, flipped, 1 - rest, axis=1)
    far = np.stack([np.ones(d - 1), np.zeros(d - 1)])
    first = np.concatenate([np.full(2, nu), np.zeros(n - 2)])
    return Dataset("Synthetic I", np.column_stack([first, np.concatenate([far, body])]), 3)


def synthetic_two(k: int = 30, d: int = 1000, seed: int = 0) -> Dataset:
    """Make Synthetic II, which needs more than k leaves: d points around each of k random codewords of -1 and 1.

    Each of the d points is the codeword with a different one of its d features set to 0. There are k d points in
    all.

    From the same paper, Section 3.4, after M. Moshkovitz et al., "Explainable k-means and k-medians clustering",
    ICML 2020.
    """
    codewords = np.random.default_rng(seed).choice([-1.0, 1.0], size=(k, d))
    return Dataset("Synthetic II", (codewords[:, None] * (1 - np.eye(d))).reshape(k * d, d), k)
