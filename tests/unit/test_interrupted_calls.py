"""Calls that threads make in order, interrupted at any moment: nothing goes on before all of them have ended."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, signal, threading, time
from diskhop.runtime.blocks import map_in_order
too_late = []
is_armed = False

def interrupt(*_):
    if is_armed:
        raise KeyboardInterrupt

def once():
    global is_armed
    over = threading.Event()
    def call(number):
        os.kill(os.getpid(), signal.SIGINT)  # the main thread may be inside the executor's submit()
        time.sleep(0.01)
        if over.is_set():
            too_late.append(number)
    is_armed = True
    try:
        for _ in map_in_order(call, range(4), 2):
            pass
    finally:
        is_armed = False
        over.set()

signal.signal(signal.SIGINT, interrupt)
for _ in range(60):
    try:
        once()
    except KeyboardInterrupt:
        pass
    time.sleep(0.02)
print(len(too_late))
"""


def test_no_call_runs_on_after_an_interrupt() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n"
