"""Hash everything diskhop makes, to show that a change keeps its bits: run before, run after, compare.

    python tools/same_bits.py DIR --json before.json
    python tools/same_bits.py OTHER_DIR --compare before.json

A *case* is a dataset, the batches of a loader, a trained model or a set of tables. Its value is a hash of the bytes,
or the exact numbers that were measured. Everything goes through the public command line and Python interface, so that
the same script runs before and after a change of the code. It needs ../shared/data, 3 GB in DIR, and about ten minutes
on 2 idle cores. A case that fails is reported, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from same_bits_cases import (
    DATASETS,
    EXPORTS,
    HOP_TABLES,
    PACKED,
    embeddings,
    hop_loaders,
    neighbor_loaders,
    pyg_objects,
    python_trainings,
    trainings,
    write_sources,
)

BATCH_PARTS = (
    *("x", "edge_index", "y", "n_id", "e_id", "input_id", "batch_size", "num_sampled_nodes", "num_sampled_edges"),
    "edge_weight",
)
Jobs = dict[str, Callable[[], None]]


class Bits:
    """The cases found so far, those that failed, and the folder they are in."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder
        self.cases: dict[str, str] = {}
        self.failures: list[str] = []
        self._program = program

    def run(self, words: str) -> str:
        """Run diskhop in the folder and return what it printed. Raises RuntimeError with its message if it failed."""
        command = [str(self._program), *shlex.split(words)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"diskhop {words}\n{done.stderr}")
        return str(done.stdout)

    def files(self, case: str, words: str) -> None:
        """Hash the files that a command makes."""
        (self.folder / case).parent.mkdir(parents=True, exist_ok=True)
        self.run(words.format(case))
        self.cases[case] = _hash_files(self.folder / case)

    def train(self, case: str, words: str) -> None:
        """Train a model: its tensors, losses and measures are cases."""
        defaults = {"--memory": "300MB", "--matmul": "mkl", "--seed": "1"}
        given = " ".join(f"{name} {value}" for name, value in defaults.items() if name not in words)
        (self.folder / case).parent.mkdir(exist_ok=True)
        self.run(f"train {words} {given} --out {case}")
        self._model(case)

    def train_here(self, case: str, options: Mapping[str, Any]) -> None:
        """Train a model with diskhop.train() in this process: the same cases."""
        import diskhop

        dataset, out = self.folder / "datasets/skewed", self.folder / case
        out.parent.mkdir(exist_ok=True)
        diskhop.train(dataset, out=out, memory="300MB", matmul="mkl", seed=1, **options)
        self._model(case)

    def embed(self, case: str, words: str) -> None:
        """Train embeddings: their values, losses, measures and ranks are cases."""
        (self.folder / case).parent.mkdir(exist_ok=True)
        self.run(f"embed {words} --seed 1 --out {case}")
        self.run(f"export {case} {case}.npy")
        self.cases[f"{case}/values"] = _hash_arrays([("values", np.load(self.folder / f"{case}.npy"))])
        if "--preset" not in words:  # a preset's run has ranked all test edges already
            ranks = json.loads(self.run(f"evaluate {case} --json"))
            self.cases[f"{case}/ranks"] = _exact(ranks[name] for name in ("mrr", "mean_rank", "hits_at_10", "auc"))
        self._measures(case)

    def _model(self, case: str) -> None:
        from safetensors.torch import load_file

        tensors = load_file(self.folder / case / "model.safetensors")
        self.cases[f"{case}/model"] = _hash_arrays(sorted(tensors.items()))
        self._measures(case)

    def _measures(self, case: str) -> None:
        lines = (self.folder / case / "metrics.jsonl").read_text().splitlines()
        epochs = [json.loads(line) for line in lines]
        result = json.loads((self.folder / case / "result.json").read_text())
        test = result["test"]  # a number, or a table of them
        self.cases[f"{case}/losses"] = _exact(epoch["loss"] for epoch in epochs)
        self.cases[f"{case}/valid"] = _exact(epoch["valid"] for epoch in epochs if "valid" in epoch)
        self.cases[f"{case}/test"] = _exact([test[result["metric"]] if isinstance(test, dict) else test])


def _exact(numbers: Iterable[float]) -> str:
    return " ".join(repr(float(number)) for number in numbers)


def _hash_files(folder: Path) -> str:
    """Hash names and bytes. Hidden files (marks of unfinished work) and took.json (seconds) are left out."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if (
            path.is_file()
            and not name.name.startswith(".")
            and name.name != "took.json"
            and "derived" not in name.parts
        ):
            content = path.read_bytes()
            found.update(f"{name} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def _hash_arrays(named: Iterable[tuple[str, Any]]) -> str:
    """Hash names, dtypes, shapes and bytes of tensors and arrays; of other values their text."""
    import torch

    found = hashlib.sha256()
    for name, value in named:
        if isinstance(value, torch.Tensor | np.ndarray):
            tensor = torch.as_tensor(value)
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            found.update(f"{name} {value!r}\n".encode())
    return found.hexdigest()[:16]


def _load_batches(bits: Bits, case: str, dataset: str, options: Mapping[str, Any]) -> None:
    """Hash two epochs of a NeighborLoader."""
    import diskhop

    usual: dict[str, Any] = {
        "num_neighbors": [10, 5],
        "input_nodes": "train",
        "batch_size": 256,
        "shuffle": True,
        "seed": 3,
    }
    with diskhop.NeighborLoader(str(bits.folder / "datasets" / dataset), **{**usual, **options}) as loader:
        batches = (batch for _ in range(2) for batch in loader)
        bits.cases[case] = _hash_arrays(
            (part, batch[part]) for batch in batches for part in BATCH_PARTS if part in batch
        )


def _load_hops(bits: Bits, case: str, tables: str, options: Mapping[str, Any]) -> None:
    """Hash two epochs of a HopLoader."""
    import diskhop

    folder = next((bits.folder / "hops" / tables).iterdir())
    with diskhop.HopLoader(folder, batch_size=500, seed=3, memory="100MB", **options) as loader:
        batches = (batch for _ in range(2) for batch in loader)
        bits.cases[case] = _hash_arrays(
            (part, getattr(batch, part)) for batch in batches for part in ("x", "nodes", "rows")
        )


def _import_objects(bits: Bits) -> None:
    """Make datasets of PyG's objects."""
    import diskhop

    for name, value in pyg_objects().items():
        path = bits.folder / "datasets" / name
        diskhop.from_pyg(value, path, memory="500MB")
        bits.cases[f"datasets/{name}"] = _hash_files(path)


