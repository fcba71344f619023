"""What mypy tells users: results have the types that follow from the arguments, and `Any` needs a reason.

mypy reads the package as it is installed, and programs of users with a line per public name or call.
"""

import inspect
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest
from recorded_results import ours
from test_far_device import public_names

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parents[1]

# mypy knows nothing of libraries without types. pandas has some in pandas-stubs; these few tell its classes apart
# from `Any`.
PANDAS = """
from typing import Any
class Index: ...
class Series: ...
class DataFrame:
    @property
    def columns(self) -> Index: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
def __getattr__(name: str) -> Any: ...
"""
UNTYPED = """
from typing import Any
def __getattr__(name: str) -> Any: ...
"""
CONFIG = """
[mypy]
strict = true
follow_imports = silent
[mypy-captum.*,scipy.*,sklearn.*]
ignore_missing_imports = true
"""

# Public names of type `Any`, and why
ANY = {
    "neonxc.load": "the file decides; the user's annotation of the variable says what is in it",
    # libraries without types
    "neonxc.to_shap": "shap has no types",
    "neonxc.BatchFunction.schema": "pyarrow has no types",
    "neonxc.data.preparation.*": "scikit-learn has no types",
    "*.to_sklearn": "scikit-learn has no types",
    "*.set_*_request": "scikit-learn sets these methods",
    # values of any type by their nature
    "*.to_dict": "JSON",
    "*.recipe": "JSON",
    "neonxc.evaluation.*.rows": "cells of a table, which are numbers and strings; deprecated",
    "neonxc.*.get_extra_state": "PyTorch declares this method so",
    "neonxc.models.EfficientNetLite0.load_state_dict": "PyTorch does not export the type of the result",
    # a type parameter with this default
    "neonxc.Counterfactual.*s": "Rows, unless an annotation names the type of the rows",
    "neonxc.Estimate.relevance": "Rows, unless an annotation names the type of the rows",
    "neonxc.Similarity.relevance_?": "Rows, unless an annotation names the type of the rows",
    # for those who write extensions: each implementation has a type of its own
    "neonxc.lrp.LinearLayer.memory": "what a rule keeps from one call to the next",
    "neonxc.trees.criteria.criterion.Criterion.open": "what a criterion keeps of a node",
    "neonxc.trees.cuts.growth.Node.state": "what a criterion keeps of a node",
    "neonxc.trees.cuts.growth.Splits.best": "what a search finds",
    "neonxc.head.detection.LinearDetection.located": "points where a detection measures them",
    "neonxc.inputs.Inputs.*": "what a kind of inputs computes on, and what it returns to its caller",
    "neonxc.inputs.terms.Terms.encode": "a sparse matrix: SciPy has no types",
}

# What a user has
VARIABLES = {
    "array": "NDArray[np.uint8]",
    "bare": "np.ndarray",  # of any shape and dtype, as most functions of NumPy return it
    "tensor": "Tensor",
    "frame": "pd.DataFrame",
    "polars": "pl.DataFrame",
    "lists": "list[list[float]]",
    "texts": "list[str]",
    "loader": "DataLoader[Tensor]",
    "net": "neonxc.NeuralizedClustering",
    "neon": "neonxc.NEON",
    "lrp": "neonxc.lrp.LRP",
    "concepts": "neonxc.Concepts",
    "moves": "neonxc.Moves",
    "report": "neonxc.Report",
    "rules": "neonxc.rules.Rules",
    "tree": "neonxc.trees.ThresholdTree",
    "imm": "neonxc.trees.IMM",
    "kmeans": "neonxc.models.KernelKMeans",
    "kcenter": "neonxc.models.KCenter",
    "strong": "neonxc.models.StronglyInterpretable",
    "scan": "neonxc.models.SCAN",
    "encoder": "neonxc.models.SentenceEncoder",
    "extractor": "neonxc.models.FeatureExtractor",
}
# Functions of rows that return a value, or a row of values, for each
PER_ROW = (
    "net.predict rules.predict rules[0].matches tree.predict tree.apply imm.predict kmeans.predict "
    "kmeans.transform kcenter.predict strong.predict neon.residual neon.heatmaps neon.thresholds "
    "neon.threshold_heatmaps"
)
# What calls return: A is an array, T a tensor, F a data frame
CALLS = {
    # rows in, rows out
    "neon.attribute(array)": "A",
    "neon.attribute(bare)": "A",
    "neon.attribute(tensor)": "T",
    "neon.attribute(frame)": "F",
    "neon.attribute(polars)": "pl.DataFrame",
    "neon.attribute((tensor,), target=0)": "tuple[T]",
    "neon.attribute((frame,))": "tuple[F]",
    "neon.attribute(lists)": "A | F",
    "neon.attribute(texts, 1, 2)": "A | F",
    "neon.estimate(array).relevance": "A",
    "neon.estimate(bare).relevance": "A",
    "neon.estimate(tensor).relevance": "T",
    "neon.estimate(frame).relevance": "F",
    "neon.estimate(polars).relevance": "pl.DataFrame",
    "neonxc.counterfactual(net, array).points": "A",
    "neonxc.counterfactual(net, bare).points": "A",
    "neonxc.counterfactual(net, tensor).points": "T",
    "neonxc.counterfactual(net, frame).changes": "F",
    "neonxc.counterfactual(net, polars).points": "pl.DataFrame",
    "neonxc.counterfactual(net, array).labels": "A",
    "neonxc.counterfactual(net, tensor).labels": "T",
    "neonxc.counterfactual(net, frame).labels": "A",
    "neonxc.similarity(encoder, texts, texts).relevance_a": "A",
    "neonxc.similarity(extractor, tensor, tensor).relevance_b": "T",
    "lrp.attribute(tensor, 3)": "T",
    "lrp.attribute((tensor,))": "tuple[T, ...]",
    # networks
    "net(tensor)": "T",
    "extractor(tensor)": "T",
    "encoder(tensor)": "T",
    # positions of labels
    "net.positions(1)": "int",
    'net.positions("a")': "int",
    "net.positions([1, 2])": "T",
    "net.positions(net.classes_)": "T",
    "net.positions(None)": "None",
    # tables
    'read_table("table.csv")': "F",
    "moves.to_frame()": "F",
    "report.to_frame()": "F",
    "rules.to_frame()": "F",
    "neon.summary(frame).to_frame()": "F",
}
for function in PER_ROW.split():
    CALLS |= {f"{function}({rows})": "A" for rows in ("array", "bare", "frame", "polars", "lists", '"table.csv"')}
    CALLS[f"{function}(tensor)"] = "T"
