"""The tables of a built-in network in a work folder: their columns, their keys, and the steps that make them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import xxhash

from diskhop._native import Engine
from diskhop.dataset.dataset import Dataset
from diskhop.errors import PredictionError
from diskhop.hops.make.lists import dataset_lists
from diskhop.hops.make.tiles import format_ids
from diskhop.hops.stream.parts import BandShape, stored_rows
from diskhop.hops.stream.scan import ScannedLists, rows_with_edges
from diskhop.nn.layers.network import Network
from diskhop.planning.predict import StreamedPlan
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.streamed.earlier_blocks import Blocks
from diskhop.predicting.streamed.layers import HIDDEN, StreamedLayer, num_tiles, streamed_layers
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.passes import Streaming
from diskhop.predicting.streamed.row_step import KEPT
from diskhop.predicting.streamed.source import first_rows
from diskhop.predicting.streamed.steps import StreamedNetwork, StreamedSteps
from diskhop.predicting.streamed.tables import RANGE_BYTES, LayerTable
from diskhop.protocols import NodeRows
from diskhop.runtime.jobs import Share
from diskhop.runtime.tasks import OpenedWorkFolder, TaskTools, WorkFolder, writer_name


@dataclass(frozen=True, eq=False)
class NetworkTables:
    """The tables of the layers up to the last one that is wanted.

    dataset: the graph.
    network: the network.
    wanted: numbers of the layers whose outputs are wanted, from 1.
    range_bytes: see LayerTable.
    """

    dataset: Dataset
    network: SharedNetwork[Network]
    wanted: frozenset[int]
    range_bytes: int = RANGE_BYTES

    @cached_property
    def layers(self) -> Sequence[StreamedLayer]:
        """The layers."""
        return streamed_layers(self.network.network)[: max(self.wanted)]

    @property
    def wanted_tiles(self) -> int:
        """Tiles of the outputs that are wanted."""
        return sum(num_tiles(self.layers[number - 1].out_dim) for number in self.wanted)

    def groups(self, number: int) -> dict[str, int]:
        """Return the columns of a layer's table by name, with those that are kept for other uses."""
        groups = dict(self.layers[number].groups)
        if number in self.wanted and HIDDEN not in groups:
            groups[KEPT] = self.layers[number - 1].out_dim
        return groups

    def layouts(self, blocks: Blocks) -> list[Layout]:
        """Return the layouts of all tables, whose summed groups are cut into blocks."""
        layouts = [Layout(self.groups(number), blocks[number]) for number in range(len(self.layers))]
        return [*layouts, Layout({KEPT: self.layers[-1].out_dim})]

    def open(
        self, plan: StreamedPlan, scanned: ScannedLists, work: WorkFolder, tools: TaskTools, stack: ExitStack
    ) -> StreamedSteps:
        """Open the tables and the steps that make them; the stack waits for writes."""
        layers, layouts, num_nodes = self.layers, self.layouts(plan.blocks), self.dataset.num_nodes
        stored = stored_rows(rows_with_edges(scanned, num_nodes))

        def opened(name: str, shape: BandShape) -> LayerTable:
            lacks_rows = ", rows with edges" if shape.stored is not None else ""
            key = self.key(f"{name} in bands of {shape.widths}{lacks_rows}")
            return stack.enter_context(LayerTable(name, shape, work, key, tools, self.range_bytes))

        shapes = [layout.shape(num_nodes) for layout in layouts]
        if plan.own_are_features:
            first_band = 0 if plan.stores_first_block else 1
            shapes[0] = BandShape(plan.layers[0].block_rows, shapes[0].widths[first_band:])

        return StreamedSteps(
            network=StreamedNetwork(layers=layers, layouts=layouts, prepare=self.network.network.prepared),
            plan=plan,
            tables=[opened(f"table-{number}", shape) for number, shape in enumerate(shapes)],
            sums={
                number: opened(
                    f"sums-{number}",
                    Layout({}, layer.blocks[:-1]).shape(num_nodes, stored if layer.sums_lack_rows else None),
                )
                for number, layer in enumerate(plan.layers)
                if layer.num_blocks > 1
            },
            norms={
                number: opened(f"norms-{number}", Layout({"norms": 2 * layer.num_heads}).shape(num_nodes))
                for number, layer in enumerate(layers)
                if layer.num_heads
            },
            streaming=Streaming(
                lists=dataset_lists(self.dataset.topology),
                scanned=scanned,
                part_rows=plan.part_rows,
                stretch_edges=plan.stretch_edges,
                engine=tools.engine,
                threads=plan.threads_per_worker,
            ),
            open_features=partial(first_rows, self.dataset, engine=tools.engine),
            bad_rows=self._not_finite,
            copy=partial(self._copied, plan, scanned, work.path, tools.engine),
        )

    def key(self, name: str) -> str:
        """Return a text that differs wherever a byte of a table may."""
        network, weights = self.network.network, xxhash.xxh3_64()
        for key, tensor in network.state_dict().items():
            weights.update(key.encode())
            weights.update(tensor.detach().contiguous().numpy().tobytes())
        facts = {
            "dataset": self.dataset.hash,
            "features": [self.dataset.made_features.kind, self.dataset.made_features.seed],
            "network": repr(network),
            "weights": weights.hexdigest(),
            "wanted": sorted(self.wanted),
            "table": name,
        }
        return json.dumps(facts, sort_keys=True)

    def _copied(
        self, plan: StreamedPlan, scanned: ScannedLists, folder: Path, engine: Engine, _share: Share
    ) -> partial[StreamedSteps]:
        return partial(_open_again, self.dataset, self.network, self.wanted, plan, scanned, folder, engine)

    def _not_finite(self, number: int, rows: Sequence[int]) -> PredictionError:
        ids = format_ids(self.dataset.id_map().ids(NodeRows(rows)))  # type: ignore[arg-type]
        what = "the features" if number == 0 else f"the output of layer {number}"
        noun = "node" if len(rows) == 1 else "nodes"
        return PredictionError(
            f"{self.dataset.path}: {what} for {noun} {ids} has NaN or infinite values; check the features of the "
            "dataset and the weights of the run"
        )


def _open_again(
    dataset: Dataset,
    network: SharedNetwork[Network],
    wanted: frozenset[int],
    plan: StreamedPlan,
    scanned: ScannedLists,
    folder: Path,
    engine: Engine,
) -> StreamedSteps:
    """Open tables that the process which plans has begun."""
    tools = TaskTools(engine, writer=writer_name())
    return NetworkTables(dataset, network, wanted).open(plan, scanned, OpenedWorkFolder(folder), tools, ExitStack())
