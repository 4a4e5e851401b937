"""A kernel without io_uring, simulated: `python -m tests.seccomp ERRNO COMMAND...` runs a command under a filter.

The filter (seccomp) lets the system call that sets up a ring fail with an error number: EPERM as in a container that
forbids it, ENOSYS as on an old kernel. It needs no rights, and holds for the command and all that it starts.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_IO_URING_SETUP = 425  # on every architecture that Linux runs torch on
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("num_instructions", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid_io_uring(error_number: int) -> None:
    """Let every later io_uring_setup of this process and its children fail with an error number."""
    instructions = [
        (_LOAD_WORD, 0, 0, 0),  # the number of the system call
        (_JUMP_IF_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _FAIL | error_number),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    program = _Program(len(instructions), code)
    libc = ctypes.CDLL(None, use_errno=True)
    filtered = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if not filtered or libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    forbid_io_uring(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
