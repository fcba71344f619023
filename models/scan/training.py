"""One loop for all stages: epochs of minibatches, a schedule, progress, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from .checkpoint import Checkpoint, Progress, pack_network, pack_optimizer, unpack_network, unpack_optimizer
from .network import ScanNetwork

__all__ = ["CLUSTERING", "HEADS", "NEIGHBOURS", "PRETEXT", "SELF_LABELLING", "Stage", "Training"]

SAVE_EVERY = 5  # epochs
PRETEXT, NEIGHBOURS, HEADS, CLUSTERING, SELF_LABELLING = range(5)
WARM_UP = 0.1  # share of a stage's steps in which the rate rises


@dataclass(frozen=True)
class Stage:
    """A part of training.

    Parameters
    ----------
    name : str
    epochs : int
    modules : iterable of nn.Module
        What is trained.
    rate : float
        Highest learning rate.
    step : callable
        Indices [B] of a minibatch's images to their loss (None: nothing to learn from), and the number of images
        that took part.
    prepare : callable, optional
        Called before each epoch.
    batch_size : int, optional
        Default: the training's.
    finish : callable, optional
        Called after the last epoch.
    """

    name: str
    epochs: int
    modules: Iterable[nn.Module]
    rate: float
    step: Callable[[Tensor], tuple[Tensor | None, int]]
    prepare: Callable[[], None] | None = None
    batch_size: int | None = None
    finish: Callable[[], None] | None = None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer changes."""
        return [p for module in self.modules for p in module.parameters() if p.requires_grad]


@dataclass
class Training:
    """The state of a training, which can be saved after any epoch and continued from there.

    Each epoch has a seed of its own, so that the epochs after an interruption are those that would have come.

    Parameters
    ----------
    network : ScanNetwork
    n : int
        Number of images.
    batch_size : int
    progress : Progress
    checkpoint : Checkpoint
    verbose : bool
        Write a line after every epoch.
    """

    network: ScanNetwork
    n: int
    batch_size: int
    progress: Progress
    checkpoint: Checkpoint
    verbose: bool
    neighbours: Tensor | None = None
    _optimizer: dict[str, Tensor] = field(default_factory=dict)

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        found = self.checkpoint.load()
        if found is None:
            return
        self.progress, tensors = found
        unpack_network(self.network, tensors)
        self.neighbours = tensors.get("neighbours")
        self._optimizer = {name: tensor for name, tensor in tensors.items() if name.startswith("optimizer.")}

    def begin(self, number: int) -> bool:
        """Whether the stage of that number still has to run; if so it is the one under way."""
        if number != self.progress.stage:
            return False
        self.seed(0)
        return True

    def end(self) -> None:
        """Save that the stage under way is done."""
        self.progress.stage, self.progress.epoch, self._optimizer = self.progress.stage + 1, 0, {}
        self.save({})

    def seed(self, epoch: int) -> None:
        """Seed torch's generators: epoch 0 is before a stage's first."""
        state = np.random.SeedSequence([self.progress.seed, self.progress.stage, epoch]).generate_state(1)
        set_seed(int(state[0]), self.network.like.device)

    def run(self, stage: Stage) -> None:
        """Train until the stage is over."""
        if not stage.epochs or not stage.parameters:
            return
        optimizer = torch.optim.AdamW(stage.parameters, lr=stage.rate, weight_decay=1e-4)
        if self._optimizer:
            unpack_optimizer(optimizer, self._optimizer)
        done = self.progress.epoch
        bar = tqdm(total=stage.epochs, initial=done, desc=f"SCAN: {stage.name}", delay=2, leave=False)
        with bar:
            for epoch in range(done, stage.epochs):
                self.seed(1 + epoch)
                if stage.prepare is not None:
                    stage.prepare()
                self._record(stage.name, epoch, *self._epoch(stage, epoch, optimizer), bar)
                self.progress.epoch = epoch + 1
                if (epoch + 1) % SAVE_EVERY == 0 and epoch + 1 < stage.epochs:
                    self.save(pack_optimizer(optimizer))
        if stage.finish is not None:
            stage.finish()

    def save(self, optimizer: dict[str, Tensor]) -> None:
        """Write the checkpoint."""
        if self.checkpoint.path is None:
            return
        mined = {} if self.neighbours is None else {"neighbours": self.neighbours}
        begun = self.progress.stage > SELF_LABELLING or (self.progress.stage == SELF_LABELLING and bool(optimizer))
        self.checkpoint.save(self.progress, {**pack_network(self.network), **optimizer, **mined}, last=begun)

    def _epoch(self, stage: Stage, epoch: int, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
        """Mean loss over the images that took part (nan if none did), and their share."""
        self.network.train()
        size = stage.batch_size or self.batch_size
        batches = torch.randperm(self.n).tensor_split(math.ceil(self.n / size))  # of nearly one size
        total, used = torch.zeros((), dtype=torch.float64, device=self.network.like.device), 0
        for i, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = stage.rate * schedule((epoch + (i + 0.5) / len(batches)) / stage.epochs)
            loss, count = stage.step(batch)
            if loss is None:
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, used = total + loss.detach() * count, used + count
        return float(total) / used if used else math.nan, used / self.n

    def _record(self, name: str, epoch: int, loss: float, share: float, bar: Any) -> None:
        if math.isinf(loss) or (math.isnan(loss) and share):
            raise ValueError(
                f"training diverged: the loss of epoch {epoch + 1} of {name} is {loss}; lower learning_rate"
            )
        # JSON has no nan
        self.progress.history.append(
            {"stage": name, "epoch": epoch + 1, "loss": loss if share else None, "share": share}
        )
        bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        bar.update()
        if self.verbose:
            tqdm.write(f"SCAN: {name}, epoch {epoch + 1}: loss {loss:.4f}, {share:.1%} of the images")


def set_seed(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of `device` alone; torch.manual_seed would touch those of all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def schedule(done: float) -> float:
    """Factor of the learning rate when so much of a stage is done, 0 ... 1: a ramp up, then half a cosine."""
    if done < WARM_UP:
        return done / WARM_UP
    return (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2
