"""The heatmaps of a folder of photos that the command draws."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from report_contents import extractor
from safetensors import SafetensorError

import neonxc
from neonxc.cli.photos import patch, typical_places


@pytest.fixture
def folder(photos, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for photo in photos:
        photo.rename(folder / photo.name)
    (folder / "notes.txt").touch()
    return folder


@pytest.fixture
def features():
    return extractor()


@pytest.fixture
def draw(neonxc_command, monkeypatch, folder, features):
    """Run the command with a small network and no pictures; at the photo `stop` it fails."""
    drawn = []

    def run(*args, stop="nowhere"):
        def savefig(path, **_):
            if stop in Path(path).name:
                raise OSError("the disk is full")
            drawn.append(Path(path).name)
            Path(path).touch()

        for name in ("overlay", "contact_sheet"):
            monkeypatch.setattr(f"neonxc.plot.{name}", Mock(return_value=Mock(savefig=savefig)))
        monkeypatch.setattr("neonxc.cli.photos.extractor", lambda *_, **__: features)
        usual = "-k 2 --size 32 --out out --save out/r.safetensors"
        return drawn, *neonxc_command("heatmap", *(args or ["photos"]), *usual.split())

    return run


def test_an_error_leaves_nothing(draw, tmp_path, monkeypatch):
    assert draw(stop="photo3")[1::2] == (1, "neonxc: the disk is full\n")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    real = neonxc.common.storage.save_file

    def full(tensors, path, **header):
        if path.name.startswith("r.safetensors"):
            raise SafetensorError("I/O error: No space left")
        real(tensors, path, **header)

    monkeypatch.setattr("neonxc.common.storage.save_file", full)
    _, code, _, err = draw()
    assert (code, err.splitlines()[-1]) == (1, "neonxc: can't write out/r.safetensors: I/O error: No space left")
    assert not [*tmp_path.rglob("r.safetensors*")]


def test_many_photos_share_a_sample_of_their_locations(draw, folder, features, monkeypatch):
    given = []
    monkeypatch.setattr("neonxc.cli.heatmaps.kmeans", lambda points, *_: given.append(points) or 1 / 0)
    photos = [neonxc.models.load_image(path, 32) for path in sorted(folder.glob("*.png"))]
    every = [features.points(features.preprocess(photo[None])).numpy() for photo in photos]
    with pytest.raises(ZeroDivisionError):
        draw()
    np.testing.assert_allclose(given[0], np.concatenate(every), rtol=1e-5)
    monkeypatch.setattr("neonxc.cli.heatmaps.SAMPLE", 12)
    monkeypatch.setattr("neonxc.cli.heatmaps.PHOTOS", 3)
    with pytest.raises(ZeroDivisionError):
        draw()
    assert given[1].shape == (12, 6)
    sources = [{i for i, own in enumerate(every) if np.isclose(own, point).all(1).any()} for point in given[1]]
    assert all(set.intersection(*sources[4 * i : 4 * i + 4]) for i in range(3))  # four of each of three photos


def test_the_most_typical_places_are_apart_and_their_own_clusters():
    logits = torch.full((2, 8, 12), -1.0)
    logits[0, :, :6] = 1.0
    logits[1, :, 6:] = 1.0
    logits[0, 2, 3] = 5.0
    logits[0, 2, 4] = 4.0
    logits[0, 7, 0] = 3.0
    logits[0, 0, 11] = 0.5  # a larger logit of a place that is in the other cluster
    first, second = typical_places(logits, 7, 3)
    assert [place.logit for place in first] == [5.0, 3.0, 1.0]  # the second largest is beside the largest
    assert (first[0].photo, first[0].y, first[0].x) == (7, 2.5 / 8, 3.5 / 12)
    assert {place.logit for place in second} == {1.0}
    assert all(place.x > 0.5 for place in second)
    assert typical_places(-logits, 0, 99)[0][0].x > 0.5
    photo = torch.rand(3, 32, 48)
    assert torch.equal(patch(photo, first[0]), photo[:, 6:14, 10:18])
    assert torch.equal(patch(photo, first[1]), photo[:, 24:, :8])  # moved inwards at the corner


def test_many_photos_have_several_sheets_and_a_folder_may_hold_a_file(draw, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("neonxc.cli.heatmaps.SHEET", 2)
    drawn, _, out, _ = draw("photos/photo3.png", "photos")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*drawn, "r.safetensors"}
    assert not list(tmp_path.glob(".*"))
    assert [name for name in drawn if "sheet" in name] == [f"contact-sheet{n}.png" for n in ("", "-2", "-3")]
    assert all(f"photo{name}-cluster" in out for name in ("3", "0", "1", "2", "3-2"))
    (folder / "empty").mkdir()
    assert "empty has no photos; supported suffixes are .jpg" in draw("photos/empty")[3]
