"""Answers of the whole public interface, to be compared with those that were recorded earlier.

python -m tests.recorded_results --write FILE --signatures FILE

A change that shall leave all answers as they are is checked by ``test_far_device.py`` (entry points) and
``test_recorded_results.py`` (documents); one that shall not records them again. Recorded are all entries of
``entry_points``, on the CPU, and what is handed over to readers: reports and rules. An array of many numbers is
kept as some of them and a few of its projections.
"""

import argparse
import gzip
import inspect
import json
import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import neonxc
from neonxc.trees import CART, ExShallow

sys.path.insert(0, str(Path(__file__).parent))
from entry_points import ENTRIES
from entry_points.data import TEXTS

PACKAGES = ["neonxc", *(f"neonxc.{name}" for name in ["evaluation", "lrp", "models", "plot", "rules", "trees"])]
KEPT = 24  # numbers of an array that are kept
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
VOLATILE = {"created", "reproduce", "version", "versions"}  # what a report says about the installation

# --- what is recorded -------------------------------------------------------------------------------------


class Here:
    """Leaves tensors and modules on the CPU."""

    device = torch.device("cpu")

    def __call__(self, given):
        return given


def wine():
    data = load_wine(as_frame=True).data
    return make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(data), data


def mixed():
    data = load_wine(as_frame=True).data[["alcohol", "proline", "hue"]].copy()
    data["colour"] = pd.Categorical(np.where(data.pop("hue") > 0.9, "light", 'dark\'s "own"'))
    data.loc[::9, "proline"] = np.nan
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer((numbers, ["alcohol", "proline"]), (OneHotEncoder(), ["colour"]))
    return make_pipeline(columns, KMeans(4, n_init=1, random_state=0)).fit(data), data


def report(make):
    model, data = make()
    page = neonxc.explain(model, data)
    return [page.to_dict(), page.to_frame(), str(page)]


def report_of_texts():
    from sklearn.feature_extraction.text import TfidfVectorizer

    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(TEXTS * 8)
    return neonxc.explain(model, TEXTS * 8).to_dict()


def rules(explainer, make):
    model, data = make()
    labels = model.predict(data).astype(float)
    labels[::11] = np.nan  # noise
    found = explainer.fit(data, labels=labels).tree_.rules()
    forms = [found.to_sql("t"), found.to_query(), found.to_python(), found.to_markdown(), found.to_html()]
    return [str(found), *map(str, forms), found.to_frame(), found.to_dict(), found.predict(data)]


DOCUMENTS = {
    "report of a pipeline": partial(report, wine),
    "report of a mixed table": partial(report, mixed),
    "report of texts": report_of_texts,
    "rules of a pipeline": partial(rules, ExShallow(random_state=0), wine),
    "rules of a mixed table": partial(rules, CART(max_leaves=7), mixed),
}
CASES = {name: partial(one.work, Here()) for name, one in ENTRIES.items()} | DOCUMENTS


def answer(name):
    """The answers of a case."""
    torch.manual_seed(0)
    return CASES[name]()


def recorded(answers):
    """Answers as they are kept in the file."""
    return json.loads(json.dumps(kept(answers)))


def kept(value):
    """A value as JSON; arrays of many numbers are shortened."""
    if isinstance(value, dict):
        return {str(key): kept(one) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, (list, tuple)):
        return [kept(one) for one in value]
    if isinstance(value, pd.DataFrame):
        return {str(name): kept(value[name].to_numpy()) for name in value}
    if isinstance(value, torch.Tensor):
        return kept(value.detach().numpy())
    if sparse.issparse(value):
        return kept(value.toarray())
    if isinstance(value, (np.ndarray, pd.Series, pd.Index)):
        return array(np.asarray(value))
    if isinstance(value, np.generic):
        return kept(value.item())
    return short(value) if isinstance(value, float) else value if isinstance(value, int | None) else str(value)


