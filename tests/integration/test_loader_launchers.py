"""Loaders within Lightning and Ray Train, which start the processes and their group."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import small_graph

pytestmark = pytest.mark.slow

_LIGHTNING = """
import json, sys
from pathlib import Path
import pytorch_lightning as lightning, torch
import diskhop

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 4)
        self.found = []
    def train_dataloader(self):
        return diskhop.NeighborLoader(sys.argv[1], [4], "train", batch_size=64, shuffle=True, memory="200MB", threads=1)
    def training_step(self, batch, number):
        self.found.append(batch.input_id.tolist())
        return torch.nn.functional.cross_entropy(self.linear(batch.x[:batch.batch_size]), batch.y[:batch.batch_size])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

model = Classifier()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, num_sanity_val_steps=0, default_root_dir=sys.argv[2],
)
trainer.fit(model)
weights = [round(each, 6) for each in model.linear.weight.flatten().tolist()]
Path(sys.argv[2], f"{trainer.global_rank}.json").write_text(json.dumps([model.found, weights]))
"""

_RAY = """
import json, sys
from pathlib import Path
import ray, torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
import diskhop

def train(options):
    model = prepare_model(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = diskhop.NeighborLoader(
        options["graph"], [4], "train", batch_size=64, shuffle=True, memory="200MB", threads=1
    )
    found = []
    for _ in range(2):
        for batch in loader:
            found.append(batch.input_id.tolist())
            optimizer.zero_grad()
            scores = model(batch.x[:batch.batch_size])
            torch.nn.functional.cross_entropy(scores, batch.y[:batch.batch_size]).backward()
            optimizer.step()
    weights = [round(each, 6) for each in next(model.parameters()).flatten().tolist()]
    rank = ray.train.get_context().get_world_rank()
    Path(options["out"], f"{rank}.json").write_text(json.dumps([found, weights]))

ray.init(num_cpus=2, include_dashboard=False)
options = {"graph": sys.argv[1], "out": sys.argv[2]}
TorchTrainer(train, train_loop_config=options, scaling_config=ScalingConfig(num_workers=2)).fit()
"""


@pytest.mark.parametrize(("module", "script"), [("pytorch_lightning", _LIGHTNING), ("ray.train", _RAY)])
def test_batches_are_shared_out_unchanged(tmp_path: Path, module: str, script: str) -> None:
    pytest.importorskip(module)
    graph = small_graph(tmp_path / "g")
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py"), str(graph.path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (first, weights), (second, other_weights) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)
    )
    assert weights == other_weights
    # Three rounds per epoch: five batches, and the first one again.
    assert len(first) == len(second) == 6
    for epoch in range(2):
        rounds = zip(first[3 * epoch :][:3], second[3 * epoch :][:3], strict=True)
        in_order = [batch for both in rounds for batch in both]
        assert in_order[5] == in_order[0]
        assert sorted(seed for batch in in_order[:5] for seed in batch) == list(range(300))
