"""Objective of a node model: the loss of a batch and the metric of a pass, by the task of the run.

The task follows from the labels unless it is given: classes are classified, columns of 0 and 1 are several labels per
node, and columns of numbers are predicted as they are. Values are standardised for training by the mean and the
standard deviation of the training nodes; metrics and predictions are in the labels' own units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.config.learning import FOCAL, MAE, MSE, parse_class_weights
from diskhop.config.train import CLASSIFICATION, MULTILABEL, REGRESSION, TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import CLASSES, TASKS, VALUES
from diskhop.errors import ConfigError
from diskhop.nn.losses import BatchLoss, ClassLoss, NodeLoss, TaskLoss, ValueLoss
from diskhop.predicting.metrics.confusion import Confusion, largest_classes
from diskhop.predicting.scaling import Scaling
from diskhop.protocols import Purpose
from diskhop.runs.feeds import Batch
from diskhop.runs.nodes.delivery import DeviceBatch
from diskhop.runs.nodes.metrics import METRICS, Metric
from diskhop.runs.nodes.subgraphs import SubgraphBatch
from diskhop.runs.nodes.task import NodeTask

# Kinds of labels that each task can learn; numbers may be 0 and 1.
LABEL_KINDS = {CLASSIFICATION: (CLASSES,), MULTILABEL: (TASKS,), REGRESSION: (VALUES, TASKS)}
TASK_OF_LABELS = {CLASSES: CLASSIFICATION, TASKS: MULTILABEL, VALUES: REGRESSION}
KIND_OF_TASK = {task: kind for kind, task in TASK_OF_LABELS.items()}
_WANTED = {
    CLASSIFICATION: "one class per node",
    MULTILABEL: "columns of 0 and 1",
    REGRESSION: "columns of numbers",
}


class _Part(NamedTuple):
    """The metric of some nodes, and their counts by class where they are wanted."""

    metric: Metric
    confusion: Confusion | None


@dataclass(frozen=True, slots=True, eq=False)
class ShownClasses:
    """Classes of the confusion matrix of the test nodes.

    num_classes: all classes. shown: the largest ones among test nodes. names: of all classes; None: they have none.
    """

    num_classes: int
    shown: NDArray[np.int64]
    names: Sequence[str] | None


class LabelMeasure:
    """A metric of outputs against the labels of their nodes; see feeds.Measure.

    make: returns a new metric.
    scaling: units of values; None for other outputs.
    classes: of a confusion matrix; None: it is not counted.
    """

    def __init__(
        self,
        make: Callable[[], Metric],
        labels: NDArray[Any],
        scaling: Scaling | None = None,
        classes: ShownClasses | None = None,
    ) -> None:
        self._make = make
        self._labels = labels
        self._scaling = scaling
        self._classes = classes
        self._whole = self._empty()

    def part(self, outputs: Tensor, batch: Batch) -> _Part:
        """Return the metric of a batch."""
        values = outputs.cpu().numpy()
        if self._scaling is not None:
            values = self._scaling.restored(values)
        labels = self._labels[batch.nodes]
        part = self._empty()
        part.metric.update(values, labels)
        if part.confusion is not None:
            part.confusion.update(values, labels)
        return part

    def add(self, part: _Part) -> None:
        """Add a batch's metric."""
        self._whole.metric.merge(part.metric)
        if self._whole.confusion is not None and part.confusion is not None:
            self._whole.confusion.merge(part.confusion)

    def value(self) -> float:
        """Return the metric of everything added."""
        return self._whole.metric.value()

    def details(self) -> Mapping[str, Any]:
        """See feeds.Measure."""
        return {}

    def entries(self) -> Mapping[str, Any]:
        """See feeds.Measure."""
        if self._classes is None or self._whole.confusion is None:
            return {}
        return {"confusion": self._whole.confusion.to_dict(self._classes.names)}

    def _empty(self) -> _Part:
        classes = self._classes
        return _Part(self._make(), None if classes is None else Confusion(classes.num_classes, classes.shown))


