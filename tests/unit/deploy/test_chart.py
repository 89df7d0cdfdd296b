"""The Helm chart: rendered by helm, checked against the schemas of Kubernetes and of the broker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.config.load import examine
from perdure.pipeline.protocol import API
from tests.support.bounds import HANG_S

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/perdure"
KUBERNETES = "1.33"
OWN = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, whose schemas are not Kubernetes's."""

ALL = (
    "auth.existingSecret=users",
    "tls.existingSecret=cert",
    "ingress.enabled=true",
    "ingress.websocket=true",
    "ingress.tlsSecret=web",
    "serviceMonitor.enabled=true",
    "serviceMonitor.labels.release=prometheus",
    "prometheusRule.enabled=true",
    "service.type=LoadBalancer",
    "service.externalTrafficPolicy=Local",
    "persistence.storageClass=fast",
    "priorityClassName=high",
    "podAnnotations.team=iot",
    "image.pullSecrets[0].name=registry",
    "env[0].name=A",
    "env[0].value=b",
    "config.session.inflight_max=50",
)


CLUSTER = (
    "auth.existingSecret=users",
    "cluster.enabled=true",
    "cluster.kafka=k1:9092\\,k2:9092",
    "ingress.enabled=true",
    "env[0].name=A",
    "env[0].value=b",
)


def helm() -> str:
    found = shutil.which("helm") or str(ROOT / "build/tools/bin/helm")
    if not Path(found).exists():
        pytest.skip("helm is not here (make deploy-tools)")
    return found


def run(*sets: str) -> subprocess.CompletedProcess[str]:
    options = [word for each in sets for word in ("--set", each)]
    return subprocess.run(
        [helm(), "template", "release", str(CHART), "--kube-version", f"{KUBERNETES}.0", *options],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


def render(*sets: str) -> dict[tuple[str, str], Any]:
    """By (kind, name)."""
    done = run(*sets)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


CASES = [
    ("auth.existingSecret=users",),
    ALL,
    ("auth.existingSecret=users", "tls.existingSecret=cert", "tls.only=true"),
    ("config.auth.allow_anonymous=always", "persistence.enabled=false"),
    ("auth.existingSecret=users", "config.storage.backend=postgres", "ingress.enabled=true"),
    ("auth.existingSecret=users", "config.http.bind="),
    CLUSTER,
    (*CLUSTER, "tls.existingSecret=cert", "tls.only=true", "cluster.name=prod"),
]


@pytest.mark.parametrize("sets", CASES)
def test_kubernetes_and_the_broker_accept_it(sets: tuple[str, ...], tmp_path: Path) -> None:
    rendered = render(*sets)
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="make deploy-tools installs it"
    )
    for (kind, _), each in rendered.items():
        if kind not in OWN:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    settings = tmp_path / "perdure.yaml"
    told = rendered["ConfigMap", "release-perdure"]["data"]["perdure.yaml"]
    settings.write_text(told, encoding="utf-8")
    loaded, problems = examine(settings, environ={"PERDURE__NODE__NAME": "pod-0"}, sets=())
    assert problems == []
    assert loaded is not None
    if sets is ALL:
        assert loaded.config.session.inflight_max == 50


