"""Opening the steps of a network over relations in a work folder, in the process that plans and in others."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from diskhop._native import Engine
from diskhop.dataset.dataset import Dataset
from diskhop.nn.typed.network import TypedNetwork
from diskhop.planning.predict_typed import TypedPassesPlan
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.tables import RANGE_BYTES, LayerTable
from diskhop.predicting.typed.first_rows import GivenRows
from diskhop.predicting.typed.relation_steps import RelationSteps
from diskhop.predicting.typed.relation_tables import RelationTables, TableKey
from diskhop.runtime.jobs import Share
from diskhop.runtime.tasks import OpenedWorkFolder, TaskTools, WorkFolder, writer_name


def open_steps(
    tables: RelationTables,
    plan: TypedPassesPlan,
    work: WorkFolder,
    settings: str,
    tools: TaskTools,
    stack: ExitStack,
    range_bytes: int = RANGE_BYTES,
) -> RelationSteps:
    """Open the tables and the steps that make them; the stack waits for writes.

    settings: everything that tables depend on. range_bytes: see LayerTable.
    """
    layouts = _layouts(tables, plan)

    def opened(name: str, layout: Layout, num_rows: int) -> LayerTable:
        shape = layout.shape(num_rows)
        key = f"{settings}\n{name} in bands of {shape.widths}"
        return stack.enter_context(LayerTable(name, shape, work, key, tools, range_bytes))

    files = {
        key: [opened(name, layouts[key], num_rows) for name, num_rows in _names(tables, key)]
        for key in tables.order.inputs
    }

    def copied(_share: Share) -> partial[RelationSteps]:
        facts = tables.dataset, tables.shared, tables.given, tables.wanted
        return partial(_open_again, *facts, plan, work.path, tools.engine)

    return RelationSteps(tables=tables, layouts=layouts, files=files, plan=plan, engine=tools.engine, copy=copied)


def _open_again(
    dataset: Dataset,
    network: SharedNetwork[TypedNetwork],
    given: GivenRows,
    wanted: frozenset[int],
    plan: TypedPassesPlan,
    folder: Path,
    engine: Engine,
) -> RelationSteps:
    """Open tables that the process which plans has begun."""
    tables, tools = RelationTables(dataset, network, given, wanted), TaskTools(engine, writer=writer_name())
    return open_steps(tables, plan, OpenedWorkFolder(folder), "", tools, ExitStack())


def _layouts(tables: RelationTables, plan: TypedPassesPlan) -> dict[TableKey, Layout]:
    """Return the layouts of all tables, whose summed groups are cut into blocks."""
    means = [key for key in tables.order.inputs if len(key) == 3]
    blocks = dict(zip(means, plan.blocks, strict=True))
    layouts: dict[TableKey, Layout] = {}
    for key in tables.order.inputs:
        if len(key) == 3:
            layouts[key] = Layout({key[2]: tables.means_dim(key)}, blocks[key])
            continue
        number, node_type = key
        summed = tables.layers[number].summed(node_type) if number < len(tables.layers) else ()
        cut = [tiles for group in summed for tiles in blocks[number + 1, node_type, group]]
        layouts[key] = Layout(tables.groups(key), cut)
    return layouts


def _names(tables: RelationTables, key: TableKey) -> list[tuple[str, int]]:
    """Return the name and the rows of each file of a table."""
    types = tables.types
    if len(key) == 2:
        return [(f"rows-{key[0]}-{types.node_types.index(key[1])}", types.num_nodes[key[1]])]
    places = [edges.ends for edges in types.edges]
    return [(f"means-{key[0]}-{places.index(ends)}", types.num_nodes[ends[2]]) for ends in tables.means_of(key)]
