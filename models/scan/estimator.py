"""The clusterer: what a user sees of SCAN."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.estimators import plain_parameters
from neonxc.parameters import check_number, check_whole

from .augment import RandomWarp
from .checkpoint import Checkpoint, fingerprint
from .network import Data, ScanNetwork
from .reading import is_loaded, read_batches
from .stages import clustering, heads_alone, pretext, self_labelling
from .training import Progress, Stage, Training, set_seed

__all__ = ["SCAN"]

SAMPLE = 256  # images that tell whether a checkpoint is of the same data
LEAST = {"n_clusters": 2, "n_neighbors": 1, "n_heads": 1, "batch_size": 2}
LEAST |= dict.fromkeys(("pretext_epochs", "head_epochs", "epochs", "self_label_epochs"), 0)


class SCAN(ClusterMixin, BaseEstimator):
    """Semantic clustering by adopting nearest neighbours: a network learns to cluster images without labels.

    An embedding is taken from a pretrained backbone or learned by SimCLR. The nearest neighbours of each image in
    it are mined, and linear heads with a softmax learn to put neighbours into one cluster and images into all
    clusters. The head with the lowest loss is kept, and the embedding is trained with it. All images are held in
    memory.

    Parameters
    ----------
    n_clusters : int
        2 ... n.
    backbone : nn.Module, optional
        Maps images [N, C, H, W], as `fit` gets them, to features [N, d], or to maps [N, d, h, w], which are
        averaged; a :class:`neonxc.models.FeatureExtractor` is one. It is copied, and only its parameters that
        require a gradient are trained. Default: :func:`neonxc.models.vgg_small` without its classifier.
    pretext : {"simclr"}, optional
        How the embedding is learned. None: the backbone is pretrained.
    n_neighbors : int, default=20
        At most n - 1 are used.
    n_heads : int, default=20
        How many clusterings are learned at once, on the same embedding.
    entropy_weight : float, default=5
        Weight of the entropy of the mean assignment, which keeps clusters from being empty.
    pretext_epochs, head_epochs, epochs, self_label_epochs : int, default=20, 30, 5, 0
        Passes over the images of each stage; 0 leaves it out. SimCLR comes first. The heads then learn alone,
        which takes hardly any time, and after that the best of them with the embedding (all of them if there are
        no `head_epochs`). Self-labelling comes last; it has cost accuracy on the data it was measured on.
    self_label_threshold : float, default=0.99
        The probability above which an image labels itself, 0 ... 1.
    temperature : float, default=0.5
        Temperature of SimCLR's loss.
    augment : callable, optional
        Makes random views of batches [B, C, H, W], of the same shape and on their device. Default:
        :class:`RandomWarp() <neonxc.models.scan.RandomWarp>`.
    batch_size : int, default=256
    learning_rate : float, default=1e-3
        The highest rate of AdamW, which falls to 0 in every stage.
    device : torch.device or str, optional
        Where to train. Default: where the images are if that is not the CPU, else where the backbone is.
    amp : bool, default=False
        Train the embedding with autocast to bfloat16, which is about twice as fast where the hardware has it.
    checkpoint : path-like, optional
        Folder in which the state of training is saved after every stage and every fifth epoch, as tensors and JSON
        in one safetensors file. `fit` continues from there, and refuses a checkpoint of other settings or images.
        A clustering that was not self-labelled (``self_label_epochs=0``) can be later.
    random_state : int, RandomState, optional
        The same number gives the same labels on one CPU. The global generators stay as they are.
    verbose : bool, default=False
        Write a line after every epoch. A bar shows progress in any case.

    Attributes
    ----------
    labels_ : ndarray [n] of int64
        Clusters of the training images.
    embedding_ : nn.Module
        Maps images to features a [N, d]; it is in evaluation mode.
    cluster_head_ : nn.Linear
        Maps features to scores [N, K], whose softmax is the probabilities of the clusters. The decision is
        ``argmax_k w_k . a + b_k``: Propositions 6 and 7 of the NEON paper apply, with ``b_c - b_k`` added to
        their contrasts.
    losses_ : ndarray [n_heads]
        SCAN's loss of each head on the images as they are and all their neighbours, when the best was chosen:
        after the heads have learned alone, or else after the clustering.
    history_ : list of dict
        For each epoch its ``stage``, its number ``epoch``, the mean ``loss`` over the images that took part (and
        all heads; None where no image did), and the ``share`` of these images.
    neighbors_ : ndarray [n, k] of int64
        The mined neighbours.

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
        checkpoint: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.backbone = backbone
        self.pretext = pretext
        self.n_neighbors = n_neighbors
        self.n_heads = n_heads
        self.entropy_weight = entropy_weight
        self.pretext_epochs = pretext_epochs
        self.head_epochs = head_epochs
        self.epochs = epochs
        self.self_label_epochs = self_label_epochs
        self.self_label_threshold = self_label_threshold
        self.temperature = temperature
        self.augment = augment
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.amp = amp
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> SCAN:
        """Learn a clustering of images.

        Parameters
        ----------
        X : array or Tensor [n, C, H, W], Dataset of images, or DataLoader
            What the backbone takes. Datasets and loaders may give tuples that begin with images. Labels are in
            the order in which they give the images, so a loader should not shuffle.
        y : None
            Ignored.

        Returns
        -------
        SCAN

        Raises
        ------
        ValueError
            Parameters out of their range, unusable images, a checkpoint of other settings or data, or a loss
            that is not finite.
        TypeError
            A backbone that is no module.
        """
        self._check()
        dtype = torch.float32 if self.backbone is None else next(self.backbone.parameters(), torch.empty(0)).dtype
        batches = [batch.to(dtype) for batch in read_batches(X, self.batch_size)]
        images = batches[0] if len(batches) == 1 else torch.cat(batches)  # one array need not be copied
        if self.n_clusters > len(images):
            raise ValueError(
                f"n_clusters must be at most the number of images, {len(images)}; got {self.n_clusters}"
            )
        device = self._device(images)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            given = np.random.RandomState() if self.random_state is None else self.random_state
            seed = int(check_random_state(given).randint(2**31 - 1))  # moves no global generator
            set_seed(seed, device)
            network = ScanNetwork(self.backbone, images, self.n_clusters, self.n_heads, self.n_neighbors)
            network.to(device).to(memory_format=torch.channels_last)  # two thirds of the time on the CPU
            data = Data(network, images, self.augment or RandomWarp(), self.batch_size, self.amp)
            checkpoint = Checkpoint(self.checkpoint, self._settings(images))
            training = Training(network, len(images), device, Progress(seed), checkpoint, self.verbose)
            training.run(self._stages(data))
        network.eval()
        self.embedding_, self.cluster_head_ = network.embedding, network.best
        self.losses_ = network.losses.double().cpu().numpy()
        self.neighbors_ = network.neighbours.cpu().numpy()
        self.history_ = training.progress.history
        self.image_shape_ = tuple(images.shape[1:])
        self.labels_ = self.predict(images).cpu().numpy()
        return self

    def predict(self, X: Any) -> Any:
        """Most probable cluster of each image.

        Parameters
        ----------
        X : array or Tensor [N, C, H, W], Dataset of images, or DataLoader
            As in `fit`, of the same shape.

        Returns
        -------
        array or Tensor [N] of int64
            Array for arrays; tensor for tensors, on their device, and on the CPU for datasets and loaders.

        Raises
        ------
        sklearn.exceptions.NotFittedError
        ValueError
            Unusable images, or of another shape.
        """
        return self._apply(X, lambda a: self.cluster_head_(a).argmax(1))

    def predict_proba(self, X: Any) -> Any:
        """Probability of each cluster, [N, K], rows sum to 1; input, type and errors as of `predict`.

        Parameters
        ----------
        X : array, Tensor [N, C, H, W], Dataset or DataLoader
            Images.
        """
        return self._apply(X, lambda a: self.cluster_head_(a).softmax(1))

    def transform(self, X: Any) -> Any:
        """Embeddings a [N, d], in the dtype of the backbone; input, type and errors as of `predict`.

        Parameters
        ----------
        X : array, Tensor [N, C, H, W], Dataset or DataLoader
            Images.
        """
        return self._apply(X, lambda a: a)

    @torch.no_grad()
    def _apply(self, X: Any, read: Callable[[Tensor], Tensor]) -> Any:
        check_is_fitted(self)
        weight, found = self.cluster_head_.weight, []
        for batch in read_batches(X, self.batch_size, self.image_shape_):
            found += [read(self.embedding_(part.to(weight))) for part in batch.split(self.batch_size)]
        result = torch.cat(found)
        if isinstance(X, Tensor):
            return result.to(X.device)
        return result.cpu() if is_loaded(X) else result.cpu().numpy()

    def _stages(self, data: Data) -> list[Callable[[], Stage]]:
        """The stages in their order; each is made when those before it are done."""
        rate, weight, first = self.learning_rate, self.entropy_weight, self.pretext_epochs if self.pretext else 0
        if first and not any(parameter.requires_grad for parameter in data.network.embedding.parameters()):
            raise ValueError(
                f'pretext="{self.pretext}" needs a backbone with parameters that require a gradient; this one is '
                "frozen (pretext=None, or backbone.requires_grad_())"
            )
        stages = [
            lambda: pretext(data, first, rate, self.temperature),
            lambda: heads_alone(data, self.head_epochs, rate, weight),
            lambda: clustering(data, self.epochs, rate, weight, learned=self.head_epochs > 0),
            lambda: self_labelling(data, self.self_label_epochs, rate, self.self_label_threshold),
        ]
        return stages if self.self_label_epochs else stages[:-1]

    def _device(self, images: Tensor) -> torch.device:
        if self.device is not None:
            return torch.device(self.device)
        if images.device.type != "cpu" or self.backbone is None:
            return images.device
        return next(chain(self.backbone.parameters(), self.backbone.buffers()), images).device

    def _settings(self, images: Tensor) -> dict[str, Any]:
        """What a checkpoint must agree on to be continued, as JSON values."""
        backbone, augment = self.backbone, self.augment or RandomWarp()
        named = repr(augment) if isinstance(augment, RandomWarp) else None
        weights = {} if backbone is None else backbone.state_dict()
        sample = images[:: len(images) // SAMPLE + 1]
        settings = plain_parameters(self) | {
            "backbone": f"{type(backbone).__name__} {fingerprint(weights)}",
            "augment": named or getattr(augment, "__qualname__", type(augment).__qualname__),
            "images": f"{list(images.shape)} {fingerprint({'images': sample})}",
        }
        return {name: value for name, value in settings.items() if name not in ("device", "checkpoint", "verbose")}

    def _check(self) -> None:
        """Refuse parameters that are out of their range."""
        if not isinstance(self.backbone, (nn.Module, type(None))):
            raise TypeError(f"backbone needs an nn.Module or None, got {type(self.backbone).__name__}")
        for name, least in LEAST.items():
            check_whole(name, getattr(self, name), least)
        for name in ("learning_rate", "temperature", "entropy_weight"):
            check_number(name, getattr(self, name))
            if getattr(self, name) == 0 and name != "entropy_weight":
                raise ValueError(f"{name} needs a number > 0, got 0")
        check_number("self_label_threshold", self.self_label_threshold, most=1)
        if self.pretext not in ("simclr", None):
            raise ValueError(f'pretext needs "simclr" or None, got {self.pretext!r}')
        if self.augment is not None and not callable(self.augment):
            raise ValueError(f"augment needs a callable or None, got {self.augment!r}")
