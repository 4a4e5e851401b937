"""Fuzz a reader, or all of them: `python -m tests.fuzz.run [TARGET ...] --seconds 60 [--seed 1] [--jobs 2]`.

With atheris (`pip install diskhop[fuzz]`) inputs are chosen by the code that they reach; without it they are mutations
of the corpus, the same ones for the same seed. An input that ends in an error of another kind, takes 30 seconds or
2 GB of memory is a finding, and so is the one at which the process has come to 2 GB: it is written to the working
directory, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from tests.fuzz.mutator import Mutator
from tests.fuzz.target import Target, scratch_folder

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("read_*.py")))
_MOST_SECONDS = 30
_MOST_BYTES = 2 << 30
_MEMORY = Path("/proc/self/statm")


class TooSlowError(BaseException):
    """An input that takes too long. No reader catches it."""


def load(name: str) -> Target:
    """Import a target."""
    target: Target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    return target


def try_input(target: Target, content: bytes) -> bool:
    """Try an input, within limits of time and memory. Return whether it was accepted."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_MOST_SECONDS)
    try:
        with _limited_memory():
            return target.try_input(content)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    # What earlier inputs have reserved without touching it, as allocators do, is not this one's.
    _, resident, _, _, _, data, _ = (int(each) * resource.getpagesize() for each in _MEMORY.read_text().split())
    if resident > _MOST_BYTES:
        raise MemoryError(f"{resident} bytes are resident after earlier inputs")
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    _, most = limits
    own = data + _MOST_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (own if most == resource.RLIM_INFINITY else min(own, most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def fuzz(target: Target, seconds: float, seed: int) -> str:
    """Mutate the corpus for some seconds. Return a summary; raise what a reader may not raise."""
    corpus = target.inputs()
    mutator = Mutator(seed, target.words)
    num_accepted = num_runs = 0
    begin = time.monotonic()
    pending = list(corpus)
    while pending or time.monotonic() - begin < seconds:
        content = pending.pop() if pending else mutator.next(corpus)
        with _kept_finding(target, content):
            is_accepted = try_input(target, content)
        num_runs += 1
        num_accepted += is_accepted
    return f"{target.name}: {num_runs} runs in {time.monotonic() - begin:.0f} s, {num_accepted} accepted, 0 findings"


def fuzz_by_coverage(target_name: str, seconds: float, seed: int) -> None:
    """Run atheris, which ends this process."""
    import atheris

    with atheris.instrument_imports(include=["diskhop"]):
        target = load(target_name)
    mutator = Mutator(seed, target.words)
    inputs = target.inputs()

    def one_input(content: bytes) -> None:
        with _kept_finding(target, content):
            try_input(target, content)

    def mutate(content: bytes, most_bytes: int, draw: int) -> bytes:
        if draw % 2:
            return mutator.next([content, *inputs])[:most_bytes]
        mutated: bytes = atheris.Mutate(content, most_bytes)
        return mutated

    with scratch_folder() as folder:
        for number, content in enumerate(inputs):
            (folder / str(number)).write_bytes(content)
        arguments = [f"-max_total_time={seconds:.0f}", f"-seed={seed}", "-print_final_stats=1", "-rss_limit_mb=4096"]
        arguments += ["-max_len=16384", "-verbosity=1", str(folder)]
        atheris.Setup([sys.argv[0], *arguments], one_input, custom_mutator=mutate, internal_libfuzzer=True)
        atheris.Fuzz()


@contextlib.contextmanager
def _kept_finding(target: Target, content: bytes) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        path = Path(f"finding-{target.name}-{hashlib.sha256(content).hexdigest()[:12]}")
        path.write_bytes(content)
        print(f"{target.name}: finding, the input is in {path.resolve()}", file=sys.stderr)
        raise


def _has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def _run_all(names: Sequence[str], arguments: argparse.Namespace) -> int:
    """Run each target in a process of its own, some at a time. Return the number of those with findings."""
    waiting, num_failed = list(names), 0
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            name = waiting.pop(0)
            command = [sys.executable, "-m", "tests.fuzz.run", name, "--seconds", str(arguments.seconds)]
            running.append((name, subprocess.Popen([*command, "--seed", str(arguments.seed)])))
        time.sleep(0.2)
        for name, process in running:
            if process.poll():
                print(f"{name}: exit code {process.returncode}", file=sys.stderr)
                num_failed += 1
        running = [each for each in running if each[1].poll() is None]
    return num_failed


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args(given)
    names = arguments.targets or NAMES
    if len(names) > 1:
        return int(_run_all(names, arguments) > 0)
    try:
        if _has_atheris():
            fuzz_by_coverage(names[0], arguments.seconds, arguments.seed)
        else:
            print(fuzz(load(names[0]), arguments.seconds, arguments.seed))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
