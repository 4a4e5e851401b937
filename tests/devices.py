"""The code of other devices, run on the CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Pytest sets the variable where there is no GPU.
BY_INTERPRETER = [
    pytest.mark.kernels,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1",
        reason="on a machine with a GPU, TRITON_INTERPRET=1 pytest -m kernels runs the kernels on the CPU",
    ),
]


@contextmanager
def as_on_a_device(*, kernels: bool) -> Iterator[None]:
    """Compute on the CPU as on a device without the core. kernels: by Triton's, which its interpreter runs here."""
    import diskhop.nn.kernels.choice as choice

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("runs_core", lambda _: False), ("runs_kernels", lambda _: kernels)):
            own = getattr(choice, name)
            for module in list(sys.modules.values()):
                if module.__name__.startswith("diskhop.") and getattr(module, name, None) is own:
                    patch.setattr(module, name, value)
        yield