class Objective:
    """Loss and metric of a run; see feeds.Task.

    labels: of all nodes; see NodeSet.label_rows().
    scaling: units of values; None for other outputs.
    device: where the model computes; None: in memory.
    classes: of the confusion matrix of the test; None: there is none.
    """

    def __init__(
        self,
        labels: NDArray[Any],
        loss: NodeLoss,
        scaling: Scaling | None,
        device: torch.device | None = None,
        classes: ShownClasses | None = None,
    ) -> None:
        self.labels = labels
        self.scaling = scaling
        self._device = device
        self._classes = classes
        self._loss = loss

    def loss(self, outputs: Tensor, batch: Batch) -> BatchLoss:
        """See feeds.Task."""
        labels = self._targets(batch)
        weights = batch.loss_weights if isinstance(batch, SubgraphBatch | DeviceBatch) else None
        if len(labels) == 0:
            # No loss, and gradients of 0. With norms the batch counts all the same: they are for a mean over batches.
            return BatchLoss(outputs.sum(), 0.0 if weights is None else 1.0)
        if weights is None:
            return self._loss(outputs, labels)
        return BatchLoss((self._loss.of_nodes(outputs, labels) * weights).sum(), 1.0)

    def measure(self, metric: str, purpose: Purpose) -> LabelMeasure:
        """See feeds.Task; metric: a name in METRICS."""
        classes = self._classes if purpose == Purpose.TEST else None
        return LabelMeasure(METRICS[metric].make, self.labels, self.scaling, classes)

    def _targets(self, batch: Batch) -> Tensor:
        """Return what the model should learn of a batch, where its outputs are."""
        if isinstance(batch, DeviceBatch):
            labels = batch.delivered.labels
            return labels if self.scaling is None else self.scaling.standardised_tensor(labels)
        rows = self.labels[batch.nodes]
        return torch.from_numpy(rows if self.scaling is None else self.scaling.standardised(rows)).to(self._device)


def make_objective(
    config: TrainConfig,
    dataset: Dataset,
    task: NodeTask,
    scaling: Scaling | None = None,
    device: torch.device | None = None,
) -> Objective:
    """Return the objective of a run.

    scaling: units of values that a run continues with; None: those of the training nodes. device: where the model
    computes; None: in memory. Raises ConfigError for weights that are not one per class.
    """
    assert task.labels is not None, "a task without labels is only planned"
    train = task.labels[task.seeds.train]
    if config.task == REGRESSION:
        return Objective(task.labels, ValueLoss(is_absolute=config.loss == MAE), scaling or Scaling.of(train), device)
    gamma = config.focal_gamma if config.loss == FOCAL else 0.0
    weights = _class_weights(config, dataset, train)
    if weights is not None:
        weights = weights.to(device)
    kind = ClassLoss if config.task == CLASSIFICATION else TaskLoss
    loss = kind(weights, focal_gamma=gamma, smoothing=config.label_smoothing)
    return Objective(task.labels, loss, None, device, _shown_classes(config, dataset, task))


def require_task(config: TrainConfig, dataset: Dataset) -> None:
    """Refuse a task that cannot learn the dataset's labels, and a loss that is not for the task."""
    if dataset.label_kind not in LABEL_KINDS[config.task]:
        raise ConfigError(
            f"{dataset.path}: its labels are {dataset.num_outputs} {dataset.label_kind}, and --task {config.task} "
            f"needs {_WANTED[config.task]}: remove --task, or import again with --label-kind "
            f"{LABEL_KINDS[config.task][0]}"
        )
    if (config.loss in (MSE, MAE)) != (config.task == REGRESSION):
        known = "mse or mae" if config.task == REGRESSION else "cross-entropy or focal"
        raise ConfigError(f"--loss {config.loss} is not for --task {config.task}: use --loss {known}")


def _shown_classes(config: TrainConfig, dataset: Dataset, task: NodeTask) -> ShownClasses | None:
    """Return the classes of the confusion matrix; None for another task, and without a test."""
    if config.task != CLASSIFICATION or task.labels is None or task.seeds.test is None:
        return None
    num_nodes = np.bincount(task.labels[task.seeds.test], minlength=dataset.num_outputs)
    return ShownClasses(dataset.num_outputs, largest_classes(num_nodes), dataset.names("classes"))


def _class_weights(config: TrainConfig, dataset: Dataset, train: NDArray[Any]) -> Tensor | None:
    """Return float32 weights, one per class or task. train: labels of the training nodes."""
    if not config.class_weights:
        return None
    num_outputs = dataset.num_outputs
    weights = parse_class_weights(config.class_weights)
    if weights is None:
        balance = _balanced_classes if config.task == CLASSIFICATION else _balanced_tasks
        return torch.from_numpy(balance(train, num_outputs).astype(np.float32))
    if len(weights) != num_outputs:
        raise ConfigError(
            f"--class-weights has {len(weights)} numbers, and the dataset {num_outputs} {dataset.label_kind}: give one "
            "for each, or use --class-weights balanced"
        )
    return torch.tensor(weights)


def _balanced_classes(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """Weigh each class by the inverse of its share, so that the mean weight of a node is 1 (King and Zeng, 2001)."""
    counts = np.bincount(labels, minlength=num_classes)
    weights = np.zeros(num_classes)
    occurs = counts > 0
    weights[occurs] = len(labels) / (occurs.sum() * counts[occurs])
    return weights


def _balanced_tasks(labels: NDArray[np.float32], num_tasks: int) -> NDArray[np.float64]:
    """Weigh the positives of each task so that they count as much as its negatives; 1 where either is missing."""
    positives = (labels > 0.5).sum(axis=0)
    negatives = (labels <= 0.5).sum(axis=0)
    has_both = (positives > 0) & (negatives > 0)
    ratio: NDArray[np.float64] = np.where(has_both, negatives / np.maximum(positives, 1), 1.0)
    return ratio