def array(values):
    """The shape and type of an array with its values, or with some of them and three projections."""
    if values.dtype.kind not in "fiub":
        return [None if value is None else str(value) for value in values.ravel().tolist()]
    flat = values.ravel().astype(np.float64)
    if flat.size > KEPT:
        weights = np.random.default_rng(0).standard_normal((3, flat.size)) / flat.size**0.5
        projections = [float(weight[np.isfinite(flat)] @ flat[np.isfinite(flat)]) for weight in weights]
        places = np.linspace(0, flat.size - 1, KEPT).astype(int)
        flat = np.concatenate([flat[places], projections])
    kind = f"{values.dtype} {list(values.shape)}"
    return {"array": kind, "values": [short(value) for value in flat.tolist()]}


def short(value):
    """A number with as many digits as are compared; infinities and NaN as text."""
    return float(f"{value:.10g}") if np.isfinite(value) else str(value)


# --- comparison -------------------------------------------------------------------------------------------


def difference(then, now, place="", size=0.0):
    """Where two records differ first by more than rounding, and how; empty if they do not."""
    if isinstance(then, dict) and isinstance(now, dict):
        if then.keys() != now.keys():
            return f"{place}: keys {sorted(then.keys() ^ now.keys())}"
        if "array" in then:
            numbers = [abs(value) for value in then["values"] if not isinstance(value, str)]
            size = max(numbers, default=0.0) * (1e3 if "float32" in then["array"] else 1.0)
        return next(
            (found for key in then if (found := difference(then[key], now[key], f"{place}.{key}", size))), ""
        )
    if isinstance(then, list) and isinstance(now, list):
        if len(then) != len(now):
            return f"{place}: {len(then)} items were recorded, now {len(now)}"
        pairs = enumerate(zip(then, now, strict=True))
        return next((found for at, (a, b) in pairs if (found := difference(a, b, f"{place}[{at}]", size))), "")
    if isinstance(then, str) and isinstance(now, str):
        return "" if same_text(then, now) else f"{place}: recorded {then!r}, now {now!r}"
    if isinstance(then, float | int) and isinstance(now, float | int):
        # The last digit of weights drawn in float32 depends on the processor: relevance differs by up to 7e-6
        rounding = 2e-5 * max(abs(then), size) + 1e-12
        return "" if abs(then - now) <= rounding else f"{place}: recorded {then}, now {now}"
    return "" if then == now else f"{place}: recorded {then!r}, now {now!r}"


def same_text(then, now):
    """Whether texts are equal but for the last digit of their numbers."""
    one = NUMBER.split(then)
    other = NUMBER.split(now)
    if len(one) != len(other) or one[::2] != other[::2]:
        return False
    return all(a == b or near(a, b) for a, b in zip(one[1::2], other[1::2], strict=True))


def near(a, b):
    """Whether printed numbers are equal but for rounding, which may change the last digit of a fraction."""
    digits = len(a.partition("e")[0].partition(".")[2])
    return digits > 0 and abs(float(a) - float(b)) <= max(1.01 * 10**-digits, 1e-6 * abs(float(a)))


# --- signatures -------------------------------------------------------------------------------------------


def signatures():
    """A line per public name: its parameters with their defaults, and those of the methods of classes."""
    lines = []
    for package in PACKAGES:
        home = import_module(package)
        for name in sorted(home.__all__):
            thing = getattr(home, name)
            lines += named(f"{package}.{name}", thing)
            if isinstance(thing, type):
                own = {key: value for base in reversed(thing.__mro__) for key, value in ours(base).items()}
                lines += [line for key in sorted(own) for line in named(f"{package}.{name}.{key}", own[key])]
    return lines


def ours(cls):
    """The public attributes that a class of this package defines itself."""
    mine = cls.__module__.partition(".")[0] == "neonxc"
    return {key: value for key, value in vars(cls).items() if mine and not key.startswith("_")}


def named(name, thing):
    if isinstance(thing, property):
        return [f"{name}: property"]
    function = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
    if not callable(function):
        return [f"{name}: {type(function).__name__}"]
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return [name]
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    text = str(inspect.Signature(bare))
    return [name + re.sub(r"<[^>]* at 0x[0-9a-f]+>|<function [^>]*>", "<function>", text)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--signatures", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.signatures:
        options.signatures.write_text("\n".join(signatures()) + "\n", encoding="utf-8")
    if options.write:
        answers = {name: recorded(answer(name)) for name in CASES}
        text = json.dumps(answers, separators=(",", ":"), ensure_ascii=False)
        options.write.write_bytes(gzip.compress(text.encode(), mtime=0))
