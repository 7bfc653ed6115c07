"""docker-compose.yml says the same as the tests: addresses, keys, bucket; and what it mounts is there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.postgres.server import SETTINGS
from tests.s3.endpoint import BUCKET, KEY, ROOT, SECRET

SPARK = (ROOT / "docker/spark/Dockerfile").read_text()
_DEFAULT = re.compile(r"\$\{[A-Z0-9_]+:-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """What the file says where no variable is set."""
    text = (ROOT / "docker-compose.yml").read_text()
    services: dict[str, Any] = yaml.safe_load(_DEFAULT.sub(r"\1", text))["services"]
    return services


def test_s3_has_the_key_and_the_bucket_of_the_tests(services: dict[str, Any]) -> None:
    assert services["s3"]["environment"] == {"BUCKET": BUCKET}
    environment = services["job"]["environment"]
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == (KEY, SECRET)
    assert environment["AWS_ENDPOINT_URL_S3"] == "http://s3:9000"


def test_the_s3_server_serves_its_bucket_and_ends_when_told(tmp_path: Path) -> None:
    """What the container of `s3` runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": str(port), "BUCKET": BUCKET}
    command = [sys.executable, str(ROOT / "docker/s3/serve.py")]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"serves the bucket on port {port}\n"
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{BUCKET}") as answer:
                assert b"ListBucketResult" in answer.read()
        finally:
            server.terminate()
            status = server.wait(30)
    assert status == 0


def images() -> dict[str, str]:
    """Every image that a service is pulled as, or that a Dockerfile begins from."""
    text = (ROOT / "docker-compose.yml").read_text()
    services = yaml.safe_load(_DEFAULT.sub(r"\1", text))["services"]
    built = {service["image"] for service in services.values() if "build" in service}
    pulled = {name: each["image"] for name, each in services.items() if each["image"] not in built}
    for file in sorted((ROOT / "docker").rglob("Dockerfile")):
        for number, image in enumerate(re.findall(r"^FROM (\S+)", file.read_text(), re.MULTILINE)):
            pulled[f"{file.parent.name} {number}"] = image
    return pulled


def test_every_image_is_pinned_to_a_release() -> None:
    for name, image in images().items():
        assert re.fullmatch(r"[a-z0-9./-]+:v?\d+(\.\d+)+(-[a-z-]+)?", image), (name, image)


def test_all_versions_are_those_of_the_tests() -> None:
    """One place says which Python, Spark, Hadoop, S3 server and broker there are: the environment."""
    bases = {image for image in images().values() if image.startswith("python:")}
    assert len(bases) == 1, "all images of minirt have one Python"
    [spark] = re.findall(r"^ARG SPARK_VERSION=(\S+)", SPARK, re.MULTILINE)
    assert spark == metadata.version("pyspark")
    text = (ROOT / "docker-compose.yml").read_text()
    assert re.findall(r"SPARK_VERSION: \$\{SPARK_VERSION:-(\S+)\}", text) == [spark]
    [hadoop] = re.findall(r"^ARG HADOOP_VERSION=(\S+)", SPARK, re.MULTILINE)
    pyspark = metadata.distribution("pyspark").locate_file("pyspark/jars")
    assert Path(str(pyspark), f"hadoop-client-api-{hadoop}.jar").exists()
    [moto] = re.findall(r"moto\[server\]==([\d.]+)", (ROOT / "docker/s3/Dockerfile").read_text())
    assert moto == metadata.version("moto")


def test_up_waits_for_services_that_last(services: dict[str, Any]) -> None:
    """`up --wait` fails for a service that ends: those are in profiles of their own."""
    for profile in (None, "spark", "dashboard"):
        for name, service in services.items():
            profiles = service.get("profiles")
            if profiles is None or profile in profiles:
                assert "healthcheck" in service, name
                for other, condition in service.get("depends_on", {}).items():
                    assert condition == {"condition": "service_healthy"}, (name, other)
                    assert set(services[other].get("profiles", profiles or ())) >= {
                        *(profiles or ())
                    }
    assert services["spark-job"]["profiles"] == ["spark-job"]


def test_master_worker_and_job_share_image_and_folder(services: dict[str, Any]) -> None:
    spark = [services[name] for name in ("spark-master", "spark-worker", "spark-job")]
    assert {service["image"] for service in spark} == {"minirt-spark"}
    assert all("shared:/shared" in service["volumes"] for service in spark)


def test_every_variable_is_one_that_the_tests_read(services: dict[str, Any]) -> None:
    named = set(re.findall(r"\$\{([A-Z0-9_]+)", (ROOT / "docker-compose.yml").read_text()))
    known = set(
        re.findall(r'environ\.get\("(\w+)"', (ROOT / "tests/s3/endpoint.py").read_text())
    ) - {"TEST_S3_ENDPOINT"}
    assert named == {*known, "SPARK_VERSION"}


def test_the_command_in_the_file_reaches_s3(services: dict[str, Any]) -> None:
    (url,) = re.findall(r"TEST_S3_ENDPOINT=http://(\S+)", (ROOT / "docker-compose.yml").read_text())
    assert f"{url}:9000" in services["s3"]["ports"]


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
    assert len(set(files)) == 4
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
