"""The command line. Each command parses, calls one function of the package and prints what it returned.

Exit code 0, or one line on stderr and 2 (bad input), 1 (failed), 130 (interrupted). Results go to stdout, as one JSON
document with --json; progress goes to stderr. A command imports what it needs inside its function: PyTorch takes
seconds to load, and neither the help nor the other commands should wait for it.
"""

from __future__ import annotations

from diskhop.cli.app import main, run

__all__ = ["main", "run"]
