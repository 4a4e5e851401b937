"""Training with Lightning: the loaders are a LightningDataModule, and a checkpoint resumes inside an epoch.

pip install 'diskhop[lightning]'
python examples/lightning_nodes.py DATASET [CHECKPOINT]
"""

import sys
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional
from torch_geometric.nn import GraphSAGE

import diskhop
from diskhop.lightning import NodeData


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.model = GraphSAGE(in_channels, 64, num_layers=2, out_channels=num_classes, dropout=0.3)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return functional.cross_entropy(out, batch.y[: batch.batch_size])

    def validation_step(self, batch: Any, number: int) -> None:
        self._measure("valid", batch)

    def test_step(self, batch: Any, number: int) -> None:
        self._measure("test", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def _measure(self, part: str, batch: Any) -> None:
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        accuracy = (out.argmax(1) == batch.y[: batch.batch_size]).float().mean()
        self.log(f"{part}_accuracy", accuracy, batch_size=batch.batch_size)


dataset = diskhop.open_dataset(sys.argv[1])
data = NodeData(dataset, [10, 5], batch_size=100, memory="200MB")
trainer = lightning.Trainer(
    max_epochs=10,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    callbacks=[ModelCheckpoint("checkpoints", every_n_train_steps=10, save_last=True)],
)
model = Classifier(dataset.feature_dim, dataset.num_classes)
trainer.fit(model, datamodule=data, ckpt_path=sys.argv[2] if len(sys.argv) > 2 else None)
result = trainer.test(model, datamodule=data, verbose=False)[0]["test_accuracy"]
print(f"test accuracy {result:.4f}")
