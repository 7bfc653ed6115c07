"""docker-compose.yml says the same as the tests: addresses, keys, bucket; and what it mounts is there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.postgres.server import SETTINGS
from tests.s3.endpoint import BUCKET, KEY, ROOT, SECRET

_DEFAULT = re.compile(r"\$\{[A-Z0-9_]+:-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """What the file says where no variable is set."""
    text = (ROOT / "docker-compose.yml").read_text()
    services: dict[str, Any] = yaml.safe_load(_DEFAULT.sub(r"\1", text))["services"]
    return services


def test_minio_has_the_key_and_the_bucket_of_the_tests(services: dict[str, Any]) -> None:
    minio, bucket = services["minio"], services["bucket"]["environment"]
    assert minio["environment"] == {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET}
    assert (bucket["AWS_ACCESS_KEY_ID"], bucket["AWS_SECRET_ACCESS_KEY"]) == (KEY, SECRET)
    assert bucket["BUCKET"] == BUCKET
    assert bucket["AWS_ENDPOINT_URL_S3"] == "http://minio:9000"


def test_every_variable_is_one_that_the_tests_read(services: dict[str, Any]) -> None:
    named = set(re.findall(r"\$\{([A-Z0-9_]+)", (ROOT / "docker-compose.yml").read_text()))
    known = set(
        re.findall(r'environ\.get\("(\w+)"', (ROOT / "tests/s3/endpoint.py").read_text())
    ) - {"TEST_S3_ENDPOINT"}
    assert named == {*known, "SPARK_VERSION"}


def test_the_command_in_the_file_reaches_minio(services: dict[str, Any]) -> None:
    (url,) = re.findall(r"TEST_S3_ENDPOINT=http://(\S+)", (ROOT / "docker-compose.yml").read_text())
    assert f"{url}:9000" in services["minio"]["ports"]


def test_nothing_is_reachable_from_other_machines(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
    on_host = [name for name, each in services.items() if each.get("network_mode") == "host"]
    assert on_host == ["page", "prometheus", "grafana"]
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_what_is_mounted_is_there(services: dict[str, Any]) -> None:
    mounted = [volume for service in services.values() for volume in service.get("volumes", [])]
    files = [volume.split(":")[0] for volume in mounted if volume.startswith("./")]
    assert len(set(files)) == 3
    for file in files:
        assert (ROOT / file).exists(), file


def test_postgres_lets_slots_be_read_and_limits_what_they_keep(services: dict[str, Any]) -> None:
    """As the server of the tests; those make slots lose their log by hand."""
    settings = re.findall(r"-c (\S+)=(\S+)", services["postgres"]["command"])
    assert "max_slot_wal_keep_size" in dict(settings)
    assert SETTINGS.items() <= dict(settings).items()


def test_kafka_is_the_broker_of_the_tests(services: dict[str, Any]) -> None:
    """The same release with the same settings, but for where it listens and stores."""
    broker = pytest.importorskip("tests.kafka.broker", reason="the extra kafka is not installed")
    kafka = services["kafka"]
    said = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in kafka["environment"].items()
    }
    assert said.pop("heap.opts") == broker.HEAP
    placed = {
        name
        for name in said.keys() - broker.SETTINGS.keys()
        if name in ("controller.quorum.voters", "log.dirs") or "listener" in name
    }
    assert {name: value for name, value in said.items() if name not in placed} == broker.SETTINGS
    installed = (ROOT / ".ci/services/kafka").read_text()
    assert f"version={kafka['image'].partition(':')[2]}\n" in installed


def test_prometheus_and_grafana_find_each_other_and_the_job(services: dict[str, Any]) -> None:
    (scrape,) = yaml.safe_load((ROOT / "docker/prometheus.yml").read_text())["scrape_configs"]
    (targets,) = [each["targets"] for each in scrape["static_configs"]]
    places = [target.rpartition(":") for target in targets]
    assert services["prometheus"]["extra_hosts"] == [f"{places[0][0]}:127.0.0.1"]
    published = [services[name]["ports"] for name in ("job", "standby")]
    assert published == [[f"127.0.0.1:{port}:9464"] for _, _, port in places]
    datasources = yaml.safe_load((ROOT / "docker/grafana/datasources/prometheus.yml").read_text())
    (source,) = datasources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert services["grafana"]["extra_hosts"] == ["prometheus:127.0.0.1"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / home.replace("/etc/grafana/provisioning", "docker/grafana")).exists()
