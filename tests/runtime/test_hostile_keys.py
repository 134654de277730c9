"""Keys beyond what they are for, at a coordinator: refused before anything starts."""

import asyncio
import hashlib
import hmac
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import Rig, with_coordinator

from runtime.protocol.control import AdmittedKey

PEPPER = "a-pepper"
GREEDY, MODEST, ELSEWHERE, OVER = "hlx_greedy.x", "hlx_modest.x", "hlx_elsewhere.x", "hlx_over.x"
FLOOD = 40


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path)


def admitted(secret: str, **terms: object) -> AdmittedKey:
    owner = hashlib.sha256(secret.encode()).hexdigest()
    digest = hmac.new(PEPPER.encode(), owner.encode(), hashlib.sha256).hexdigest()
    return AdmittedKey.model_validate({"hash": digest, "key": secret[4:8], **terms})


async def ask(h: Rig, secret: str, *, times: int = 1) -> list[httpx.Response]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"Authorization": f"Bearer {secret}"}
    asked = [
        h.client.post("/v1/chat/completions", json=body, headers=headers) for _ in range(times)
    ]
    return list(await asyncio.gather(*asked))


def test_a_key_that_floods_gets_its_share_and_others_theirs(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.keys.admit(
            [admitted(GREEDY, requests_per_min=3), admitted(MODEST, requests_per_min=3)],
            peppers=[PEPPER],
        )
        flood = await ask(h, GREEDY, times=FLOOD)
        statuses = [answer.status_code for answer in flood]
        assert (statuses.count(200), statuses.count(429)) == (3, FLOOD - 3)
        refused = next(answer for answer in flood if answer.status_code == 429)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        (other,) = await ask(h, MODEST)
        assert other.status_code == 200
        h.assert_idle()

    with_coordinator(checkpoint, visit, text="ok")


def test_a_key_whose_tokens_are_used_up_starts_nothing(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.keys.admit(
            [
                admitted(GREEDY, tokens_per_min=1),
                admitted(OVER, tokens_per_day=10, tokens_today=10),
            ],
            peppers=[PEPPER],
        )
        (first,) = await ask(h, GREEDY)
        assert first.status_code == 200
        owner = hashlib.sha256(GREEDY.encode()).hexdigest()
        h.keys.spending.given(owner, prompt_tokens=1, output_tokens=2)
        codes = {
            secret: (await ask(h, secret))[0].json()["error"]["code"] for secret in (GREEDY, OVER)
        }
        assert codes == {GREEDY: "rate_limit_exceeded", OVER: "insufficient_quota"}
        h.assert_idle()

    with_coordinator(checkpoint, visit, text="ok")


def test_a_key_of_another_network_or_after_its_end_is_refused(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.keys.admit(
            [
                admitted(ELSEWHERE, networks=("203.0.113.0/24", "2001:db8::/32")),
                admitted(OVER, expires_at=1.0),
            ],
            peppers=[PEPPER],
        )
        forged = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7"}
        answer = await h.client.get(
            "/v1/models", headers={"Authorization": f"Bearer {ELSEWHERE}", **forged}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ip_not_authorized")
        (over,) = await ask(h, OVER)
        assert over.status_code == 401
        h.assert_idle()

    with_coordinator(checkpoint, visit, text="ok")


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ("203.0.113.7", 200),
        ("198.51.100.9, 203.0.113.7", 200),  # the last is what the proxy saw
        ("203.0.113.7, 127.0.0.2", 200),  # one proxy behind another
        ("::ffff:203.0.113.7", 200),
        ("203.0.113.7, 198.51.100.9", 403),
        ("203.0.113.7, nobody", 403),
        ("203.0.113.7,", 403),
        ("", 403),
    ],
)
def test_a_declared_proxy_says_who_asks_and_its_client_cannot(
    checkpoint: Path, told: str, status: int
) -> None:
    async def visit(h: Rig) -> None:
        h.keys.proxies = (ip_network("127.0.0.0/8"),)
        h.keys.admit([admitted(ELSEWHERE, networks=("203.0.113.0/24",))], peppers=[PEPPER])
        headers = {"Authorization": f"Bearer {ELSEWHERE}", "X-Forwarded-For": told}
        answer = await h.client.get("/v1/models", headers=headers)
        assert answer.status_code == status, answer.text
        h.keys.proxies = (ip_network("192.0.2.1/32"),)
        answer = await h.client.get("/v1/models", headers=headers)
        assert answer.status_code == 403, "who dials is no proxy"

    with_coordinator(checkpoint, visit, text="ok")


def test_a_hash_that_leaked_is_no_key(checkpoint: Path) -> None:
    """Neither what the coordinator was told nor what it was told with opens it."""

    async def visit(h: Rig) -> None:
        key = admitted(GREEDY)
        h.keys.admit([key], peppers=[PEPPER])
        owner = hashlib.sha256(GREEDY.encode()).hexdigest()
        for leaked in (key.hash, owner, PEPPER, GREEDY.upper(), f"{GREEDY}x", GREEDY[:-1], "x"):
            (answer,) = await ask(h, leaked)
            assert answer.status_code == 401, leaked
        assert (await ask(h, GREEDY))[0].status_code == 200

    with_coordinator(checkpoint, visit, text="ok")
