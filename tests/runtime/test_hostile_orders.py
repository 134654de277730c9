"""Orders of a site that was taken over: an agent starts its own commands, in its own folder."""

from typing import Any

import pytest
from pydantic import ValidationError

from runtime.agent.instance_specs import CannotRun, InstanceSettings, spec_of
from runtime.instances.command_lines import launch_of
from runtime.protocol.control import DesiredState
from runtime.protocol.instance_orders import AssignedInstance

SETTINGS = InstanceSettings(
    host="127.0.0.1", memory_budget_bytes=1_000_000, memory_bytes=(2_000_000,),
    gpus=(0,), gpu_budgets_bytes=(1_000_000,),
    relative_speed=1.0, threads=1, emulated=False, vllm_command=("/opt/vllm",),
)  # fmt: skip
ORDER: dict[str, Any] = {
    "name": "n1", "backend": "vllm", "model_name": "m", "checkpoint": "/models/m", "gpus": [0],
    "max_context_tokens": 64, "api_key": "k", "page_tokens": 16,
}  # fmt: skip


def order(**changes: Any) -> AssignedInstance:
    known = {name: value for name, value in ORDER.items() if name in AssignedInstance.model_fields}
    return AssignedInstance.model_validate(known | changes)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/cron.d/x", "a/b", "..", "", "x\n", "x\0", "-x", "n" * 81, "x y", "é"]
)
def test_the_name_of_a_log_leads_nowhere(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        order(name=name)


@pytest.mark.parametrize("field", ["command", "argv", "extra_arguments", "environment", "cwd"])
def test_an_order_has_no_command_of_its_own(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        order(**{field: ["/bin/sh", "-c", "id"]})
    with pytest.raises(ValidationError, match=field):
        DesiredState.model_validate({"generation": 1, field: ["/bin/sh"]})


@pytest.mark.parametrize("field", ["checkpoint", "model_name"])
def test_no_value_of_an_order_is_an_option_of_the_command(field: str) -> None:
    wanted = order(**{field: "--trust-remote-code"})
    with pytest.raises(CannotRun, match="reads as an option"):
        spec_of(wanted, port=1, settings=SETTINGS, beside=(wanted,))


def test_what_is_started_is_the_machines_command_and_each_value_one_word() -> None:
    wanted = order(model_name="m; id $(id) `id`", checkpoint="/models/m && id")
    spec = spec_of(wanted, port=1, settings=SETTINGS, beside=(wanted,))
    argv = launch_of(spec, model_name=wanted.model_name, api_key="k").argv
    assert argv[0] == "/opt/vllm"
    assert {wanted.model_name, wanted.checkpoint} <= set(argv), "no shell reads them"
