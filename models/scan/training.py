"""The training loop of all stages, with a learning-rate schedule, a progress bar and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from neonxc.common.numbers import percent
from neonxc.common.progress import progress_bar

from .checkpoint import Checkpoint
from .network import TrainingData

SAVE_EVERY = 5  # number of epochs between checkpoints
WARM_UP = 0.1  # share of a stage's steps during which the learning rate increases


@dataclass(frozen=True)
class TrainingStage:
    """A stage of the training."""

    name: str
    epochs: int
    modules: Sequence[nn.Module]  # modules whose parameters are trained if they require a gradient
    rate: float  # maximum learning rate
    batch_size: int
    step: Callable[[Tensor], tuple[Tensor | None, int]]  # maps indices of images to the loss and their number
    prepare: Callable[[], None] = lambda: None  # called before each epoch
    finish: Callable[[], None] = lambda: None  # called after the last epoch, even if there are no epochs


@dataclass
class Progress:
    """The part of a training's state that consists of JSON values."""

    seed: int
    stage: int = 0  # index of the current stage
    epoch: int = 0  # number of its epochs that are completed
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Training:
    """A training, which can be saved after any epoch and continued from there.

    Each epoch has its own seed, so an interrupted training gives the same result as an uninterrupted one.
    """

    data: TrainingData
    progress: Progress
    checkpoint: Checkpoint

    def run(self, stages: Sequence[Callable[[TrainingData], TrainingStage]]) -> None:
        """Run the stages that have not been completed; each is created when the previous one has finished."""
        state = self.checkpoint.load()
        if state:
            self.data.network.load_state_dict(state["network"])
            self.progress = Progress(**state["progress"])
        for make in stages[self.progress.stage :]:
            stage = make(self.data)
            if stage.epochs:
                self._train(stage, state.get("optimizer"))
            stage.finish()
            self.progress.stage, self.progress.epoch, state = self.progress.stage + 1, 0, {}
            self._save()

    def _train(self, stage: TrainingStage, state: dict[str, Any] | None) -> None:
        """Train a stage, continuing from the saved `state` of the optimizer if there is one."""
        optimizer = AdamW(nn.ModuleList(stage.modules).parameters(), lr=stage.rate, weight_decay=1e-4)
        if state is not None:
            optimizer.load_state_dict(state)
        done, steps = self.progress.epoch, math.ceil(len(self.data.images) / stage.batch_size)
        total = steps * stage.epochs
        scheduler = LambdaLR(optimizer, lambda step: schedule((step + 0.5) / total), last_epoch=done * steps - 1)
        with progress_bar(total=stage.epochs, initial=done, desc=f"SCAN: {stage.name}") as bar:
            for epoch in range(done + 1, stage.epochs + 1):
                set_seed([self.progress.seed, self.progress.stage, epoch], self.data.network.losses.device)
                stage.prepare()
                loss, share = self._epoch(stage, steps, optimizer, scheduler)
                self._record(stage.name, epoch, loss, share)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                bar.update()
                if epoch % SAVE_EVERY == 0:
                    self._save(optimizer)

    def _epoch(
        self, stage: TrainingStage, steps: int, optimizer: Optimizer, scheduler: LambdaLR
    ) -> tuple[float, float]:
        """Train one epoch; return the mean loss over the images that were used (NaN if none), and their share."""
        self.data.network.train()
        total: Any = 0.0  # a tensor after the first batch, so that the device is waited for only once
        used, n = 0, len(self.data.images)
        for batch in torch.randperm(n).tensor_split(steps):  # batches of nearly equal size
            loss, count = stage.step(batch)
            optimizer.zero_grad()
            if loss is not None:
                loss.backward()
                total, used = total + loss.detach() * count, used + count
            optimizer.step()
            scheduler.step()
        return (float(total) / used if used else math.nan), used / n

    def _record(self, stage: str, epoch: int, loss: float, share: float) -> None:
        if share and not math.isfinite(loss):
            raise ValueError(
                f"training diverged: the loss of epoch {epoch} of {stage} is {loss}; lower learning_rate"
            )
        mean = loss if share else None  # JSON has no NaN
        self.progress.history.append({"stage": stage, "epoch": epoch, "loss": mean, "share": share})
        self.progress.epoch = epoch
        if self.data.model.verbose:
            tqdm.write(f"SCAN: {stage}, epoch {epoch}: loss {loss:.4f}, {percent(share)} of the images")

    def _save(self, optimizer: Optimizer | None = None) -> None:
        state = {"network": self.data.network.state_dict(), "progress": vars(self.progress)}
        self.checkpoint.save(state if optimizer is None else {**state, "optimizer": optimizer.state_dict()})


def schedule(done: float) -> float:
    """Factor of the learning rate after a fraction `done` of a stage: a linear warm-up, then half a cosine."""
    if done < WARM_UP:
        return done / WARM_UP
    return (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


def set_seed(seed: int | Sequence[int], device: torch.device) -> None:
    """Seed the generators of the CPU and of `device`; torch.manual_seed would seed those of all devices."""
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(number)
