"""The manifests for Kubernetes: each is what its schema says, and they fit each other and our commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from minirt.cli import app
from minirt.clusters import parse_address
from minirt.units import seconds

yaml = pytest.importorskip("yaml")
validating = pytest.importorskip("kubernetes_validate")

FILE = Path(__file__).parents[2] / "docker/kubernetes/job.yaml"
VERSIONS = ("1.30", "1.34", "1.37")


def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}


def pod(of: str) -> Any:
    return manifests()[of]["spec"]["template"]["spec"]


def container(of: str) -> Any:
    [only] = pod(of)["containers"]
    return only


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", manifests())
def test_each_is_what_the_schema_says(kind: str, version: str) -> None:
    validating.validate(manifests()[kind], version, strict=True)


def test_a_field_that_does_not_exist_is_found() -> None:
    """What the test above rests on."""
    wrong = manifests()["Deployment"]
    wrong["spec"]["template"]["spec"]["containers"][0]["memory"] = "4Gi"
    with pytest.raises(validating.ValidationError):
        validating.validate(wrong, VERSIONS[-1], strict=True)


def test_hosts_are_started_by_a_command_that_exists() -> None:
    host = container("Deployment")
    assert host["command"] == ["minirt", "host"]
    command = typer.main.get_command(app).commands["host"]  # type: ignore[attr-defined]
    given = command.make_context("host", list(host["args"])).params
    assert given["slots"] == int(host["resources"]["requests"]["cpu"])
    assert seconds(given["wait"]) > 0

    service = manifests()["Service"]
    [port] = service["spec"]["ports"]
    name = service["metadata"]["name"]
    assert parse_address(given["coordinator"], "coordinator") == (name, port["port"])
    [listens] = container("Job")["ports"]
    assert listens["containerPort"] == port["port"]
    assert (
        service["spec"]["selector"] == manifests()["Job"]["spec"]["template"]["metadata"]["labels"]
    )


def test_all_pods_share_the_credentials_and_may_read_them() -> None:
    claim = manifests()["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    users = []
    for of in ("Job", "Deployment"):
        [volume] = [each for each in pod(of)["volumes"] if each["name"] == "shared"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        mounts = {each["name"]: each["mountPath"] for each in container(of)["volumeMounts"]}
        assert mounts == {"shared": "/shared", "scratch": "/tmp"}
        users.append(pod(of)["securityContext"])
    assert users[0] == users[1]
    assert "/shared/job.credentials" in container("Deployment")["args"]


def test_labels_say_which_pods_belong_together() -> None:
    deployment = manifests()["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    policy = manifests()["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert policy.items() <= labels.items()
