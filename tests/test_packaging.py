"""What `packaging/` ships, as far as this machine can look through it.

Not run here: Docker (no daemon), Helm and Kubernetes (the chart is rendered by a double), systemd
as the first process (units are verified by `systemd-analyze`, where that is installed).
"""

import argparse
import configparser
import copy
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from helixweb.command_line.main import parser_for
from runtime.agent import join, service
from runtime.coordinator.options import parse_options
from runtime.protocol.join_tokens import TOKEN_VARIABLE
from tests.certificate import write_certificate
from tests.go_templates import Chart, TemplateFault
from tests.installed import installed

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm" / "helixweb"
UNITS = {
    path.name: path.read_text()
    for path in sorted((PACKAGING / "systemd").iterdir())
    if path.suffix in (".service", ".timer")
}
# What `helix-agent join … --service` writes.
JOINED = ["https://helix.example", "--region", 'a $HOME "50%" away']
UNITS[service.UNIT] = service.unit_text(JOINED, for_system=True)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def understood(words: list[str]) -> argparse.Namespace:
    """What `helixweb` makes of a command line of the packaging."""
    return parser_for(words).parse_args(words)


# -- systemd ---------------------------------------------------------------------------------------


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNITS[name])
    return parser


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_a_service_has_no_rights_that_it_does_not_need(name: str) -> None:
    service = unit(name)["Service"]
    assert service["User"] not in ("", "root")
    for setting in ("NoNewPrivileges", "PrivateTmp", "LockPersonality", "RestrictSUIDSGID"):
        assert service[setting] == "yes", setting
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    words = shlex.split(service["ExecStart"].replace("$", ""))
    if words[0].endswith("/helixweb"):
        understood(words[1:])


