"""NodeData: Lightning trains from disk, and a checkpoint resumes with the very batches that were left."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import diskhop
from diskhop.errors import ConfigError
from tests.runs import small_graph

pytestmark = pytest.mark.filterwarnings("default")


def test_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "diskhop.lightning", raising=False)
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(ImportError, match=r"pip install 'diskhop\[lightning\]'"):
        importlib.import_module("diskhop.lightning")


def classifier(dataset: diskhop.Dataset) -> Any:
    """A LightningModule that keeps the seeds of its batches, and raises once it has `stop_after` of them."""
    lightning = pytest.importorskip("lightning", reason="pip install 'diskhop[lightning]'")

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(dataset.feature_dim, dataset.num_classes)
            self.seen: list[list[int]] = []
            self.validated = 0
            self.stop_after = 1000

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            if len(self.seen) == self.stop_after:
                raise InterruptedError
            self.seen.append(batch.n_id[: batch.batch_size].tolist())
            return functional.cross_entropy(self.linear(batch.x), batch.y)

        def validation_step(self, batch: Any, number: int) -> None:
            self.validated += batch.batch_size

        def test_step(self, batch: Any, number: int) -> None:
            self.seen.append(batch.n_id[: batch.batch_size].tolist())

        def predict_step(self, batch: Any, number: int) -> torch.Tensor:
            return self.linear(batch.x[: batch.batch_size])  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return Classifier()


def trainer(folder: Path, keep: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return a trainer of two epochs. keep: when checkpoints are made; default: never within them."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    kept = ModelCheckpoint(folder / "kept", filename="{step}", save_top_k=-1, **keep or {"every_n_train_steps": 1000})
    return Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_progress_bar=False, callbacks=[kept],
        num_sanity_val_steps=0, default_root_dir=folder, enable_model_summary=False, **options,
    )  # fmt: skip


def node_data(dataset: diskhop.Dataset, **options: Any) -> Any:
    module = importlib.import_module("diskhop.lightning")
    return module.NodeData(dataset, [4, 4], batch_size=50, memory="200MB", store="direct", threads=1, **options)


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [4, 6, 8], ids=["inside an epoch", "after an epoch", "inside the next"])
def test_a_checkpoint_resumes_with_the_batches_that_are_left(tmp_path: Path, stop_after: int) -> None:
    dataset = small_graph(tmp_path / "graph")  # 300 seed nodes: six batches an epoch
    whole = classifier(dataset)
    trainer(tmp_path / "whole").fit(whole, datamodule=node_data(dataset))
    assert [len(seeds) for seeds in whole.seen] == [50] * 12
    assert whole.seen[:6] != whole.seen[6:]

    stopped = classifier(dataset)
    stopped.stop_after = stop_after
    with pytest.raises(InterruptedError):
        trainer(tmp_path / "stopped", {"every_n_train_steps": 2}).fit(stopped, datamodule=node_data(dataset))
    resumed = classifier(dataset)
    path = tmp_path / "stopped" / "kept" / f"step={stop_after}.ckpt"
    trainer(tmp_path / "resumed").fit(resumed, datamodule=node_data(dataset), ckpt_path=path)
    assert stopped.seen + resumed.seen == whole.seen
    assert torch.equal(resumed.linear.weight, whole.linear.weight)


# When checkpoints are made, options of the trainer, and steps per epoch.
HOOKS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "after epochs": ({"every_n_epochs": 1, "save_on_train_epoch_end": True}, {}, 6),
    "after validation": ({"every_n_epochs": 1, "save_on_train_epoch_end": False}, {}, 6),
    "validation within": ({"save_on_train_epoch_end": False}, {"val_check_interval": 2}, 6),
    "new loaders": ({"every_n_train_steps": 2}, {"reload_dataloaders_every_n_epochs": 1}, 6),
    "steps of two batches": ({"every_n_train_steps": 1}, {"accumulate_grad_batches": 2}, 3),
    "shorter epochs": ({"every_n_train_steps": 2}, {"limit_train_batches": 4}, 4),
    "after shorter epochs": ({"every_n_epochs": 1, "save_on_train_epoch_end": True}, {"limit_train_batches": 4}, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_resumes_in_the_right_epoch(tmp_path: Path, name: str) -> None:
    keep, options, num_steps = HOOKS[name]
    dataset = small_graph(tmp_path / "graph")
    whole = classifier(dataset)
    trainer(tmp_path / "whole", keep, **options).fit(whole, datamodule=node_data(dataset))
    batches_of_step = options.get("accumulate_grad_batches", 1)
    assert len(whole.seen) == 2 * num_steps * batches_of_step
    paths = list((tmp_path / "whole" / "kept").glob("*.ckpt"))
    assert f"step={num_steps}.ckpt" in [path.name for path in paths]
    for path in paths:
        resumed = classifier(dataset)
        trainer(tmp_path / path.stem, keep, **options).fit(resumed, datamodule=node_data(dataset), ckpt_path=path)
        num_done = int(path.stem.removeprefix("step=")) * batches_of_step
        assert resumed.seen == whole.seen[num_done:], path.stem
        assert torch.equal(resumed.linear.weight, whole.linear.weight)


@pytest.mark.slow
def test_each_stage_has_its_nodes(tmp_path: Path) -> None:
    dataset = small_graph(tmp_path / "graph")
    model, data, run = classifier(dataset), node_data(dataset), trainer(tmp_path)
    run.fit(model, datamodule=data)
    assert model.validated == 2 * len(dataset.splits["valid"])
    model.seen = []
    run.test(model, datamodule=data, verbose=False)
    assert [node for seeds in model.seen for node in seeds] == dataset.splits["test"].tolist()
    logits = torch.cat(run.predict(model, datamodule=data))
    assert dataset.features is not None
    x = torch.from_numpy(dataset.features[dataset.node_ids()])
    torch.testing.assert_close(logits, model.linear(x).detach())
    assert data._loaders == {}, "every stage closes its loaders"


@pytest.mark.slow
def test_options_that_a_loader_chooses_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="pip install 'diskhop[lightning]'")
    dataset = small_graph(tmp_path / "graph")
    with pytest.raises(ConfigError, match="NodeData chooses shuffle by loader"):
        node_data(dataset, shuffle=True)
