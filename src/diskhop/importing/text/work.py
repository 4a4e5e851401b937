"""Work on texts in stages of tasks: compressed files are unpacked, and texts are split into slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from diskhop.importing.text.layout import TextFile
from diskhop.importing.text.rows import Slice
from diskhop.importing.text.tasks import ByteCounter, Unpack
from diskhop.importing.tools import ImportTools
from diskhop.runtime.tasks import Task, run_tasks


class TextWork:
    """Stages of the texts of one import. key: maps a stage to text that changes when its outputs would."""

    def __init__(self, files: Sequence[TextFile], work: ImportTools, key: Callable[[str], str]) -> None:
        self._files = files
        self._work = work
        self._key = key
        self._texts = [file.path for file in files]

    def unpack(self) -> None:
        """Unpack compressed files, since slices are ranges of plain text."""
        packed = {number: file for number, file in enumerate(self._files) if file.packing is not None}
        if not packed:
            return
        counter = ByteCounter(self._work.progress, "unpacking", sum(file.num_bytes for file in packed.values()))
        finished = self._work.stage("text", self._key("text"))
        tasks = [Unpack(f"{number:05d}.txt", file, str(file.packing)) for number, file in packed.items()]
        for task in tasks:
            if (finished / task.name).exists():
                counter.add(task.file.num_bytes)
        outputs = self.run("text", tasks, self._work.threads, count=counter.add)
        for number, text in zip(packed, outputs, strict=True):
            self._texts[number] = text

    def slices(self, slice_bytes: int) -> Iterator[tuple[str, Slice]]:
        """Yield all slices of all texts in order, each with the name of its task."""
        for number in range(len(self._files)):
            yield from self.slices_of(number, slice_bytes)

    def slices_of(self, number: int, slice_bytes: int) -> Iterator[tuple[str, Slice]]:
        """Yield the slices of one text."""
        file, text = self._files[number], self._texts[number]
        end = text.stat().st_size
        for begin in range(file.rows_begin, end, slice_bytes):
            piece = Slice(text, file.path, begin, min(begin + slice_bytes, end), file.rows_begin)
            yield f"{number:05d}-{begin // slice_bytes:08d}", piece

    def slice_bytes(self, most: int) -> int:
        """Return the length of the longest slice."""
        return min(most, max(text.stat().st_size for text in self._texts))

    def run(
        self,
        stage: str,
        tasks: Sequence[Task],
        threads: int,
        shown: str = "",
        count: Callable[[int], None] | None = None,
    ) -> list[Path]:
        """Run the unfinished tasks and return all outputs in order. shown: name for users. count: see run_tasks."""
        folder = self._work.stage(stage, self._key(stage))

        def report(done: int, total: int) -> None:
            if shown:
                self._work.progress(shown, done, total)

        run_tasks(tasks, folder, self._work.tools, threads=threads, progress=report, count=count)
        return [folder / task.name for task in tasks]

    def require_unchanged(self) -> None:
        """Raise SourceError if a file has changed since it was opened."""
        for file in self._files:
            file.require_unchanged()
