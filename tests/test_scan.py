"""SCAN: losses against slow definitions, the whole on images it must get right, interruptions, loaders."""

import math
import random
from functools import cache
from itertools import permutations

import numpy as np
import pytest
import torch
from refusals import refused
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import neonxc
from neonxc.evaluation import clustering_accuracy
from neonxc.models import SCAN, FeatureExtractor, vgg_small
from neonxc.models.scan import RandomWarp, training
from neonxc.models.scan.stages import nt_xent


def blobs(n=24, channels=1, seed=0):
    """A bright spot in one of three corners, and noise: three clusters, eight images of each."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.rand(n, channels, 12, 12, generator=generator)
    truth = torch.arange(n) % 3
    for k, (row, column) in enumerate([(1, 1), (1, 7), (7, 4)]):
        images[truth == k, :, row : row + 4, column : column + 4] += 2
    return images, truth.numpy()


IMAGES = blobs()[0]


def small(**changes):
    """SCAN on features that it need not learn."""
    settings = {
        "n_clusters": 3,
        "backbone": nn.Sequential(nn.AvgPool2d(4), nn.Flatten()),
        "pretext": None,
        "n_neighbors": 5,
        "n_heads": 3,
        "head_epochs": 30,
        "epochs": 2,
        "self_label_epochs": 2,
        "batch_size": 12,
        "augment": RandomWarp(rotation=5, shear=0, translation=0.03),
        "random_state": 0,
    }
    return SCAN(**{**settings, **changes})


def learning(**changes):
    """SCAN with all its stages, in a second."""
    backbone = changes.pop("backbone", None) or tiny()
    return small(**{"backbone": backbone, "pretext": "simclr", "pretext_epochs": 3, "head_epochs": 3, **changes})


@cache
def learned():
    return learning().fit(IMAGES)


@cache
def uninterrupted():
    return learning(self_label_threshold=0.3).fit(IMAGES)


def tiny(channels=1):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return vgg_small(channels, width=4)[:-1]


# Losses


@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_nt_xent_is_its_definition(temperature):
    views = torch.randn(10, 3, dtype=torch.float64)
    total = 0.0
    for a, view in enumerate(views):
        similar = torch.exp(torch.cosine_similarity(view[None], views) / temperature).tolist()
        total -= math.log(similar[(a + 5) % 10] / (sum(similar) - similar[a]))
    assert float(nt_xent(views, temperature)) == pytest.approx(total / 10)


def plain_scan_loss(anchors, neighbours, weight):
    p = anchors.softmax(1)
    q = neighbours.softmax(1)
    consistency = -(p * q).sum(1).log().mean()
    mean = p.mean(0)
    return float(consistency + weight * (mean * mean.log()).sum())


@pytest.mark.parametrize(
    ("options", "weight"), [({"epochs": 0}, 0.0), ({"head_epochs": 0}, 1.0), ({"epochs": 0}, 5.0)]
)
def test_the_head_with_the_lowest_loss_is_kept(options, weight):
    """After the stage of heads alone, or after that of all heads and the embedding."""
    scan = small(self_label_epochs=0, entropy_weight=weight, **options).fit(IMAGES)
    with torch.no_grad():
        scores = scan.cluster_head_(scan.embedding_(IMAGES))
    losses = [plain_scan_loss(scores, scores[column], weight) for column in scan.neighbors_.T]
    assert np.mean(losses) == pytest.approx(scan.losses_.min(), rel=1e-5)
    assert len(set(scan.losses_.round(6))) == 3


def test_scores_beyond_the_range_of_exponentials():
    """Neighbours are certain of opposite clusters: the loss is finite, and so are its gradients."""
    loud = 1e4 * IMAGES
    scan = small(backbone=nn.Flatten(), head_epochs=0).fit(loud)
    assert scan.history_[0]["loss"] > 100
    assert np.isfinite(scan.losses_).all()
    assert scan.predict_proba(loud).isfinite().all()


def test_self_labelling_weighs_clusters_alike():
    """The first loss, of all images in one step."""
    options = {"epochs": 0, "head_epochs": 3, "batch_size": 32, "augment": torch.clone}
    images = IMAGES[[*range(24), *range(0, 24, 3)]]
    before = small(**options, self_label_epochs=0).fit(images).predict_proba(images)
    labels = before.argmax(1)
    expected = np.mean([float(-before[labels == k, k].log().mean()) for k in labels.unique()])
    after = small(**options, self_label_epochs=1, self_label_threshold=0.0).fit(images)
    assert len(labels.bincount().unique()) > 1
    assert after.history_[-1]["loss"] == pytest.approx(expected, rel=1e-4)


def test_self_labels_stay_for_an_epoch():
    """If labels followed each step, the network would follow itself into one cluster (seen on MNIST)."""
    seen = []
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(144, 4))
    backbone.register_forward_hook(lambda *_: seen.append("step" if torch.is_grad_enabled() else "look"))
    options = {"epochs": 0, "augment": torch.clone, "self_label_threshold": 0.0}
    small(backbone=backbone, **options).fit(IMAGES)  # hooks are copied with the backbone
    assert "look look step step look look step step" in " ".join(seen)  # two epochs of two batches


def test_neighbours_are_the_most_similar_others(monkeypatch):
    points = nn.functional.normalize(IMAGES.flatten(1).double())
    expected = (points @ points.T).fill_diagonal_(-1).topk(5).indices.tolist()
    model = small(backbone=nn.Flatten(), head_epochs=1, epochs=0, self_label_epochs=0)
    assert model.fit(IMAGES.double()).neighbors_.tolist() == expected
    monkeypatch.setattr("neonxc.common.memory.CPU", 400)  # two rows at once
    assert model.fit(IMAGES.double()).neighbors_.tolist() == expected


# Views

STILL = dict.fromkeys(("rotation", "shear", "scale", "translation", "elastic", "contrast"), 0.0)


def test_a_rotation_keeps_circles_round_also_in_oblong_images():
    height = 40
    width = 80
    y, x = torch.meshgrid(torch.arange(height) - 19.5, torch.arange(width) - 39.5, indexing="ij")
    disc = ((x**2 + y**2).sqrt() < 12).double()[None, None].repeat(5, 1, 1, 1)
    views = RandomWarp(**{**STILL, "rotation": 45.0})(disc)
    assert (views - disc).abs().mean() < 0.01


def test_flips_are_half_and_erased_is_a_square_of_the_mean():
    """All else stays as it is if nothing is warped."""
    images = torch.rand(6, 9).expand(400, 1, 6, 9)
    views = RandomWarp(**STILL, flip=True)(images)
    flipped = torch.isclose(views, images.flip(3), atol=1e-4).flatten(1).all(1)
    assert (flipped | torch.isclose(views, images, atol=1e-4).flatten(1).all(1)).all()
    assert 140 < int(flipped.sum()) < 260
    images = torch.rand(50, 2, 20, 20)
    changed = (~torch.isclose(RandomWarp(**STILL, erase=0.3)(images), images, atol=1e-4)).any(1).flatten(1)
    assert (changed.sum(1) - 36).abs().max() <= 1  # 6 x 6; a value may happen to be the mean
    assert len(changed.unique(dim=0)) > 20


@pytest.mark.parametrize("amount", ["rotation", "shear", "scale", "translation", "elastic", "contrast"])
def test_each_amount_changes_each_image_in_its_own_way(amount):
    images = torch.rand(1, 1, 12, 12).expand(6, 1, 12, 12)
    views = RandomWarp(**{**STILL, amount: getattr(RandomWarp(), amount)})(images)
    assert views.shape == images.shape
    assert len(torch.unique(views.flatten(1), dim=0)) == 6
    assert not torch.isclose(views, images).flatten(1).all(1).any()


# The whole


def test_an_embedding_is_learned():
    images, truth = blobs(96)
    scan = learning(pretext_epochs=10, epochs=4, head_epochs=20, n_heads=5, learning_rate=3e-3, batch_size=48).fit(
        images
    )
    assert clustering_accuracy(scan.labels_, truth) > 0.9
    unseen, truth = blobs(30, seed=1)
    assert clustering_accuracy(scan.predict(unseen), truth) > 0.9
    by_stage = {stage: [e["loss"] for e in scan.history_ if e["stage"] == stage] for stage in ("pretext", "heads")}
    assert by_stage["pretext"][-1] < by_stage["pretext"][0]
    assert by_stage["heads"][-1] < by_stage["heads"][0]


def test_the_decision_is_one_linear_layer_on_the_embedding():
    """The logits of its network are log ratios of probabilities."""
    scan = learned()
    assert not scan.embedding_.training
    with torch.no_grad():
        features = scan.embedding_(IMAGES)
        scores = scan.cluster_head_(features)
    assert isinstance(scan.cluster_head_, nn.Linear)
    assert_close(scan.transform(IMAGES), features)
    assert_close(scan.predict_proba(IMAGES), scores.softmax(1))
    assert (scan.predict(IMAGES) == scores.argmax(1)).all()
    assert (scan.labels_ == scores.argmax(1).numpy()).all()
    net = neonxc.neuralize(scan.cluster_head_, IMAGES, features=scan.embedding_)
    first, second = scores.log_softmax(1).topk(2).values.T  # in logarithms: the second probability may be 0
    assert_close(net(IMAGES).amax(1), first - second, rtol=1e-3, atol=1e-3)
    assert (net.predict(IMAGES).numpy() == scan.labels_).all()
    assert neonxc.NEON(net).attribute(IMAGES).isfinite().all()


def test_heads_do_not_mind_the_scale_of_embeddings(monkeypatch):
    """They learn on standardised embeddings; the standardisation then is part of their weights."""
    images = torch.randn(60, 1, 2, 2)
    uneven = images * torch.tensor([[1e-2, 1e2], [1.0, 50.0]]) + 20
    neighbours = torch.randint(60, (60, 5))  # mined ones would depend on the scale
    monkeypatch.setattr("neonxc.models.scan.stages.nearest", lambda features, k: neighbours)
    plain, scaled = (small(backbone=nn.Flatten(), epochs=0, self_label_epochs=0).fit(x) for x in (images, uneven))
    assert np.allclose(plain.losses_, scaled.losses_, atol=1e-3)
    assert np.allclose(plain.predict_proba(images), scaled.predict_proba(uneven), atol=1e-3)
    assert plain.predict_proba(images).std() > 0.05


def test_self_labelling_learns_from_the_sure_images_alone():
    before = small(self_label_epochs=0).fit(IMAGES).predict_proba(IMAGES)
    for threshold, loss, share in ((1.0, None, 0), (0.34, 1, 1)):
        scan = small(self_label_threshold=threshold).fit(IMAGES)
        labelling = [epoch for epoch in scan.history_ if epoch["stage"] == "self-labelling"]
        assert [epoch["loss"] is None for epoch in labelling] == [loss is None] * 2
        assert [epoch["share"] for epoch in labelling] == [share] * 2
        after = scan.predict_proba(IMAGES)
        assert torch.allclose(after, before) == (share == 0)
        assert after.amax(1).mean() >= before.amax(1).mean() - 1e-6


def test_global_generators_stay_as_they_are():
    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before = states()
    assert learning(random_state=None).fit(IMAGES).history_ != learned().history_
    assert states() == before


def test_y_is_ignored_and_the_estimator_can_be_cloned():
    images, truth = blobs(6)
    scan = small(backbone=tiny(), n_neighbors=50)
    copied = clone(scan)
    assert copied.backbone is not scan.backbone
    assert (scan.fit(images, truth).labels_ == copied.fit_predict(images)).all()
    assert scan.neighbors_.shape == (6, 5)
    assert "n_heads=3" in repr(scan)


# Backbones


def test_the_backbone_given_is_not_changed():
    backbone = tiny()
    scan = learning(backbone=backbone).fit(IMAGES)
    assert backbone.training
    assert scan.transform(IMAGES.double()).dtype == torch.float32
    assert_close(backbone.state_dict(), tiny().state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("pool", [None, "avg"])
def test_a_feature_extractor_is_a_backbone_and_maps_are_averaged(pool):
    maps = nn.Conv2d(1, 4, 3)
    extractor = FeatureExtractor(maps, "", pool=pool)
    for backbone in (maps, extractor):
        scan = small(backbone=backbone, epochs=0, head_epochs=1, self_label_epochs=0).fit(IMAGES)
        assert isinstance(scan.embedding_, FeatureExtractor)
        assert_close(scan.transform(IMAGES), maps(IMAGES).mean((2, 3)).detach())
    assert extractor.pool == pool


def test_frozen_parts_do_not_learn():
    backbone = vgg_small(width=4)[:-1]
    backbone.features.block1.append(nn.Dropout()).requires_grad_(False)
    modes = {"block1": set(), "block3": set()}
    for part, seen in modes.items():  # hooks are copied with the backbone
        getattr(backbone.features, part)[-1].register_forward_hook(lambda m, *_, seen=seen: seen.add(m.training))
    scan = learning(backbone=backbone).fit(IMAGES)
    assert modes == {"block1": {False}, "block3": {False, True}}
    for part, same in (("block1", True), ("block3", False)):
        given, learned = (getattr(net.features, part).state_dict() for net in (backbone, scan.embedding_))
        assert all(torch.equal(given[name], learned[name]) for name in given) == same


def test_bfloat16_is_for_training_only():
    exact = learned()
    amp = learning(amp=True).fit(IMAGES)
    assert amp.transform(IMAGES).dtype == torch.float32
    assert amp.history_[0]["loss"] == pytest.approx(exact.history_[0]["loss"], rel=0.05)
    assert amp.history_[0]["loss"] != exact.history_[0]["loss"]


# What goes in comes out


class Stream(IterableDataset):
    def __iter__(self):
        return iter(IMAGES)


@pytest.mark.parametrize(
    ("give", "found"),
    [
        (IMAGES.tolist, np.ndarray),
        (Stream, torch.Tensor),
        (lambda: DataLoader(TensorDataset(IMAGES, torch.zeros(24)), batch_size=7), torch.Tensor),
        ([IMAGES[:5], IMAGES[5:]].__iter__, torch.Tensor),
    ],
)
def test_images_may_come_from_anywhere(give, found):
    expected = learned()
    scan = learning().fit(give())
    assert (scan.labels_ == expected.labels_).all()
    assert_close(torch.as_tensor(scan.predict_proba(give())), expected.predict_proba(IMAGES))
    assert isinstance(scan.predict(give()), found)


def bad(images, value):
    images = images.clone()
    images[3, 0, 2, 2] = value
    return images


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_clusters": 25}, "at most the number of images, 24; got 25"),
        ({"epochs": -1}, "epochs needs a whole number >= 0"),
        ({"pretext": "moco"}, 'pretext needs "simclr" or None'),
        ({"self_label_threshold": 1.5}, r"self_label_threshold needs a number in \[0, 1\]"),
        ({"temperature": 0}, "temperature need a number > 0"),
        ({"augment": lambda x: x[:, :, 1:]}, r"augment needs to return images of shape \[24, 1, 12, 12\]"),
        ({"backbone": nn.Flatten(0)}, r"backbone needs to return features \[N, d\]"),
        ({"backbone": nn.Conv2d(3, 4, 3)}, r"backbone does not take images of shape \[1, 12, 12\]"),
        ({"backbone": "vgg16"}, r"backbone needs an nn\.Module"),
        ({"pretext": "simclr"}, r"requires_grad_\(\)"),  # nothing to learn
        ({"learning_rate": 1e30}, "diverged.*lower learning_rate"),
        (
            {"backbone": nn.Sequential(nn.Flatten(), nn.BatchNorm1d(144, track_running_stats=False))},
            r"BatchNorm1d .* of backbone normalizes by the batch",
        ),
    ],
)
def test_bad_parameters(changes, message):
    refused(message, small(**changes).fit, IMAGES, error=(ValueError, TypeError))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (IMAGES[0], r"X needs images \[N, C, H, W\], got shape \[1, 12, 12\]"),
        (bad(IMAGES, float("nan")), "not finite: nan"),
        (DataLoader(TensorDataset(bad(IMAGES, float("inf"))), 7), "not finite: inf"),
        (IMAGES[:0], "empty"),
        ([IMAGES, IMAGES[:4, :, 1:]], r"images \[N, C, H, W\] of shape \[1, 12, 12\], got shape \[4, 1, 11, 12\]"),
    ],
)
def test_bad_images(X, message):
    refused(message, small().fit, iter(X) if isinstance(X, list) else X)


def test_predictions_need_a_fit_and_images_of_its_shape():
    refused("not fitted", small().predict, IMAGES, error=NotFittedError)
    scan = learning().fit(IMAGES)
    refused(r"X needs images \[N, C, H, W\] of shape \[1, 12, 12\]", scan.predict, IMAGES[:, :, 1:])
    for ask in (scan.fit, scan.predict):
        refused("X holds pixels of uint8", ask, (IMAGES * 255).byte())
    refused("X can't be read", scan.predict, iter(["a", "b"]))
    scan.embedding_.train()
    for ask in (scan.predict, scan.transform, lambda x: neonxc.neuralize(scan, x)):
        refused(r"is in training mode: its BatchNorm2d .*; call .eval\(\) on it", ask, IMAGES)


# Interruptions


@pytest.mark.parametrize(
    ("stage", "epoch", "every"),
    [
        pytest.param(0, 1, 1, marks=pytest.mark.slow),
        (0, 2, 5),  # nothing is saved yet
        (1, 2, 2),
        (2, 1, 1),
        pytest.param(3, 1, 1, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_training_goes_on_as_if_nothing_had_been(monkeypatch, tmp_path, stage, epoch, every):
    """It breaks off at the start of an epoch: of the pretext, the heads, the clustering, self-labelling."""
    expected = uninterrupted()
    original = training.set_seed

    def stop(device, *seed):
        if seed[1:] == (stage, epoch + 1):
            raise InterruptedError
        original(device, *seed)

    model = learning(self_label_threshold=0.3, checkpoint=tmp_path / "new")
    with monkeypatch.context() as patch:
        patch.setattr(training, "set_seed", stop)
        patch.setattr(training, "SAVE_EVERY", every)
        with pytest.raises(InterruptedError):
            model.fit(IMAGES)
    scan = clone(model).fit(IMAGES)
    assert_close(scan.predict_proba(IMAGES), expected.predict_proba(IMAGES), rtol=0, atol=0)
    assert scan.history_ == expected.history_
    assert (scan.losses_ == expected.losses_).all()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of the checkpoint of a training that is done."""
    folder = tmp_path_factory.mktemp("finished")
    learning(checkpoint=folder).fit(IMAGES)
    return folder


