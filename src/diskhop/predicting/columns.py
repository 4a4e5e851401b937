"""Columns of predictions, and their values from rows of logits or of embeddings.

A *word* of `--what` names a column; WORDS has the table that it is computed from. All arithmetic is float32, row by
row: values do not depend on how many rows are computed at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diskhop.config.predict import EMBEDDING_DTYPES
from diskhop.errors import ConfigError

TableName = Literal["logits", "embedding"]

# The table of each word, in the order of the columns.
WORDS: Mapping[str, TableName] = {
    "class": "logits",
    "probability": "logits",
    "probabilities": "logits",
    "logits": "logits",
    "embedding": "embedding",
}
# Nodes with several labels have no class.
_OF_CLASSES = ("class", "probability")
_SINGLE = {"class": "int64", "probability": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of predictions.

    name: its word.
    dtype: NumPy's name of the dtype.
    width: values per node; 0: a single value, not a list.
    """

    name: str
    dtype: str
    width: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes per node."""
        return np.dtype(self.dtype).itemsize * (self.width or 1)

    def empty(self, num_rows: int) -> NDArray[Any]:
        """Return an array for the values of num_rows nodes, not filled."""
        return np.empty((num_rows, self.width) if self.width else num_rows, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Choice of the columns that are written.

    words: names of WORDS; columns are in the order of WORDS, each once.
    are_tasks: whether logits are of tasks, each with a probability of its own, instead of classes.
    embedding_dtype: float32 or float16.
    """

    words: tuple[str, ...]
    are_tasks: bool = False
    embedding_dtype: str = "float32"

    def __post_init__(self) -> None:
        unknown = [word for word in self.words if word not in WORDS]
        if unknown or not self.words:
            what = f"--what '{unknown[0]}' is unknown" if unknown else "--what is empty"
            raise ConfigError(f"{what}; use one or more of {', '.join(WORDS)}, separated by commas")
        if self.are_tasks:
            for word in _OF_CLASSES:
                if word in self.words:
                    raise ConfigError(
                        f"--what {word} needs classes, and the labels are tasks, each with a probability of its own; "
                        "use --what probabilities"
                    )
        if self.embedding_dtype not in EMBEDDING_DTYPES:
            raise ConfigError(
                f"the dtype of embeddings '{self.embedding_dtype}' is unknown; use {' or '.join(EMBEDDING_DTYPES)}"
            )

    def needs(self, table: TableName) -> bool:
        """Whether a column is computed from a table."""
        return any(WORDS[word] == table for word in self.words)

    def sources(self) -> list[tuple[str, TableName]]:
        """Return each word with the table that its column is computed from."""
        return [(word, WORDS[word]) for word in self.words]

    def columns(self, dims: Mapping[TableName, int]) -> tuple[Column, ...]:
        """Return the columns. dims: values per row of each table that is needed."""
        columns = []
        for word in WORDS:
            if word in _SINGLE and word in self.words:
                columns.append(Column(name=word, dtype=_SINGLE[word]))
            elif word in self.words:
                dtype = self.embedding_dtype if word == "embedding" else "float32"
                columns.append(Column(name=word, dtype=dtype, width=dims[WORDS[word]]))
        return tuple(columns)


def default_words(are_tasks: bool) -> tuple[str, ...]:
    """Return the words that are written unless --what is given."""
    return ("probabilities",) if are_tasks else _OF_CLASSES


def fill_columns(
    columns: Mapping[str, NDArray[Any]], table: TableName, rows: NDArray[np.float32], *, are_tasks: bool
) -> None:
    """Compute the columns of a table from its rows. columns: arrays to fill, one entry per row, by word."""
    if table == "embedding":
        if "embedding" in columns:
            with np.errstate(over="ignore"):  # infinite values are refused by name
                columns["embedding"][:] = rows
        return
    if "logits" in columns:
        columns["logits"][:] = rows
    fill = _fill_tasks if are_tasks else _fill_classes
    if columns.keys() & {*_OF_CLASSES, "probabilities"}:
        fill(columns, rows)


def _fill_classes(columns: Mapping[str, NDArray[Any]], logits: NDArray[np.float32]) -> None:
    """Compute softmax. Of equal logits the lowest class counts, whose probability is the largest of all."""
    classes = logits.argmax(axis=1)
    if "class" in columns:
        columns["class"][:] = classes
    if "probability" not in columns and "probabilities" not in columns:
        return
    largest = logits[np.arange(len(logits)), classes]
    powers = columns.get("probabilities", np.empty(logits.shape, np.float32))
    with np.errstate(over="ignore"):  # a difference beyond float32 is a probability of 0
        np.subtract(logits, largest[:, None], out=powers)
    np.exp(powers, out=powers)
    # The power of the largest logit is 1, so its probability is the reciprocal of the sum.
    largest = np.reciprocal(powers.sum(axis=1))
    if "probability" in columns:
        columns["probability"][:] = largest
    if "probabilities" in columns:
        powers *= largest[:, None]


def _fill_tasks(columns: Mapping[str, NDArray[Any]], logits: NDArray[np.float32]) -> None:
    """Compute the sigmoid of each logit."""
    out = columns["probabilities"]
    with np.errstate(over="ignore"):  # the reciprocal of infinity is the 0 that is meant
        np.exp(-logits, out=out)
    out += 1
    np.reciprocal(out, out=out)


def first_not_finite(rows: NDArray[Any]) -> tuple[int, int] | None:
    """Find the first value of (rows, values) that is NaN or infinite. Returns its row and its place there, or None."""
    # A sum is finite only if all its values are: one pass without an array of answers.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum(dtype=np.float32)):
            return None
    is_bad = ~np.isfinite(rows)
    if not is_bad.any():
        return None
    row, place = divmod(int(is_bad.argmax()), rows.shape[1])
    return row, place
