"""Make the five reports of the gallery: ``python docs/gallery.py --out gallery``.

Wine (a table of numbers), patients (with words and gaps), photos, texts and, where scanpy is installed, cells.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import all_estimators

import neonxc
from neonxc.data.preparation import prepare
from neonxc.models import efficientnet_lite0, to_tensor
from neonxc.report.report import Report

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))


EXPERIMENTAL = ("HalvingGridSearchCV", "HalvingRandomSearchCV", "IterativeImputer")


def main(out: Annotated[Path, typer.Option(help="Folder for the reports.")] = Path("gallery")) -> None:
    """Write all reports into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    for make in (wine, patients, photos, texts, cells):
        report = make()
        if report is not None:
            report.save(out / f"{make.__name__}.html")
            print(out / f"{make.__name__}.html")


def wine() -> Report:
    """A table of numbers."""
    X = datasets.load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    return neonxc.explain(model, X, title="Three kinds of wine")


def patients() -> Report:
    """A table with words and with gaps, which are made here: one cell in twenty is blank."""
    X = datasets.load_diabetes(as_frame=True, scaled=False).data.rename(columns={"bp": "blood pressure"}).copy()
    X["sex"] = X["sex"].map({1.0: "one", 2.0: "the other"})
    X["bmi"] = pd.cut(X["bmi"], [0, 25, 30, 99], labels=["normal", "overweight", "obese"]).astype(object)
    blank = np.random.default_rng(0).random(X.shape) < 0.05
    made = prepare(X.mask(blank).rename(columns={"bmi": "weight"}))
    model = make_pipeline(made.pipeline, KMeans(4, n_init=10, random_state=0)).fit(made.frame)
    return neonxc.explain(model, made.frame, title="442 patients", notes=made.notes)


def photos() -> Report:
    """Locations of photos, by a pretrained network."""
    from skimage import data

    names = ["chelsea", "coffee", "astronaut", "rocket", "hubble_deep_field"]
    pictures = [to_tensor(getattr(data, name)()[..., :3], 224)[:, :224, :224] for name in names]
    features = efficientnet_lite0(block=10, normalize=True)
    x = features.preprocess(torch.stack(pictures))
    model = KMeans(5, n_init=10, random_state=0).fit(features.points(x).numpy())
    return neonxc.explain(model, x, features, row_names=names, title="Five kinds of places in five photos")


def texts() -> Report:
    """What the docstrings of scikit-learn's estimators say."""
    found = {name: first_paragraphs(estimator.__doc__) for name, estimator in all_estimators()}
    for name in EXPERIMENTAL:  # which are listed once a module of sklearn.experimental has been imported
        found.pop(name, None)
    vectorizer = TfidfVectorizer(stop_words="english", max_df=0.3, min_df=3, sublinear_tf=True)
    model = make_pipeline(vectorizer, KMeans(8, n_init=10, random_state=0)).fit(list(found.values()))
    title = "scikit-learn's estimators, by their docstrings"
    return neonxc.explain(model, list(found.values()), row_names=list(found), title=title)


def first_paragraphs(text: str) -> str:
    """What stands before the parameters."""
    lines = re.split(r"\n\s*(?:Read more|Parameters)\b", text)[0].split()
    return " ".join(lines)


def cells() -> Report | None:
    """Clusters of cells that are known by their labels."""
    if find_spec("scanpy") is None:
        print("cells are left out: they come with scanpy")
        return None
    from single_cell import load

    found = load()
    return neonxc.explain(found.X, labels=found.obs["louvain"], names=found.var_names, title="700 blood cells")


if __name__ == "__main__":
    typer.run(main)
