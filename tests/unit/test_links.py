"""Batches of links: their seeds, the places of their ends, and negatives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.errors import ConfigError
from diskhop.protocols import Purpose
from diskhop.sampling.links import GivenEnds, LinkBatch, Links, shuffle_key
from diskhop.sampling.negatives import Candidates, DrawKey, Negatives, candidates

NUM_NODES = 50
KEY = DrawKey(7, Purpose.TRAIN, 0, 0)


def random_ends(count: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, NUM_NODES, (2, count))


def negatives(mode: str, amount: float, side: Candidates | None = None) -> Negatives:
    side = side or candidates(NUM_NODES)
    return Negatives(mode=mode, amount=amount, sources=side, destinations=side)  # type: ignore[arg-type]


def fields(batch: LinkBatch) -> list[list[int] | None]:
    return [None if each is None else each.tolist() for each in (getattr(batch, name) for name in batch.__slots__)]


@pytest.mark.parametrize("is_disjoint", [False, True])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_places_lead_to_the_ends(mode: str | None, is_disjoint: bool) -> None:
    ends, times = random_ends(20), np.arange(20) * 10
    drawn = None if mode is None else negatives(mode, 2)
    links = Links(ends=GivenEnds(ends), negatives=drawn, is_disjoint=is_disjoint, times=times if is_disjoint else None)
    batch = links.batch(8, KEY._replace(number=1))
    np.testing.assert_array_equal(batch.positions, np.arange(8, 16))
    np.testing.assert_array_equal(batch.seeds[batch.sources[:8]], ends[0, 8:16])
    np.testing.assert_array_equal(batch.seeds[batch.destinations[:8]], ends[1, 8:16])
    assert len(batch.sources) == len(batch.destinations) == (24 if mode == "binary" else 8)
    assert (batch.negatives is None) == (mode != "triplet")
    if is_disjoint:
        assert batch.link_of is not None
        assert batch.times is not None
        assert batch.label_times is not None
        np.testing.assert_array_equal(batch.times, times[8:16][batch.link_of])
        for places in (batch.sources, batch.destinations):
            np.testing.assert_array_equal(batch.link_of[places], np.arange(len(places)) % 8)
        if batch.negatives is not None:
            assert batch.negatives.shape == (8, 2)
            np.testing.assert_array_equal(batch.link_of[batch.negatives], np.repeat(np.arange(8), 2).reshape(8, 2))
        assert len(np.unique(np.concatenate([batch.sources, batch.destinations]))) == 2 * len(batch.sources)
    else:
        np.testing.assert_array_equal(batch.seeds, np.unique(batch.seeds))
        assert batch.link_of is None
        assert batch.times is None


def test_negatives_of_a_fraction_are_rounded_up() -> None:
    links = Links(ends=GivenEnds(random_ends(20)), negatives=negatives("binary", 0.3))
    assert len(links.batch(8, KEY).sources) == 8 + 3


def test_draws_are_keyed() -> None:
    links = Links(ends=GivenEnds(random_ends(40)), negatives=negatives("binary", 1))
    positions = np.arange(20)
    same = fields(links.batch_of(positions, KEY))
    assert same == fields(links.batch_of(positions, KEY))
    others = [KEY._replace(seed=8), KEY._replace(purpose=Purpose.VALID), KEY._replace(epoch=1), KEY._replace(number=1)]
    drawn = [fields(links.batch_of(positions, key)) for key in others]
    assert all(each != same for each in drawn)
    assert all(drawn[0] != each for each in drawn[1:])


def test_draws_are_the_same_on_every_machine() -> None:
    """Recorded once: no library or processor may change them."""
    key = DrawKey(7, Purpose.TRAIN, 3, 11)
    assert key.fractions(0, 2).tolist() == [0.7492035301153046, 0.6110850759258675]
    weighted = candidates(8, weights=np.array([0, 0.1, 0.2, 0.3, 0.4, 0, 2, 1e-9]))
    drawn = Negatives(mode="binary", amount=1.5, sources=candidates(1000), destinations=weighted).draw(6, None, key)
    assert drawn[0].tolist() == [749, 611, 597, 921, 385, 631, 741, 155, 761]
    assert drawn[1].tolist() == [6, 6, 4, 6, 2, 4, 1, 6, 6]
    links = Links(ends=GivenEnds(random_ends(100)), shuffled_by=shuffle_key(7, Purpose.TRAIN, 3))
    assert links.positions(8, 2).tolist() == [7, 8, 60, 55, 14, 9, 52, 94]


def test_a_link_may_be_there_repeatedly() -> None:
    links = Links(ends=GivenEnds(np.array([[3, 3, 5], [4, 4, 3]])))
    batch = links.batch(3, KEY)
    assert batch.seeds.tolist() == [3, 4, 5]
    assert (batch.sources.tolist(), batch.destinations.tolist()) == ([0, 0, 2], [1, 1, 0])


def test_a_shuffled_pass_has_every_link_once() -> None:
    links = replace(Links(ends=GivenEnds(random_ends(103))), shuffled_by=shuffle_key(3, Purpose.TRAIN, 0))
    order = np.concatenate([links.positions(10, number) for number in range(11)])
    assert sorted(order) == list(range(103))
    assert order.tolist() != list(range(103))
    other = replace(links, shuffled_by=shuffle_key(3, Purpose.TRAIN, 1))
    assert other.positions(10, 0).tolist() != order[:10].tolist()
    assert links.digest() != other.digest()


@given(st.integers(0, 2**31), st.booleans())
def test_no_negative_is_later_than_its_link(seed: int, is_weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 30, NUM_NODES)
    weights = rng.random(NUM_NODES) if is_weighted else None
    side = candidates(NUM_NODES, weights=weights, times=times)
    latest = rng.integers(times.min(), 40, 10)
    links = Links(
        ends=GivenEnds(random_ends(10)), times=latest, negatives=negatives("binary", 3, side), is_disjoint=True
    )
    batch = links.batch(10, KEY._replace(seed=seed))
    for places in (batch.sources, batch.destinations):
        assert (times[batch.seeds[places[10:]]] <= np.resize(latest, 30)).all()


@pytest.mark.parametrize("with_times", [False, True])
@pytest.mark.parametrize("by", ["uniform", "weights", "degrees"])
def test_draws_match_their_weights(by: str, with_times: bool) -> None:
    weights = np.array([0.0, 1, 5, 0, 2, 2, 0])
    if by == "uniform":
        weights = np.ones(7)
    times = np.array([3, 1, 4, 1, 5, 9, 2]) if with_times else None
    side = candidates(
        7,
        weights=weights if by == "weights" else None,
        cumulative=np.cumsum([0, *weights]).astype(np.int64) if by == "degrees" else None,
        times=times,
    )
    count = 70_000
    drawn = side.draw(KEY.fractions(0, count), np.full(count, 4) if with_times else None)
    expected = weights if times is None else weights * (times <= 4)
    expected = expected / expected.sum() * count
    counts = np.bincount(drawn, minlength=7)
    assert (counts[expected == 0] == 0).all()
    chosen = expected > 0
    chi_square = ((counts[chosen] - expected[chosen]) ** 2 / expected[chosen]).sum()
    assert chi_square < 25


def test_the_ends_of_weights_are_never_missed() -> None:
    side = candidates(4, weights=np.array([0.0, 0.1, 0.2, 0.0]))
    assert side.draw(np.array([0.0, np.nextafter(1, 0)]), None).tolist() == [1, 2]


def test_bad_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="amount of negatives must be a number above 0, got 0"):
        negatives("binary", 0)
    with pytest.raises(ConfigError, match=r"amount of negatives must be whole for triplets, got 1\.5"):
        negatives("triplet", 1.5)
    with pytest.raises(ConfigError, match="unknown mode of negatives 'binery'"):
        negatives("binery", 1)
    with pytest.raises(ConfigError, match="at least 0 and finite, got -1"):
        candidates(3, weights=np.array([1.0, -1, 0]))
    links = Links(ends=GivenEnds(random_ends(5)), negatives=negatives("binary", 1, candidates(3, weights=np.zeros(3))))
    with pytest.raises(ConfigError, match="no candidate is left to be a negative"):
        links.batch(5, KEY)
    early = candidates(NUM_NODES, times=np.full(NUM_NODES, 100))
    links = replace(links, negatives=negatives("triplet", 1, early), times=np.arange(5), is_disjoint=True)
    with pytest.raises(ConfigError, match="there is no node not later than its link, of time 0"):
        links.batch(5, KEY)
