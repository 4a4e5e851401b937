"""Jobs as JSON make nothing but diskhop's own objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskhop.errors import ConfigError
from diskhop.runtime.jobs import Share
from diskhop.runtime.plain import LOADERS, _find, decode_job, encode_job
from tests.graphs import threads_engine
from tests.working import Sleeps


def test_every_loader_exists() -> None:
    for name in LOADERS:
        assert callable(_find(name)), name


@pytest.mark.parametrize(
    "content",
    [
        '{"is": "call", "call": {"function": "diskhop.io.atomic:remove_tree", "args": [], "kwargs": {}}}',
        '{"is": "partial", "function": "os:system", "args": ["true"], "kwargs": {}}',
        '{"is": "object", "class": "subprocess:Popen", "args": [], "state": null}',
        '{"is": "object", "class": "diskhop.runtime.workers:subprocess.Popen", "args": [], "state": null}',
        '{"is": "object", "class": "diskhop.io.atomic:remove_tree", "args": [], "state": null}',
        '{"is": "enum", "class": "diskhop.budget:Budget", "value": 1}',
        '{"is": "unknown"}',
        "[",
    ],
)
def test_a_list_of_tasks_makes_nothing_but_diskhop_s_own_objects(content: str) -> None:
    with pytest.raises(ConfigError, match="a list of tasks cannot be read"):
        decode_job(content, threads_engine())


def test_a_job_of_others_objects_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="stays in its process"):
        encode_job(Sleeps("0"), Share(2, tmp_path))  # type: ignore[arg-type]
