"""The wheel, the editable install and the bare clone: all three import the same packages."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import neonxc
from neonxc.common.arguments import installed_by

ROOT = Path(__file__).resolve().parents[1]
# folder in the checkout: its place in the wheel
FOLDERS = {"neonxc": "neonxc", "trees": "neonxc/trees", "models": "neonxc/models"}


def package_files(root):
    """Where each file of the three folders belongs in the wheel: {place in the wheel: file}."""
    return {
        f"{place}/{path.relative_to(root / folder).as_posix()}": path
        for folder, place in FOLDERS.items()
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


PACKAGES = sorted(
    place.removesuffix("/__init__.py").replace("/", ".")
    for place in package_files(ROOT)
    if place.endswith("/__init__.py")
)
# Of the three folders' packages it is enough to find them, which takes no time; others lie inside these.
FIND = """
import json, neonxc
from importlib.util import find_spec
files = {name: find_spec(name).origin for name in ("neonxc", "neonxc.trees", "neonxc.models")}
print(json.dumps({"files": files, "path": list(neonxc.__path__), "version": neonxc.__version__}))
"""

BUILD = """
import os, sys, tarfile
from pathlib import Path
from setuptools import build_meta
source, out = map(Path, sys.argv[1:])
(out / "editable").mkdir()
build_meta.build_editable(str(out / "editable"))
with tarfile.open(out / build_meta.build_sdist(str(out))) as archive:
    archive.extractall(out, filter="data")
(folder,) = out.glob("neonxc-*/")
os.chdir(folder)
build_meta.build_wheel(str(out))
"""

HEAVY = ["captum", "matplotlib", "numpy", "pandas", "sklearn", "torch", "torchvision"]
DENSITY = """
from sklearn.cluster import DBSCAN
X = [[i / 50, i % 2] for i in range(100)]
assert neuralize(DBSCAN(eps=0.25, metric='cityblock').fit(X), X).fidelity_ > 0.99
"""
REPORT = """
neonxc.explain([[i % 4, i % 2 * 9 + i / 50] for i in range(60)], clusters=2, fast=True).html()
"""
UNUSED = [
    *("PIL", "captum", "matplotlib", "pyarrow.parquet", "scipy.cluster.hierarchy", "torchvision"),
    *("neonxc.clusterings.density", "neonxc.counterfactuals", "neonxc.head.noise", "neonxc.inputs.backbone"),
    *("neonxc.inputs.terms", "neonxc.lrp", "neonxc.models", "neonxc.naming.text_judge"),
    "neonxc.trees.explainers.kernel",
]
# What a process imports step by step, the package anew in each list, and what it must not have imported by then
STEPS = [
    [
        ("import neonxc", HEAVY),
        ("from neonxc import __version__, evaluation", HEAVY),
        ("from neonxc import plot", ["captum", "matplotlib.pyplot", "pandas", "sklearn", "torch", "torchvision"]),
    ],
    [
        ("import neonxc", UNUSED),
        (REPORT, UNUSED),
        ("from neonxc.cli import tables", ["captum", "matplotlib", "neonxc.hierarchy", "neonxc.plot"]),
    ],
    [
        ("import neonxc.trees", ["captum", "matplotlib", "torchvision", "neonxc.models"]),
        ("from neonxc.evaluation import cost_ratio, segmentation_match", ["captum", "matplotlib", "torchvision"]),
    ],
    [
        ("from neonxc import NEON, neuralize", ["torchvision", "neonxc.models", "neonxc.trees"]),
        (DENSITY, ["neonxc.trees"]),  # imports what it needs
    ],
]
IMPORT = f"""
import pickle, pkgutil, sys
from importlib import import_module
from importlib.metadata import distribution
for steps in {STEPS!r}:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("neonxc", "matplotlib", "PIL")]:
        del sys.modules[name]
    for step, absent in steps:
        exec(step)
        found = [name for name in absent if name in sys.modules]
        assert not found, (step, found)
for name in {PACKAGES!r}:
    import_module(name)
# No module takes the place of a function
offered, modules = set(neonxc.__all__), {{module.name for module in pkgutil.iter_modules(neonxc.__path__)}}
assert offered.isdisjoint(modules), offered.intersection(modules)
for first in modules - {{"__main__"}}:
    import_module(f"neonxc.{{first}}")
taken = [name for name in neonxc.__all__ if isinstance(getattr(neonxc, name), type(sys))]
assert not taken, taken
# Functions of a notebook are pickled by value, as Ray, Spark, Dask and joblib send them to other processes
from joblib import wrap_non_picklable_objects  # by cloudpickle
def decided(X):
    return neonxc.neuralize(X[:2]).predict(X).tolist() + [neonxc.evaluation.__name__]
with open(sys.argv[1], "wb") as file:
    pickle.dump(wrap_non_picklable_objects(decided), file)
(command,) = distribution("neonxc").entry_points.select(group="console_scripts")
assert command.name == "neonxc", command
sys.argv = ["neonxc", "--help"]
command.load()()
"""


def run(*command, cwd, path=None):
    """Run without the caller's Python settings; only `path` is on PYTHONPATH."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def inside(file, folder):
    return Path(file).resolve().is_relative_to(Path(folder).resolve())