def _in_turn(bits: Bits, jobs: Jobs) -> None:
    """Run jobs one after the other. A failure is reported and does not end the others."""
    for name, job in jobs.items():
        try:
            job()
        except Exception as error:
            bits.failures.append(name)
            print(f"failed: {name}: {error}", file=sys.stderr)


def _together(bits: Bits, *turns: Jobs) -> None:
    """Run two jobs at a time; the jobs of one dict run one after the other."""
    with ThreadPoolExecutor(2) as pool:
        try:
            wait([pool.submit(_in_turn, bits, jobs) for jobs in turns])
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def _jobs(make: Callable[[str, str], None], kind: str, table: Mapping[str, str], end: str = "") -> list[Jobs]:
    """Make a job of each command of a table, with `end` appended to it."""
    return [{f"{kind}/{name}": partial(make, f"{kind}/{name}", f"{words}{end}")} for name, words in table.items()]


def _find_all(bits: Bits, only: str) -> None:
    """Make everything, sources first. only: text in the names of loaders and runs; '' for all of them."""
    write_sources(bits.folder)
    _together(bits, *_jobs(bits.files, "datasets", DATASETS, " --memory 500MB"))
    _in_turn(bits, {"datasets/pyg": partial(_import_objects, bits)})
    hops = _jobs(bits.files, "hops", HOP_TABLES, " --memory 100MB --scratch {}")
    packed = _jobs(bits.files, "packed", PACKED, " --memory 200MB --cache 1MB --disk 1GB --scratch {}")
    _together(bits, *_jobs(bits.files, "exports", EXPORTS, " --memory 500MB"), *hops, *packed)
    # One after the other: a process has one torch, with one number of threads and one random state.
    here: Jobs = {}
    for name, (dataset, options) in neighbor_loaders().items():
        here[f"loader/{name}"] = partial(_load_batches, bits, f"loader/{name}", dataset, options)
    for name, (tables, options) in hop_loaders().items():
        here[f"hop-loader/{name}"] = partial(_load_hops, bits, f"hop-loader/{name}", tables, options)
    for name, options in python_trainings().items():
        here[f"train/{name}"] = partial(bits.train_here, f"train/{name}", options)
    turns = [here, *_jobs(bits.embed, "embed", embeddings()), *_jobs(bits.train, "train", trainings())]
    back = {name: f"import exports/{name} {{}}" for name in EXPORTS}
    turns += _jobs(bits.files, "back", back, " --memory 500MB")
    _together(bits, *({name: job for name, job in jobs.items() if only in name} for jobs in turns))


def _compare(cases: Mapping[str, str], path: Path, *, is_partial: bool) -> int:
    """Print the cases that differ from those in a file and return their number."""
    earlier = json.loads(path.read_text())
    names = sorted(cases if is_partial else cases.keys() | earlier.keys())
    differing = [name for name in names if cases.get(name) != earlier.get(name)]
    for name in differing:
        print(f"differs: {name}: was {earlier.get(name)}, is {cases.get(name)}", file=sys.stderr)
    print(f"{len(differing)} of {len(names)} cases differ from {path}", file=sys.stderr)
    return len(differing)


def main() -> int:
    """Make everything in DIR, print the cases, and compare them with earlier ones on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="new folder for everything that is made")
    parser.add_argument("--bin", metavar="PYTHON", help="Python of the environment to test (default: this)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cases to FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="list cases that differ from FILE; exit 1 if any")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="run only loaders, trainings and embeddings with TEXT in their names"
    )
    given = parser.parse_args()
    if given.bin:
        os.execv(given.bin, [given.bin, *sys.argv, "--bin", ""])
    folder = given.folder.absolute()
    folder.mkdir(parents=True)
    # Earlier measurements of this machine must not matter.
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    started = time.perf_counter()
    bits = Bits(folder, Path(sys.executable).parent / "diskhop")
    _find_all(bits, given.only)
    cases = dict(sorted(bits.cases.items()))
    for case, value in cases.items():
        print(f"{case}  {value}")
    print(f"{len(cases)} cases in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if given.json is not None:
        given.json.write_text(json.dumps(cases, indent=1) + "\n")
    differing = given.compare and _compare(cases, given.compare, is_partial=bool(given.only))
    return 1 if differing or bits.failures else 0


if __name__ == "__main__":
    sys.exit(main())
