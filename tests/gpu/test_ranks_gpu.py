"""Several processes on GPUs. Skipped where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from diskhop.runs.distributed import Group, open_nccl
from diskhop.runs.rank_devices import rank_device
from diskhop.runs.start import train
from tests.ranks import RanksJob, folders_of, run_jobs
from tests.runs import assert_same_run, small_graph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here: pytest -m gpu runs these where one is"),
]
OPTIONS: dict[str, Any] = {"hidden": 16, "fanout": (4, 4), "batch_size": 60, "epochs": 2, "memory_bytes": 400_000_000}
HOPS: dict[str, Any] = {"model": "sign", "hops": 2, "batch_size": 60, "epochs": 2, "memory_bytes": 400_000_000}


def test_a_group_of_nccl_sends_tensors_of_devices(tmp_path: Path) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    assert rank_device(device).card
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        group = Group()
        group._of_devices = open_nccl(device)
        sent = torch.arange(5.0, device=device)
        (found,) = group.gather_tensors(sent)
        assert found.device == device
        assert torch.equal(found, sent)
        (in_memory,) = group.gather_tensors(torch.ones(3))
        assert in_memory.device.type == "cpu"
        group.abort()
    finally:
        dist.destroy_process_group()


# With one GPU, both processes share it, and gradients travel through memory; with two, by NCCL.
@pytest.mark.parametrize("options", [OPTIONS, HOPS], ids=["sage", "sign"])
def test_processes_on_gpus_train_the_model_of_one(tmp_path: Path, options: dict[str, Any]) -> None:
    graph = small_graph(tmp_path / "g")
    train(graph, out=tmp_path / "alone", device="cuda", accumulate=2, threads=1, **options)
    job = {**options, "dataset": str(graph.path), "device": "cuda", "threads": 2}
    assert run_jobs([RanksJob(2, job, outs=folders_of(tmp_path / "ranks"))]) == [["", ""]]
    assert_same_run(tmp_path / "ranks", tmp_path / "alone")
    reasons = json.loads((tmp_path / "ranks" / "result.json").read_text())["plan"]["reasons"]
    way = "from GPU to GPU by NCCL" if torch.cuda.device_count() > 1 else "through memory by gloo (2 processes share"
    assert any(line.startswith(f"Gradients: {way}") for line in reasons)
