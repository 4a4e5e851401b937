"""Ranks under torchrun that are killed at random moments.

torchrun starts all of them again when one has ended. Some runs lose torchrun itself, and are resumed by the command.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from diskhop.run_files import CONFIG_FILE
from tests.campaign.cases import Case, Tries
from tests.embedding import committed_bytes, small_triples
from tests.rank_kills import assert_nothing_left, kill_some, ranks_of, torchrun
from tests.runs import losses, small_graph

MOST_KILLS_PER_RUN = 8
# Of runs that have this many kills behind them.
SHARE_WITHOUT_TORCHRUN = 0.3
COMMON = "--memory 200MB --engine threads --threads 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """A run of two ranks that takes a minute.

    command: of diskhop. words: its options. make: writes the dataset. outcome: of a run, which must be the same.
    """

    command: str
    words: str
    make: Callable[[Path], object]
    outcome: Callable[[Path], dict[str, bytes]]


def trained(out: Path) -> dict[str, bytes]:
    return {"losses": repr(losses(out)).encode(), "model": (out / "model.safetensors").read_bytes()}


def embedded(out: Path) -> dict[str, bytes]:
    assert not (out / "edges").exists()
    return committed_bytes(out)


RUNS = {
    # Three rounds per step: a rank may be killed while those of others wait to be added.
    "sage": Ranks(
        command="train",
        words="--model sage --hidden 16 --fanout 4,4 --batch-size 20 --epochs 40 --patience 0 --matmul blas "
        "--store belady --accumulate 6 --checkpoint-every 6batches",
        make=lambda folder: small_graph(folder / "graph"),
        outcome=trained,
    ),
    # Their tables lie in memory once, in a segment that each start makes again.
    "sign": Ranks(
        command="train",
        words="--model sign --hops 2 --placement memory --hidden 16 --batch-size 20 --epochs 30 --patience 0 "
        "--matmul blas --checkpoint-every 4batches",
        make=lambda folder: small_graph(folder / "graph"),
        outcome=trained,
    ),
    # Two groups of two partitions each: states, rounds, repartitions and commits within passes.
    "embeddings": Ranks(
        command="embed",
        words="--model complex --dim 8 --batch-size 64 --chunk-size 16 --negatives 12 --epochs 20 --eval-every 10 "
        "--partitions 8 --buffer 3 --repartitions 2 --checkpoint-every 2states --eval-edges 30 --eval-candidates 20",
        make=small_triples,
        outcome=embedded,
    ),
}


def run_to_end(ranks: Ranks, folder: Path, out: Path, num_kills: int, draws: random.Random) -> int:
    """Run two ranks that are killed now and then, and end all the same. Returns the number of kills."""
    errors, seen, killed = folder / "errors", set[psutil.Process](), 0
    while True:
        is_begun = (out / CONFIG_FILE).exists()
        words = ["--resume"] if is_begun else [str(folder / "graph"), *ranks.words.split(), *COMMON.split()]
        with torchrun(num_kills, errors, ranks.command, *words, "--out", str(out)) as agent:
            killed += kill_some(agent, num_kills - killed, draws, seen)
            if killed and draws.random() < SHARE_WITHOUT_TORCHRUN and agent.status() != psutil.STATUS_ZOMBIE:
                seen |= set(ranks_of(agent))
                agent.kill()
                killed += 1
                agent.wait()
            else:
                code = agent.wait()
                assert code == 0, f"torchrun ended with {code}: {errors.read_text().splitlines()[-1:]}"
                assert_nothing_left(seen)
                return killed
        assert_nothing_left(seen)


def tries_of(ranks: Ranks, tries: Tries) -> Generator[str]:
    """Kill ranks; a failure of a run counts for the last kill in it."""
    folder = tries.folder
    ranks.make(folder)
    run_to_end(ranks, folder, folder / "whole", 0, random.Random(0))
    expected = ranks.outcome(folder / "whole")
    number = tries.first
    while number < tries.first + tries.count:
        draws, out = tries.draws("ranks", number), folder / f"run {number}"
        most = min(draws.randint(1, MOST_KILLS_PER_RUN), tries.first + tries.count - number)
        num_kills, failure = most, ""
        try:
            num_kills = run_to_end(ranks, folder, out, most, draws)
            found = ranks.outcome(out)
            wrong = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
            failure = f"other bytes: {', '.join(wrong)}" if wrong else ""
        except AssertionError as error:
            failure = str(error)
        for left in range(num_kills - 1, -1, -1):
            number += 1
            yield "" if left else failure


CASES: Sequence[Case] = tuple(
    Case("SIGKILL", f"two ranks of {name}", count, functools.partial(tries_of, RUNS[name]))
    for name, count in {"sage": 100, "sign": 50, "embeddings": 50}.items()
)
