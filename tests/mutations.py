"""Mutations of the papers' ideas: each takes one out of a copy of the sources, and the tests named must then fail.

    python tests/mutations.py [NAME ...]

docs/claims.md lists the ideas. A mutation that survives is an idea that no test would miss.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop import _native

ROOT = Path(__file__).parents[1]
_SOURCES = ROOT / "src" / "diskhop"
_IDEAS = "tests/integration/test_paper_ideas.py"
_IN_TURN = "tests/integration/test_lists_in_turn.py"
_TEST_FAILED = 1  # pytest's exit code; others say that no test ran
# Loaded by pytest before anything is imported: an editable install would find the sources that are not mutated.
_PLUGIN = """
import sys
from pathlib import Path
sys.meta_path[:] = [each for each in sys.meta_path if "ScikitBuild" not in type(each).__name__]
import diskhop
assert Path(diskhop.__file__).is_relative_to({copy!r}), diskhop.__file__
"""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A patch that takes an idea out of one source file.

    name: of the idea.
    file: below src/diskhop.
    old, new: text that the file has once, and what replaces it.
    test: a test that must fail, as pytest names it.
    """

    name: str
    file: str
    old: str
    new: str
    test: str

    def apply(self, sources: Path) -> None:
        """Patch a copy of the sources. Raises ValueError if the file does not have the text exactly once."""
        path = sources / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has the text {text.count(self.old)} times: {self.old!r}")
        path.write_text(text.replace(self.old, self.new))


MUTATIONS = (
    Mutation(
        "packed chunks are begun ahead",
        "stores/packed/store.py",
        "_BEGUN_AHEAD = 2",
        "_BEGUN_AHEAD = 0",
        f"{_IDEAS}::test_packed_chunks_are_begun_two_ahead",
    ),
    Mutation(
        "rows of a segment in MinHash order",
        "stores/packed/segments.py",
        "order = minhash_order(_Indices(self, self._batches(first)), len(shared))",
        "order = np.arange(len(shared))",
        f"{_IDEAS}::test_rows_of_a_segment_lie_in_minhash_order_within_a_partition",
    ),
    Mutation(
        "resident rows of all packed epochs",
        "pipeline/pack_steps.py",
        "for epoch in self.samples.epochs}",
        "for epoch in self.samples.epochs[:1]}",
        f"{_IDEAS}::test_resident_rows_are_the_most_accessed_of_all_packed_epochs",
    ),
    Mutation(
        "the packer reads a partition ahead",
        "stores/packed/packer.py",
        """                if turn == 0:
                    submit(0)
                if turn + 1 < len(partitions):
                    submit(turn + 1)
""",
        """                submit(turn)
""",
        f"{_IDEAS}::test_the_packer_reads_a_partition_while_it_packs_the_one_before",
    ),
    Mutation(
        "the next partition of embeddings is prefetched",
        "runs/embedding/loop.py",
        """                parts.buffer.begin(to_load)
                self._train_phase(leaving)
                parts.buffer.release(staying.gone)
                self._train_phase(staying)
            parts.buffer.finish()""",
        """                self._train_phase(leaving)
                parts.buffer.release(staying.gone)
                self._train_phase(staying)
                parts.buffer.begin(to_load)
            parts.buffer.finish()""",
        f"{_IDEAS}::test_the_next_partition_is_read_while_staying_buckets_are_trained",
    ),
    Mutation(
        "the next partition is read into the slot that is left",
        "runs/embedding/loop.py",
        """                parts.buffer.exchange(staying.gone, to_load)
                self._train_phase(staying)
            else:""",
        """                self._train_phase(staying)
                parts.buffer.exchange(staying.gone, to_load)
            else:""",
        f"{_IDEAS}::test_the_next_partition_is_read_into_the_slot_that_is_left",
    ),
    Mutation(
        "every read of Legend's order has something to train",
        "policies/schedule.py",
        "min(staying[pair], key=lambda n: num_staying[n - start], default=meetings[pair][0])",
        "meetings[pair][0]",
        "tests/unit/test_orderings.py::test_something_is_trained_during_every_read_of_legends_order",
    ),
    Mutation(
        "a partition is read while the one before is written",
        "embedding/partitions/store.py",
        "        written, read = self._engine.exchange(loaded, self._target(leaving), self._open(loads, version))\n",
        "        written, _ = self._engine.exchange(loaded, self._target(leaving), None)\n"
        "        _, read = self._engine.exchange(loaded, None, self._open(loads, version))\n",
        "tests/unit/test_partition_moves.py::test_pieces_are_read_while_later_ones_are_written",
    ),
    Mutation(
        "a batch of hops is read while one is used",
        "loaders/hop_batches.py",
        "while opened.free and self._next < len(self):",
        "while opened.free and self._next < len(self) and not self._in_flight:",
        f"{_IDEAS}::test_the_next_batch_of_hops_is_read_while_one_is_used",
    ),
    Mutation(
        "belady reads ahead",
        "stores/belady.py",
        "    room.grow_in_flight(wishes.batches_before_cache())\n",
        "",
        f"{_IDEAS}::test_belady_reads_ahead_of_the_model",
    ),
    Mutation(
        "lists and rows have the same memory in turn",
        "pipeline/pipeline.py",
        "cached_rows=None if lists is None else lists.memory",
        "cached_rows=None",
        f"{_IN_TURN}::test_lists_are_there_while_batches_are_sampled_and_rows_while_they_are_fetched",
    ),
    Mutation(
        "lists are read before each superbatch",
        "pipeline/stages.py",
        "        self._lists.load()\n",
        "",
        f"{_IN_TURN}::test_lists_are_there_while_batches_are_sampled_and_rows_while_they_are_fetched",
    ),
    Mutation(
        "one scan for all batches in flight",
        "stores/scanning.py",
        "        self._scan = keep_after_fork(open_reader(SharedScan, table, resources, resources.max_gap_bytes))\n",
        """        open_scan = lambda: keep_after_fork(
            open_reader(SharedScan, table, resources, resources.max_gap_bytes)
        )
        self._scan = open_scan()
        self.join = lambda ids, out, to_rows=None: open_scan().join(ids, out, to_rows)
""",
        f"{_IDEAS}::test_one_scan_serves_all_batches_in_flight",
    ),
)


def survivors(mutations: Sequence[Mutation] = MUTATIONS) -> list[str]:
    """Return the names of mutations that their tests do not notice, each with the end of pytest's output."""
    found = []
    with tempfile.TemporaryDirectory(prefix="diskhop-mutations-") as folder:
        for mutation in mutations:
            copy = Path(folder) / "src"
            shutil.copytree(_SOURCES, copy / "diskhop", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy2(_native.__file__, copy / "diskhop")
            (copy / "diskhop_mutated.py").write_text(_PLUGIN.format(copy=str(copy)))
            mutation.apply(copy / "diskhop")
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "diskhop_mutated", "-p", "no:cacheprovider"]
            environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run(
                [*command, mutation.test], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode != _TEST_FAILED:
                found.append(f"{mutation.name}: {done.stdout[-400:]}{done.stderr[-400:]}")
            shutil.rmtree(copy)
    return found


def main() -> int:
    """Apply the mutations that are named, by default all, and report survivors."""
    chosen = [each for each in MUTATIONS if each.name in sys.argv[1:] or len(sys.argv) == 1]
    found = survivors(chosen)
    for line in found:
        print(f"survived: {line}")
    print(f"{len(chosen)} mutations, {len(found)} survivors")
    return 1 if found or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
