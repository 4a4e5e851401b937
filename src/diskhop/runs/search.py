"""Searching options of embeddings: runs with random options, ranked by validation.

A trial's options depend on the seed and its number alone, so an interrupted search resumes when it is called again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.config.embed import EmbedConfig
from diskhop.config.options import load_config
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.scoring.scores import SCORES
from diskhop.errors import ConfigError, TrainingError
from diskhop.run_files import CONFIG_FILE, EMBEDDING, RESULT_FILE
from diskhop.runs.callbacks import Callback
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.source import find_run_source
from diskhop.runs.start import embed


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of a search.

    path: the RUN folder.
    options: those drawn for it.
    valid: its last validation MRR; None if the loss was not finite.
    seconds: of training.
    """

    path: Path
    options: dict[str, Any]
    valid: float | None
    seconds: float


@takes_words(EmbedConfig)
def search(
    dataset: Dataset | Path | str | None = None,
    *,
    out: Path | str,
    trials: int,
    preset: str | None = None,
    callbacks: Sequence[Callback] = (),
    on_trial: Callable[[int, Trial], None] = lambda number, trial: None,
    **options: Any,
) -> list[Trial]:
    """Run trials in folders of `out` and return them, best first.

    Draws learning rate, regularisation, dropout, initial scale, Adagrad's state and reciprocal relations, unless they
    are given.

    dataset, preset, callbacks: see embed().
    out: the folder of the trials' RUN folders.
    trials: the number of runs.
    on_trial: called with the number and result of each.

    Raises ConfigError for a graph without validation edges, and for trials of another search in `out`.

    >>> best, *others = diskhop.search("my-graph", out="trials", trials=2, model="dot", epochs=1, memory="200MB")
    """
    if trials < 1:
        raise ConfigError(f"search must have at least 1 trial, got {trials}")
    source = find_run_source(dataset, options, {EMBEDDING: EmbedConfig})
    config = resolve_embed_config(source.dataset, source.options, preset).config
    if not config.evaluate:
        raise ConfigError("search needs validation edges to choose by: remove --no-eval")
    found = []
    for number in range(1, trials + 1):
        drawn = {name: value for name, value in _draw(config, number).items() if name not in options}
        trial = _run(source.dataset, Path(out) / f"trial-{number:03}", {**options, **drawn}, drawn, preset, callbacks)
        found.append(trial)
        on_trial(number, trial)
    return sorted(found, key=lambda trial: -1.0 if trial.valid is None else trial.valid, reverse=True)


def _draw(config: EmbedConfig, number: int) -> dict[str, Any]:
    """Draw the options of a trial."""
    rng = np.random.default_rng([config.seed, number])

    def between(low: float, high: float) -> float:
        """Draw log-uniformly, rounded to two digits."""
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.2g}")

    score = SCORES[config.model]
    drawn: dict[str, Any] = {
        "lr": between(0.02, 0.5),
        "init_scale": between(0.001, 0.3),
        "n3": between(0.005, 0.5),
        "dropout": float(rng.choice([0.0, 0.1, 0.3])),
        "adagrad": str(rng.choice(["row", "element"])),
        "reciprocal": bool(rng.choice([False, True])),
    }
    if score.against != "dot":  # N3 does not bound distances
        drawn["n3"] = 0.0
    if not score.uses_relations:
        del drawn["reciprocal"]
    return drawn


def _run(
    dataset: Dataset,
    path: Path,
    options: Mapping[str, Any],
    drawn: dict[str, Any],
    preset: str | None,
    callbacks: Sequence[Callback],
) -> Trial:
    is_begun = (path / CONFIG_FILE).exists()
    if is_begun:
        saved = load_config(path / CONFIG_FILE, (EmbedConfig,)).options
        different = [name for name, value in options.items() if saved.get(name) != value]
        if different:
            raise ConfigError(
                f"{path}: belongs to a search with other options: {', '.join(different)} differ; name another --out"
            )
    if not (path / RESULT_FILE).exists():
        try:
            if is_begun:
                embed(dataset, out=path, resume=True, callbacks=callbacks)
            else:
                embed(dataset, out=path, preset=preset, callbacks=callbacks, **options)
        except TrainingError:
            return Trial(path, drawn, None, 0.0)
    result = json.loads((path / RESULT_FILE).read_bytes())
    valid = next((epoch["valid"] for epoch in reversed(result["epochs"]) if "valid" in epoch), None)
    if valid is None:
        raise ConfigError(f"{dataset.path}: has no valid edges to choose by, and none were left out of training")
    return Trial(path, drawn, valid, sum(epoch["seconds"] for epoch in result["epochs"]))
