"""Starting the ranks of one machine, by the launcher behind torchrun, for those who do not start it themselves."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from diskhop.errors import ConfigError, RankError

_SECONDS_BETWEEN_LOOKS = 0.1
_INTERRUPTED = 130


def require_launchable(count: int, environ: Mapping[str, str]) -> None:
    """Refuse a number of processes that cannot be started, and processes within those that torchrun has started."""
    if count < 1:
        raise ConfigError(f"--processes must be at least 1, got {count}; for example --processes 2")
    for name in ("WORLD_SIZE", "RANK"):
        if name in environ:
            raise ConfigError(
                f"--processes starts ranks, and {name}={environ[name]} says that torchrun has: remove --processes, or "
                f"run first: unset {name}"
            )


def launch(words: Sequence[str], count: int) -> int:
    """Run a diskhop command in several ranks and return its exit code; rank 0 prints.

    Ranks end with this process. A failure of one ends all. Raises RankError for a rank that a signal ended.
    """
    # Not at the top: torch takes seconds to load.
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # What it logs is about errors that rank 0 prints in one line. Each of its loggers has a level of its own.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=_SECONDS_BETWEEN_LOOKS,
    )
    # All ranks are here: they need no network, and no name of this machine that resolves.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        elastic_launch(config, sys.executable)("-m", "diskhop", *words)
    except ChildFailedError as error:
        return _exit_code(error, count)
    except SignalException as error:
        return _INTERRUPTED if error.sigval == signal.SIGINT else 128 + int(error.sigval)
    return 0


def _exit_code(error: Any, count: int) -> int:
    """Return the exit code of the rank that failed first."""
    rank, failure = error.get_first_failure()
    if failure.exitcode >= 0:
        return int(failure.exitcode)
    name = signal.Signals(-failure.exitcode).name
    raise RankError([f"process {rank} of {count} was ended by {name}, and the others with it"]) from error
