"""Labels and splits of one node type in a `labels.npz` (typed_files.py).

Arrays: `node_type`, a text; `y`, labels (nodes) or (nodes, columns); `num_classes`; parts of splits `train`, `val` or
`valid`, and `test`, ids or masks (nodes), also with the ending `_idx` or `_mask`. Several splits have numbers at the
end: `train_20`, `val_20`, `test_20`, `train_40` ... In ascending order, they are splits 0, 1 ... A part without a
number is in each of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from diskhop.dataset.manifest import MOST_CLASSES
from diskhop.errors import SourceError
from diskhop.importing.arrays.masks import MaskedIds
from diskhop.importing.arrays.npy import StoredArray, archive_arrays, archive_names, archive_text
from diskhop.importing.columns import choose_labels, count_tasks, decide_labels
from diskhop.importing.evidence.decisions import Decision, listed
from diskhop.importing.source import Column

LABEL_FILE = "labels.npz"
_TYPE, _LABELS, _NUM_CLASSES = "node_type", "y", "num_classes"
_PARTS = {"train": "train", "val": "valid", "valid": "valid", "test": "test"}
_PART_NAME = re.compile(r"(train|valid|val|test)(?:_(idx|mask))?(?:_([0-9]{1,9}))?")
# Of a part without a number, which every split has.
_EVERY = -1


class LabelFile:
    """Labels and splits of one node type, whose shapes are checked.

    node_type: the type; None: the file does not say.
    labels: classes (nodes) or tasks or values (nodes, columns).
    num_classes: number of classes, if the file says it.
    splits: by part (train, valid, test), the ids of each split.
    masks: by name, masks of nodes.
    arrays: everything that was opened.
    left_out: names of arrays that are not imported.
    """

    def __init__(self, path: Path, label_kind: str | None) -> None:
        names = archive_names(path)
        parts = {name: match for name in names if (match := _PART_NAME.fullmatch(name))}
        for name in names:
            if name not in parts and name.startswith(tuple(f"{part}_" for part in _PARTS)):
                raise SourceError(
                    f"{path}: {name}: is no name of a part of a split; rename it, for example train, train_mask, or "
                    "train_20 for one of several splits"
                )
        self.path = path
        self.node_type = archive_text(path, _TYPE) if _TYPE in names else None
        opened = archive_arrays(path, {_LABELS, _NUM_CLASSES, *parts})
        self.arrays: Sequence[StoredArray] = [*opened.values()]
        self.left_out = [f"{path.name}: {name}" for name in names if name not in opened and name != _TYPE]
        if _LABELS not in opened:
            raise SourceError(f"{path}: has no y; add the labels of the nodes, -1 for none")
        self.labels: Column = choose_labels(opened[_LABELS], label_kind)
        count_tasks(self.labels)
        self.num_classes = opened[_NUM_CLASSES].scalar(1, MOST_CLASSES) if _NUM_CLASSES in opened else None
        self.masks = {name: opened[name] for name in parts if opened[name].dtype.kind == "b"}
        self.decisions = decide_labels(self.labels, label_kind)
        self.splits = self._find_splits({name: (match, opened[name]) for name, match in parts.items()})

    @property
    def count(self) -> int:
        """Number of nodes that have a row of labels."""
        return int(self.labels.shape[0])

    def _find_splits(self, found: Mapping[str, tuple[re.Match[str], StoredArray]]) -> dict[str, list[Column]]:
        numbered: dict[str, dict[int, StoredArray]] = {}
        for match, array in found.values():
            part = numbered.setdefault(_PARTS[match[1]], {})
            # An index by name cannot be a mask, and the other way round; without such a name the dtype tells.
            array.require({"mask": "b", "idx": "iu"}.get(match[2] or "", "biu"), (None,))
            number = _EVERY if match[3] is None else int(match[3])
            if number in part:
                raise SourceError(f"{array.where}: there is {part[number].where} too; keep one")
            part[number] = array
        for part in numbered.values():
            if _EVERY in part and len(part) > 1:
                other = next(array for number, array in part.items() if number != _EVERY)
                raise SourceError(f"{part[_EVERY].where}: there is {other.where} too; keep one or the other")
        # No validation is sometimes saved as an array without ids.
        kept = {part: each for part, each in numbered.items() if any(array.num_items for array in each.values())}
        for name in sorted(numbered.keys() - kept.keys()):
            self.decisions.append(Decision(LABEL_FILE, f"no split '{name}'", "its array is empty"))
        numbers = self._numbers(kept)
        return {part: [_ids(each.get(_EVERY) or each[number]) for number in numbers] for part, each in kept.items()}

    def _numbers(self, parts: Mapping[str, Mapping[int, StoredArray]]) -> list[int]:
        """Return the numbers of the splits, ascending; [_EVERY] for one split without. Raises if parts differ."""
        of_parts = {part: sorted(each) for part, each in parts.items() if _EVERY not in each}
        numbers = next(iter(of_parts.values()), [_EVERY])
        for part, each in of_parts.items():
            if each != numbers:
                first = next(iter(of_parts))
                raise SourceError(
                    f"{self.path}: has splits {listed([*map(str, numbers)])} of '{first}' but "
                    f"{listed([*map(str, each)])} of '{part}'; give each part the same numbers"
                )
        if numbers != [_EVERY]:
            shown = f"splits 0 to {len(numbers) - 1}" if len(numbers) > 1 else "split 0"
            why = f"numbers at the ends of {listed([*of_parts])}, ascending: {listed([*map(str, numbers)])}"
            self.decisions.append(Decision(LABEL_FILE, shown, why))
        return numbers


def _ids(array: StoredArray) -> Column:
    return MaskedIds(array, 0) if array.dtype.kind == "b" else array
