"""The scripts that measure a GPU run whole on the CPU, at tiny sizes: every row of their tables, and their JSON."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

import device_assembly
import device_hops
import device_training
from tests.devices import BY_INTERPRETER, as_on_a_device


def test_training_compares_batches_losses_and_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"nodes": 600, "batches": 4, "batch-size": 10, "hidden": 4, "epochs": 1, "digests": 2, "threads": 1}
    options = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    options += ["--stores", "packed", "--memory", "60MB", "--dir", str(tmp_path), "--device", "cpu", "--json"]
    device_training.main(options)
    document = json.loads(capsys.readouterr().out)
    assert document["digests"] == {"packed 0": True}
    assert document["losses"]["device"] == document["losses"]["CPU"]
    for way in document["ways"].values():
        assert 0 < way["stages"]["seconds"] <= way["stages"]["most"]
        assert 0 <= way["stages"]["waiting"] < 1
    assert next(iter(document["ways"])) == "packed"


@pytest.mark.parametrize("kernels", [False, pytest.param(True, marks=BY_INTERPRETER)], ids=["torch", "triton"])
def test_assembly_times_every_kernel_beside_torch_and_pyg(capsys: pytest.CaptureFixture[str], kernels: bool) -> None:
    sizes = {"bytes": 2000, "edges": 30, "repeats": 1, "widths": 5, "dtypes": "float16,int8", "device": "cpu"}
    options = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    with as_on_a_device(kernels=kernels):
        assert device_assembly.main([*options, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assembly = [(line["name"], line["dtype"]) for line in lines[:4]]
    names = "assembly, rows on device", "assembly, pinned rows"
    assert assembly == [(name, dtype) for name in names for dtype in ("float16", "int8")]
    # float16, 5 columns, 2000 bytes: 200 rows read and written, with addresses.
    assert lines[0]["num_bytes"] == 200 * (10 + 10 + 8)
    assert [line["name"] for line in lines[-2:]] == ["softmax", "softmax and gradient"]
    assert all(line["pyg"] is not None for line in lines[4:])


@pytest.mark.parametrize("tiles", [pytest.param("4x1,8x2", marks=BY_INTERPRETER)])
def test_sizes_of_programs_are_compared(capsys: pytest.CaptureFixture[str], tiles: str) -> None:
    sizes = {"bytes": 600, "repeats": 1, "widths": 5, "dtypes": "float16", "device": "cpu", "tiles": tiles}
    options = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    assert device_assembly.main(options) == 0
    *_, first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("4x1: at least ")
    assert last.endswith(" of the copy rate (float16, 5 columns)")


def test_hop_tables_are_read_and_trained_from_every_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"rows": 60, "batch-size": 10, "epochs": 2, "models": "sign", "dir": tmp_path, "device": "cpu"}
    options = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    assert device_hops.main([*options, "--json"]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    expected = [(place, model) for model in ("", "sign") for place in ("index_select", "memory", "disk")]
    assert [(way["place"], way["model"]) for way in ways] == expected
    for way in ways:
        assert way["stages"]["rows"] == 60
        assert way["stages"]["row bytes"] == 4 * 128 * 4
        assert ("waiting" in way["stages"]) == (way["model"] == "sign")


@pytest.mark.parametrize("script", [device_training, device_hops])
def test_too_few_batches_are_refused_in_a_line(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--nodes", "600"] if script is device_training else ["--rows", "60"]
    with pytest.raises(SystemExit, match="2"):
        script.main(["--device", "cpu", *sizes, "--batch-size", "30"])
    assert "an epoch must have at least 3 batches, got 2; use --" in capsys.readouterr().err