def test_its_parts_find_each_other() -> None:
    rendered = render(*ALL)
    pod = rendered["StatefulSet", "release-perdure"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    labels = pod["metadata"]["labels"]
    named = {}
    for (kind, name), each in rendered.items():
        if kind == "Service":
            assert each["spec"]["selector"].items() <= labels.items()
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
            named[name] = {port["name"] for port in each["spec"]["ports"]}
    assert rendered["StatefulSet", "release-perdure"]["spec"]["serviceName"] in named
    for path in rendered["Ingress", "release-perdure"]["spec"]["rules"][0]["http"]["paths"]:
        backend = path["backend"]["service"]
        assert backend["port"]["name"] in named[backend["name"]]
    monitor = rendered["ServiceMonitor", "release-perdure"]["spec"]
    headless = rendered["Service", "release-perdure-headless"]
    assert monitor["selector"]["matchLabels"].items() <= headless["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in named["release-perdure-headless"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | {"data"}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_it_is_probed_drained_and_confined() -> None:
    pod = render(CASES[0][0])["StatefulSet", "release-perdure"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == f"{API}/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == f"{API}/readyz"
    slept = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    # The drain's 30 s, and time to close the storage.
    assert pod["terminationGracePeriodSeconds"] > slept + 30 + 10
    assert pod["securityContext"]["runAsUser"] == 1000
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_it_is_probed_as_http_is_served() -> None:
    def probed(*sets: str) -> dict[str, Any]:
        pod = render(CASES[0][0], *sets)["StatefulSet", "release-perdure"]["spec"]["template"]
        found: dict[str, Any] = pod["spec"]["containers"][0]["livenessProbe"]
        return found

    assert probed("config.storage.backend=redis")["httpGet"]["port"] == "http"
    files = ("config.http.certificate=/a.crt", "config.http.private_key=/a.key")
    assert probed(*files)["httpGet"]["scheme"] == "HTTPS"
    assert probed("config.http.bind=")["exec"]["command"] == ["perdure", "health", "--live"]


def test_nodes_of_a_cluster_know_their_names_and_leave_one_by_one() -> None:
    rendered = render(*CLUSTER)
    nodes = rendered["StatefulSet", "release-perdure"]["spec"]
    assert (nodes["replicas"], nodes["podManagementPolicy"]) == (3, "Parallel")
    assert [each["metadata"]["name"] for each in nodes["volumeClaimTemplates"]] == ["data"]
    pod = nodes["template"]["spec"]
    container = pod["containers"][0]
    given = {each["name"]: each.get("value") for each in container["env"]}
    # Kubernetes fills in what stands before.
    assert next(iter(given)) == "POD_NAME"
    headless = nodes["serviceName"]
    assert given["PERDURE__NODE__NAME"] == "$(POD_NAME)"
    assert given["PERDURE__NODE__ADVERTISE"] == f"$(POD_NAME).{headless}.default.svc:1883"
    assert given["A"] == "b"
    told = yaml.safe_load(rendered["ConfigMap", "release-perdure"]["data"]["perdure.yaml"])
    assert told["cluster"] == {"name": "release", "kafka": "k1:9092,k2:9092"}
    assert container["readinessProbe"]["httpGet"]["path"] == f"{API}/readyz"
    slept = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > slept + 30 + 10
    budget = rendered["PodDisruptionBudget", "release-perdure"]["spec"]
    assert budget["maxUnavailable"] == 1
    spread = pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert spread.items() <= nodes["template"]["metadata"]["labels"].items()
    path = rendered["Ingress", "release-perdure"]["spec"]["rules"][0]["http"]["paths"][0]
    one = rendered["Service", path["backend"]["service"]["name"]]["spec"]
    assert one["selector"]["statefulset.kubernetes.io/pod-name"] == "release-perdure-0"
    mqtt = rendered["Service", "release-perdure"]["spec"]["selector"]
    assert "statefulset.kubernetes.io/pod-name" not in mqtt
    advertised = render(*CLUSTER, "cluster.advertise=$(POD_NAME).mqtt.example:8883")
    found = advertised["StatefulSet", "release-perdure"]["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in found["containers"][0]["env"]}
    assert env["PERDURE__NODE__ADVERTISE"] == "$(POD_NAME).mqtt.example:8883"


def test_settings_of_a_cluster_are_those_of_a_node(tmp_path: Path) -> None:
    told = render(*CLUSTER)["ConfigMap", "release-perdure"]["data"]["perdure.yaml"]
    file = tmp_path / "perdure.yaml"
    file.write_text(told, encoding="utf-8")
    environ = {
        "PERDURE__NODE__NAME": "release-perdure-0",
        "PERDURE__NODE__ADVERTISE": "a.b.svc:1883",
    }
    loaded, problems = examine(file, environ=environ, sets=())
    assert problems == []
    assert loaded is not None
    assert loaded.config.cluster.kafka == "k1:9092,k2:9092"
    assert loaded.config.node.name == "release-perdure-0"


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (("auth.existingSecret=a", "cluster.enabled=true"), "cluster.kafka"),
        (("auth.existingSecret=a", "cluster.kafka=nowhere"), "/cluster/kafka"),
        ((*CLUSTER, "persistence.enabled=false"), "persistence.enabled"),
        ((*CLUSTER, "config.storage.backend=redis"), "config.storage.backend"),
        (
            ("auth.existingSecret=a", "ingress.enabled=true", "config.http.bind="),
            "config.http.bind",
        ),
        ((), "auth.existingSecret"),
        (("auth.existingSecret=a", "tls.only=true"), "tls.only needs tls.existingSecret"),
        (("auth.existingSecret=a", "replicaCount=3"), "replicaCount"),
        (("auth.existingSecret=a", "terminationGracePeriodSeconds=5"), "terminationGracePeriod"),
    ],
)
def test_mistakes_are_told(sets: tuple[str, ...], told: str) -> None:
    done = run(*sets)
    assert done.returncode != 0
    assert told in done.stderr


def test_the_rules_in_it_are_the_rules() -> None:
    rendered = render(*ALL)
    whole = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
    assert rendered["PrometheusRule", "release-perdure"]["spec"] == whole
