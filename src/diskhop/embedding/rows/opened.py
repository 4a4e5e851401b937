"""The stored rows of a model: opened for a run, kept at each checkpoint, and dropped when no checkpoint needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from diskhop.embedding.rows.module import COPIES_ON_DISK, VERSION, RowPlace, StoredRows
from diskhop.io.atomic import require_free_space


def find_stored_rows(model: nn.Module) -> dict[str, StoredRows]:
    """Return the parts of a model whose rows are on disk, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, StoredRows)}


@contextmanager
def open_rows(model: nn.Module, place: RowPlace) -> Iterator[None]:
    """Open all stored rows of a model, with their initial values. Raises DestinationError if the disk is too small."""
    parts = find_stored_rows(model).values()
    kept_bytes = sum(512 * path.stat().st_blocks for path in place.folder.glob("*.bin"))
    num_bytes = COPIES_ON_DISK * sum(part.layout.file_bytes for part in parts) - kept_bytes
    require_free_space(place.folder, num_bytes, f"{COPIES_ON_DISK} copies of the learned rows, for checkpoints,")
    with ExitStack() as opened:
        for part in parts:
            opened.callback(part.close)
            part.open(place)
        yield


def keep_rows(model: nn.Module) -> None:
    """Make durable versions of the rows, which the model's state_dict() then names."""
    for part in find_stored_rows(model).values():
        part.keep()


def drop_rows(model: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
    """Remove all versions of rows except those that some states of the model name."""
    for name, part in find_stored_rows(model).items():
        part.drop({int(state[f"{name}.{VERSION}"][0]) for state in states})
