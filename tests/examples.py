"""How many examples property tests draw: a count for `make test`, which profiles scale for `make test-all`."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import HealthCheck, settings

EXAMPLES_IN_HOUSE = 60
# Share of these that `make test` draws, which is to take less than ten minutes.
SHARE_IN_HOUSE = 0.3


def examples(count: int, suppress: Collection[HealthCheck] = ()) -> settings:
    """Settings of a property test: `count` examples, of which the profile `house` draws its share, `thorough` 5 times.

    suppress: health checks that the test fails on purpose.
    """
    scaled = round(count * settings().max_examples / EXAMPLES_IN_HOUSE)
    return settings(max_examples=max(1, scaled), deadline=None, suppress_health_check=list(suppress))
