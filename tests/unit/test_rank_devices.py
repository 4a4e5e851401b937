"""The way of gradients between ranks, chosen from the devices of all ranks."""

from __future__ import annotations

import pytest

from diskhop.runs.rank_devices import RankDevice, Transport, choose_transport, describe, rank_device

CPU = RankDevice("cpu", "")
# The second process sees its GPU under the number of the first.
A, B, C = RankDevice("cuda:0", "GPU-a"), RankDevice("cuda:0", "GPU-b"), RankDevice("cuda:1", "GPU-c")


@pytest.mark.parametrize(
    ("devices", "has_nccl", "line"),
    [
        ([A, B, C], True, "from GPU to GPU by NCCL (each of 3 processes has a GPU of its own)"),
        ([A, B], False, "through memory by gloo (this build of torch has no NCCL)"),
        ([A, CPU], True, "through memory by gloo (process 1 computes on cpu)"),
        ([CPU, CPU], True, "through memory by gloo (process 0 computes on cpu)"),
        (
            [A, C, C],
            True,
            "through memory by gloo (2 processes share cuda:1, which NCCL refuses: start as many as there are GPUs "
            "(2))",
        ),
    ],
)
def test_gradients_travel_by_nccl_where_each_rank_has_a_gpu_of_its_own(
    devices: list[RankDevice], has_nccl: bool, line: str
) -> None:
    transport = choose_transport(devices, has_nccl=has_nccl)
    assert isinstance(transport, Transport)
    assert describe(transport) == f"Gradients: {line}"


def test_the_cpu_has_no_card() -> None:
    assert rank_device(None) == CPU