for function in ("scan.predict", "scan.predict_proba", "scan.transform"):
    CALLS |= {f"{function}({images})": "A" for images in ("array", "bare")}
    CALLS |= {f"{function}({images})": "T" for images in ("tensor", "loader")}
CALLS |= {"concepts.heatmaps(net, array)": "A", "concepts.heatmaps(net, tensor)": "T"}

PROGRAM = """
from typing import assert_type
import numpy as np
import pandas as pd
import polars as pl
import neonxc, neonxc.lrp, neonxc.models, neonxc.rules, neonxc.trees
from neonxc.data.files import read_table
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
A = np.ndarray
T = Tensor
F = pd.DataFrame
"""


def members(cls):
    """The public members of a class that this package defines, and the attributes that its docstring lists."""
    names = {name for base in cls.__mro__ for name in ours(base)}
    text = inspect.getdoc(cls) or ""
    section = re.search(r"\nAttributes\n-+\n(.*?)(\n[A-Z]\w+\n--|\Z)", text, re.DOTALL)
    if section:
        for listed in re.findall(r"^(\w[\w, ]*) : ", section[1], re.MULTILINE):
            names |= {*listed.split(", ")}
    return sorted(name for name in names if not name.startswith("_"))


def public_things():
    """Public functions and members of public classes: module, name, and the name of the member or ""."""
    things = []
    for path in sorted(public_names()):
        home, _, name = f"neonxc.{path}".rpartition(".")
        thing = getattr(import_module(home), name)
        if inspect.isclass(thing):
            things += [(home, name, member) for member in members(thing)]
        else:
            things.append((home, name, ""))
    return things


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The package as it is installed."""
    folder = tmp_path_factory.mktemp("types")
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "neonxc", folder / "neonxc", ignore=no_caches)
    for part in ("trees", "models"):
        shutil.copytree(ROOT / part, folder / "neonxc" / part, ignore=no_caches)
    return folder


def checked(site, lines, has_pandas=True):
    """Run ``mypy --strict`` on a program, and return its messages as (line, kind, text)."""
    stubs = site / "pandas" / "__init__.pyi"
    stubs.parent.mkdir(exist_ok=True)
    stubs.write_text(PANDAS if has_pandas else UNTYPED, encoding="utf-8")
    (site / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    (site / "program.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "program.py"]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
    assert not done.stderr
    return re.findall(r"^program\.py:(\d+): (\w+): (.*)$", done.stdout, re.MULTILINE)


def returned(revealed):
    """The types that a function returns: what mypy reveals, without the parameters."""
    text = revealed.removeprefix('Revealed type is "').removesuffix('"').removeprefix("Overload(")
    # these are what NumPy and Python have for arrays, integers and slices without parameters
    text = text.replace("tuple[Any, ...], numpy.dtype[Any]", "").replace("tuple[Any, ...], dtype[Any]", "")
    text = text.replace("numpy.integer[Any]", "int").replace("slice[Any, Any, Any]", "slice")
    before = ""
    while text != before:
        before = text
        text = re.sub(r"\([^()]*\)", "", text)
    return text


@pytest.mark.slow
def test_public_names_have_types(site):
    names = public_things()
    lines = [f"import {home}" for home in sorted({home for home, _, _ in names})]
    first = len(lines) + 1
    for home, name, member in names:
        if member:
            lines.append(f"def use_{len(lines)}(x: {home}.{name}) -> None: reveal_type(x.{member})")
        else:
            lines.append(f"reveal_type({home}.{name})")
    messages = checked(site, lines)
    assert [message for message in messages if message[1] != "note"] == []
    revealed = {".".join(filter(None, names[int(line) - first])): returned(text) for line, _, text in messages}
    assert len(revealed) == len(names)

    untyped = {name: text for name, text in revealed.items() if re.search(r"\bAny\b", text)}
    assert {name: text for name, text in untyped.items() if not any(fnmatch(name, known) for known in ANY)} == {}
    assert [known for known in ANY if not any(fnmatch(name, known) for name in untyped)] == []


@pytest.mark.slow
@pytest.mark.parametrize("has_pandas", [True, False], ids=["pandas-stubs", "pandas alone"])
def test_calls_return_what_the_arguments_say(site, has_pandas):
    variables = ", ".join(f"{name}: {kind}" for name, kind in VARIABLES.items())
    lines = [*PROGRAM.splitlines(), f"def use({variables}) -> None:"]
    for call, kind in CALLS.items():
        is_pandas = "frame" in call or re.search(r"\bF\b", kind)
        if has_pandas or not is_pandas:  # these are `Any` without its types
            lines.append(f"    assert_type({call}, {kind})")
    messages = checked(site, lines, has_pandas)
    assert [(lines[int(line) - 1].strip(), text) for line, _, text in messages] == []
