"""config.toml of a run, and presets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from diskhop.config.embed import EmbedConfig
from diskhop.config.node_kinds import KINDS
from diskhop.config.options import dump_config, load_config, option_fields
from diskhop.errors import ConfigError
from tests.embedding import embed_config
from tests.fuzz.target import Target
from tests.unit.test_config import WHOLE, WHOLE_OF_HOPS

_WHOLE = (WHOLE, WHOLE_OF_HOPS)


def read(content: bytes, folder: Path) -> None:
    path = folder / "config.toml"
    path.write_bytes(content)
    saved = load_config(path, (*KINDS, EmbedConfig))
    for config in _WHOLE:
        names = [name for name in option_fields(type(config)) if name in saved.options]
        type(config)(**{**asdict(config), **{name: saved.options[name] for name in names}})


def seeds(folder: Path) -> Sequence[bytes]:
    whole = [dump_config(config, "node", "cora", "00c0ffee00c0ffee").encode() for config in _WHOLE]
    embedded = dump_config(embed_config(), "embedding", "g", "").encode()
    return [*whole, embedded, b'kind = "node"\nfanout = [10, -1]\nlr = 1e-3\nbatch_size = 100\n']


TARGET = Target(
    name="config",
    read=read,
    errors=(ConfigError,),
    seeds=seeds,
    words=(
        b"inf",
        b"nan",
        b"[[a]]\n",
        b"[a.b]\n",
        b"'''",
        b"1979-05-27",
        b"0x",
        b"1e999",
        b"= [",
        b"{a = 1}",
        b"9" * 5000,
    ),
)
