"""Lines of names: any name is one line, and comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.dataset import files
from diskhop.dataset.name_lines import escape_plain, name_line, name_of, read_plain, to_lines
from diskhop.errors import ConfigError, FormatError
from tests.examples import examples

NAMES = st.lists(st.text(st.sampled_from("an\\\n\r\té"), max_size=6), max_size=8)


@examples(200)
@given(names=NAMES)
def test_names_come_back_from_their_lines(names: list[str]) -> None:
    lines = to_lines(names).tobytes().decode().split("\n")
    assert lines.pop() == ""
    assert list(map(name_of, lines)) == names
    plain = [name for name in names if "\\" not in name and "\n" not in name]
    assert list(map(name_line, plain)) == plain, "nothing changes without need"


@examples(100)
@given(names=NAMES, block_bytes=st.integers(1, 9))
def test_plain_lines_come_back_in_blocks_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], block_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "names.txt"
    to_lines(names).tofile(path)
    first = next((number for number, name in enumerate(names) if "\n" in name), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", block_bytes)
        if first is not None:
            with pytest.raises(ConfigError, match=rf"name {first} has a line feed, .* use Parquet"):
                list(read_plain(path))
            return
        content = b"".join(block.tobytes() for block in read_plain(path))
    assert content.decode() == "".join(f"{name}\n" for name in names)
    assert escape_plain(np.frombuffer(content, np.uint8)).tobytes() == path.read_bytes()


@pytest.mark.parametrize("content", [b"a\\x\n", b"a\\"])
def test_other_escapes_are_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(FormatError, match=r"names\.txt: is damaged"):
        list(read_plain(tmp_path / "names.txt"))
    with pytest.raises(ValueError, match="is no escape"):
        name_of(content.decode().rstrip("\n"))
