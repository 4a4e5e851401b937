"""Scripts of the shell, as the documentation shows them, whose commands run in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path

import pytest

from diskhop.cli import run

# A command `diskhop` that has its words done by a listening process, and prints and exits as that one did.
CLIENT = """#!{python} -SE
import os, sys
from multiprocessing.connection import Client
with Client({address!r}) as process:
    process.send(sys.argv[1:])
    code, out, err = process.recv()
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@dataclass(frozen=True)
class Ended:
    """returncode: of the script. output: what it and its commands wrote to stdout."""

    returncode: int
    output: str


def run_script(command: list[str], capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run a script whose commands `diskhop` are run here: each process of its own would import PyTorch again."""
    with tempfile.TemporaryDirectory() as bin_folder, tempfile.TemporaryFile("w+") as output:
        address = f"{bin_folder}/socket"
        client = Path(bin_folder) / "diskhop"
        client.write_text(CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
        environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        with Listener(address) as listener, subprocess.Popen(command, env=environment, stdout=output) as script:

            def say_that_it_ended() -> None:
                script.wait()
                Client(address).close()

            ended = threading.Thread(target=say_that_it_ended)
            ended.start()
            while True:
                with listener.accept() as connection:
                    try:
                        words = connection.recv()
                    except EOFError:
                        break
                    capsys.readouterr()
                    code = run(words)
                    connection.send((code, *capsys.readouterr()))
            ended.join()
        output.seek(0)
        return Ended(script.returncode, output.read())