def test_the_site_is_ready_when_it_says_so_and_is_not_started_again_for_nothing() -> None:
    site, agent = (unit(f"{name}.service")["Service"] for name in ("helixweb", "helix-agent"))
    assert site["Type"] == "notify"
    assert site["KillMode"] == agent["KillMode"] == "mixed"
    assert agent["RestartPreventExitStatus"] == "2"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    for one, text in UNITS.items():  # the program is not installed where tests run
        text = re.sub(r"/opt/helixweb/bin/[a-z-]+", "/bin/true", text)
        (tmp_path / one).write_text(text)
    done = subprocess.run(
        [
            installed("systemd-analyze", package="systemd"),
            "verify",
            "--man=no",
            str(tmp_path / name),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if name in line]
    assert (done.returncode, ours) == (0, [])


# -- containers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.agent"])
def test_an_image_runs_as_nobody_and_says_whether_it_is_well(name: str) -> None:
    text = re.sub(r"\\\n\s*", " ", (PACKAGING / "docker" / name).read_text())
    lines = [line.partition(" ") for line in text.splitlines() if line and line[0] != "#"]
    last = {word: rest for word, _, rest in lines}
    assert int(last["USER"]) > 0
    checked = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
    assert checked[:3] == ["python", "-m", "helixweb.operations.probe"]
    for extras in re.findall(r"'\.\[([a-z0-9,]+)\]'", text):
        assert set(extras.split(",")) <= EXTRAS.keys()
    words = json.loads(last["ENTRYPOINT"]) + json.loads(last["CMD"])
    if words[0] == "helixweb":
        understood(words[1:])
    sources = [
        rest.split()[0] for word, _, rest in lines if word == "COPY" and "--from" not in rest
    ]
    assert all((ROOT / source).exists() for source in sources)


def test_compose_starts_what_the_command_line_knows_with_secrets_in_files() -> None:
    compose = yaml.safe_load((PACKAGING / "docker" / "compose.yaml").read_text())
    services = compose["services"]
    assert {"web", "worker", "coordinator", "agent", "postgres", "redis"} == services.keys()
    for name in ("web", "worker", "coordinator"):
        service = services[name]
        arguments = understood(
            [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", w) for w in service["command"]]
        )
        assert name in arguments.role
        assert arguments.token is None, "the process list shows arguments"
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        variables = service["environment"]
        assert {"DATABASE_URL_FILE", "SECRET_KEY_FILE"} <= variables.keys()
        assert not {"DATABASE_URL", "SECRET_KEY"} & variables.keys()
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source.startswith(("$", "/")) or source in compose["volumes"]
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        assert set(service.get("depends_on", {})) <= services.keys()
    for name in (".dockerignore", ".gitignore"):
        left_out = (ROOT / name).read_text().splitlines()
        for secret in compose["secrets"].values():
            assert f"packaging/docker/{Path(secret['file']).name}" in left_out, (
                "COPY takes the rest"
            )


# -- Helm ------------------------------------------------------------------------------------------

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
NEEDED = {"databaseUrl": "postgres://u:p@host/name", "redisUrl": "redis://host/0"}


def values(**changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(VALUES) | NEEDED
    for name, change in changes.items():
        made[name] = made[name] | change if isinstance(change, dict) else change
    return made


def rendered(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects of the chart, by kind and name."""
    jsonschema.validate(given, SCHEMA)
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    context = {
        "Values": given,
        "Chart": {"AppVersion": about["appVersion"], "Name": about["name"]},
        "Release": {"Name": "helix", "Namespace": "ai", "Service": "Helm"},
    }
    chart = Chart({path.name: path.read_text() for path in (CHART / "templates").iterdir()})
    chart.render("NOTES.txt", context)
    documents = [
        document
        for name in chart.files
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(chart.render(name, context))
        if document
    ]
    return {f"{one['kind']} {one['metadata']['name']}": one for one in documents}


def pods(objects: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in objects.items():
        spec = one.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield name, spec["template"]["spec"]


def test_the_chart_is_a_site_with_its_coordinator_and_an_agent_on_each_gpu_machine() -> None:
    objects = rendered(values())
    assert objects.keys() == {
        "Secret helix", "Deployment helix-web", "Service helix-web",
        "PodDisruptionBudget helix-web", "Deployment helix-worker", "Deployment helix-beat",
        "StatefulSet helix-coordinator", "Service helix-coordinator", "DaemonSet helix-agent",
        "Ingress helix",
    }  # fmt: skip
    agent = objects["DaemonSet helix-agent"]["spec"]["template"]["spec"]
    assert agent["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert agent["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert objects["Ingress helix"]["spec"]["rules"][0]["host"] == "helix.example"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"backup": {"enabled": True, "target": "s3://b/p/", "secret": "keys"}},
        {"agents": {"gpus": 0, "extraArgs": ["--threads", "4"]}, "web": {"replicas": 1}},
        {"existingSecret": "mine", "coordinator": {"enabled": False}},
        {"ingress": {"tlsSecret": ""}, "imagePullSecrets": [{"name": "registry"}]},
    ],
)
def test_every_pod_is_probed_has_few_rights_and_mounts_what_it_has(changes: dict[str, Any]) -> None:
    objects = rendered(values(**changes))
    for name, pod in pods(objects):
        volumes = {volume["name"] for volume in pod["volumes"]}
        claims = objects[name].get("spec", {}).get("volumeClaimTemplates", [])
        volumes |= {claim["metadata"]["name"] for claim in claims}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name
            rights = container["securityContext"]
            assert not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"]["drop"] == ["ALL"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        if not name.startswith("CronJob"):
            assert "livenessProbe" in pod["containers"][0], name
        for container in pod["containers"]:
            _check_command(container)
    for name, one in objects.items():
        if name.split()[0] in ("Deployment", "StatefulSet", "DaemonSet"):
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()


def _check_command(container: dict[str, Any]) -> None:
    """Our own parsers take it."""
    if "command" not in container:
        understood([str(word) for word in container["args"]])
        return
    line = re.sub(r'"\$\([^)]*\)"', "hlxj_x", container["args"][0])
    line = re.sub(r'"\$(HOST_IP|POD_IP)"', "192.0.2.1", line).replace('"$NODE_NAME"', "box")
    given, _, line = line.partition("; exec ")
    assert given == f"export {TOKEN_VARIABLE}=hlxj_x"
    words = shlex.split(line)
    if words[0] == "helix-agent":
        known, rest = join._parser().parse_known_args(words[1:])
        options = join.agent_options(known, rest, environ={})
        assert options[options.index("--data-port") + 1] == "8102"
    else:
        assert words[:4] == ["python", "-m", "runtime", "coordinator"]
        assert parse_options(words[4:]).data_port == 8101


def test_the_chart_tells_a_coordinator_which_proxies_to_believe() -> None:
    given = values(coordinator={"trustedProxies": ["10.0.0.0/8", "fd00::/8"]})
    pod = rendered(given)["StatefulSet helix-coordinator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--trusted-proxies 10.0.0.0/8,fd00::/8" in container["args"][0]
    _check_command(container)


def test_the_chart_has_agents_for_machines_with_other_numbers_of_gpus() -> None:
    one, eight = {"nvidia.com/gpu.count": "1"}, {"nvidia.com/gpu.count": "8"}
    groups = [{"name": "eight", "gpus": 8, "nodeSelector": eight}]
    objects = rendered(values(agents={"nodeSelector": one, "groups": groups}))
    selectors = []
    for name, gpus, labels in (("helix-agent", 1, one), ("helix-agent-eight", 8, eight)):
        spec = objects[f"DaemonSet {name}"]["spec"]
        pod = spec["template"]["spec"]
        assert pod["nodeSelector"] == labels
        assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": gpus}
        selectors.append(spec["selector"]["matchLabels"])
    assert selectors[0] != selectors[1], "one would end the other's pods"


def test_the_chart_gives_each_process_of_the_site_what_it_is_to_know() -> None:
    given = values(extraEnv=[{"name": "HELIXWEB_LOG", "value": "json"}], web={"dataClaim": "kept"})
    objects = rendered(given)
    for name in ("web", "worker", "beat"):
        pod = objects[f"Deployment helix-{name}"]["spec"]["template"]["spec"]
        assert {"name": "HELIXWEB_LOG", "value": "json"} in pod["containers"][0]["env"]
    volumes = objects["Deployment helix-web"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "kept"}} in volumes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"databaseUrl": ""}, "databaseUrl is needed"),
        ({"redisUrl": ""}, "redisUrl is needed"),
        ({"backup": {"enabled": True}}, "backup.target is needed"),
    ],
)
def test_what_the_chart_needs_and_was_not_given_is_named(changes: Any, told: str) -> None:
    with pytest.raises(TemplateFault, match=told):
        rendered(values(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "helix.example"},
        {"databaseUrl": "mysql://x"},
        {"web": {"replicas": 0}},
        {"coordinator": {"port": 70000}},
        {"backup": {"target": "/tmp"}},
        {"agents": {"gpu": 1}},
        {"agents": {"groups": [{"name": "eight", "gpus": 8, "nodeSelector": {}}]}},
    ],
)
def test_values_that_cannot_be_are_refused_by_the_schema(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        rendered(values(**changes))


def test_the_double_of_helm_refuses_what_it_does_not_know() -> None:
    for text in ("{{ nope 1 }}", "{{ if .a }}", "{{ end }}", '{{ include "none" . }}', "{{ $x }}"):
        with pytest.raises(TemplateFault):
            Chart({"a": text}).render("a", {"a": 1})


# -- proxies ---------------------------------------------------------------------------------------


def test_no_proxy_keeps_back_what_is_streamed() -> None:
    folder = PACKAGING / "proxies"
    assert "proxy_buffering off;" in (folder / "helixweb_proxy.conf").read_text()
    assert (folder / "Caddyfile").read_text().count("flush_interval -1") == 2
    traefik = yaml.safe_load((folder / "traefik.yaml").read_text())
    assert "middlewares" not in traefik["http"]  # buffering would hold answers back
    routed = {router["service"] for router in traefik["http"]["routers"].values()}
    assert routed == traefik["http"]["services"].keys()


def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    nginx = installed("nginx")
    folder = PACKAGING / "proxies"
    write_certificate(tmp_path / "fullchain.pem", tmp_path / "privkey.pem", host="helix.example")
    text = (folder / "nginx.conf").read_text()
    text = text.replace("/etc/ssl/helix.example", str(tmp_path))
    text = text.replace("/etc/nginx/helixweb_proxy.conf", str(tmp_path / "helixweb_proxy.conf"))
    shutil.copy(folder / "helixweb_proxy.conf", tmp_path)
    (tmp_path / "site.conf").write_text(text)
    whole = f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/site.conf; }}"
    (tmp_path / "nginx.conf").write_text(whole)
    done = subprocess.run(
        [nginx, "-t", "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_caddy_takes_its_configuration() -> None:
    done = subprocess.run(
        [installed("caddy"), "validate", "--adapter", "caddyfile", "--config", "Caddyfile"],
        cwd=PACKAGING / "proxies",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
