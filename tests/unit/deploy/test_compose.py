"""The compose files: valid, whole, and every setting in them one that the broker knows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.config.load import examine

COMPOSE = Path(__file__).parents[3] / "deploy/compose"
TEXT = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
PROFILES = {"minimal", "redis", "postgres", "kafka", "full"}
NODES = {"kafka": 3}


def load() -> dict[str, Any]:
    """Anchors resolved, as compose itself does first."""
    found: dict[str, Any] = yaml.safe_load(TEXT)
    return found


def test_the_specification_accepts_it() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="make deploy-tools installs it")
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", TEXT).replace("$$", "$")
    filled = yaml.safe_dump(yaml.safe_load(filled))
    assert set(compose_spec.PyCompose.from_yaml(filled).services) == set(load()["services"])
    with pytest.raises(ValueError, match="restart"):
        compose_spec.PyCompose.from_yaml(filled.replace("unless-stopped", "sometimes"))


def test_env_names_every_variable_and_no_other() -> None:
    used = set(re.findall(r"\$\{(\w+)", TEXT)) | {
        secret["environment"] for secret in load()["secrets"].values()
    }
    told = (COMPOSE / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"^(\w+)=", told, re.MULTILINE)) == used
    # No secret has a default.
    assert not re.findall(r"^\w*PASSWORD=.", told, re.MULTILINE)


def test_profiles_are_whole() -> None:
    services = load()["services"]
    assert {name for each in services.values() for name in each["profiles"]} == PROFILES
    for profile in PROFILES:
        chosen = {name for name, each in services.items() if profile in each["profiles"]}
        brokers = [name for name in chosen if name.startswith("perdure")]
        assert len(brokers) == NODES.get(profile, 1)
        ports = [port for name in chosen for port in services[name].get("ports", [])]
        assert len({port.rpartition(":")[0] for port in ports}) == len(ports), "they would fight"
        for name in chosen:
            wanted = services[name].get("depends_on", {})
            assert set(wanted) <= chosen, name
            for other in wanted:
                if isinstance(wanted, dict) and wanted[other]["condition"] == "service_healthy":
                    healthy = services[other].get("healthcheck", {}).get("test")
                    assert healthy or other in brokers, "the image of the broker has its own"


def test_what_is_mounted_is_there() -> None:
    whole = load()
    for name, service in whole["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).is_file(), f"{name}: {source}"
            else:
                assert source in whole["volumes"], f"{name}: {source}"
        assert set(service.get("secrets", [])) <= set(whole["secrets"])


def test_a_secret_of_the_environment_can_be_written_where_it_is_wanted() -> None:
    """Compose copies it into the container, and refuses to start one that is read-only."""
    whole = load()
    assert all("environment" in secret for secret in whole["secrets"].values())
    for name, service in whole["services"].items():
        assert not (service.get("secrets") and service.get("read_only")), name
        if name.startswith("perdure") and not service.get("secrets"):
            assert service["read_only"], name


def test_nodes_of_the_cluster_differ_and_find_kafka() -> None:
    services = load()["services"]
    nodes = [services[f"perdure-{number}"] for number in (1, 2, 3)]
    told = [node["environment"] for node in nodes]
    assert len({each["PERDURE__NODE__NAME"] for each in told}) == len(nodes)
    assert len({each["PERDURE__NODE__ADVERTISE"] for each in told}) == len(nodes)
    assert len({node["volumes"][0] for node in nodes}) == len(nodes), "each has a log of its own"
    # Where clients are sent is where the port of the node is.
    for node, each in zip(nodes, told, strict=True):
        port = each["PERDURE__NODE__ADVERTISE"].partition(":")[2].partition(":")[2]
        assert any(f"{port}:1883" in shown for shown in node["ports"])
    settings = yaml.safe_load((COMPOSE / "kafka.yaml").read_text(encoding="utf-8"))
    brokers = [f"kafka-{number}" for number in (1, 2, 3)]
    assert settings["cluster"]["kafka"].split(",") == [f"{name}:9092" for name in brokers]
    for number, name in enumerate(brokers, 1):
        given = services[name]["environment"]
        assert given["KAFKA_NODE_ID"] == number
        assert f"{number}@{name}:9093" in given["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
        assert given["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert "store" in services[name]["networks"]


@pytest.mark.parametrize(
    "name", ["redis.yaml", "postgres.yaml", "kafka.yaml", "../docker/perdure.yaml"]
)
def test_settings_are_known(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "store_password"
    secret.write_text("s3cret", encoding="utf-8")
    text = (COMPOSE / name).read_text(encoding="utf-8")
    file = tmp_path / "perdure.yaml"
    file.write_text(text.replace("/run/secrets/store_password", str(secret)), encoding="utf-8")
    loaded, problems = examine(file, environ={"PERDURE__NODE__NAME": "n1"}, sets=())
    assert problems == []
    assert loaded is not None
    assert loaded.config.storage.path == "/data"
    assert loaded.config.http.bind == "0.0.0.0:18083", "what compose.yaml forwards to"
