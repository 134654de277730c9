"""Keys open the endpoint within their terms: networks, expiry, rates and budgets of tokens."""

import asyncio
import hashlib
import hmac
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from runtime.api.access import ApiKeys, RequireApiKey
from runtime.api.spending import Spending
from runtime.protocol.control import AdmittedKey
from runtime.protocol.openai import ApiError

PEPPER, OLD_PEPPER = "a pepper", "the pepper of last year"
KEY = "hlx_abc.secret"
OWNER = hashlib.sha256(KEY.encode()).hexdigest()
MIDNIGHT = 20_000 * 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now = MIDNIGHT + 43_210.0  # ten seconds into a minute

    def __call__(self) -> float:
        return self.now


def admitted(pepper: str = PEPPER, **terms: Any) -> AdmittedKey:
    digest = hmac.new(pepper.encode(), OWNER.encode(), hashlib.sha256).hexdigest()
    return AdmittedKey(key="abc", hash=digest, **terms)


def keys_with(clock: Clock, **terms: Any) -> ApiKeys:
    keys = ApiKeys(spending=Spending(unix_time=clock))
    keys.admit([admitted(**terms)], peppers=[PEPPER, OLD_PEPPER])
    return keys


def refusal(keys: ApiKeys, *, address: str = "127.0.0.1") -> ApiError | None:
    try:
        keys.count(keys.check(f"Bearer {KEY}", address=address))
    except ApiError as error:
        return error
    return None


def test_a_key_is_known_by_its_hash_under_either_pepper() -> None:
    keys = ApiKeys()
    for pepper in (PEPPER, OLD_PEPPER):
        keys.admit([admitted(pepper)], peppers=[PEPPER, OLD_PEPPER])
        assert keys.check(f"Bearer {KEY}") == OWNER
    keys.admit([admitted("another")], peppers=[PEPPER, OLD_PEPPER])
    with pytest.raises(ApiError, match="not known here"):
        keys.check(f"Bearer {KEY}")


def test_a_key_that_is_admitted_no_more_is_refused_at_once() -> None:
    keys = keys_with(Clock())
    assert refusal(keys) is None
    keys.admit([], peppers=[PEPPER])
    refused = refusal(keys)
    assert refused is not None
    assert (refused.status, refused.code) == (401, "invalid_api_key")


def test_a_key_ends_when_it_expires_whether_or_not_the_site_is_there() -> None:
    clock = Clock()
    keys = keys_with(clock, expires_at=clock.now + 1)
    assert refusal(keys) is None
    clock.now += 1
    refused = refusal(keys)
    assert refused is not None
    assert "expired" in refused.message


@pytest.mark.parametrize(
    ("address", "status"),
    [("192.0.2.9", None), ("::ffff:192.0.2.9", None), ("192.0.3.1", 403), ("", 403), ("x", 403)],
)
def test_a_key_is_for_its_networks_alone(address: str, status: int | None) -> None:
    refused = refusal(keys_with(Clock(), networks=("192.0.2.0/24",)), address=address)
    assert (None if refused is None else refused.status) == status


def test_so_many_requests_a_minute_and_no_more() -> None:
    clock = Clock()
    keys = keys_with(clock, requests_per_min=2)
    assert [refusal(keys) for _ in range(2)] == [None, None]
    refused = refusal(keys)
    assert refused is not None
    assert (refused.status, refused.code, refused.retry_after_s) == (429, "rate_limit_exceeded", 50)
    clock.now += 50
    assert refusal(keys) is None
    assert keys.spent()["abc"].requests == 3


def test_tokens_of_a_minute_and_of_a_day_run_out_and_come_again() -> None:
    clock = Clock()
    keys = keys_with(clock, tokens_per_min=100, tokens_per_day=150)
    keys.spending.given(OWNER, prompt_tokens=90, output_tokens=10)
    of_minute = refusal(keys)
    assert of_minute is not None
    assert (of_minute.status, of_minute.retry_after_s) == (429, 50)
    clock.now += 60
    assert refusal(keys) is None
    keys.spending.given(OWNER, output_tokens=60)
    of_day = refusal(keys)
    assert of_day is not None
    assert (of_day.code, of_day.retry_after_s) == ("insufficient_quota", 86_400 - 43_270)
    clock.now = MIDNIGHT + 86_400
    assert refusal(keys) is None
    assert keys.spent()["abc"].output_tokens == 70


def test_what_the_site_knows_of_other_coordinators_counts_too() -> None:
    refused = refusal(keys_with(Clock(), tokens_per_day=1000, tokens_today=1000))
    assert refused is not None
    assert "has used 1000" in refused.message


def test_the_door_answers_with_error_objects_and_counts_posts_only() -> None:
    async def ok(http: Request) -> JSONResponse:
        return JSONResponse({"owner": http.state.owner})

    keys = keys_with(Clock(), requests_per_min=1)
    app = Starlette(
        routes=[Route("/v1/x", ok, methods=["GET", "POST"])],
        middleware=[Middleware(RequireApiKey, keys=keys)],
    )

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            methods = ("GET", "GET", "POST", "POST", "GET")
            return [await client.request(each, "/v1/x", headers=headers) for each in methods]

    answers = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 200]
    assert answers[3].headers["Retry-After"] == "50"
    assert answers[3].json()["error"]["type"] == "rate_limit_error"
