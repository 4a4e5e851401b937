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

from diskhop._native import softmax_rows
from diskhop.config.predict import EMBEDDING_DTYPES
from diskhop.config.train import CLASSIFICATION, LINK, MULTILABEL, REGRESSION
from diskhop.errors import ConfigError
from diskhop.predicting.scaling import Scaling

TableName = Literal["logits", "embedding"]

# The table of each word, in the order of the columns.
WORDS: Mapping[str, TableName] = {
    "class": "logits",
    "probability": "logits",
    "probabilities": "logits",
    "value": "logits",
    "logits": "logits",
    "embedding": "embedding",
}
# Words that each task has, the default ones first. The logits of values are values in other units.
_WORDS_OF = {
    CLASSIFICATION: (("class", "probability"), ("probabilities", "logits", "embedding")),
    MULTILABEL: (("probabilities",), ("logits", "embedding")),
    REGRESSION: (("value",), ("embedding",)),
    LINK: (("embedding",), ()),
}
_NOT_THOSE = {
    CLASSIFICATION: "and the model predicts classes",
    MULTILABEL: "and the labels are tasks, each with a probability of its own",
    REGRESSION: "and the model predicts numbers",
    LINK: "and the model predicts links",
}
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
    task: classification, multilabel, regression or link: what logits stand for.
    scaling: units of the values of regression; None: those of the logits.
    embedding_dtype: float32 or float16.
    """

    words: tuple[str, ...]
    task: str = CLASSIFICATION
    scaling: Scaling | None = None
    embedding_dtype: str = "float32"

    def __post_init__(self) -> None:
        unknown = [word for word in self.words if word not in WORDS]
        if unknown or not self.words:
            what = f"--what '{unknown[0]}' is unknown" if unknown else "--what is empty"
            raise ConfigError(f"{what}; use one or more of {', '.join(WORDS)}, separated by commas")
        usual, others = _WORDS_OF[self.task]
        for word in self.words:
            if word not in (*usual, *others):
                raise ConfigError(
                    f"--what {word} needs {_needed_by(word)}, {_NOT_THOSE[self.task]}; use --what {','.join(usual)}"
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
                width = dims[WORDS[word]]
                columns.append(Column(name=word, dtype=dtype, width=0 if word == "value" and width == 1 else width))
        return tuple(columns)


def default_words(task: str) -> tuple[str, ...]:
    """Return the words that are written unless --what is given."""
    return _WORDS_OF[task][0]


def _needed_by(word: str) -> str:
    return "numbers" if word == "value" else "classes" if word in _SINGLE else "classes or tasks"


def fill_columns(
    columns: Mapping[str, NDArray[Any]], table: TableName, rows: NDArray[np.float32], outputs: Outputs
) -> None:
    """Compute the columns of a table from its rows. columns: arrays to fill, one entry per row, by word."""
    if table == "embedding":
        if "embedding" in columns:
            with np.errstate(over="ignore"):  # infinite values are refused by name
                columns["embedding"][:] = rows
        return
    if "logits" in columns:
        columns["logits"][:] = rows
    if "value" in columns:
        values = rows if outputs.scaling is None else outputs.scaling.restored(rows)
        columns["value"][:] = values.reshape(columns["value"].shape)
    fill = _fill_tasks if outputs.task == MULTILABEL else _fill_classes
    if columns.keys() & {"class", "probability", "probabilities"}:
        fill(columns, rows)


def _fill_classes(columns: Mapping[str, NDArray[Any]], logits: NDArray[np.float32]) -> None:
    """Compute softmax. Of equal logits the lowest class counts, whose probability is the largest of all."""
    softmax_rows(logits, *(columns.get(word) for word in ("class", "probability", "probabilities")))


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
