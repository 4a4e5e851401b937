"""Lightning: the loaders of a dataset as a LightningDataModule.

data = NodeData("my-graph", [10, 10], batch_size=1000, memory="2GB")
lightning.Trainer(max_epochs=10).fit(model, datamodule=data)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypeVar

from diskhop.budget import parse_bytes
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError
from diskhop.loaders.neighbor import NeighborLoader
from diskhop.loaders.progress import after_pass
from diskhop.system.memory import default_memory_bytes

try:
    from lightning.pytorch import LightningDataModule
except ImportError:
    raise ImportError("diskhop.lightning needs the package lightning: pip install 'diskhop[lightning]'") from None

__all__ = ["NodeData"]

LoaderT = TypeVar("LoaderT", bound=NeighborLoader)

# Loaders that are open together: `fit` trains and validates.
_STAGES = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}


class _TrainingLoader(NeighborLoader):
    """A loader whose passes end where the trainer's epochs do. Lightning keeps its state, too, besides NodeData."""

    ends_epoch: Callable[[], bool]

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position: the start of the next pass, if limit_train_batches cuts this one off."""
        position = super().state_dict()
        return after_pass(position) if position["delivered"] > 0 and self.ends_epoch() else position


class NodeData(LightningDataModule):  # type: ignore[misc]
    """Loaders of sampled neighbourhoods for training, validation, test and prediction, with one set of options.

    A checkpoint of Lightning has the position of training, so that `trainer.fit(..., ckpt_path=...)` resumes with the
    batches that were left, inside an epoch too, and later epochs are those of a run without an interruption. It is
    for one process.

    data: a Dataset or its path.
    num_neighbors: neighbours drawn per hop, -1 for all.
    batch_size: seed nodes per batch.
    train, val, test, predict: seed nodes of each loader, as input_nodes of NeighborLoader. predict: None for all nodes,
        in the order of Dataset.node_ids().
    eval_neighbors: neighbours drawn per hop but for training; default: num_neighbors.
    memory: bytes, or a size such as '2GB', for the loaders that are open together; default: half of the free memory.
        While training, half of it is for the training loader and half for the validation loader.
    options: of NeighborLoader: store, seed, threads, device ...

    Raises ConfigError for unsupported options, and BudgetError with the smallest memory that works.
    """

    def __init__(
        self,
        data: Dataset | PathLike[str] | str,
        num_neighbors: Any,
        *,
        batch_size: int = 1,
        train: Any = "train",
        val: Any = "valid",
        test: Any = "test",
        predict: Any = None,
        eval_neighbors: Any = None,
        memory: int | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        for name in ("input_nodes", "shuffle", "drop_last"):
            if name in options:
                raise ConfigError(
                    f"NodeData chooses {name} by loader; remove it, and name nodes by train, val and test"
                )
        self.dataset = as_dataset(data)
        self._nodes = {"train": train, "val": val, "test": test, "predict": predict}
        self._fanouts = {"train": num_neighbors, "eval": num_neighbors if eval_neighbors is None else eval_neighbors}
        self._memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
        self._options = {"batch_size": batch_size, **options}
        self._loaders: dict[str, NeighborLoader] = {}
        self._position: Mapping[str, Any] | None = None
        self._num_together = 1

    def setup(self, stage: str) -> None:
        """Divide the memory among the loaders of a stage."""
        self._num_together = len(_STAGES[stage])

    def train_dataloader(self) -> NeighborLoader:
        """Open the loader of training, at the position of the checkpoint that is resumed."""
        loader = self._open("train", _TrainingLoader)
        loader.ends_epoch = self._ends_epoch
        if self._position is not None:
            loader.load_state_dict(dict(self._position))
            self._position = None
        return loader

    def val_dataloader(self) -> NeighborLoader:
        """Open the loader of validation."""
        return self._open("val", NeighborLoader)

    def test_dataloader(self) -> NeighborLoader:
        """Open the loader of the test."""
        return self._open("test", NeighborLoader)

    def predict_dataloader(self) -> NeighborLoader:
        """Open the loader of prediction."""
        return self._open("predict", NeighborLoader)

    def teardown(self, stage: str) -> None:
        """Close the loaders of a stage."""
        for name in _STAGES[stage]:
            if name in self._loaders:
                self._loaders.pop(name).close()

    def state_dict(self) -> dict[str, Any]:
        """Return the position of training."""
        return {"train": self._loaders["train"].state_dict()} if "train" in self._loaders else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume the next training from a state_dict()."""
        self._position = state_dict.get("train")

    def _ends_epoch(self) -> bool:
        """Whether the trainer has taken the last batch of an epoch."""
        if self.trainer is None:
            return False
        num_taken = self.trainer.fit_loop.epoch_loop.batch_progress.current.ready
        return bool(num_taken >= self.trainer.num_training_batches)

    def _open(self, name: str, kind: type[LoaderT]) -> LoaderT:
        if name in self._loaders:
            self._loaders.pop(name).close()
        memory_bytes = default_memory_bytes() if self._memory_bytes is None else self._memory_bytes
        is_training = name == "train"
        loader = self._loaders[name] = kind(
            self.dataset,
            self._fanouts["train" if is_training else "eval"],
            self._nodes[name],
            shuffle=is_training,
            memory=memory_bytes // self._num_together,
            **self._options,
        )
        return loader
