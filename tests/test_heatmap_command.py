"""The heatmaps of a folder of photos that the command draws."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from neonxc.cli import heatmaps
from neonxc.cli.options import photo_files
from neonxc.cli.photos import PhotoFiles, patch, typical_places
from neonxc.models import FeatureExtractor


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for i in range(5):
        pixels = rng.integers(0, 256, (40, 50, 3)) // (1 if i % 2 else 3)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"p{i}.png")
    (tmp_path / "photos" / "notes.txt").touch()
    return tmp_path / "photos"


def extractor(mode):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 5, stride=4), torch.nn.ReLU()).eval()
    pool = None if mode == "spatial" else "avg"
    return FeatureExtractor(net, "1", mean=(0.5,) * 3, std=(0.5,) * 3, pool=pool, normalize=mode == "spatial")


def draw(mode, folder, out, stop=None):
    """What the command does, with small pictures; at the photo `stop` it fails."""
    drawn = []

    class Picture:
        def __init__(self, title=None):
            self.title = title

        def savefig(self, path, **_):
            if stop is not None and stop in Path(path).name:
                raise OSError("the disk is full")
            drawn.append(Path(path).name)
            Path(path).touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neonxc.plot.overlay", lambda *_, title, **__: Picture(title))
        patch.setattr("neonxc.plot.contact_sheet", lambda *_, **__: Picture())
        features = extractor(mode)
        photos = PhotoFiles(photo_files([Path(folder)]), 40, features)
        result = heatmaps.heatmaps(photos, 2, out, features, "gamma", Path(out, "r.safetensors"), mode)
    return result.rows, drawn


@pytest.mark.parametrize("mode", ["spatial", "image"])
def test_pictures_and_numbers_of_every_photo(folder, tmp_path, mode):
    rows, drawn = draw(mode, folder, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*drawn, "r.safetensors"}
    names = {f"p{i}" for i in range(5)}
    assert {row[0] for row in rows} == names
    kept = load_file(tmp_path / "out" / "r.safetensors")
    assert kept.keys() == {f"{name}/{what}" for name in names for what in ("logits", "relevance")}
    assert not list(tmp_path.glob(".*"))


def test_an_error_leaves_nothing(folder, tmp_path):
    with pytest.raises(OSError, match="the disk is full"):
        draw("spatial", folder, tmp_path / "out", stop="p3")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_many_photos_share_a_sample_of_their_locations(folder, monkeypatch):
    features = extractor("spatial")
    photos = PhotoFiles(photo_files([folder]), 40, features)
    every = [features.points(features.preprocess(photo[None])) for _, photo in photos]
    torch.testing.assert_close(heatmaps._sample(photos, features, 5), torch.cat(every))
    monkeypatch.setattr(heatmaps, "SAMPLE", 12)
    found = heatmaps._sample(photos, features, 3)
    assert found.shape == (12, 4)
    sources = [{row for row, points in enumerate(every) if (points == point).all(1).any()} for point in found]
    assert all(set.intersection(*sources[4 * i : 4 * i + 4]) for i in range(3))  # four of each of three photos


def test_the_most_typical_places_are_apart_and_their_own_clusters():
    logits = torch.full((2, 8, 12), -1.0)
    logits[0, :, :6], logits[1, :, 6:] = 1.0, 1.0
    logits[0, 2, 3], logits[0, 2, 4], logits[0, 7, 0] = 5.0, 4.0, 3.0
    logits[0, 0, 11] = 0.5  # a larger logit of a place that is in the other cluster
    first, second = typical_places(logits, 7, 3)
    assert [place.logit for place in first] == [5.0, 3.0, 1.0]  # the second largest is beside the largest
    assert (first[0].photo, first[0].y, first[0].x) == (7, 2.5 / 8, 3.5 / 12)
    assert {place.logit for place in second} == {1.0}
    assert all(place.x > 0.5 for place in second)
    assert typical_places(logits - 2 * logits, 0, 99)[0][0].x > 0.5
    photo = torch.rand(3, 32, 48)
    assert torch.equal(patch(photo, first[0]), photo[:, 6:14, 10:18])
    assert torch.equal(patch(photo, first[1]), photo[:, 24:, :8])  # moved inwards at the corner


def test_many_photos_have_several_sheets(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("neonxc.cli.heatmaps.SHEET", 2)
    _, drawn = draw("spatial", folder, tmp_path / "out")
    sheets = [name for name in drawn if "sheet" in name]
    assert sheets == ["contact-sheet.png", "contact-sheet-2.png", "contact-sheet-3.png"]


def test_folders_and_files(folder):
    (folder / "empty").mkdir()
    found = photo_files([folder / "p3.png", folder])
    assert [path.name for path in found] == ["p3.png", "p0.png", "p1.png", "p2.png", "p3.png", "p4.png"]
    with pytest.raises(ValueError, match=r"empty has no photos; supported suffixes are \.jpg"):
        photo_files([folder / "empty"])
