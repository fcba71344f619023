"""The pictures of the documentation show what the current code computes, and what they show is compared well."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # docs is no package of neonxc

import typer  # noqa: E402

from docs import pictures  # noqa: E402
from docs.inputs import Inputs, difference  # noqa: E402


def record(value):
    inputs = Inputs()
    inputs.add(value)
    return inputs.record()


def command(*arguments):
    app = typer.Typer()
    app.command()(pictures.main)
    return CliRunner().invoke(app, arguments)


REPORTS = "layers.png", "report-light.png"  # are made of what the reports of many other tests hold
ENTRIES = [
    pytest.param(
        entry,
        id=entry.files.split()[0],
        marks=[pytest.mark.slow] * (entry.is_slow or entry.files.startswith(REPORTS)),
    )
    for entry in pictures.TABLE
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_pictures_show_what_the_code_computes(entry):
    assert pictures.outdated({*entry.files.split()}) == []


def test_every_picture_has_one_entry_and_every_entry_its_pictures():
    named = [file for entry in pictures.TABLE for file in entry.files.split()]
    assert sorted(named) == sorted(path.name for path in pictures.IMAGES.iterdir() if path != pictures.RECORDED)
    assert sorted(pictures.read_records()) == sorted(named)


def test_every_picture_is_shown_somewhere():
    texts = [path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]]
    for entry in pictures.TABLE:
        for file in entry.files.split():
            assert any(f"images/{file}" in text for text in texts), file


def bars(height=2.0, color="C0", title="sizes", label="a"):
    figure = Figure()
    axes = figure.subplots()
    axes.bar([0, 1], [1.0, height], color=color, label=label)
    axes.set_title(title)
    axes.legend()
    return figure


numbers = np.random.default_rng(0).normal(size=1000)
other = numbers.copy()
other[500] += 0.5
frame = pd.DataFrame({"size": [3, 4], "name": ["a", "b"]}, index=["x", "y"])
tiny = np.full(5, 1e-17)

SAME = {
    "the last bit": (numbers, numbers * (1 + 1e-7)),
    "a rounding boundary": (0.125, 0.12500001),
    "the last digit of a number in words": ("insertion 92.8", "insertion 92.9"),
    "sums that cancel": (tiny, -2 * tiny),
    "float32 and float64": (torch.tensor(numbers), torch.tensor(numbers, dtype=torch.float32)),
    "when it was made": ({"created": "2026-01-01", "n": 1}, {"created": "2027-01-01", "n": 1}),
    "embedded pixels": ("<img src='data:image/png;base64,AAA'>", "<img src='data:image/png;base64,BBB'>"),
    "a figure drawn twice": (bars(), bars()),
}
DIFFERENT = {
    "one of a thousand numbers": (numbers, other),
    "the order": ([1.0, 2.0, 3.0], [2.0, 1.0, 3.0]),
    "the sign": (-1.0, 1.0),
    "the number of numbers": ([1.0], [1.0, 0.0]),
    "no number": ([1.0, np.nan], [1.0, 0.0]),
    "words": ("high", "medium"),
    "a number in words": ("3 clusters", "4 clusters"),
    "a truth value": (True, False),
    "a name of a column": (frame, frame.rename(columns={"size": "count"})),
    "a name of a row": (frame, frame.rename(index={"x": "z"})),
    "a cell": (frame, frame.replace(4, 5)),
    "a nested entry": ({"a": [{"n": 1}]}, {"a": [{"n": 2}]}),
    "the height of a bar": (bars(), bars(2.1)),
    "a colour": (bars(), bars(color="C1")),
    "a title": (bars(), bars(title="counts")),
    "a legend": (bars(), bars(label="b")),
}


@pytest.mark.parametrize("case", SAME)
def test_what_looks_alike_is_the_same(case):
    before, after = map(record, SAME[case])
    assert difference(before, after) is None


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_looks_different_is_noticed(case):
    before, after = map(record, DIFFERENT[case])
    assert difference(before, after)


def test_a_source_of_a_page_counts(tmp_path):
    page = tmp_path / "page.css"
    page.write_text("a { color: red }")
    before = record(page)
    page.write_text("a { color: blue }")
    assert difference(before, record(page)) == "words"


def test_values_of_an_unknown_kind_are_refused():
    with pytest.raises(TypeError, match="object is not a kind of value"):
        record(object())


def test_the_command_names_draws_and_checks(monkeypatch, tmp_path):
    drawn = []

    def shown():
        for file in ("a.png", "b.png"):
            yield pictures.Picture(file, sizes[file], lambda file=file: drawn.append(file))

    sizes = {"a.png": [1.0, 2.0], "b.png": [3.0]}
    monkeypatch.setattr(pictures, "TABLE", [pictures.Entry("a.png b.png", shown)])
    monkeypatch.setattr(pictures, "RECORDED", tmp_path / "inputs.json")
    assert "a.png" in command("--list").output
    assert command("c").exit_code == 2
    assert command("--check").exit_code == 1  # nothing is recorded

    assert command().exit_code == 0
    assert drawn == ["a.png", "b.png"]
    assert command("--check").exit_code == 0
    command()  # both are up to date
    command("b")
    assert drawn == ["a.png", "b.png", "b.png"]

    sizes["a.png"] = [1.0, 2.5]
    result = command("--check")
    assert result.exit_code == 1
    assert result.output.startswith("picture a.png shows an older version (")
    assert result.output.strip().endswith("python -m docs.pictures a")
    assert command("b.png", "--check").exit_code == 0


def test_a_long_run_is_out_of_date_with_its_figures(monkeypatch, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    figures = tmp_path / "benchmarks" / "run.json"
    run = pictures.LongRun("a.png", "python examples/run.py", "run.json")
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    records = []
    for machine, area in (("one", 0.5), ("another", 0.5), ("one", 0.6)):
        figures.write_text(f'{{"machine": "{machine}", "area": {area}}}')
        records += [pictures.record_of(picture) for picture in run.pictures()]
    assert difference(records[0], records[1]) is None
    assert difference(records[0], records[2])
