"""Attributions of a whole data set: every row once, by any processes, whatever ends them."""

import copy
import json
import multiprocessing
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from safetensors.numpy import load_file, save_file
from scipy import sparse
from sklearn.cluster import DBSCAN, KMeans
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import neonxc
from neonxc import attribute_dataset, read_attributions
from neonxc.attribution.dataset.items import SAMPLED
from neonxc.attribution.dataset.shards import shard_files

N = 50
POINTS = np.random.default_rng(0).normal(size=(N, 4)) + 4 * (np.arange(N)[:, None] % 3)


def network(dtype=np.float64):
    return neonxc.neuralize(KMeans(3, n_init=2, random_state=0).fit(POINTS.astype(dtype)), POINTS.astype(dtype))


class Small(nn.Module):
    """A feature network with maps."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 5, 3)

    def forward(self, x):
        return self.convolution(x).relu()


def deep_network(dtype=torch.float32):
    torch.manual_seed(0)
    features, images = Small().eval().to(dtype), torch.rand(12, 1, 6, 5, dtype=dtype)
    with torch.no_grad():
        points = features(images).movedim(1, -1).flatten(0, -2).numpy()
    return neonxc.neuralize(KMeans(3, n_init=2, random_state=0).fit(points), images, features), images


class Watched(Dataset):
    """Points that note in a folder who reads them, and one of which may be the end of that process."""

    def __init__(self, folder, points=POINTS, end=None, item=None):
        self.folder, self.points, self.end, self.item = str(folder), points, end, item

    def __len__(self):
        return len(self.points)

    def __getitem__(self, row):
        if row == self.item and self.end == "exit":
            os._exit(1)
        if row == self.item:
            raise OSError("the disk is gone")
        Path(self.folder, f"{row}-{os.getpid()}-{len(os.listdir(self.folder))}").touch()
        return torch.as_tensor(self.points[row]), row

    def read(self):
        """How often each row was read."""
        return Counter(int(name.split("-")[0]) for name in os.listdir(self.folder))


class Stream(IterableDataset):
    def __init__(self, points, item=None):
        self.points, self.item = points, item

    def __iter__(self):
        for row, point in enumerate(self.points):
            if row == self.item:
                raise OSError("the stream is dry")
            yield torch.as_tensor(point), row


def everything(folder):
    found = read_attributions(folder)
    return {"row": found.rows, **{name: found[name] for name in found.columns}}


def assert_same(one, other, exactly=True):
    """Equal columns; numbers of rows in other batches may differ in their last digits."""
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        if exactly or one[name].dtype.kind == "i":
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        else:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-10, atol=1e-10, err_msg=name)


def work(group, net, data, out, options=None):
    """What a process of a group does."""
    attribute_dataset(net, data, out, progress=False, **(options or {}))


@pytest.fixture
def whole(tmp_path):
    """All attributions, by one process that nothing ended."""
    attribute_dataset(network(), POINTS, tmp_path / "whole", progress=False)
    return everything(tmp_path / "whole")


# what is kept


@pytest.mark.parametrize(
    ("format", "dtype", "rows"),
    [
        ("safetensors", np.float32, 7),
        ("safetensors", np.float64, None),
        ("parquet", np.float32, 1),
        ("parquet", np.float64, 50),
    ],
)
def test_rows_are_those_of_attribute(tmp_path, format, dtype, rows):
    net, X = network(), POINTS.astype(dtype)
    attribute_dataset(net, X, tmp_path / "out", format=format, rows_per_shard=rows, progress=False)
    found = read_attributions(tmp_path / "out")
    assert len(shard_files(tmp_path / "out")) == (1 if rows is None else -(-N // rows))
    assert found.rows.tolist() == list(range(N))
    assert found.missing == 0
    assert found["relevance"].dtype == dtype
    close = {"rtol": 1e-9, "atol": 1e-9} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(found["relevance"], neonxc.NEON(net).attribute(X), **close)
    np.testing.assert_array_equal(found["cluster"], net.predict(X))
    np.testing.assert_array_equal(found["target"], net.predict(X))
    np.testing.assert_allclose(found["logits"], net(torch.as_tensor(X)).detach().numpy(), **close)
    assert found.classes.tolist() == [0, 1, 2]
    assert found.feature_names == ["x0", "x1", "x2", "x3"]


def inputs():
    frame = pd.DataFrame(POINTS, columns=list("abcd"), index=np.arange(N)[::-1])
    tensor = torch.as_tensor(POINTS)
    items = TensorDataset(tensor, torch.arange(N))
    return {
        "array": POINTS,
        "list": POINTS.tolist(),
        "frame": frame,
        "tensor": tensor,
        "sparse": sparse.coo_matrix(POINTS),
        "dataset": items,
        "loader of dictionaries": DataLoader(
            [{"x": x} for x in tensor],
            batch_size=3,
            collate_fn=lambda some: torch.stack([one["x"] for one in some]),
        ),
        "workers": DataLoader(items, batch_size=8, shuffle=True, drop_last=True, num_workers=2),
        "iterable": Stream(POINTS),
        "loader of an iterable": DataLoader(Stream(POINTS), batch_size=8, num_workers=2),
    }


@pytest.mark.parametrize("kind", inputs())
def test_data_of_every_kind(tmp_path, whole, kind):
    data = inputs()[kind]
    attribute_dataset(network(), data, tmp_path / "out", rows_per_shard=20, progress=False)
    found = everything(tmp_path / "out")
    assert_same(found, whole, exactly=False)
    missing = read_attributions(tmp_path / "out").missing
    assert missing is None if "iterable" in kind else missing == 0


@pytest.mark.parametrize("source", [lambda: DataLoader(POINTS, 8), lambda: Stream(POINTS)])
@pytest.mark.parametrize(("target", "competitor"), [(np.arange(N) % 3, (np.arange(N) + 1) % 3), (2, 0), (2, None)])
def test_targets_and_competitors(tmp_path, source, target, competitor):
    net, options = network(), {"target": target, "competitor": competitor}
    attribute_dataset(net, source(), tmp_path / "out", rows_per_shard=20, progress=False, **options)
    found = everything(tmp_path / "out")
    np.testing.assert_allclose(found["relevance"], neonxc.NEON(net).attribute(POINTS, **options), atol=1e-9)
    for name, columns in options.items():
        assert (name in found) == (columns is not None)
        if columns is not None:
            np.testing.assert_array_equal(found[name], np.broadcast_to(columns, N))
    with pytest.raises(ValueError, match="has 20 entries, but the data has a row"):
        attribute_dataset(net, Stream(POINTS), tmp_path / "short", target=np.arange(20) % 3, progress=False)


def test_noise_has_no_cluster(tmp_path):
    X = np.r_[POINTS, [[40.0, -40, 40, -40]]]
    net = neonxc.neuralize(labels=DBSCAN(eps=2.5, min_samples=3).fit_predict(X), X=X)
    attribute_dataset(net, X, tmp_path / "out", progress=False)
    found = read_attributions(tmp_path / "out")
    assert -1 in found["cluster"]
    labels = np.where(found["cluster"] < 0, -1, found.classes[found["cluster"]])
    np.testing.assert_array_equal(labels, net.predict(X))
    assert found["target"].min() == 0


def test_texts_and_words(tmp_path):
    texts = ["cat dog owl", "cat dog", "sun moon", "sun moon moon moon"]
    net = neonxc.neuralize(make_pipeline(CountVectorizer(), KMeans(2, random_state=0)).fit(texts), texts)
    for name, data in {"list": texts, "series": pd.Series(texts), "loader": DataLoader(texts, 3)}.items():
        attribute_dataset(net, data, tmp_path / name, progress=False)
        found, expected = read_attributions(tmp_path / name), neonxc.NEON(net).attribute(texts)
        np.testing.assert_allclose(found["relevance"], expected.to_numpy())
        assert found.feature_names == list(expected.columns)
    words = neonxc.models.WordVectors(["cat", "dog", "owl", "sun", "moon"], np.eye(5))
    net = neonxc.neuralize(KMeans(2, random_state=0).fit(words(words.encode(texts))), texts, words)
    with pytest.raises(ValueError, match="data needs word indices of one width"):
        attribute_dataset(net, texts, tmp_path / "texts", progress=False)
    attribute_dataset(net, words.encode(texts), tmp_path / "out", progress=False)
    np.testing.assert_allclose(read_attributions(tmp_path / "out")["relevance"], neonxc.NEON(net).attribute(texts))


@pytest.mark.parametrize(
    ("dtype", "target"), [(torch.float32, None), (torch.float64, 1), (torch.float32, (1, 2, 0))]
)
def test_images_with_clusters_of_locations(tmp_path, dtype, target):
    net, images = deep_network(dtype)
    data = TensorDataset(images, torch.arange(12))
    attribute_dataset(net, DataLoader(data, 5), tmp_path / "out", target=target, progress=False)
    found = read_attributions(tmp_path / "out")
    # what goes through a network in other company may differ in the last digit
    close = {"rtol": 1e-4 if dtype == torch.float32 else 1e-10, "atol": 1e-5 if dtype == torch.float32 else 1e-10}
    np.testing.assert_allclose(found["relevance"], neonxc.NEON(net).attribute(images, target).numpy(), **close)
    np.testing.assert_allclose(found["logits"], net(images).detach().numpy(), **close)
    np.testing.assert_array_equal(found["cluster"], net.predict(images).numpy())
    assert found["relevance"].dtype == np.dtype(str(dtype).removeprefix("torch."))
    own = found["cluster"] if target is None else np.full(12, 1)
    np.testing.assert_array_equal(found["target"], own)
    assert found.feature_names is None


def test_heatmaps_of_clusters(tmp_path):
    net, images = deep_network(torch.float64)
    attribute_dataset(net, images, tmp_path / "out", clusters=[2, 0], progress=False)
    found = read_attributions(tmp_path / "out")
    np.testing.assert_allclose(found["relevance"], neonxc.NEON(net).heatmaps(images, [2, 0]).numpy())
    assert found.columns == ["cluster", "logits", "relevance"]
    with pytest.raises(ValueError, match="clusters can't be combined with a target"):
        attribute_dataset(net, images, tmp_path / "other", clusters=[0], target=1, progress=False)


@pytest.mark.parametrize("format", ["safetensors", "parquet"])
def test_images_of_different_sizes(tmp_path, format):
    net, _ = deep_network(torch.float64)
    images = [torch.rand(1, 6 + row // 2 % 2, 5, dtype=torch.float64) for row in range(9)]
    attribute_dataset(net, DataLoader(images, 1), tmp_path / "out", format=format, progress=False)
    found = read_attributions(tmp_path / "out")
    assert len(shard_files(tmp_path / "out")) == 5
    blocks = list(found.blocks(size=4))
    assert np.concatenate([block["row"] for block in blocks]).tolist() == list(range(9))
    rows = [row for block in blocks for row in block["relevance"]]
    for row, image in zip(rows, images, strict=True):
        np.testing.assert_allclose(row, neonxc.NEON(net).attribute(image[None])[0].numpy())
    with pytest.raises(ValueError, match="different shapes"):
        found["relevance"]
    with pytest.raises(ValueError, match=r"items 0 \.\.\. 8 of data can't be put into one batch.*batch_size=1"):
        attribute_dataset(net, DataLoader(images, 9), tmp_path / "other", progress=False)


def test_rules_of_an_attribution(tmp_path):
    net, images = deep_network(torch.float64)
    neon = neonxc.NEON(net, neonxc.lrp.Composite(neonxc.lrp.Epsilon(0.1)), beta=2, head_rule="midpoint")
    attribute_dataset(neon, images, tmp_path / "out", progress=False)
    np.testing.assert_allclose(everything(tmp_path / "out")["relevance"], neon.attribute(images).numpy())
    other = neonxc.NEON(net, neonxc.lrp.Composite(neonxc.lrp.Epsilon(0.2)), beta=2, head_rule="midpoint")
    with pytest.raises(ValueError, match=r"with another composite: .*0\.1.* there, .*0\.2.* now"):
        attribute_dataset(other, images, tmp_path / "out", progress=False)


# what ends a run


@pytest.mark.parametrize(("rows", "end"), [(1, "error"), (7, "exit"), (None, "error"), (None, "exit")])
def test_a_rerun_goes_on_and_gives_the_same(tmp_path, rows, end):
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    options = {"rows_per_shard": rows, "progress": False}
    attribute_dataset(network(), DataLoader(POINTS, 4), tmp_path / "whole", **options)
    data = DataLoader(Watched(marks, end=end, item=37), 4)
    if end == "error":
        with pytest.raises(ValueError, match="item 37 of data can't be read: OSError: the disk is gone"):
            attribute_dataset(network(), data, out, **options)
        whole_shards = 37 if rows == 1 else 36  # only the batch of item 37 is lost
    else:
        assert forked(alone, [(network(), data, out, options)]) == [1]
        whole_shards = {1: 37, 7: 36, None: 0}[rows]
    assert read_attributions(out).rows.tolist() == list(range(whole_shards))
    assert read_attributions(out).missing == 50 - whole_shards
    first = Watched(marks).read()
    attribute_dataset(network(), DataLoader(Watched(marks), 4), out, **options)
    assert_same(everything(out), everything(tmp_path / "whole"))
    again = Watched(marks).read() - first
    assert sum(count for row, count in again.items() if row < whole_shards) <= SAMPLED


def alone(net, data, out, options):
    torch.set_num_threads(1)
    attribute_dataset(net, data, out, **options)


def forked(work, arguments):
    """Exit codes of processes that may die."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=some) for some in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
    return [process.exitcode for process in processes]


