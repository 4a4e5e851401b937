"""This process: its name, its folder, its parent, how its threads wait, and the objects with threads that belong to it.

A fork copies an object without its threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from diskhop.errors import ConfigError

_PR_SET_PDEATHSIG = 1

_OwnerT = TypeVar("_OwnerT")

_owned: weakref.WeakSet[Any] = weakref.WeakSet()


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end this process at once, while it waits in another library and holds nothing.

    Python hears of a signal once the library returns, which may take minutes. Outside the main thread, where signals
    cannot be set, nothing changes.
    """
    before = dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def let_openmp_sleep() -> None:
    """Let threads of OpenMP that wait sleep, in this process if torch is not imported yet, and in those it starts.

    Otherwise they wait in a busy loop, which takes the cores from threads that sample and read, and, where anything
    else runs, makes a step take ten times as long. A policy that the user has set is kept.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def process_name() -> str:
    """Return a name that no other process has, on any machine: for files of this process in a shared folder."""
    return f"{platform.node()}-{os.getpid()}"


def work_in(folder: str) -> None:
    """Change the working directory to that of a command, which another machine may not have: raises ConfigError."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder}: {error.strerror}; the command runs there: run it in a folder that all machines share"
        ) from error


@contextmanager
def ends_in_child() -> Iterator[None]:
    """End a process that is forked off within the context instead of leaving it: use it around functions of users.

    The caller's threads, locks and files are the parent's. A child that went on would write the parent's files, remove
    its scratch files, or wait for its threads.
    """
    parent = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != parent:
            _end_child(parent, error)
        raise
    if os.getpid() != parent:
        _end_child(parent, None)


def _end_child(parent: int, error: BaseException | None) -> None:
    """End this process with the exit code of sys.exit(), or with 1 and what went wrong."""
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
    else:
        sys.stderr.write(
            f"diskhop: process {os.getpid()} was forked from process {parent} and cannot continue its work; end it "
            "with os._exit(0) where it was forked\n"
        )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def keep_after_fork(owner: _OwnerT) -> _OwnerT:
    """Never free an object in a forked child, where that would wait for threads of the parent. Returns it."""
    _owned.add(owner)
    return owner


class OwnerProcess:
    """The process that made an object. In a forked child, the object can neither work nor be freed.

    owner: the object.
    what: its name in messages.
    """

    def __init__(self, owner: Any, what: str) -> None:
        self._pid = os.getpid()
        self._what = what
        keep_after_fork(owner)

    @property
    def is_here(self) -> bool:
        """Whether this process made the object."""
        return os.getpid() == self._pid

    def require_here(self) -> None:
        """Raise ConfigError in a forked child, where a wait for the object's threads would not end."""
        if not self.is_here:
            raise ConfigError(
                f"this {self._what} is of process {self._pid}, whose threads a fork does not copy to process "
                f"{os.getpid()}; make a {self._what} in the process that uses it (in a DataLoader: num_workers=0)"
            )

    def refuse_pickling(self) -> Any:
        """Raise ConfigError: a copy in another process would have neither threads nor open files."""
        raise ConfigError(
            f"a {self._what} cannot be pickled; make a {self._what} in the process that uses it (in a DataLoader: "
            "num_workers=0)"
        )


def _keep_owned() -> None:
    """Keep every object of the parent alive in a child: freeing it would wait for threads that are not there.

    It would also remove temporary files that the parent still uses.
    """
    for owner in list(_owned):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


os.register_at_fork(after_in_child=_keep_owned)
