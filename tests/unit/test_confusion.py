"""Claims about confusion matrices of bounded size."""

from __future__ import annotations

import numpy as np

from diskhop.predicting.metrics.confusion import MOST_CLASSES, Confusion, largest_classes, merge_others
from diskhop.reporting.evaluation import confusion_figure


def test_others_share_a_row_and_a_column_whatever_the_batches() -> None:
    generator = np.random.default_rng(0)
    num_classes, num_nodes = 50, 4000
    labels = generator.integers(0, num_classes, num_nodes)
    outputs = generator.random((num_nodes, num_classes)).astype(np.float32)
    whole = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(whole, (labels, outputs.argmax(axis=1)), 1)
    shown = largest_classes(whole.sum(axis=1))
    assert len(shown) == MOST_CLASSES
    assert whole.sum(axis=1)[shown].min() >= np.delete(whole.sum(axis=1), shown).max()
    found, part = Confusion(num_classes, shown), Confusion(num_classes, shown)
    found.update(outputs[:1000], labels[:1000])
    part.update(outputs[1000:], labels[1000:])
    found.merge(part)
    entry = found.to_dict(None)
    np.testing.assert_array_equal(entry["counts"], merge_others(whole, shown))
    np.testing.assert_array_equal(np.array(entry["counts"])[:-1, :-1], whole[np.ix_(shown, shown)])
    assert entry["classes"] == [str(each) for each in shown]
    figure = confusion_figure(entry)
    assert "the 30 largest of 50 classes, the others together" in figure.note
    assert figure.data[0]["x"][-1] == "other"


def test_few_classes_have_no_others() -> None:
    found = Confusion(2, largest_classes(np.array([3, 1])))
    found.update(np.array([[1, 0], [0, 1], [1, 0]], np.float32), np.array([0, 0, 1]))
    assert found.to_dict(["no", "yes"]) == {"num_classes": 2, "classes": ["no", "yes"], "counts": [[1, 1], [1, 0]]}
