"""What Prometheus reads: names and values, where it may read them, and what stands in the way."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import minirt as rt
from minirt.monitoring.catalogue import CATALOGUE
from minirt.monitoring.prometheus import MetricsEndpoint
from tests.jobs import paced_numbers
from tests.monitoring.samples import NOW, UNDER_WAY, running_job
from tests.runtime.processes import wait_until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    monitor = running_job()
    monitor.on_checkpoints_under_way([UNDER_WAY])
    endpoint = MetricsEndpoint(rt.Options().metrics_host, 0, monitor.figures)
    yield endpoint
    endpoint.close()


def read(url: str) -> Samples:
    """What is to be read there, by name and labels but `job`."""
    with urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**sample.labels}
            assert labels.pop("job") == "sums"
            samples[sample.name, frozenset(labels.items())] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_every_metric_of_the_catalogue_is_offered_with_its_labels(endpoint):
    samples = read(endpoint.url)
    labels = {}
    for metric in CATALOGUE:
        own = {*metric.labels} - {"job"}
        if metric.kind == "histogram":
            labels[f"{metric.name}_bucket"] = own | {"le"}
            labels[f"{metric.name}_sum"] = labels[f"{metric.name}_count"] = own
        else:
            labels[metric.name] = own
    assert {name for name, _ in samples} == {*labels}
    assert all({label for label, _ in found} == labels[name] for name, found in samples)


def test_values_are_those_of_the_figures(endpoint):
    samples = read(endpoint.url)
    assert value(samples, "minirt_busy_seconds_total", operator="slow", subtask="1") == 10
    soft = value(samples, "minirt_soft_backpressure_seconds_total", operator="numbers", subtask="0")
    assert soft == 7.5
    assert value(samples, "minirt_records_in_total", operator="slow", subtask="0") == 400
    assert value(samples, "minirt_input_queue_use_ratio", operator="slow", subtask="0") == 0.75
    lag = value(samples, "minirt_watermark_lag_seconds", operator="slow", subtask="0")
    assert lag == pytest.approx(2.5)
    assert value(samples, "minirt_job_status", status="running") == 1
    assert value(samples, "minirt_job_status", status="failed") == 0
    assert value(samples, "minirt_checkpoints_failed_total") == 1
    assert value(samples, "minirt_last_checkpoint_in_flight_bytes") == 1200
    assert value(samples, "minirt_last_checkpoint_start_time_seconds") == NOW - 1
    assert value(samples, "minirt_checkpoints_under_way") == 1
    assert value(samples, "minirt_checkpoint_under_way_seconds") == 5
    assert value(samples, "minirt_checkpoint_under_way_missing_subtasks") == 1
    slow = {"operator": "slow", "subtask": "1"}
    assert value(samples, "minirt_last_checkpoint_alignment_seconds", **slow) == 0.0625
    assert value(samples, "minirt_input_window_bytes", operator="slow", subtask="0") == 400
    marked = {"operator": "slow", "subtask": "0", "source": "numbers"}
    assert value(samples, "minirt_latency_seconds_count", **marked) == 3
    assert value(samples, "minirt_latency_seconds_sum", **marked) == 4.53
    for bound, count in (("0.016", 0), ("0.032", 1), ("0.256", 1), ("0.512", 2), ("+Inf", 3)):
        assert value(samples, "minirt_latency_seconds_bucket", **marked, le=bound) == count
    info = {"operator": "slow", "subtask": "1", "chain": "slow > out", "pid": "1001"}
    assert value(samples, "minirt_subtask_info", **info) == 1


def test_counters_are_named_as_counters():
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in CATALOGUE)
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def endless() -> rt.Environment:
    env = rt.Environment("sums")
    numbers = paced_numbers(env).rebalance()
    numbers.map(lambda n: n, uid="same", parallelism=2).sink(rt.DiscardSink(), parallelism=2)
    return env


@pytest.mark.processes
def test_a_running_job_is_read_over_http(tmp_path):
    checkpointing = rt.Checkpointing(tmp_path, interval="50ms")
    job = endless().start(checkpointing=checkpointing, options=rt.Options(metrics_port=0))
    try:
        url = job.metrics_url
        assert url is not None
        assert url.startswith("http://127.0.0.1:")

        def has_worked() -> bool:
            samples = read(url)
            counted = [n for (name, _), n in samples.items() if name == "minirt_records_in_total"]
            done = value(samples, "minirt_checkpoints_completed_total")
            return len(counted) == 3 and min(counted) > 0 and done > 0

        wait_until(has_worked, "records and a checkpoint")
        assert value(read(url), "minirt_job_status", status="running") == 1
        assert value(read(url), "minirt_last_checkpoint_bytes") > 0
    finally:
        job.cancel()
        job.wait(60)
    with pytest.raises(OSError):
        urlopen(url, timeout=30)


@pytest.mark.processes
def test_a_port_in_use_is_refused_before_the_job_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            rt.ConfigurationError, match=f"127.0.0.1:{port}: Address already in use"
        ):
            endless().start(
                checkpointing=rt.Checkpointing(tmp_path), options=rt.Options(metrics_port=port)
            )
    assert not (tmp_path / "generations").exists() or not any((tmp_path / "generations").iterdir())


def test_a_host_that_does_not_exist_is_refused():
    for host in ("no such host", "a" * 70 + ".b"):
        with pytest.raises(rt.ConfigurationError, match="cannot be offered"):
            MetricsEndpoint(host, 0, running_job().figures)


def test_others_than_this_machine_cannot_read(endpoint):
    port = int(endpoint.url.split(":")[2].removesuffix("/metrics"))
    with socket.socket(socket.AF_INET) as caller, pytest.raises(ConnectionRefusedError):
        caller.connect(("127.0.0.2", port))  # Any other address of this machine.


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"metrics_port": -1}, "from 0 to 65535"),
        ({"metrics_port": 65536}, "from 0 to 65535"),
        ({"metrics_port": "9464"}, "from 0 to 65535"),
        ({"metrics_port": True}, "from 0 to 65535"),
        ({"metrics_host": "0.0.0.0"}, "no effect without metrics_port"),
        ({"metrics_port": 1, "metrics_host": ""}, "metrics_host is a host name"),
    ],
)
def test_options_that_cannot_work_are_refused(options, complaint):
    with pytest.raises(rt.ConfigurationError, match=complaint):
        rt.Options(**options)


def test_the_inline_runner_offers_no_metrics():
    with pytest.raises(rt.ConfigurationError, match="no effect with runner"):
        endless().execute(runner="inline", options=rt.Options(metrics_port=0))


def test_without_prometheus_client_it_is_said_what_to_install():
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import minirt as rt\n"
        "env = rt.Environment(options=rt.Options(metrics_port=0))\n"
        "env.source(rt.SequenceSource(3)).sink(rt.DiscardSink())\n"
        "try:\n    env.start()\n"
        "except rt.ConfigurationError as error:\n    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == (
        "metrics_port needs the package prometheus_client: pip install 'minirt[metrics]'\n"
    )