def test_a_finished_run_is_not_done_again(tmp_path, whole):
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    attribute_dataset(network(), Watched(marks), out, progress=False)
    before, first = {file: file.stat().st_mtime_ns for file in out.iterdir()}, Watched(marks).read()
    attribute_dataset(network(), Watched(marks), out, progress=False)
    assert {file: file.stat().st_mtime_ns for file in out.iterdir()} == before
    assert sum((Watched(marks).read() - first).values()) == SAMPLED


def test_what_can_not_be_read_is_named(tmp_path):
    X = POINTS.copy()
    X[41, 2] = np.nan
    with pytest.raises(ValueError, match="item 41 of data: X has a value that is not finite"):
        attribute_dataset(network(), X, tmp_path / "out", progress=False)
    with pytest.raises(ValueError, match="item 41 of data can't be read: OSError: the stream is dry"):
        attribute_dataset(network(), Stream(POINTS, 41), tmp_path / "stream", progress=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_names_the_item(tmp_path, workers):
    marks = tmp_path / "marks"
    marks.mkdir()
    loader = DataLoader(Watched(marks, POINTS[:38], "error", 37), 4, num_workers=workers)
    with pytest.raises(ValueError, match="item 37 of data can't be read: OSError: the disk is gone"):
        attribute_dataset(network(), loader, tmp_path / "out", progress=False)


def test_half_a_shard_is_never_there(tmp_path, monkeypatch, whole):
    out = tmp_path / "out"

    def killed(tensors, path, **_):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neonxc.common.storage.save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            attribute_dataset(network(), POINTS, out, rows_per_shard=20, progress=False)
    (out / "rows-000000000000.safetensors.1234.part").write_bytes(b"half")  # a process that was killed by force
    assert len(read_attributions(out)) == 0
    assert everything(out)["relevance"].shape == (0, 4)
    attribute_dataset(network(), POINTS, out, rows_per_shard=20, progress=False)
    assert_same(everything(out), whole)
    assert not list(out.glob("*.part"))


ANOTHER = {
    "network": lambda: {"net": neonxc.neuralize(POINTS[:3], POINTS)},
    "target": lambda: {"target": 1},
    "target there": lambda: {"target": 1, "competitor": 2},
    "beta": lambda: {"net": neonxc.NEON(network(), beta=3)},
    "rows": lambda: {"data": POINTS[:40]},
    "format": lambda: {"format": "parquet"},
    "columns": lambda: {"data": POINTS.astype(np.float32)},
    "data": lambda: {"data": POINTS + 1e-12},
    "data of a table": lambda: {"data": pd.DataFrame(POINTS[::-1])},
    "data of a sparse matrix": lambda: {"data": sparse.csr_array(POINTS[::-1])},
}


@pytest.mark.parametrize("what", ANOTHER)
def test_a_rerun_with_something_else_is_refused(tmp_path, whole, what):
    given = {"net": network(), "data": POINTS, **ANOTHER[what]()}
    with pytest.raises(ValueError, match=rf"another {what.split()[0]}: .* there, .* now; use another folder"):
        attribute_dataset(out=tmp_path / "whole", progress=False, **given)
    assert_same(everything(tmp_path / "whole"), whole)


# several processes


@pytest.mark.parametrize("n", [50, 7, 2])
def test_processes_share_the_rows(ranks, tmp_path, n):
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    assert ranks(work, network(), Watched(marks, POINTS[:n]), str(out), {"rows_per_shard": 5}) == [None] * 3
    ranks(untold, network(), Stream(POINTS[:n]), str(tmp_path / "stream"))
    attribute_dataset(network(), POINTS[:n], tmp_path / "alone", progress=False)
    for folder in (out, tmp_path / "stream"):
        assert_same(everything(folder), everything(tmp_path / "alone"), exactly=False)
        for path in shard_files(folder):
            assert len(set(load_file(path)["row"] % 3)) == 1  # every third
    assert sum(Watched(marks).read().values()) <= n + 3 * SAMPLED  # each looks at some rows


def untold(group, net, data, out):
    attribute_dataset(net, data, out, progress=False)


def test_more_processes_or_fewer_go_on(ranks, tmp_path, whole):
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    with pytest.raises(ValueError, match="item 20"):
        attribute_dataset(network(), DataLoader(Watched(marks, end="error", item=20), 4), out, progress=False)
    for error in ranks(work, network(), DataLoader(Watched(marks, end="error", item=31), 2), str(out)):
        assert isinstance(error, ValueError)
        assert "item 31 of data can't be read" in str(error)
        assert "(on rank 1 of 3)" in str(error)
    there = read_attributions(out)
    assert set(range(20)) | {row for row in range(50) if row % 3 != 1} <= set(there.rows.tolist())
    assert 31 not in there.rows
    attribute_dataset(network(), POINTS, out, progress=False)
    assert_same(everything(out), whole, exactly=False)


def test_the_rows_of_a_process_that_dies_are_done_by_a_rerun(tmp_path, whole):
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    data = DataLoader(Watched(marks, end="exit", item=37), 2)
    codes = forked(member, [(rank, str(tmp_path), network(), data, str(out)) for rank in range(3)])
    assert codes == [0, 1, 0]
    for rank in (0, 2):
        assert "another process of the group has ended" in (tmp_path / f"error-{rank}").read_text()
    there = set(read_attributions(out).rows.tolist())
    assert {row for row in range(50) if row % 3 != 1} <= there
    assert {row for row in range(50) if row % 3 == 1} & there == {1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34}
    attribute_dataset(network(), POINTS, out, progress=False)
    assert_same(everything(out), whole, exactly=False)


def member(rank, folder, net, data, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=3)
    try:
        work(dist.group.WORLD, net, data, out, {"rows_per_shard": 2})
    except RuntimeError as error:
        Path(folder, f"error-{rank}").write_text(str(error))
    os._exit(0)


@pytest.mark.parametrize("what", ["network", "target", "rows", "columns", "out"])
def test_processes_agree_first(ranks, tmp_path, what):
    (tmp_path / "file").touch()
    for error in ranks(different, what, network(), str(tmp_path)):
        assert isinstance(error, ValueError)
        assert ("is a file" if what == "out" else f"{what} differs between processes") in str(error)
    assert not (tmp_path / "out").exists()


def different(group, what, net, folder):
    rank = dist.get_rank(group)
    options = {"target": rank} if what == "target" else {}
    data = POINTS[: N - rank] if what == "rows" else POINTS
    if what == "columns" and rank == 1:
        data = data.astype(np.float32)
    if what == "network":
        net = copy.deepcopy(net)  # its tensors are in memory that the processes share
        net.beta = rank + 1
    out = Path(folder, "file" if what == "out" else "out")
    attribute_dataset(net, data, out, progress=False, **options)


# reading


def test_blocks_are_in_order_and_bounded(ranks, tmp_path, whole):
    ranks(work, network(), POINTS, str(tmp_path / "out"), {"rows_per_shard": 5})
    found = read_attributions(tmp_path / "out")
    for size in (1, 8, 100):
        blocks = list(found.blocks(size=size))
        assert max(len(block["row"]) for block in blocks) <= size
        for name in ("row", "relevance", "cluster"):
            np.testing.assert_allclose(np.concatenate([block[name] for block in blocks]), whole[name], rtol=1e-10)
    assert next(found.blocks(["cluster"])).keys() == {"row", "cluster"}
    assert repr(found).endswith("50 rows: cluster, logits, target, relevance)")
    with pytest.raises(ValueError, match="got \\['x'\\]"):
        next(found.blocks(["x"]))
    with pytest.raises(ValueError, match="size needs a whole number"):
        next(found.blocks(size=0))
    with pytest.raises(KeyError, match="'x'"):
        found["x"]


@pytest.mark.parametrize("format", ["safetensors", "parquet"])
def test_files_that_do_not_belong_are_named(tmp_path, format):
    options = {"format": format, "rows_per_shard": 20, "progress": False}
    attribute_dataset(network(), POINTS, tmp_path / "one", **options)
    attribute_dataset(neonxc.NEON(network(), beta=2), POINTS, tmp_path / "other", **options)
    shard = tmp_path / "one" / f"rows-000000000020.{format}"
    good, other = shard.read_bytes(), (tmp_path / "other" / shard.name).read_bytes()
    contents = dict.fromkeys([b"", good[:-100], b"x" * 1000], "is damaged or no shard")
    for content, message in {**contents, other: "it belongs to other attributions"}.items():
        shard.write_bytes(content)
        with pytest.raises(ValueError, match=f"{shard.name} .*{message}"):
            read_attributions(tmp_path / "one")["relevance"]
    shard.write_bytes(good)
    shutil.copy(shard, shard.with_stem("rows-000000000021"))
    with pytest.raises(ValueError, match=r"both have row 20; remove one of them"):
        read_attributions(tmp_path / "one")
    if format == "safetensors":
        save_file({"row": np.arange(3)}, shard.with_stem("rows-000000000021"))
        for call in (read_attributions, lambda out: attribute_dataset(network(), POINTS, out, **options)):
            with pytest.raises(ValueError, match=r"rows-000000000021.safetensors is no shard of .*one"):
                call(tmp_path / "one")


def test_manifests_that_are_none(tmp_path, whole):
    with pytest.raises(FileNotFoundError, match=r"it has no manifest.json"):
        read_attributions(tmp_path)
    path = tmp_path / "whole" / "manifest.json"
    described = json.loads(path.read_text())
    for text, message in [
        ("{", "is damaged"),
        ("[]", "was not written by neonxc"),
        (json.dumps({**described, "format": "csv"}), "was not written by neonxc"),
        (json.dumps({**described, "version": 99}), "has version 99"),
    ]:
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_attributions(tmp_path / "whole")
    path.unlink()
    with pytest.raises(ValueError, match=r"holds rows-000000000000.safetensors but no manifest.json"):
        attribute_dataset(network(), POINTS, tmp_path / "whole", progress=False)


# what can't be used


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"net": KMeans()}, "NEON needs a network"),
        ({"data": 3}, "data needs a torch Dataset or DataLoader"),
        ({"data": np.array(3.0)}, "data needs"),
        ({"data": "text"}, "a single one is"),
        ({"data": POINTS[:0]}, "data is empty"),
        ({"data": Stream(POINTS[:0])}, "data is empty"),
        ({"data": POINTS[:, :3]}, "X has 3 features, the clustering was fitted on 4"),
        ({"data": DataLoader(POINTS, batch_size=None)}, "data needs a DataLoader with a batch_size"),
        ({"data": DataLoader([{"x": 1.0}])}, "items of data need to be x or .* got dict"),
        ({"target": 3}, "target needs columns from 0 to 2, got 3"),
        ({"target": [0, 1]}, r"target needs one column or one per row \(50\), got 2"),
        ({"competitor": "x"}, "competitor needs column numbers"),
        ({"target": 1, "competitor": 1}, "target and competitor are both 1"),
        ({"clusters": [0]}, "heatmaps need a network with a feature"),
        ({"format": "csv"}, "format needs 'safetensors' or 'parquet', got 'csv'"),
        ({"rows_per_shard": 0}, "rows_per_shard needs a whole number"),
    ],
)
def test_what_can_not_be_used(tmp_path, given, message):
    usual = {"net": network(), "data": POINTS, "out": tmp_path / "out", "progress": False}
    with pytest.raises((ValueError, TypeError), match=message):
        attribute_dataset(**{**usual, **given})
    assert not (tmp_path / "out").exists()


# parts


def test_a_bar_is_shown_and_can_be_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("neonxc.common.progress.DELAY", 0)
    for progress in (True, False):
        attribute_dataset(network(), POINTS, tmp_path / str(progress), progress=progress)
        shown = capsys.readouterr().err
        assert ("rows/s" in shown) == progress
