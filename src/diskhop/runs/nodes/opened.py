"""Opening a trained model: a node classifier, or the encoder of a link model."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.node_kinds import KINDS
from diskhop.config.options import load_config
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import REGRESSION, USE, TrainConfig
from diskhop.config.typed import TypedConfig
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError, SchemaError, TrainingError
from diskhop.nn.link_model import split_parameters
from diskhop.nn.models import config_kind
from diskhop.predicting.scaling import Scaling
from diskhop.run_files import (
    CONFIG_FILE,
    HOP,
    LINK_RUN,
    MODEL_FILE,
    NODE,
    SCHEMA_FILE,
    TYPED,
    read_kind,
    resume_command,
)
from diskhop.runs.checkpoint import load_tensors
from diskhop.runs.folder import require_kind
from diskhop.runs.schema import Schema, read_schema, require_schema, schema_of, schema_of_model

# Kinds of runs whose models classify nodes, and those that compute something for every node.
CLASSIFIERS = (NODE, HOP, TYPED)
MODELS = (*CLASSIFIERS, LINK_RUN)


_KIND_OF: dict[type[TrainConfig], str] = {SampledConfig: NODE, HopConfig: HOP, TypedConfig: TYPED}


@dataclass(frozen=True, slots=True, eq=False)
class OpenClassifier:
    """A trained node classifier, or the encoder of a trained link model.

    path: the RUN folder.
    kind: one of MODELS.
    config: all options.
    dataset_path: folder of the dataset that it was trained on, which may be gone.
    dataset_hash: hash of that dataset.
    schema: schema of that dataset.
    parameters: parameters of the best model, by name.
    decoder: those of a link model's decoder.
    """

    path: Path
    kind: str
    config: SampledConfig | HopConfig
    dataset_path: Path
    dataset_hash: str
    schema: Schema
    parameters: dict[str, Tensor]
    decoder: dict[str, Tensor] = field(default_factory=dict)

    def open_dataset(self, given: Dataset | Path | str | None = None) -> Dataset:
        """Open the dataset to use the model on. Raises ConfigError if the run's own is another one now.

        given: None for the dataset that it was trained on.
        """
        if given is not None:
            return as_dataset(given)
        dataset = as_dataset(self.dataset_path)
        if dataset.hash != self.dataset_hash:
            raise ConfigError(
                f"{dataset.path}: is another dataset than {self.path} was trained on (hash {dataset.hash}, was "
                f"{self.dataset_hash}); to use it anyway, add --dataset {shlex.quote(str(dataset.path))}"
            )
        return dataset

    @property
    def target(self) -> str:
        """Node type that outputs are for; '' in a graph of one type."""
        return self.config.target if isinstance(self.config, TypedConfig) else ""

    def nodes_of(self, dataset: Dataset) -> Dataset:
        """Return a dataset as the nodes that outputs are for: of a graph with types, those of the target alone."""
        return dataset.of_node_type(self.target) if self.target else dataset

    @property
    def num_outputs(self) -> int:
        """Columns of the last layer: of logits or values, or of a link model's embeddings."""
        return self.config.dim if isinstance(self.config, LinkConfig) else self.schema.num_outputs

    @property
    def scaling(self) -> Scaling | None:
        """Units of the values that the model predicts; None for classes and tasks. Raises ConfigError if lost."""
        if self.config.task == REGRESSION and self.schema.scaling is None:
            raise ConfigError(
                f"{self.path}: has no {SCHEMA_FILE}, without which the units of its values are unknown; copy the run "
                "again, or train again"
            )
        return self.schema.scaling

    def load_into(self, model: nn.Module, prefix: str = "") -> None:
        """Give a model of this configuration the run's parameters. Raises ConfigError if they do not fit it.

        prefix: of the names of the model's parameters, if it is a part of the run's.
        """
        wanted = model.state_dict()
        own = {name: rows for name, rows in self.parameters.items() if name.startswith(prefix)}
        parameters = {name.removeprefix(prefix): rows for name, rows in own.items()}
        for name in dict.fromkeys([*wanted, *parameters]):
            if name not in parameters:
                fault = f"{name} is missing"
            elif name not in wanted:
                fault = f"{name} is not part of it"
            elif wanted[name].shape != parameters[name].shape:
                fault = f"{name} has shape {tuple(parameters[name].shape)}, must be {tuple(wanted[name].shape)}"
            else:
                continue
            raise ConfigError(
                f"{self.path / MODEL_FILE}: does not fit the model of {CONFIG_FILE}: {fault}; "
                "copy the run again, or train again in a new folder"
            )
        model.load_state_dict(parameters)

    def require_fit(self, dataset: Dataset) -> None:
        """Refuse a dataset that the model was not trained for. Raises SchemaError with a line for each mismatch."""
        features = self.config.features if isinstance(self.config, SampledConfig) else ""
        found = schema_of(dataset, features, self.config.seed, self.target)
        found = found.without_labels() if self.kind == LINK_RUN else found
        require_schema(self.schema, self.path, found, dataset.path)
        if self.config.edge_weights == USE and dataset.only_edges.weight_column() is None:
            raise SchemaError(
                [
                    f"{dataset.path}: has no edge weights, but {self.path} was trained with them; import the same "
                    "weights (--weight COLUMN), or train again"
                ]
            )


def open_classifier(run: Path | str, kinds: Collection[str] = CLASSIFIERS) -> OpenClassifier:
    """Open the run of 'diskhop train' in a folder. Its dataset is not opened. kinds: that are possible here.

    Raises ConfigError for a folder without such a run, and for missing or damaged files.
    """
    path = Path(run)
    config_path = path / CONFIG_FILE
    if not config_path.exists():
        raise ConfigError(f"{path}: is no run of 'diskhop train', {CONFIG_FILE} is missing; name the folder of one")
    require_kind(config_path, kinds)
    is_link = LINK_RUN in kinds and read_kind(config_path) == LINK_RUN
    saved = load_config(config_path, (LinkConfig,) if is_link else KINDS)
    try:
        config = (LinkConfig if is_link else config_kind(saved.options["model"]))(**saved.options)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{config_path}: options are missing or unknown: {error}; train again") from error
    assert isinstance(config, SampledConfig | HopConfig)
    parameters = _load_model(path, read_kind(config_path))
    schema_path = path / SCHEMA_FILE
    kind = LINK_RUN if is_link else _KIND_OF[type(config)]
    if schema_path.exists() or kind == TYPED:
        schema = read_schema(schema_path)
    else:
        schema = schema_of_model(path / MODEL_FILE, parameters, config.layers)
    encoder, decoder = split_parameters(parameters) if is_link else (parameters, {})
    return OpenClassifier(path, kind, config, Path(saved.dataset), saved.dataset_hash, schema, encoder, decoder)


def _load_model(run: Path, kind: str) -> dict[str, Tensor]:
    """Read the parameters of the best model."""
    path = run / MODEL_FILE
    if not path.exists():
        way = f"finish the run: {resume_command(kind or NODE, run)}"
        raise ConfigError(f"{run}: has no model, {MODEL_FILE} is missing; {way}")
    try:
        parameters, _ = load_tensors(path)
    except TrainingError as error:
        raise ConfigError(str(error)) from error
    return parameters
