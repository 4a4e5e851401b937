"""The command line. Each command parses, calls one function of the package, prints what it returned.

Exit code 0, or one line on stderr and 2 (bad input), 1 (failed), 130 (interrupted). What a command finds goes to
stdout, as one JSON document with --json; progress goes to stderr. PyTorch is loaded by the commands that train only.
"""

from __future__ import annotations

# In the order in which the help lists their commands.
import diskhop.cli.dataset
import diskhop.cli.derived
import diskhop.cli.doctor
import diskhop.cli.embed
import diskhop.cli.embeddings
import diskhop.cli.export
import diskhop.cli.generate
import diskhop.cli.plan
import diskhop.cli.propagate
import diskhop.cli.report
import diskhop.cli.train  # noqa: F401
from diskhop.cli.app import main, run

__all__ = ["main", "run"]
