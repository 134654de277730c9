"""vLLM's options as a site passes them on to the instances that agents start."""

import pytest
from pydantic import ValidationError

from runtime.agent.instance_specs import spec_of
from runtime.instances.command_lines import launch_of
from runtime.protocol.instance_orders import AssignedInstance
from runtime.protocol.vllm_flags import most_requests, parse_vllm_flags
from tests.runtime.test_agent_instances import SETTINGS

TOOLS = "--enable-auto-tool-choice --tool-call-parser hermes --gpu-memory-utilization=0.8"


def order(*flags: str) -> AssignedInstance:
    return AssignedInstance(
        name="n1",
        backend="vllm",
        model_name="qwen",
        checkpoint="/models/qwen",
        gpus=(0,),
        api_key="k",
        vllm_flags=flags,
    )


def test_the_command_line_ends_with_the_flags() -> None:
    flags = parse_vllm_flags(TOOLS)
    wanted = order(*flags)
    spec = spec_of(wanted, port=1, settings=SETTINGS, beside=(wanted,))
    argv = launch_of(spec, model_name="qwen", api_key="k").argv
    assert argv[-len(flags) :] == flags
    assert flags[-1] == "--gpu-memory-utilization=0.8"


def test_quoted_values_stay_one_word() -> None:
    assert parse_vllm_flags("""--override-generation-config '{"temperature": 0.5}'""") == (
        "--override-generation-config",
        '{"temperature": 0.5}',
    )
    assert parse_vllm_flags("") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--trust-remote-code", "'--trust-remote-code' is not passed"),
        ("--tool-parser-plugin /tmp/x.py", "'--tool-parser-plugin' is not passed"),
        ("--lora-modules x=/home/y", "'--lora-modules' is not passed"),
        ("--host 0.0.0.0", "'--host' is not passed"),
        ("--api-key=x", "'--api-key=x' is not passed"),
        ("-tp 8", "'-tp' is not passed"),
        ("hermes", "'hermes' belongs to no option"),
        ("--tool-call-parser", "--tool-call-parser needs a value"),
        ("--tool-call-parser --enforce-eager", "--tool-call-parser needs a value"),
        ("--dtype=", "--dtype needs a value"),
        ("--enforce-eager=1", "--enforce-eager takes no value"),
        ("--seed 1 --seed=2", "--seed is given twice"),
        ("--seed '1", "close the quote"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_vllm_flags(text)


def test_an_agent_checks_the_flags_of_its_orders_itself() -> None:
    with pytest.raises(ValidationError, match="--trust-remote-code"):
        order("--trust-remote-code")


@pytest.mark.parametrize(
    ("flags", "most"),
    [("--max-num-seqs 8", 8), ("--seed 1 --max-num-seqs=4", 4), ("--seed 8", 256), ("", 256)],
)
def test_the_requests_that_vllm_computes_at_once_are_what_its_options_say(
    flags: str, most: int
) -> None:
    assert most_requests(parse_vllm_flags(flags), default=256) == most
