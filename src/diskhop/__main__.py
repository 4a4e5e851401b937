"""`python -m diskhop` is the command `diskhop`."""

from __future__ import annotations

from diskhop.cli import main

main()
