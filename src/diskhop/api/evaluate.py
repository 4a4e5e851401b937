"""diskhop.evaluate(): the command `diskhop evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.config.embed import EVALUATED, EmbedConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset
from diskhop.display import Display, Facts, Grid, Part
from diskhop.run_files import EMBEDDING, LINK_RUN
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runtime.progress import Progress, silent
from diskhop.ui.evaluation import column_table, evaluation_rows, part_table, shown_part
from diskhop.ui.summary import summarize_ranking


@dataclass(frozen=True, slots=True, repr=False)
class Evaluated(Display):
    """The metrics of a finished run. result: as `diskhop evaluate --json` prints them."""

    result: dict[str, Any]

    def _title(self) -> str:
        return f"Evaluation of {self.result['run']}" if "run" in self.result else "Evaluation"

    def _parts(self) -> Sequence[Part]:
        found = self.result
        if found["kind"] == EMBEDDING:
            return [Facts(summarize_ranking(found["part"], found))]
        if found["kind"] == LINK_RUN:
            return [Grid(*part_table(found)), Facts([("ranks", note) for note in found["notes"]])]
        part = shown_part(found)
        tables = (part_table(found), column_table(found, part))
        return [*(Grid(*table) for table in tables), Facts(evaluation_rows(found, part))]


@takes_words(EmbedConfig, only=EVALUATED)
def evaluate(
    run: Path | str,
    *,
    part: str | None = None,
    dataset: Dataset | Path | str | None = None,
    executor: str = "",
    workers: int | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Evaluated:
    """Measure a node classifier or a link model on each part of its split, or rank edges by trained embeddings.

    A node classifier is measured by its outputs for all nodes with all neighbours; the result is also in
    RUN/evaluation.json. A link model is measured on all held-out edges.

    run: the folder of a finished run.
    part: nodes to measure on: train, valid or test (default: each); links: edges, by default valid and test;
        embeddings: edges to rank, test (default) or valid.
    dataset: labelled dataset to measure a node classifier on; default: the run's own.
    executor, workers: where tasks run, as --executor; see runtime/executors.py.
    progress: called with a stage, and what is done of it and in total.

    Options that are not given are those of the run. Raises ConfigError, SchemaError, BudgetError; TrainingError or
    PredictionError for a damaged model.

    >>> print(diskhop.evaluate("run", memory="200MB"))
    Evaluation of run...
    """
    found = evaluate_run(
        Path(run), dataset, part=part, executor=executor, workers=workers, progress=progress, **options
    )
    return Evaluated(found)
