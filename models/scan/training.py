"""The training loop of all stages, with the network that it trains, its images, and checkpoints.

1. Continue from the checkpoint, if there is one.
2. Run the stages that are not completed (``stages.py``). Each epoch of a stage
a. seeds the random generators by the seed, the stage and the epoch,
b. goes once through the images in a random order, in batches of nearly equal size, with AdamW and the
learning rate of :func:`schedule`,
c. records the mean loss, and every fifth epoch saves a checkpoint.
"""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from neonxc.common.modules import evaluated, unwrapped
from neonxc.common.numbers import percent
from neonxc.common.progress import progress_bar
from neonxc.common.shortening import shortened
from neonxc.common.storage import read, write

from ..backbones.architectures import vgg_small_embedding
from ..features import FeatureExtractor
from .augment import RandomWarp

if TYPE_CHECKING:
    from .estimator import SCAN

PROJECTED = 64  # dimension in which the pretext task compares views
WARM_UP = 0.1  # fraction of a stage's steps during which the learning rate increases
SAVE_EVERY = 5  # number of epochs between checkpoints
KIND = "training of SCAN"


class Training(nn.Module):
    """A training on n images [n, C, H, W], which can be saved after any epoch and continued from there.

    Each epoch has its own seed, so an interrupted training gives the same result as an uninterrupted one. All
    tensors that a training changes are in the state of the module: the embedding, the projector for the pretext
    task, the heads, the nearest neighbors [n, k] of the images, and the losses [n_heads] of the heads.

    Parameters
    ----------
    model : SCAN
        The estimator, whose parameters are the options of the training.
    images : Tensor [n, C, H, W]
    device : torch.device
    seed : int
    """

    losses: Tensor
    neighbours: Tensor

    def __init__(self, model: SCAN, images: Tensor, device: torch.device, seed: int) -> None:
        super().__init__()
        self.model = model
        self.images = images
        self.seed = seed
        # numbers of stages, and of epochs of the current stage, that are completed
        self.stage = 0
        self.epoch = 0
        self.history: list[dict[str, str | int | float | None]] = []  # a dictionary for each epoch
        set_seed(device, seed)
        n = len(images)
        dtype = images.dtype
        self.labels = torch.zeros(n)  # labels in self-labeling; images whose label is -1 are not used
        self.embedding: nn.Module
        if model.backbone is None:
            self.embedding = vgg_small_embedding(images.shape[1])
        else:
            self.embedding = copy.deepcopy(unwrapped(model.backbone))

        like = next(self.embedding.parameters(), images)
        try:
            with torch.no_grad():
                features = self.embedding.eval()(images[:2].to(like))
        except RuntimeError as error:  # raised by torch's layers for unsupported shapes
            raise ValueError(
                f"backbone does not take images of shape {list(images.shape[1:])}: {error}"
            ) from error
        if not isinstance(features, Tensor) or features.ndim < 2:
            raise ValueError(
                f"backbone needs to return features [N, d] or [N, d, h, w], got {shortened(repr(features), 200)}"
            )
        if features.ndim > 2:
            if not isinstance(self.embedding, FeatureExtractor):
                self.embedding = FeatureExtractor(self.embedding, "")
            self.embedding.pool = "avg"

        d = features.shape[1]
        hidden = max(d, PROJECTED)
        self.projector = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, PROJECTED)).to(dtype)
        self.heads: Any = nn.ModuleList(nn.Linear(d, model.n_clusters, dtype=dtype) for _ in range(model.n_heads))
        self.register_buffer("losses", torch.zeros(model.n_heads, dtype=dtype))
        self.to(device).to(memory_format=torch.channels_last)  # 1.5 times as fast on the CPU
        # Not moved, because the indices of batches are on the CPU
        self.register_buffer("neighbours", torch.zeros(n, min(model.n_neighbors, n - 1), dtype=torch.int64))

    @property
    def best(self) -> nn.Linear:
        """The head with the lowest loss."""
        return self.heads[self.losses.argmin()]

    def run(self, stages: Sequence[Callable[[Training], None]]) -> None:
        """Run the stages that have not been completed."""
        self._resume()
        for stage in stages[self.stage :]:
            stage(self)
            self.stage = self.stage + 1
            self.epoch = 0
            self._save({})

    def minimize(
        self,
        name: str,
        epochs: int,
        modules: Iterable[nn.Module],
        rate: float,
        loss_of: Callable[[Tensor], Tensor],
        batch_size: int | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Train the parameters of modules that require a gradient; continue if the stage was interrupted.

        `loss_of` gives the loss of images from their indices; `prepare` is called before each epoch. The learning
        rate rises to `rate` and then decreases to 0.
        """
        optimizer = AdamW(nn.ModuleList(modules).parameters(), lr=rate, weight_decay=1e-4)
        if self.epoch:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": self.moments})
        n = len(self.images)
        n_steps = math.ceil(n / (batch_size or self.model.batch_size))
        bar = progress_bar(range(self.epoch + 1, epochs + 1), desc=f"SCAN: {name}")
        for epoch in bar:
            set_seed(self.losses.device, self.seed, self.stage, epoch)
            prepare()
            self._set_modes()
            # The sum of losses becomes a tensor, so that the device is waited for only once
            total: float | Tensor = 0.0
            n_used = 0
            batches = torch.randperm(n).tensor_split(n_steps)  # of nearly equal size
            for step, batch in enumerate(batches, (epoch - 1) * n_steps):
                optimizer.param_groups[0]["lr"] = rate * schedule((step + 0.5) / (n_steps * epochs))
                batch = batch[self.labels[batch] >= 0]
                if len(batch) > 1:  # batch normalization needs at least two images
                    loss = loss_of(batch)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    total = total + loss.detach() * len(batch)
                    n_used = n_used + len(batch)

            mean = float(total) / max(n_used, 1)
            if not math.isfinite(mean):
                raise ValueError(
                    f"training diverged: the loss of epoch {epoch} of {name} is {mean}; lower learning_rate"
                )
            fraction = n_used / n
            recorded = mean if n_used else None
            self.history.append({"stage": name, "epoch": epoch, "loss": recorded, "share": fraction})
            self.epoch = epoch
            bar.set_postfix(loss=mean, refresh=False)
            if self.model.verbose:
                bar.write(f"SCAN: {name}, epoch {epoch}: loss {mean:.4f}, {percent(fraction)} of the images")
            if epoch % SAVE_EVERY == 0:
                self._save(optimizer.state_dict()["state"])

    def _set_modes(self) -> None:
        """Set training mode, but evaluation mode for frozen parts: batch statistics must not change either."""
        self.train()
        for module in self.embedding.modules():
            if {parameter.requires_grad for parameter in module.parameters()} == {False}:
                module.eval()

    def pairs(self, index: Tensor) -> Tensor:
        """Draw a random neighbor of each image: indices [2 B] of the images, and then of their neighbors."""
        choice = torch.randint(self.neighbours.shape[1], index.shape)
        return torch.cat([index, self.neighbours[index, choice]])

    def features(self, *indices: Tensor) -> Tensor:
        """Compute the features of augmented views of images, which are called by their indices.

        With `amp`, only the embedding is computed in bfloat16.
        """
        augment = self.model.augment or RandomWarp()
        views = torch.cat([augment(self.images[index].to(self.losses)) for index in indices])
        shape = [sum(map(len, indices)), *self.images.shape[1:]]
        if list(views.shape) != shape:
            raise ValueError(f"augment needs to return images of shape {shape}, got {list(views.shape)}")
        with torch.autocast(views.device.type, torch.bfloat16, enabled=self.model.amp):
            features: Tensor = self.embedding(views)
        return features.to(self.losses)

    @torch.no_grad()
    def embed(self) -> Tensor:
        """Compute the features [n, d] of all images without augmentation; this sets evaluation mode."""
        self.eval()
        batches = self.images.split(self.model.batch_size)
        return torch.cat([evaluated(self.embedding, x.to(self.losses), "backbone") for x in batches])

    def _resume(self) -> None:
        """Continue from the checkpoint, if it exists. That of another training is a ValueError."""
        model = self.model
        self.path = Path(model.checkpoint or "", "scan.safetensors")
        if model.checkpoint is None:
            return
        weights = (model.backbone or nn.Identity()).state_dict()
        self.settings = {name: plain_text(value) for name, value in model.get_params(deep=False).items()}
        self.settings["backbone"] = f"{type(model.backbone).__name__} {hash_of(weights)}"
        self.settings["images"] = f"{list(self.images.shape)} {hash_of({'images': self.images})}"
        if not self.path.exists():
            return

        _, plain, tensors, _ = read(self.path, [KIND])
        saved = plain.pop("settings")
        vars(self).update(plain)
        self._check_settings(saved)
        # Tensors that are not of the network are moments of the optimizer, "number.name"
        self.moments: dict[int, Any] = defaultdict(dict)
        for name in self.load_state_dict(tensors, strict=False).unexpected_keys:
            number, moment = name.split(".")
            self.moments[int(number)][moment] = tensors[name]

    def _check_settings(self, saved: dict[str, str]) -> None:
        """Raise a ValueError if a checkpoint was saved with other settings that matter for its training."""
        self_labels = (self.stage, self.epoch) > (3, 0)
        changed = []
        for name, value in sorted(saved.items() - self.settings.items()):
            may_change = name in ("device", "checkpoint", "verbose")
            if not self_labels:  # before self-labeling begins, its settings may change
                may_change = may_change or name.startswith("self_label")
            if not may_change:
                changed.append(f"{name} was {value} and is now {self.settings.get(name)}")
        if changed:
            raise ValueError(
                f"{self.path} is a checkpoint of another training: {'; '.join(changed)}; pass another folder as "
                "checkpoint, or delete the file"
            )

    def _save(self, moments: dict[int, Any]) -> None:
        """Replace the checkpoint, if there is to be one; `moments` is the state of the optimizer."""
        if self.model.checkpoint is None:
            return
        plain = {name: getattr(self, name) for name in ("settings", "seed", "stage", "epoch", "history")}
        flat = {f"{i}.{name}": tensor for i, state in moments.items() for name, tensor in state.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write(self.path, KIND, plain, self.state_dict() | flat)


def hash_of(values: Mapping[str, object]) -> str:
    """Return a hash of named tensors; other values are hashed by their text."""
    digest = hashlib.sha256()
    for name, value in sorted(values.items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            digest.update(f"{name} {plain_text(value)}".encode())
    return digest.hexdigest()[:16]


def plain_text(value: object) -> str:
    """Return the text of an object without memory addresses, which differ between processes."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


def schedule(t: float) -> float:
    """Compute the factor of the learning rate at a fraction t of a stage: a linear warm-up, then half a cosine."""
    rising = t / WARM_UP
    falling = (1 + math.cos(math.pi * (t - WARM_UP) / (1 - WARM_UP))) / 2
    return min(rising, falling)


def set_seed(device: torch.device, *seed: int) -> None:
    """Seed the generators of the CPU and of `device`; torch.manual_seed would seed those of all devices."""
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(number)
