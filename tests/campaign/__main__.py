"""Run parts of the campaign, and say what failed; see the package."""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path

from tests.campaign.cases import Case, Tries
from tests.campaign.parts import PARTS
from tests.campaign.results import Results
from tests.graphs import memory_folder

_SECONDS_BETWEEN_SAVES = 5.0


def run_case(part: str, case: Case, results: Results, share: Fraction, seed: int, ends: float) -> None:
    """Make the tries that are missing, until a moment of the monotonic clock."""
    row = results.row(part, case.kind, case.what)
    missing = math.ceil(case.count * share) - row.count
    if missing <= 0 or time.monotonic() > ends:
        return
    with memory_folder(Path.cwd()) as folder, closing(case.run(Tries(row.count, missing, seed, folder))) as tries:
        started = saved = time.monotonic()
        try:
            for failure in tries:
                now = time.monotonic()
                row, started = row.added(failure, now - started), now
                if failure:
                    print(f"{part}, {case.kind}, {case.what}: {row.notes[-1]}", flush=True)
                if failure or now - saved > _SECONDS_BETWEEN_SAVES:
                    results.put(row)
                    saved = now
                if now > ends:
                    break
        finally:
            results.put(row)
    print(
        f"{part}: {case.kind}, {case.what}: {row.count} tries, {row.failures} failures, {row.seconds:.0f} s", flush=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--share", type=Fraction, default=Fraction(1), help="of the tries, as 1/5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="JSON file; tries that it has are not repeated")
    parser.add_argument("--seconds-limit", type=float, default=math.inf, help="stop after these seconds")
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="cases whose kind and name have this text; may be repeated"
    )
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ends = time.monotonic() + args.seconds_limit
    parts = args.parts or list(PARTS)
    if len(parts) > 1:
        # Each in a process of its own: some fork, which a process with threads cannot.
        options = [word for word in sys.argv[1:] if word not in args.parts]
        command = [sys.executable, "-m", "tests.campaign"]
        return max(subprocess.run([*command, part, *options], check=False).returncode for part in parts)
    results = Results(args.results, args.seed)
    only = args.only or [""]
    cases = [case for case in PARTS[parts[0]] if any(text in f"{case.kind} {case.what}" for text in only)]
    for case in cases:
        run_case(parts[0], case, results, args.share, args.seed, ends)
    rows = [results.row(parts[0], case.kind, case.what) for case in cases]
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
