import gc
import os
import sys
from importlib import import_module
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")  # before anything imports pyplot: no test opens a window
# before anything imports torch: idle threads must not spin, or small operations take 100 times as long
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if "PYTEST_XDIST_WORKER" in os.environ:  # the others use the other cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


def pytest_configure(config):
    hands_out = config.getoption("numprocesses", None)  # other processes run the tests, and import what they need
    if hands_out and not config.getoption("--hypothesis-profile", None):
        return
    import hypothesis

    # The same few examples in every run; `pytest --hypothesis-profile explore` tries many others. No deadline: a
    # first call may compile or load something.
    hypothesis.settings.register_profile("neonxc", deadline=None, derandomize=True, max_examples=10)
    hypothesis.settings.register_profile("explore", deadline=None, derandomize=False, max_examples=200)
    hypothesis.settings.load_profile("neonxc")
    gc.disable()  # until all modules and tests are there, which stay: to look for garbage among them takes seconds


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def _seed():
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _figures():
    """Close pyplot's figures, of which more than 20 at once are a warning."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def without_reality(monkeypatch):
    """Ask no report or command whether clusters are real, which takes half of the time of one on a small table.

    Surrogates are refitted once instead of three times, for their stability.
    """

    def refused(*_, **__):
        raise ValueError("is not asked in this test")

    monkeypatch.setattr("neonxc.evaluation.real.null_reference", refused)
    monkeypatch.setattr("neonxc.evaluation.real.separation", refused)
    monkeypatch.setattr("neonxc.clusterings.surrogate.REFITS", 1)


@pytest.fixture(scope="module")
def example():
    """Import an example by its name, also of a paper; the names of its folder are gone again afterwards."""
    folder = Path(__file__).parent.parent / "examples"
    names = ["papers", *(f"{at}{path.stem}" for path in folder.rglob("*.py") for at in ("", "papers."))]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "papers")
        patch.syspath_prepend(folder)
        for name in names:  # packages on PyPI are called so, too
            patch.delitem(sys.modules, name, raising=False)
        yield import_module
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def run_example(example):
    """Run an example with options: ``run_example(name, *options)`` -> what it prints."""
    import typer
    from typer.testing import CliRunner

    def run(name, *options, status=0):
        app = typer.Typer()
        app.command()(example(name).main)
        result = CliRunner().invoke(app, [*map(str, options)], catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result.output

    return run


@pytest.fixture(scope="session")
def ranks():
    """Run work on three processes of a group: ``ranks(work, *arguments)`` -> what it returns on each."""
    from processes import Processes

    processes = Processes(3)
    yield processes
    processes.close()


@pytest.fixture
def far():
    """A device that is not the CPU: ``far.device``."""
    from far_device import far_device

    with far_device() as device:
        yield device


@pytest.fixture
def neonxc_command(monkeypatch, capsys, tmp_path):
    """Run `neonxc ARGS` in an empty folder: exit code, stdout, stderr."""
    from neonxc.cli.commands import main

    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr("sys.argv", ["neonxc", *map(str, args)])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return run


@pytest.fixture
def ran(neonxc_command):
    """Run a command that succeeds -> what it prints."""

    def run(command):
        code, out, err = neonxc_command(*command.split())
        assert code == 0, err
        return out

    return run


@pytest.fixture
def photos(tmp_path):
    """Paths of four small photos, of which each second one is darker."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = [tmp_path / f"photo{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        pixels = rng.integers(0, 256, (40, 50, 3)) // (1 if i % 2 else 3)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return paths


@pytest.fixture
def wine_csv(tmp_path):
    from sklearn.datasets import load_wine

    path = tmp_path / "wine.csv"
    load_wine(as_frame=True).frame.to_csv(path, index=False)
    return path
