"""Steps of a run on the edges of one type: its task, preparation and schema."""

from __future__ import annotations

from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.run_files import TYPED_LINK
from diskhop.runs.links.run import LinkSteps
from diskhop.runs.schema import Schema, schema_of
from diskhop.runs.typed_links.prepare import prepare_typed_links
from diskhop.runs.typed_links.target import read_typed_task


def _schema(dataset: Dataset, config: TypedLinkConfig) -> Schema:
    return schema_of(dataset, config.features, target=config.target.split(",")[0]).without_labels()


SEVERAL_TYPES = LinkSteps(TYPED_LINK, read_typed_task, prepare_typed_links, _schema)
