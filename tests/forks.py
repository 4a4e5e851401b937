"""Forked children of a test."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

# A child that waits for what never comes is ended after these seconds.
_MOST_SECONDS = 30


def fork(action: Callable[[], object]) -> int:
    """Run an action in a forked child and return the child's exit code; 0: it did not raise."""
    return wait(start(action))


def start(action: Callable[[], object], most_seconds: int = _MOST_SECONDS) -> int:
    """Start an action in a forked child, and return its process id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(most_seconds)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return child


def wait(child: int) -> int:
    """Wait for a child and return its exit code; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
