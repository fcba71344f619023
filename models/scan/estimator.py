"""The clusterer: what a user sees of SCAN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .augment import RandomWarp
from .checkpoint import Checkpoint, Progress, data_fingerprint, fingerprint
from .neighbours import nearest
from .network import ScanNetwork, make_embedding
from .reading import like_input, read_all, read_batches
from .stages import SLOWER, Data, clustering, head_losses, heads_alone, pretext, self_labelling
from .training import CLUSTERING, HEADS, NEIGHBOURS, PRETEXT, SELF_LABELLING, Training, set_seed

__all__ = ["SCAN"]


class SCAN(ClusterMixin, BaseEstimator):
    """Semantic clustering by adopting nearest neighbours: a network learns to cluster images without labels.

    An embedding is taken from a pretrained backbone or learned by SimCLR. The nearest neighbours of each image in
    it are mined, and linear heads with a softmax learn to put neighbours into one cluster and images into all
    clusters; the embedding is trained with them. The head with the lowest loss is kept, and learns on from the
    images that it is sure of.

    Parameters
    ----------
    n_clusters : int
        2 ... n.
    backbone : nn.Module, optional
        Images [N, C, H, W] to features [N, d], or to maps [N, d, h, w], which are averaged; a
        :class:`neonxc.models.FeatureExtractor` is one. It is copied; only parameters that require a gradient are
        trained. Default: :func:`neonxc.models.vgg_small` without its classifier.
    pretext : {"simclr"}, optional
        How the embedding is learned. None: the backbone is pretrained.
    n_neighbors : int, default=20
        At most n - 1 are used.
    n_heads : int, default=20
        How many clusterings are learned at once, on the same embedding.
    entropy_weight : float, default=5
        Weight of the entropy of the mean assignment, which keeps clusters from being empty.
    pretext_epochs, head_epochs, epochs, self_label_epochs : int, default=20, 30, 5, 0
        Passes over the images: of SimCLR; of the heads alone, on the embedding as it is, which takes hardly any
        time; of the best of them and the embedding; of self-labelling, which has cost accuracy on the data it was
        measured on. 0 leaves a stage out. Without `head_epochs` the embedding is trained with all heads.
    self_label_threshold : float, default=0.99
        Probability above which an image labels itself, 0 ... 1.
    temperature : float, default=0.5
        Of SimCLR's loss.
    augment : callable, optional
        Batches [B, C, H, W] to random views of the same shape, on their device. Default: :class:`RandomWarp()
        <neonxc.models.scan.RandomWarp>`.
    batch_size : int, default=256
    learning_rate : float, default=1e-3
        Highest rate of AdamW, which falls to 0 in every stage.
    device : torch.device or str, optional
        Where to train. Default: where the images are if that is no CPU, else where the backbone is.
    amp : bool, default=False
        Train the embedding with autocast to bfloat16, which is about twice as fast where the hardware has it.
    checkpoint : path-like, optional
        Folder to save the state of training in, after every stage and every fifth epoch; `fit` continues from
        there, and refuses a checkpoint of other settings or images; but a clustering that was not self-labelled
        (``self_label_epochs=0``) can be later. One safetensors file, its header is JSON; nothing is unpickled.
    random_state : int, RandomState, optional
        Same number, same labels, on one CPU. The global generators stay as they are.
    verbose : bool, default=False
        Write a line after every epoch. A bar shows progress in any case.

    Attributes
    ----------
    labels_ : ndarray [n] of int64
        Clusters of the training images.
    embedding_ : nn.Module
        Images to features a [N, d]; evaluation mode.
    cluster_head_ : nn.Linear
        Features to scores [N, K]; the softmax of these are the probabilities of the clusters.
    losses_ : ndarray [n_heads]
        SCAN loss of each head on the images as they are and all their neighbours, when the best was chosen: after
        `head_epochs` on the embedding as it was, or else after the clustering.
    history_ : list of dict
        For each epoch: ``stage``, ``epoch``, mean ``loss`` (None where no image took part; over all heads),
        ``share`` of the images that took part.
    neighbors_ : ndarray [n, k] of int64
        The mined neighbours.

    Notes
    -----
    All images are held in memory. Images, as `fit` gets them, are what the backbone takes.

    The decision is ``argmax_k w_k . a + b_k``, a softmax over one linear layer: Propositions 6 and 7 of the NEON
    paper apply (with ``b_c - b_k`` added to their contrasts).

    References
    ----------
    .. [1] W. Van Gansbeke, S. Vandenhende, S. Georgoulis, M. Proesmans, L. Van Gool: "SCAN: Learning to Classify
       Images without Labels", ECCV 2020.
    .. [2] T. Chen, S. Kornblith, M. Norouzi, G. Hinton: "A Simple Framework for Contrastive Learning of Visual
       Representations", ICML 2020.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import SCAN, vgg_small
    >>> images = torch.rand(24, 1, 8, 8)
    >>> images[:12, :, :, :4] += 2
    >>> images[12:, :, :, 4:] += 2
    >>> backbone = torch.nn.Flatten()
    >>> scan = SCAN(2, backbone, pretext=None, n_neighbors=5, epochs=1, self_label_epochs=0, random_state=0)
    >>> labels = scan.fit_predict(images)
    >>> len(set(labels[:12])), len(set(labels[12:])), int(abs(labels[0] - labels[-1]))
    (1, 1, 1)
    """

    labels_: np.ndarray
    embedding_: nn.Module
    cluster_head_: nn.Linear
    losses_: np.ndarray
    history_: list[dict[str, Any]]
    neighbors_: np.ndarray

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
            What the backbone takes. Datasets and loaders may give tuples that begin with images; labels are in
            the order in which they give them, so a loader should not shuffle.
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
        images = read_all(X, self.batch_size, dtype)
        if self.n_clusters > len(images):
            raise ValueError(
                f"n_clusters must be at most the number of images, {len(images)}; got {self.n_clusters}"
            )
        device = self._device(images)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            seed = self._seed()
            set_seed(seed, device)
            network = self._network(images, device)
            training = Training(
                network,
                len(images),
                self.batch_size,
                Progress(seed),
                Checkpoint(self.checkpoint, *self._settings(images)),
                self.verbose,
            )
            training.resume()
            data = Data(network, images, self.augment or RandomWarp(), self.batch_size, self.amp)
            self._train(data, training)
        self._finish(data, training)
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
        """Probability of each cluster, [N, K], rows sum to 1; input, type and errors as of `predict`."""
        return self._apply(X, lambda a: self.cluster_head_(a).softmax(1))

    def transform(self, X: Any) -> Any:
        """Embeddings a [N, d], in the dtype of the backbone; input, type and errors as of `predict`."""
        return self._apply(X, lambda a: a)

    def _apply(self, X: Any, read: Callable[[Tensor], Tensor]) -> Any:
        check_is_fitted(self)
        weight = self.cluster_head_.weight
        with torch.no_grad():
            batches = read_batches(X, self.batch_size, self.image_shape_)
            return like_input(X)(torch.cat([read(self.embedding_(batch.to(weight))) for batch in batches]))

    def _train(self, data: Data, training: Training) -> None:
        """Run the stages that are still to be run."""
        weight, rate = self.entropy_weight, self.learning_rate
        if training.begin(PRETEXT):
            if self.pretext is not None:
                training.run(pretext(data, self.pretext_epochs, rate, self.temperature))
            training.end()
        if training.begin(NEIGHBOURS):
            training.neighbours = nearest(data.embed(), min(self.n_neighbors, len(data.images) - 1))
            training.end()
        assert training.neighbours is not None
        neighbours = training.neighbours = training.neighbours.to(data.network.like.device)
        if training.begin(HEADS):
            training.run(heads_alone(data, neighbours, self.head_epochs, rate, weight))
            if self.head_epochs:
                training.progress.losses = head_losses(data, neighbours, weight).tolist()
            training.end()
        if training.begin(CLUSTERING):
            heads, losses = data.network.heads, training.progress.losses
            if losses is None:
                training.run(clustering(data, heads, neighbours, self.epochs, rate, weight))
                training.progress.losses = head_losses(data, neighbours, weight).tolist()
            else:  # the embedding follows the best of the heads that have learned
                best = nn.ModuleList([heads[int(np.argmin(losses))]])
                training.run(clustering(data, best, neighbours, self.epochs, rate / SLOWER, weight))
            training.end()
        assert training.progress.losses is not None
        head = data.network.heads[int(np.argmin(training.progress.losses))]
        if self.self_label_epochs and training.begin(SELF_LABELLING):
            training.run(self_labelling(data, head, self.self_label_epochs, rate, self.self_label_threshold))
            training.end()

    def _finish(self, data: Data, training: Training) -> None:
        """Set what a fitted estimator has."""
        assert training.neighbours is not None
        assert training.progress.losses is not None
        data.network.eval()
        self.image_shape_ = tuple(data.images.shape[1:])
        self.losses_ = np.array(training.progress.losses)
        self.history_ = training.progress.history
        self.neighbors_ = training.neighbours.cpu().numpy()
        self.embedding_ = data.network.embedding
        self.cluster_head_ = data.network.heads[int(self.losses_.argmin())]  # type: ignore[assignment]
        self.labels_ = self.predict(data.images).cpu().numpy()

    def _network(self, images: Tensor, device: torch.device) -> ScanNetwork:
        embedding, width = make_embedding(self.backbone, images[:2])
        network = ScanNetwork(embedding, width, self.n_clusters, self.n_heads, images.dtype).to(device)
        network.to(memory_format=torch.channels_last)  # convolutions on the CPU take two thirds of the time
        if self.pretext is not None and self.pretext_epochs and not network.learns:
            raise ValueError(
                f'pretext="{self.pretext}" needs a backbone with parameters that require a gradient; this one is '
                "frozen (pretext=None, or backbone.requires_grad_())"
            )
        return network

    def _device(self, images: Tensor) -> torch.device:
        if self.device is not None:
            return torch.device(self.device)
        if images.device.type != "cpu" or self.backbone is None:
            return images.device
        return next(chain(self.backbone.parameters(), self.backbone.buffers()), images).device

    def _seed(self) -> int:
        if self.random_state is None:  # and not of NumPy's global generator, which would move
            return int(np.random.default_rng().integers(2**31))
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _settings(self, images: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a checkpoint must agree on to be continued; the settings of self-labelling apart."""
        unimportant = ("backbone", "augment", "device", "checkpoint", "random_state", "verbose")
        settings = {name: value for name, value in self.get_params().items() if name not in unimportant}
        last = {name: settings.pop(name) for name in ("self_label_epochs", "self_label_threshold")}
        backbone, augment, random = self.backbone, self.augment or RandomWarp(), self.random_state
        name = getattr(augment, "__qualname__", type(augment).__qualname__)
        return {
            **settings,
            "backbone": None if backbone is None else f"{type(backbone).__name__} {_weights(backbone)}",
            "augment": repr(augment) if isinstance(augment, RandomWarp) else name,
            "random_state": int(random) if isinstance(random, Integral) else random and type(random).__name__,
            "images": data_fingerprint(images),
        }, last

    def _check(self) -> None:
        """Refuse parameters that are out of their range."""
        if not isinstance(self.backbone, (nn.Module, type(None))):
            raise TypeError(f"backbone needs an nn.Module or None, got {type(self.backbone).__name__}")
        for name, problem in self._problems():
            raise ValueError(f"{name} {problem}; got {getattr(self, name)!r}")

    def _problems(self) -> Iterator[tuple[str, str]]:
        least = {"n_clusters": 2, "n_neighbors": 1, "n_heads": 1, "batch_size": 2}
        least |= dict.fromkeys(("pretext_epochs", "head_epochs", "epochs", "self_label_epochs"), 0)
        for name, low in least.items():
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < low:
                yield name, f"must be an integer of at least {low}"
        for name in ("learning_rate", "temperature", "entropy_weight"):
            value = getattr(self, name)
            if not np.isfinite(value) or value < 0 or (value == 0 and name != "entropy_weight"):
                yield name, "must be a number above 0" if name != "entropy_weight" else "must be at least 0"
        if not 0 <= self.self_label_threshold <= 1:
            yield "self_label_threshold", "must be in 0 ... 1"
        if self.pretext not in ("simclr", None):
            yield "pretext", 'must be "simclr" or None'
        if self.augment is not None and not callable(self.augment):
            yield "augment", "must be callable"


def _weights(backbone: nn.Module) -> str:
    return fingerprint(backbone.state_dict().items())
