"""Runs: training with every store, hop models, links, types, embeddings; and predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.config.embed import LEAVING
from diskhop.dataset.dataset import open_dataset
from diskhop.nn.models import HOP_MODELS
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.run_files import CONFIG_FILE
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.kinds import find_kind
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import embed, run_config, train
from diskhop.stores.stores import STORES
from tests.campaign.stage import Place, Stage
from tests.embedding import OPTIONS as EMBED_OPTIONS
from tests.embedding import committed_bytes, embed_config, small_triples
from tests.graphs import folder_bytes
from tests.predictions import check_manifest
from tests.runs import OPTIONS, losses, small_graph
from tests.typed_graphs import typed_dataset
from tests.typed_predictions import train_run

NUM_EPOCHS = 3
INTERVAL = 2
LINKS: dict[str, Any] = {"task": "link", "batch_size": 700, "eval_batch_size": 500, "model": "gcn"}
HOPS: dict[str, Any] = {"hops": 2, "fanout": None}
# Changes to OPTIONS; graph: the folder of the inputs.
TRAININGS: dict[str, dict[str, Any]] = {
    **{f"sage, store {name}": {"store": name, "ordered": name == "shared"} for name in STORES},
    "sage, accumulated, batch norm": {"accumulate": 2, "norm": "batch", "lr_schedule": "cosine", "warmup": 1},
    "sage, reused samples": {"store": "packed", "reuse": True},
    "gat": {"model": "gat", "heads": 2, "store": "direct"},
    "sign, tables on the disk": {"model": "sign", **HOPS, "placement": "disk", "shuffle": "chunks"},
    "hoga, tables in memory": {"model": "hoga", **HOPS, "placement": "memory"},
    "links": {**LINKS, "store": "direct"},
    "hetero-sage": {"graph": "typed", "model": "hetero-sage", "batch_size": 9, "fanout": (3, 2)},
}
# Changes to the options of tests/embedding.py.
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "4 partitions, a commit each 2 states": {"checkpoint_every": "2 states"},
    "4 partitions, repartitioned": {"checkpoint_every": "2 states", "repartitions": 2},
    "8 partitions, a commit each state": {"partitions": 8, "checkpoint_every": "1 states"},
    "8 partitions, one slot": {"partitions": 8, "checkpoint_every": "3 states", "prefetch_slot": LEAVING},
    "1 partition": {"partitions": 1},
}


class BatchCounter(Callback):
    """Counts batches of training."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def batch_done(self, progress: BatchProgress) -> None:
        if progress.stage == "train":
            self._place.count()


def make_graphs(inputs: Path) -> None:
    small_graph(inputs / "sbm")
    typed_dataset(inputs / "typed")


def run_training(case: Mapping[str, Any], place: Place) -> None:
    graph = open_dataset(place.inputs / case.get("graph", "sbm"))
    every = f"{INTERVAL * case.get('accumulate', 1)} batches"
    options = {**OPTIONS, "epochs": NUM_EPOCHS, "checkpoint_every": every, **case}
    if "hops" in case or case.get("store") in ("belady", "packed"):
        options["scratch"] = str(place.scratch)
    options = {name: value for name, value in options.items() if value is not None and name != "graph"}
    out = place.out / "run"
    is_begun, callbacks = (out / CONFIG_FILE).exists(), [BatchCounter(place)]
    if place.cut is None:
        train(
            None if is_begun else graph, out=out, resume=is_begun, callbacks=callbacks, **({} if is_begun else options)
        )
        return
    model = options.get("model")
    kind = find_kind(model if model in (*TYPED_MODELS, *HOP_MODELS) else None, options.get("task"), graph)
    config = kind.resolve(graph, options, None).config
    run_config(graph, config, out, resume=is_begun, callbacks=callbacks, injector=place.cut)


def trained(out: Path) -> dict[str, bytes]:
    run = out / "run"
    result = json.loads((run / "result.json").read_text())
    return {
        "losses": repr(losses(run)).encode(),
        "test": repr(result["test"]).encode(),
        **{name: (run / name).read_bytes() for name in ("model.safetensors", CONFIG_FILE)},
    }


def run_embedding(case: Mapping[str, Any], place: Place) -> None:
    graph, out = open_dataset(place.inputs / "graph"), place.out / "run"
    is_begun, callbacks = (out / CONFIG_FILE).exists(), [BatchCounter(place)]
    if place.cut is None:
        options = {} if is_begun else {**EMBED_OPTIONS, **case}
        embed(None if is_begun else graph, out=out, resume=is_begun, callbacks=callbacks, **options)
        return
    cut: dict[str, Any] = {"engine": place.engine, "injector": place.cut}
    run_config(graph, embed_config(**case), out, resume=is_begun, callbacks=callbacks, **cut)


def embedded(out: Path) -> dict[str, bytes]:
    result = json.loads((out / "run/result.json").read_text())
    return {**committed_bytes(out / "run"), "test": repr(result["test"]).encode()}


def make_run(inputs: Path) -> None:
    train(small_graph(inputs / "sbm", num_nodes=3000, num_edges=12_000), out=inputs / "run", **OPTIONS)


def make_typed_run(inputs: Path) -> None:
    train_run(typed_dataset(inputs / "typed")[1], inputs / "run", model="rgat")


def make_hop_run(inputs: Path) -> None:
    options = {**OPTIONS, "model": "sign", "hops": 2}
    del options["fanout"]
    train(small_graph(inputs / "sbm"), out=inputs / "run", **options)


def run_prediction(options: Mapping[str, Any], place: Place) -> None:
    predict_run(
        place.inputs / "run",
        out=place.out / "out",
        engine="threads",
        threads=place.threads,
        injector=place.cut,
        **options,
    )


def predicted(out: Path) -> dict[str, bytes]:
    return {name: content for name, content in folder_bytes(out / "out").items() if name != "_manifest.json"}


def check_predictions(out: Path) -> None:
    check_manifest(out / "out")


# How the run is made, and the options of predictions.
PREDICTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sage, parquet": (make_run, {"what": ("class", "probability", "embedding"), "memory": "60MB"}),
    "sage, npy": (make_run, {"what": ("logits",), "format": "npy", "memory": "60MB"}),
    "sign": (make_hop_run, {"what": ("class", "probabilities"), "memory": "60MB"}),
    "rgat": (make_typed_run, {"what": ("logits", "embedding"), "layer": 1, "memory": "60MB"}),
}
STAGES = (
    *(
        Stage(
            name=f"train {name}",
            prepare=make_graphs,
            run=partial(run_training, case),
            done="run/result.json",
            outcome=trained,
            spare=lambda name: name.endswith(".partial"),
            interval=INTERVAL * case.get("accumulate", 1),
        )
        for name, case in TRAININGS.items()
    ),
    *(
        Stage(
            name=f"embed {name}",
            prepare=small_triples,
            run=partial(run_embedding, case),
            done="run/result.json",
            outcome=embedded,
            spare=lambda name: name.endswith(".partial"),
            commit="run/commit.json",
        )
        for name, case in EMBEDDINGS.items()
    ),
    *(
        Stage(
            name=f"predict {name}",
            prepare=prepare,
            run=partial(run_prediction, options),
            done="out",
            outcome=predicted,
            check=check_predictions,
        )
        for name, (prepare, options) in PREDICTIONS.items()
    ),
)
