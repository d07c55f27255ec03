"""Goal: a simulated cluster has the rates that `lmdbio tune` measured.

Method: calibrations with figures of one digit.
"""

from __future__ import annotations

import pytest

from lmdbio.machine.calibration import (
    Calibration,
    Pattern,
    Sample,
    SharedSample,
    Staggering,
    TokenSample,
)
from lmdbio.machine.measured import (
    file_system_rate,
    network_rate,
    request_seconds,
    store_rates,
    tier_rate,
)

MIB = 1 << 20
SAMPLES = (
    Sample("direct", "stream", MIB, 8, 500, 1.0),
    Sample("direct", "random", 128 << 10, 1, 800, 1.0),
    Sample("direct", "random", 128 << 10, 32, 2400, 1.0),
    Sample("pread", "random", 128 << 10, 32, 1600, 1.0),
    Sample("direct", "random", 4096, 32, 2560, 1.0),
)


def job(nodes: int, *rates: tuple[int, float]) -> Staggering:
    samples = tuple(TokenSample(tokens, (rate * MIB,)) for tokens, rate in rates)
    return Staggering(nodes, nodes, "blocked", 1.0, samples)


def test_one_node_has_the_rate_of_its_best_trial() -> None:
    assert file_system_rate(Calibration("it", 1.0, SAMPLES)).points == ((1, 500.0),)


def shared(readers: int, pattern: Pattern, request_bytes: int, requests: int) -> SharedSample:
    return SharedSample(readers, Sample("direct", pattern, request_bytes, 8, requests, 1.0))


def test_several_nodes_have_the_best_rate_of_the_largest_job() -> None:
    """With one token at a time the reads of several roots are under way, too."""
    jobs = (job(8, (1, 300.0), (4, 900.0), (0, 700.0)), job(2, (1, 200.0), (2, 350.0)))
    rate = file_system_rate(Calibration("it", 1.0, SAMPLES, jobs))
    assert rate.points == ((1, 500.0), (8, 900.0))


def test_several_nodes_have_what_they_read_at_once() -> None:
    jobs = (job(8, (1, 300.0), (0, 700.0)),)
    found = (shared(2, "stream", MIB, 800), shared(4, "stream", MIB, 1000))
    rate = file_system_rate(Calibration("it", 1.0, SAMPLES, jobs, found))
    assert rate.points == ((1, 500.0), (2, 800.0), (4, 1000.0))
    assert rate.at(3) == 900.0


def test_a_request_costs_what_as_many_nodes_were_measured_to_pay() -> None:
    """At random 4 nodes get 1,000 requests of 128 KiB a second: 125 M; in order 1,000 M."""
    found = (shared(4, "stream", MIB, 1000), shared(4, "random", 128 << 10, 1000))
    both = Calibration("it", 1.0, SAMPLES, (), found)
    alone = store_rates(Calibration("it", 1.0, SAMPLES)).out_of_order_seconds
    assert request_seconds(both, 4) == pytest.approx(1e-3 - 0.125 / 1000)
    assert request_seconds(both, 9) == request_seconds(both, 4)
    # Fewer nodes than were measured together: as one.
    assert request_seconds(both, 2) == store_rates(both).out_of_order_seconds
    assert request_seconds(Calibration("it", 1.0, SAMPLES), 4) == alone


def test_a_disk_has_its_random_rate_by_requests_in_flight() -> None:
    assert tier_rate(Calibration("it", 1.0, SAMPLES)).points == ((1, 100.0), (32, 300.0))
    assert tier_rate(Calibration("it", 1.0, SAMPLES[:1])).points == ((1, 500.0),)


def test_a_store_costs_what_requests_took_beside_their_bytes() -> None:
    alone = Sample("direct", "stream", MIB, 1, 250, 1.0)
    rates = store_rates(Calibration("it", 1.0, (*SAMPLES, alone), (job(8, (0, 900.0)),)))
    assert (rates.one_node, rates.all_nodes) == (500.0 * MIB, 900.0 * MIB)
    assert (rates.request_bytes, rates.depth) == (MIB, 8)
    assert abs(rates.request_seconds - (1 / 250 - 1 / 500)) < 1e-12
    # The most of 128 KiB were 2,400 a second; their bytes alone take an eighth of 1/900 s.
    assert abs(rates.out_of_order_seconds - (1 / 2400 - 1 / 7200)) < 1e-12


def test_a_store_of_which_little_was_measured_costs_bytes_alone() -> None:
    rates = store_rates(Calibration("it", 1.0, SAMPLES[:1]))
    assert rates.one_node == rates.all_nodes == 500.0 * MIB
    assert rates.request_seconds == rates.out_of_order_seconds == 0.0
    only = store_rates(Calibration("it", 1.0, SAMPLES[1:2]))
    assert only.one_node == 100.0 * MIB and only.out_of_order_seconds == 0.0


def test_the_network_has_the_rate_of_messages_of_about_this_size() -> None:
    samples = (
        Sample("network", "stream", 1 << 16, 4, 1600, 1.0),
        Sample("network", "stream", 1 << 18, 4, 1200, 1.0),
    )
    found = Calibration("network", 1.0, samples)
    assert [network_rate(found, size) for size in (1, 1 << 16, 5 << 15, 1 << 18, 1 << 30)] == [
        100.0, 100.0, 200.0, 300.0, 300.0,
    ]  # fmt: skip
