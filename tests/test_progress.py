"""Progress bars can be switched off, in Python and in the commands."""

import pytest
import tqdm.auto

import neonxc
from neonxc.evaluation import choose_k


@pytest.fixture
def shown(monkeypatch):
    """The names of all bars that are shown."""
    names, real = [], tqdm.auto.tqdm

    def recorded(iterable, disable, **options):
        names.extend([] if disable else [options["desc"]])
        return real(iterable, disable=True, **options)

    monkeypatch.setattr("tqdm.auto.tqdm", recorded)  # a widget in notebooks
    return names


def test_one_switch_for_all_bars(shown):
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


def test_commands_show_bars_in_a_terminal_alone(shown, neonxc_command, wine_csv, monkeypatch):
    asked = ("table", wine_csv, "-k", 2, "--out", "r")
    assert neonxc_command(*asked)[0] == 0
    assert shown == []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert neonxc_command(*asked)[0] == 0
    assert "k-means" in shown
    shown.clear()
    assert neonxc_command("--quiet", *asked)[0] == 0
    assert neonxc_command("--quiet", "explain", wine_csv, "-k", 2, "--fast", "--out", "r.html")[0] == 0
    assert shown == []
