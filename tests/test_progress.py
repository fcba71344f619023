"""Progress bars can be switched off, in Python and in the commands."""

from pathlib import Path

import numpy as np
import pytest
import tqdm.auto

import neonxc
from neonxc.common.progress import progress_bar
from neonxc.evaluation import choose_k


@pytest.fixture
def shown(monkeypatch):
    """The names of all bars that are shown."""
    names = []

    class Recorded(tqdm.auto.tqdm):  # a widget in notebooks
        def __init__(self, iterable, disable, **options):
            names.extend([] if disable else [options["desc"]])
            super().__init__(iterable, disable=True, **options)

    monkeypatch.setattr("tqdm.auto.tqdm", Recorded)
    return names


@pytest.fixture
def terminal(monkeypatch):
    """Let stderr be a terminal."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)


@pytest.mark.parametrize(
    ("place", "is_shown"), [("terminal", True), ("notebook", True), ("file", False), ("no console", False)]
)
def test_bars_appear_where_they_are_seen(place, is_shown, monkeypatch):
    if place == "no console":
        monkeypatch.setattr("sys.stderr", None)
    else:
        monkeypatch.setattr("sys.stderr.isatty", lambda: place == "terminal")
    made = []

    class tqdm_notebook:
        def __init__(self, iterable, disable, **options):
            made.append(not disable)

    if place == "notebook":
        monkeypatch.setattr("tqdm.auto.tqdm", tqdm_notebook)
        progress_bar([1])
    else:
        made.append(not progress_bar([1], delay=9).disable)
    assert made == [is_shown]


def test_one_switch_for_all_bars(shown, terminal):
    X = [[0.0, 1.0], [1.0, 0.0], [5.0, 5.0], [6.0, 5.0]] * 5
    X = [[a + i / 100, b] for i, (a, b) in enumerate(X)]
    choose_k(X, [2, 3])
    assert "numbers of clusters" in shown
    shown.clear()
    with neonxc.progress(False):
        choose_k(X, [2, 3])
        with neonxc.progress(True):
            choose_k(X, [2])
    assert shown == ["numbers of clusters"]


@pytest.mark.usefixtures("without_reality")
@pytest.mark.parametrize("options", [["-q"], pytest.param(["--quiet", "--no-progress"], marks=pytest.mark.slow)])
def test_commands_show_bars_in_a_terminal_alone(options, shown, neonxc_command, monkeypatch):
    Path("few.csv").write_text("a,b\n" + "\n".join(f"{i % 2},{i % 7}" for i in range(30)))
    asked = ("table", "few.csv", "-k", 2, "--out", "r")
    assert neonxc_command(*asked)[0] == 0
    assert shown == []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert neonxc_command(*asked)[0] == 0
    assert "k-means" in shown
    shown.clear()
    explained = ("explain", "few.csv", "-k", 2, "--fast", "--out", "r.html")
    for option in options:
        for command in ((option, *asked), (*asked, option), (*explained, option)):
            assert neonxc_command(*command)[0] == 0
    assert shown == []


@pytest.mark.usefixtures("without_reality")
def test_reports_show_what_they_do(shown, terminal):
    X = [[0.0, 1.0], [1.0, 0.0], [5.0, 5.0], [6.0, 5.0]] * 5
    X = [[a + i / 100, b] for i, (a, b) in enumerate(X)]
    neonxc.explain(np.array(X), clusters=2, fast=True)
    assert shown[0] == "report"
    shown.clear()
    neonxc.explain(np.array(X), clusters=2, fast=True, progress=False)
    with neonxc.progress(False):
        neonxc.explain(np.array(X), clusters=2, fast=True)
    assert shown == []
