"""A network that other processes can build again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from safetensors.torch import load_file, save_file
from torch import nn

from diskhop.io.atomic import destination_errors
from diskhop.runtime.jobs import Share

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True, slots=True, eq=False)
class SharedNetwork(Generic[ModuleT]):
    """A network with its weights.

    network: the network, in evaluation mode.
    build: makes it with other weights, in any process (see plain.py); None: it stays in this one.
    """

    network: ModuleT
    build: Callable[[], ModuleT] | None = None

    def for_workers(self, share: Share) -> partial[SharedNetwork[ModuleT]]:
        """See jobs.py: weights go through a file."""
        if self.build is None:
            raise TypeError("a network that only this process can build")
        path = share.new_file()
        with destination_errors(path):
            save_file({name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}, path)
        return partial(_build_again, self.build, path)


def _build_again(build: Callable[[], ModuleT], path: Path) -> SharedNetwork[ModuleT]:
    network = build()
    network.load_state_dict(load_file(path))
    return SharedNetwork(network.eval(), build)