def found_in(folder, *, cwd, path=None, flags=(), before=""):
    """What a new process finds; all packages must come from `folder`."""
    found = json.loads(run(*flags, "-c", before + FIND, cwd=cwd, path=path))
    assert {name: file for name, file in found["files"].items() if not inside(file, folder)} == {}
    return found


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A clean copy of the source tree: no caches, no earlier builds, no installed metadata."""
    copy = tmp_path_factory.mktemp("source") / "clone"
    copy.mkdir()
    for entry in ROOT.iterdir():
        if entry.is_file() and not entry.name.startswith("."):
            shutil.copy2(entry, copy)
    for folder in [*FOLDERS, "tests", "docs", "examples"]:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    return copy


@pytest.fixture(scope="session")
def built(source, tmp_path_factory):
    """The wheel built from the sdist, so that what the sdist lacks is missed here; and the editable one."""
    out = tmp_path_factory.mktemp("dist")
    run("-c", BUILD, source, out, cwd=source)
    return out


@pytest.fixture(scope="session")
def wheel(built):
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_metadata(unpacked):
    (file,) = unpacked.glob("*.dist-info/METADATA")
    about = Parser().parsestr(file.read_text(encoding="utf-8"))
    expected = {"Name": "neonxc", "License-Expression": "BSD-3-Clause", "License-File": "LICENSE"}
    assert {("Requires-Python", ">=3.11"), *expected.items()} <= {*about.items()}
    extras = "cells demo dev docs evaluation shap test text timm train umap vision"
    assert sorted(about.get_all("Provides-Extra")) == extras.split()
    found = found_in(unpacked, cwd=unpacked)
    assert found["path"] == [str(unpacked / "neonxc")]  # nothing of a checkout is added to it
    assert found["version"] == about["Version"]


def test_installation_is_written_alike():
    """Every place says what the one function says, and names extras that there are."""
    extras = {*tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]}
    files = [path for kind in ("py", "md", "ipynb", "yaml") for path in ROOT.rglob(f"*.{kind}")]
    places = 0
    for path in files:
        folders = path.relative_to(ROOT).parts
        if folders[0] in ("tests", "CHANGELOG.md", "shared", "build") or any(
            name.startswith((".", "_build")) for name in folders
        ):
            continue
        text = path.read_text(encoding="utf-8").replace('\\"', '"')
        assert "neonxc[" not in text, path
        for line in re.findall(r"pip install(?! neonxc).*", text):
            if path.name == "arguments.py":
                continue
            found = re.match(r'pip install -e "\.\[([a-z,]+)\]"', line)
            assert found is not None, (path, line)
            assert {*found[1].split(",")} <= extras, path
            assert found[0] in installed_by(*found[1].split(","))
            places += 1
    assert places > 15
    written = [path for path in files if path.name != "arguments.py" and "in a checkout, pip" in path.read_text()]
    assert not [path for path in written if path.relative_to(ROOT).parts[0] in ("neonxc", "models", "trees")]


def test_wheel_holds_the_three_packages_and_nothing_else(source, wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        held = {name: archive.read(name) for name in names if ".dist-info/" not in name}
    expected = {place: path.read_bytes() for place, path in package_files(source).items()}
    assert held == expected
    assert {f"{place}/py.typed" for place in FOLDERS.values()} <= set(held)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"neonxc"}  # and the metadata


def test_wheel_installed_and_the_clone(source, unpacked, tmp_path):
    # In the clone its own `neonxc/` comes first; then the other two must be the clone's as well.
    found_in(source, cwd=source, path=unpacked)
    found_in(source, cwd=tmp_path, path=source)  # and the bare clone from elsewhere


def test_editable_install_from_elsewhere(source, built, tmp_path):
    (file,) = built.glob("editable/*.whl")
    site = tmp_path / "site"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(file) as archive:
        archive.extractall(site)
    # `site` stands in for site-packages. -S and the front place keep away the install that these tests use.
    libraries = [entry for entry in sys.path if entry and Path(entry).resolve() != ROOT]
    before = f"""
import site, sys
sys.path += {libraries!r}
site.addsitedir({str(site)!r})
sys.meta_path.insert(0, sys.meta_path.pop())
"""
    found_in(source, cwd=elsewhere, path=site, flags=["-S"], before=before)


def test_these_tests_run_on_the_checkout():
    assert [name for name in PACKAGES if not inside(import_module(name).__file__, ROOT)] == []


@pytest.mark.slow
def test_what_is_not_used_is_not_imported_and_all_can_be(unpacked, tmp_path):
    printed = run("-c", IMPORT, "function", cwd=tmp_path, path=unpacked)
    assert "demo" in printed
    with open(tmp_path / "function", "rb") as file:
        assert pickle.load(file)(np.eye(3)) == [0, 1, 0, "neonxc.evaluation"]


def test_all_that_is_offered_is_there():
    for package in (neonxc, neonxc.evaluation):
        assert set(package.__all__) <= set(dir(package))
        assert all(hasattr(package, name) for name in dir(package))
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018
