"""A checkpoint of training, with the checksum that its content calls for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import xxhash

from diskhop.errors import TrainingError
from diskhop.runs.checkpoint import EpochPart, load_state, load_tensors, save_state
from tests.fuzz.target import Target
from tests.unit.test_checkpoint import make_state

_KEY = rb"\"xxh3\":\""


def forged(content: bytes) -> bytes:
    begin = content.find(_KEY)
    if begin < 0:
        return content
    begin += len(_KEY)
    unsigned = content[:begin] + b"0" * 16 + content[begin + 16 :]
    return content[:begin] + xxhash.xxh3_64_hexdigest(unsigned).encode() + content[begin + 16 :]


def read(content: bytes, folder: Path) -> None:
    path = folder / "checkpoint.safetensors"
    path.write_bytes(forged(content))
    load_tensors(path)
    load_state(path)


def seeds(folder: Path) -> Sequence[bytes]:
    path = folder / "checkpoint.safetensors"
    state = make_state(2)
    part = EpochPart(done=torch.arange(3), loss_sum=1.5, loss_weight=2.0, record={"batches": 3})
    made = []
    for each in (state, replace(state, part=part), replace(state, warm_start={"from": "run"})):
        save_state(path, each)
        made.append(path.read_bytes())
    return made


TARGET = Target(
    name="checkpoint",
    read=read,
    errors=(TrainingError,),
    seeds=seeds,
    words=(
        b'"dtype":"F64"',
        b'"shape":[',
        b'"data_offsets":[0,0]',
        rb"\"part\":",
        rb"\"history\":[]",
        b"BOOL",
        b"F8_E4M3",
    ),
)
