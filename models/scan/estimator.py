"""The estimator class SCAN: how it is fitted, applied, explained and stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from neonxc import clusterings
from neonxc.common.arguments import check_number, check_whole
from neonxc.common.modules import evaluated
from neonxc.common.precision import in_full_precision
from neonxc.common.registry import Values, can_pack, pack_estimator, register, unpack_estimator
from neonxc.common.types import ArrayLike, RandomState
from neonxc.data.table import Table

from .stages import STAGES
from .training import Training

Loaded: TypeAlias = Dataset | DataLoader | Iterator[object]
"""Images that are read batch by batch, whose results are tensors."""

Images: TypeAlias = ArrayLike | Dataset | Iterable[object]
"""Images as an array or a tensor [N, C, H, W], a dataset, or a loader of batches."""

MINIMUM = {  # of parameters that are whole numbers
    "n_clusters": 2,
    "n_neighbors": 1,
    "n_heads": 1,
    "batch_size": 2,
    "pretext_epochs": 0,
    "head_epochs": 0,
    "epochs": 0,
    "self_label_epochs": 0,
}
FITTED = ("labels_", "losses_", "history_", "neighbors_", "image_shape_", "embedding_")


class SCAN(ClusterMixin, BaseEstimator):
    """Semantic clustering by adopting nearest neighbors (SCAN): a network learns to cluster images without labels.

    An embedding is taken from a pretrained backbone or learned by SimCLR, and the nearest neighbors of each image
    are found in it. Linear heads with a softmax then learn to assign neighbors to the same cluster while using all
    clusters. The head with the lowest loss is kept and trained further together with the embedding. All images are
    held in memory.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, from 2 to the number of images.
    backbone : nn.Module, optional
        Network that maps images [N, C, H, W] to features [N, d], or to maps [N, d, h, w], which are averaged; for
        example a :class:`neonxc.models.FeatureExtractor`. It is copied, and only its parameters that require a
        gradient are trained. Default: :func:`neonxc.models.vgg_small` without its classifier.
    pretext : {"simclr"}, optional
        How the embedding is learned. Use None for a pretrained backbone.
    n_neighbors : int, default=20
        Number of nearest neighbors of each image; at most n - 1 are used.
    n_heads : int, default=20
        Number of heads that are trained in parallel on the same embedding.
    entropy_weight : float, default=5
        Weight of the entropy of the mean assignment, which prevents empty clusters.
    pretext_epochs, head_epochs, epochs, self_label_epochs : int, default=20, 30, 5, 0
        Number of epochs of the four stages; 0 skips a stage. The first stage is SimCLR. In the second one, only
        the heads are trained, which takes little time. In the third one, the best head is trained together with
        the embedding (all heads if `head_epochs` is 0). The last stage is self-labeling, which lowered the
        accuracy on the data on which it was measured.
    self_label_threshold : float in [0, 1], default=0.99
        Probability above which an image gets a label in self-labeling.
    temperature : float, default=0.5
        Temperature of the loss of SimCLR.
    augment : callable, optional
        Function that returns random views of a batch [B, C, H, W], with the same shape and device. Default:
        :class:`RandomWarp() <neonxc.models.scan.RandomWarp>`.
    batch_size : int, default=256
    learning_rate : float, default=1e-3
        Maximum learning rate of AdamW; in every stage, the rate decreases to 0.
    device : torch.device or str, optional
        Device of the training. Default: the device of the images if it is not the CPU, otherwise that of the
        backbone.
    amp : bool, default=False
        Whether to train the embedding with autocast to bfloat16, which is about twice as fast on hardware that
        supports it.
    checkpoint : path-like, optional
        Folder in which the state of the training is saved after every stage and every fifth epoch, as one
        safetensors file. `fit` continues from this state; a checkpoint of other settings or images is an error.
        Self-labeling can be added later to a training with ``self_label_epochs=0``.
    random_state : int, RandomState, optional
        Seed. On one CPU, the same integer gives the same labels. Global random generators are not changed.
    verbose : bool, default=False
        Whether to print a line after every epoch. A progress bar is always shown.

    Attributes
    ----------
    labels_ : ndarray [n] of int64
        Clusters of the training images.
    embedding_ : nn.Module
        Network, in evaluation mode, that maps images to features [N, d].
    cluster_head_ : nn.Linear
        Layer that maps features to scores [N, K], whose softmax gives the probabilities of the clusters. The
        decision is ``argmax_k w_k . a + b_k``, so Propositions 6 and 7 of the NEON paper apply, with ``b_c - b_k``
        added to their contrasts.
    losses_ : ndarray [n_heads]
        Loss of each head on the original images and all their neighbors at the time when the best head was chosen:
        after the second stage or, if that is skipped, after the third one.
    history_ : list of dict
        For each epoch, the ``stage``, the number ``epoch``, the ``share`` of images that were used, and the mean
        ``loss`` over these images (and all heads; None if no image was used).
    neighbors_ : ndarray [n, k] of int64
        Indices of the nearest neighbors.

    References
    ----------
    .. [1] W. Van Gansbeke, S. Vandenhende, S. Georgoulis, M. Proesmans, L. Van Gool: "SCAN: Learning to Classify
       Images without Labels", ECCV 2020.
    .. [2] T. Chen, S. Kornblith, M. Norouzi, G. Hinton: "A Simple Framework for Contrastive Learning of Visual
       Representations", ICML 2020.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import SCAN
    >>> images = torch.rand(24, 1, 8, 8)
    >>> images[:12, :, :, :4] += 2
    >>> images[12:, :, :, 4:] += 2
    >>> scan = SCAN(2, torch.nn.Flatten(), pretext=None, n_neighbors=5, epochs=1, random_state=0)
    >>> labels = scan.fit_predict(images)
    >>> len(set(labels[:12])), len(set(labels[12:])), int(abs(labels[0] - labels[-1]))
    (1, 1, 1)
    """

    def __init__(
        self,
        n_clusters: int,
        backbone: nn.Module | None = None,
        *,
        pretext: Literal["simclr"] | None = "simclr",
        n_neighbors: int = 20,
        n_heads: int = 20,
        entropy_weight: float = 5.0,
        pretext_epochs: int = 20,
        head_epochs: int = 30,
        epochs: int = 5,
        self_label_epochs: int = 0,
        self_label_threshold: float = 0.99,
        temperature: float = 0.5,
        augment: Callable[[Tensor], Tensor] | None = None,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        device: torch.device | str | None = None,
        amp: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.__dict__.update(locals())  # scikit-learn asks for every parameter as an attribute
        del self.self

    @in_full_precision  # `amp` switches autocast on where it may be
    @torch.enable_grad()
    def fit(self, X: Images, y: object = None) -> SCAN:
        """Learn a clustering of images.

        Parameters
        ----------
        X : array or Tensor [n, C, H, W], Dataset of images, or DataLoader
            Inputs of the backbone. The items of a dataset or loader may be tuples that begin with images. The
            labels are in the order in which the images are read, so a loader should not shuffle.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is out of range, the images are invalid, a checkpoint belongs to other settings or data,
            or the loss is not finite.
        TypeError
            If the backbone is not a module.
        """
        self._check()
        backbone = self.backbone or nn.Identity()
        weight = next(backbone.parameters(), torch.empty(0))
        batches = [batch.to(weight.dtype) for batch in read_batches(X, self.batch_size)]
        images = torch.cat(batches) if len(batches) > 1 else batches[0]  # avoids a copy of a single array
        if self.n_clusters > len(images):
            raise ValueError(
                f"n_clusters must be at most the number of images, {len(images)}; got {self.n_clusters}"
            )

        default_device = weight.device if images.device.type == "cpu" else images.device
        device = torch.device(self.device or default_device)
        stages = STAGES if self.self_label_epochs else STAGES[:-1]
        forked_devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(forked_devices):
            # None stands for a generator of its own here, and not for the global one
            random_state = np.random.RandomState() if self.random_state is None else self.random_state
            seed = int(check_random_state(random_state).randint(2**31 - 1))
            training = Training(self, images, device, seed)
            training.run(stages)

        self.embedding_ = training.eval().embedding
        self.cluster_head_ = training.best
        self.losses_ = training.losses.double().cpu().numpy()
        self.neighbors_ = training.neighbours.numpy()
        self.history_ = training.history
        self.image_shape_ = list(images.shape[1:])
        self.labels_ = self.predict(images).cpu().numpy()
        return self

    @overload
    def predict(self, X: Tensor | Loaded) -> Tensor: ...
    @overload
    def predict(self, X: ArrayLike) -> np.ndarray: ...
    def predict(self, X: Images) -> np.ndarray | Tensor:
        """Predict the most probable cluster of each image.

        Parameters
        ----------
        X : array or Tensor [N, C, H, W], Dataset of images, or DataLoader
            Images of the same shape as in `fit`.

        Returns
        -------
        array or Tensor [N] of int64
            An array for arrays, and a tensor on the same device for tensors. For datasets and loaders, a tensor on
            the CPU.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If the images are invalid or have another shape than in `fit`.
        """
        return self._apply(X, lambda a: self.cluster_head_(a).argmax(1))

    @overload
    def predict_proba(self, X: Tensor | Loaded) -> Tensor: ...
    @overload
    def predict_proba(self, X: ArrayLike) -> np.ndarray: ...
    def predict_proba(self, X: Images) -> np.ndarray | Tensor:
        """Compute the probabilities of the clusters, [N, K]. Inputs, types and errors are as in `predict`.

        Parameters
        ----------
        X : array, Tensor [N, C, H, W], Dataset or DataLoader
            Images.
        """
        return self._apply(X, lambda a: self.cluster_head_(a).softmax(1))

    @overload
    def transform(self, X: Tensor | Loaded) -> Tensor: ...
    @overload
    def transform(self, X: ArrayLike) -> np.ndarray: ...
    def transform(self, X: Images) -> np.ndarray | Tensor:
        """Compute embeddings [N, d], in the dtype of the backbone. Inputs, types and errors are as in `predict`.

        Parameters
        ----------
        X : array, Tensor [N, C, H, W], Dataset or DataLoader
            Images.
        """
        return self._apply(X, lambda a: a)

    @torch.no_grad()
    def _apply(self, X: Images, function: Callable[[Tensor], Tensor]) -> np.ndarray | Tensor:
        """Apply a function to the embeddings of images, and return its results in the type of X."""
        check_is_fitted(self)
        weight = self.cluster_head_.weight
        results = []
        for batch in read_batches(X, self.batch_size, self.image_shape_):
            for x in batch.split(self.batch_size):
                embeddings = evaluated(self.embedding_, x.to(weight), "embedding_")
                results.append(function(embeddings))
        result = torch.cat(results)
        if isinstance(X, Tensor):
            return result.to(X.device)
        return result.cpu() if is_loaded(X) else result.cpu().numpy()

    def _check(self) -> None:
        """Raise an error if a parameter is out of range."""
        if not isinstance(self.backbone, nn.Module | None):
            raise TypeError(f"backbone needs an nn.Module or None, got {type(self.backbone).__name__}")
        for name, minimum in MINIMUM.items():
            check_whole(name, getattr(self, name), minimum)
        for name in ("learning_rate", "temperature", "entropy_weight"):
            check_number(name, getattr(self, name))
        check_number("self_label_threshold", self.self_label_threshold, most=1)
        if not (self.learning_rate and self.temperature):
            raise ValueError("learning_rate and temperature need a number > 0, got 0")
        if self.pretext not in ("simclr", None):
            raise ValueError(f'pretext needs "simclr" or None, got {self.pretext!r}')


def read_batches(X: Images, batch_size: int, shape: list[int] | None = None) -> Iterator[Tensor]:
    """Yield batches of finite floating-point images [B, C, H, W] on their device; an array is a single batch.

    The items of a dataset and the batches of a loader may be tuples that begin with images. `batch_size` is used
    for datasets. `shape` (C, H, W) is the required shape of the images; by default, that of the first batch.
    """
    loaded = is_loaded(X)
    batches: Any = [X]
    if isinstance(X, Dataset):
        batches = DataLoader(X, batch_size)
    elif loaded:
        batches = X

    images = None
    for batch in batches:
        if loaded and isinstance(batch, (tuple, list)):
            batch = batch[0]
        table = Table.read(batch)
        table.check_no_bytes()
        images = table.tensor
        shape = shape or list(images.shape[1:])
        if len(shape) != 3 or list(images.shape[1:]) != shape:
            needed = f" of shape {shape}" if len(shape) == 3 else ""
            raise ValueError(f"X needs images [N, C, H, W]{needed}, got shape {list(images.shape)}")
        yield images
    if images is None:
        raise ValueError("X is empty: the loader has no batches")


def is_loaded(X: Images) -> bool:
    """Tell whether X is a dataset or a loader, and not an array of images."""
    return not (isinstance(X, (list, tuple)) or hasattr(X, "__array__"))


@clusterings.read.register
def _read_scan(model: SCAN) -> clusterings.ClusterModel:
    check_is_fitted(model)
    return replace(clusterings.read(model.cluster_head_), features=model.embedding_)


def _pack(model: SCAN) -> Values:
    values = pack_estimator(model, FITTED)
    if not can_pack(model.embedding_):
        raise TypeError(
            "can't save a SCAN with a custom backbone; save the network that neonxc.neuralize returns for it, and "
            "load that with neonxc.load(path, features=scan.embedding_)"
        )
    return values | model.cluster_head_.state_dict()


def _unpack(cls: type[SCAN], values: Values) -> SCAN:
    model = unpack_estimator(cls, values, FITTED)
    k, d = values["weight"].shape
    model.cluster_head_ = nn.Linear(d, k)
    model.cluster_head_.load_state_dict({name: values[name] for name in ("weight", "bias")}, assign=True)
    _check_shapes(model)
    return model


def _check_shapes(model: SCAN) -> None:
    """Raise a ValueError if the stored tensors and the shape of the images are inconsistent.

    The embedding is computed on the device "meta", without memory, which a shape of a few bytes may ask for.
    """
    network = model.embedding_
    weight = model.cluster_head_.weight
    tensors = (*network.named_parameters(), *network.named_buffers())
    state = {name: tensor.to("meta") for name, tensor in tensors}
    with torch.no_grad():
        images = torch.empty(1, *model.image_shape_, device="meta", dtype=weight.dtype)
        shape = torch.func.functional_call(network, state, images).shape
    d = weight.shape[1]
    if shape != (1, d):
        raise ValueError(f"its embedding has shape {[*shape]}, and its cluster head needs [1, {d}]")


register(SCAN, _pack, _unpack)
