"""Whether one API key finds out what another has sent, by what the prefix cache saves it."""

from pathlib import Path

import pytest
from coordinator_rig import KEY, Rig, with_coordinator
from real_stages import CONTEXT_TOKENS, RealStages, make_checkpoint
from test_hostile_keys import PEPPER, admitted

FIRST, SECOND = "hlx_first.x", "hlx_second.x"
SECRET = "the offer to our client is " + "four million " * 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def reused(h: Rig) -> int:
    """Prompt tokens that were not computed, over all stages."""
    assert isinstance(h.stages, RealStages)
    stages = h.stages.cluster.stages.values()
    return sum(stage.stats().prefix_tokens_total for stage in stages)


async def ask(h: Rig, key: str, *, times: int, **told: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    body = {
        "model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": SECRET}], **told,
    }  # fmt: skip
    for _ in range(times):
        answer = await h.client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text


def test_a_prompt_of_one_key_saves_no_other_key_any_work(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.keys.admit([admitted(FIRST), admitted(SECOND)], peppers=[PEPPER])
        await ask(h, FIRST, times=4)  # every way through the plan has seen it
        own = reused(h)
        assert own > 0
        for key in (SECOND, KEY):
            await ask(h, key, times=1)
            assert reused(h) == own
        await ask(h, FIRST, times=1, cache_salt="a session")
        assert reused(h) == own
        await ask(h, FIRST, times=3, cache_salt="a session")
        assert reused(h) > own

    with_coordinator(
        checkpoint, visit, stages=RealStages(checkpoint), max_context_tokens=CONTEXT_TOKENS
    )
