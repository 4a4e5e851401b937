"""Options of prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diskhop.config.options import AUTO, like, option, validate
from diskhop.config.parse import parse_counts, parse_words
from diskhop.config.rules import COUNT_OR_NONE, MOST_BYTES, MOST_THREADS, between, one_of
from diskhop.config.sampled import FANOUT
from diskhop.config.train import TrainConfig

FORMATS = ("parquet", "npy", "tsv")
EMBEDDING_DTYPES = ("float32", "float16")
ALL_NODES = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictConfig:
    """Options of predicting for nodes by a trained model."""

    SUBJECT: ClassVar[str] = "predict"

    nodes: str = option(
        ALL_NODES,
        help="Nodes to predict for: all, train, valid, test, or a file of ids (.npy, or text, one per line).",
    )
    what: tuple[str, ...] = option(
        (),
        help="Columns to write: class, probability (of that class), probabilities, value, logits, embedding.",
        parse=parse_words,
        metavar="NAME,NAME",
        shown="class,probability; for multilabel probabilities, for regression value",
    )
    layer: int = option(
        0,
        help="Layer whose output is the embedding, from 1; 0 for the last hidden layer.",
        rule=COUNT_OR_NONE,
        panel="Model",
    )
    embedding_dtype: str = option(
        "float32", help="Number type of embeddings.", rule=one_of(EMBEDDING_DTYPES), panel="Storage"
    )
    format: str = option("parquet", help="Format of the predictions.", rule=one_of(FORMATS))
    fanout: tuple[int, ...] = option(
        (),
        help="Neighbours per layer: all, for exact predictions, or counts to sample, as 20,20.",
        rule=FANOUT,
        parse=lambda text: () if text == "all" else parse_counts(text),
        panel="Sampling",
        metavar="N,N",
        shown="all",
    )
    require: tuple[str, ...] = option(
        (),
        help="Publish nothing unless the run's metric holds, as 'test>=.70' ('test<=.70' for rmse and mae); repeat for "
        "several parts of the split.",
        panel="Evaluation",
        metavar="PART>=X",
        shown="no condition",
    )
    memory_bytes: int = like(TrainConfig, "memory_bytes", 0, rule=between(0, MOST_BYTES, 2 * 10**9))
    total_memory_bytes: int = like(TrainConfig, "total_memory_bytes", 0)
    disk_bytes: int = like(
        TrainConfig, "disk_bytes", 0, help="Disk space for tables between layers, as 100GB.", shown="all free space"
    )
    scratch: str = like(TrainConfig, "scratch", "", help="Folder for tables between layers.", shown="next to --out")
    seed: int = like(TrainConfig, "seed", 0, help="Random seed of sampled neighbours.", panel="Sampling")
    engine: str = like(TrainConfig, "engine", AUTO)
    threads: int = like(TrainConfig, "threads", 0, rule=between(0, MOST_THREADS))

    def __post_init__(self) -> None:
        validate(self)
