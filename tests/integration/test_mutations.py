"""No mutation of the papers' ideas survives; each still applies to the sources."""

from __future__ import annotations

import pytest

from tests.mutations import MUTATIONS, ROOT, survivors


def test_every_mutation_applies() -> None:
    for mutation in MUTATIONS:
        assert (ROOT / "src" / "diskhop" / mutation.file).read_text().count(mutation.old) == 1, mutation.name
        path, name = mutation.test.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(), mutation.name


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_mutation_survives() -> None:
    assert survivors() == []