def test_what_is_done_is_not_done_again(monkeypatch, tmp_path):
    first = learning(checkpoint=tmp_path, random_state=None).fit(IMAGES)
    for loss in ("nt_xent", "scan_loss", "self_label_loss"):
        monkeypatch.setattr(f"neonxc.models.scan.stages.{loss}", None)
    again = learning(checkpoint=tmp_path, random_state=None, verbose=True, device="cpu").fit(IMAGES)
    assert (again.labels_ == first.labels_).all()
    assert again.history_ == first.history_


def test_a_clustering_can_be_self_labelled_later(monkeypatch, tmp_path):
    first = learning(self_label_epochs=0, checkpoint=tmp_path).fit(IMAGES)
    monkeypatch.setattr("neonxc.models.scan.stages.scan_loss", None)
    later = learning(self_label_threshold=0.3, checkpoint=tmp_path).fit(IMAGES).predict_proba(IMAGES)
    assert_close(later, uninterrupted().predict_proba(IMAGES), rtol=0, atol=0)
    assert not torch.equal(first.predict_proba(IMAGES), later)
    again = learning(self_label_threshold=0.4, checkpoint=tmp_path)
    refused(r"self_label_threshold was 0\.3 and is now 0\.4", again.fit, IMAGES)


@pytest.mark.parametrize(
    ("changes", "images", "message"),
    [
        ({"epochs": 7}, IMAGES, "epochs was 2 and is now 7"),
        ({"random_state": 1}, IMAGES, "random_state was 0 and is now 1"),
        ({"augment": RandomWarp(rotation=1)}, IMAGES, "augment was RandomWarp.*rotation=1"),
        ({"backbone": vgg_small(width=4)[:-1]}, IMAGES, "backbone was Sequential"),
        ({}, IMAGES + 1, "images was"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(finished, changes, images, message):
    refused(f"(?s){message}.*another folder", learning(checkpoint=finished, **changes).fit, images)


def test_a_damaged_checkpoint_is_refused(finished, tmp_path):
    file = tmp_path / "scan.safetensors"
    whole = (finished / file.name).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no tensors"):
        file.write_bytes(damaged)
        refused(r"scan\.safetensors", learning(checkpoint=tmp_path).fit, IMAGES)


# Accuracy of clusters


def test_clustering_accuracy_is_that_of_the_best_matching():
    generator = np.random.default_rng(0)
    for clusters, classes in ((3, 3), (2, 4), (4, 2)):
        labels = generator.integers(clusters, size=30)
        truth = generator.integers(classes, size=30)
        most = max(clusters, classes)
        best = max(np.mean(np.array(names)[labels] == truth) for names in permutations(range(most)))
        assert clustering_accuracy(labels, torch.from_numpy(truth)) == pytest.approx(best)
    for labels, truth in (([0, 1], [0]), ([], [])):
        refused("one value per point", clustering_accuracy, labels, truth)
