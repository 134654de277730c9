"""Instances that other machines reach speak TLS, and are known by one certificate alone."""

import asyncio
import stat
from pathlib import Path

import httpx
import pytest
from instance_rig import run, wait_until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from test_agent_instances import SETTINGS, conditions, keeper, order

from runtime.agent.instance_specs import InstanceSettings
from runtime.front.asked import read_asked
from runtime.front.target import InstanceTarget, Unreachable, relay_client
from runtime.http_process import listen
from runtime.instances.asking import AskedInstance, instance_client
from runtime.instances.certificate import load_or_create
from runtime.instances.command_lines import LOOPBACK
from runtime.protocol.instance_orders import InstanceAddress, instance_url
from runtime.whole_model import main as whole_model

ASKED = read_asked(
    "/v1/completions", b'{"model": "llama", "prompt": "hello", "max_tokens": 3}', model_name="llama"
)


class Reached(InstanceSettings):
    """As if the loopback address were one that others reach."""

    @property
    def is_alone(self) -> bool:
        return False


def reached() -> InstanceSettings:
    fields = {name: getattr(SETTINGS, name) for name in InstanceSettings.__slots__}
    return Reached(**fields)


def test_the_certificate_is_made_once_and_its_key_is_its_owners(tmp_path: Path) -> None:
    first = load_or_create(tmp_path)
    assert load_or_create(tmp_path) == first
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    assert first.text.startswith("-----BEGIN CERTIFICATE-----")
    first.key.unlink()
    assert load_or_create(tmp_path).text != first.text


@pytest.mark.processes
def test_an_instance_that_others_reach_is_asked_by_its_certificate_and_no_other(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        async with keeper(tmp_path / "a", settings=reached()) as kept:
            kept.want((order(),))
            await wait_until(lambda: conditions(kept) == {"n1": "ready"})
            (told,) = kept.observed()
            address = InstanceAddress(
                url=f"https://{LOOPBACK}:{told.port}",
                model="llama",
                api_key="k",
                certificate=told.certificate,
            )
            other = address.model_copy(update={"certificate": load_or_create(tmp_path).text})
            async with instance_client(timeout=90) as asking, relay_client(90) as relaying:
                assert await AskedInstance(asking, address).trouble() == ""
                assert (await AskedInstance(asking, address).load()).kv_usage is not None
                target = InstanceTarget(relaying, address)
                body = await target.whole(ASKED, patience_s=90, passed_on={})
                assert body["choices"]
                for wrong in (other, address.model_copy(update={"certificate": ""})):
                    assert "certificate" in await AskedInstance(asking, wrong).trouble()
                    target = InstanceTarget(relaying, wrong)
                    with pytest.raises(Unreachable, match="certificate"):
                        await target.whole(ASKED, patience_s=90, passed_on={})
                assert await AskedInstance(asking, address).trouble() == "", "others change nothing"

    run(check())


@pytest.mark.processes
def test_what_only_this_machine_reaches_needs_no_certificate(tmp_path: Path) -> None:
    async def check() -> None:
        async with keeper(tmp_path) as kept:
            kept.want((order(),))
            await wait_until(lambda: conditions(kept) == {"n1": "ready"})
            assert [one.certificate for one in kept.observed()] == [""]

    run(check())
    assert not list(tmp_path.glob("*.pem"))


def test_a_certificate_that_is_none_is_told_of_and_asks_nobody() -> None:
    async def check() -> None:
        address = InstanceAddress(
            url="https://127.0.0.1:9", model="llama", certificate="no certificate"
        )
        async with instance_client(timeout=90) as asking:
            assert "cannot be read" in await AskedInstance(asking, address).trouble()

    run(check())


def test_our_engine_answers_by_https_where_it_has_files_for_it(tmp_path: Path) -> None:
    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async def check() -> None:
        files = load_or_create(tmp_path)
        options = whole_model.parse_options(
            [
                *("--checkpoint", "m", "--ssl-certfile", str(files.certificate)),
                *("--ssl-keyfile", str(files.key)),
            ]
        )
        app = Starlette(routes=[Route("/health", hello)])
        server = whole_model._server(app, options)
        listener = listen(LOOPBACK, 0)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        address = InstanceAddress(
            url=f"https://{LOOPBACK}:{listener.getsockname()[1]}",
            model="m",
            certificate=files.text,
            lists_model=False,
        )
        async with instance_client(timeout=90) as asking:
            assert await AskedInstance(asking, address).trouble() == ""
            with pytest.raises(httpx.HTTPError):
                await asking.get(address.url.replace("https", "http") + "/health")
        server.should_exit = True
        await serving

    run(check())


@pytest.mark.parametrize(
    ("host", "certificate", "url"),
    [
        ("192.0.2.7", "", "http://192.0.2.7:8001"),
        ("gpu.example", "PEM", "https://gpu.example:8001"),
        ("2001:db8::7", "PEM", "https://[2001:db8::7]:8001"),
    ],
)
def test_an_address_is_written_as_clients_read_it(host: str, certificate: str, url: str) -> None:
    assert instance_url(host, 8001, certificate=certificate) == url
    assert httpx.URL(url).host == host


def test_half_a_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whole_model.main(["--checkpoint", str(tmp_path), "--ssl-keyfile", "k"]) == 2
    assert "give the other" in capsys.readouterr().err


def test_files_that_are_no_certificate_are_named() -> None:
    options = ["--checkpoint", "m", "--ssl-keyfile", "none.key", "--ssl-certfile", "none.pem"]
    with pytest.raises(whole_model.CannotServe, match=r"none\.pem and none\.key are no"):
        whole_model._server(Starlette(), whole_model.parse_options(options))
