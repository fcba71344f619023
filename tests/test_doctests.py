"""The examples of everything public, and of modules whose names no package exports."""

import doctest
import inspect
from importlib import import_module
from importlib.util import find_spec

import pytest

PACKAGES = ["neonxc", "neonxc.evaluation", "neonxc.lrp", "neonxc.models", "neonxc.plot", "neonxc.trees"]

MODULES = [
    "neonxc.common.memory",
    "neonxc.data.preparation",
    "neonxc.common.colours",
    "neonxc.report.page",
    "neonxc.rules.intervals",
    "neonxc.rules.wording",
    "neonxc.data.files.frame",
    "neonxc.models.interpretable.values_of_interest",
    "neonxc.models.scan.augment",
    "neonxc.trees.graph",
    "neonxc.trees.cuts.intervals",
    "neonxc.trees.fit.kernel_features",
]


def public():
    """{name: object} of all that is exported, a package's own documentation included."""
    found = {}
    for package in PACKAGES:
        if find_spec(package) is None:
            continue
        module = import_module(package)
        found[package] = module
        found |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    for name in MODULES:
        own = {key: thing for key, thing in vars(import_module(name)).items() if not key.startswith("_")}
        found |= {f"{name}.{key}": own[key] for key in own if getattr(own[key], "__module__", None) == name}
    return found


PUBLIC = public()


def _examples(name):
    thing = PUBLIC[name]
    if inspect.ismodule(thing):  # its names have examples of their own
        return doctest.DocTestParser().get_doctest(thing.__doc__ or "", {}, name, None, 0), []
    return None, doctest.DocTestFinder(exclude_empty=True).find(thing, name, globs={})


def with_examples(name):
    of_module, found = _examples(name)
    return [test for test in [of_module, *found] if test is not None and test.examples]


# Reports of tables, which many other tests make
LONG = ["describe", "explain", "layers", "evaluation.choose_k", "evaluation.null_reference"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name.removeprefix("neonxc.") in LONG))
        for name in PUBLIC
        if with_examples(name)
    ],
)
def test_examples(name):
    for test in with_examples(name):
        report = []
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=report.append)
        assert runner.failures == 0, "".join(report)


def test_everything_public_says_what_it_is():
    told = (inspect.ismodule, inspect.isclass, callable)
    things = {name: thing for name, thing in PUBLIC.items() if any(kind(thing) for kind in told)}
    assert [name for name, thing in things.items() if not (inspect.getdoc(thing) or "").strip()] == []


@pytest.mark.parametrize("name", ["neonxc.neuralize", "neonxc.NEON", "neonxc.lrp.LRP", "neonxc.lrp.Composite"])
def test_the_first_things_one_meets_have_examples(name):
    assert with_examples(name)
