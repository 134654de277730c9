"""What a file says of instances: read or refused, and the command lines that come of it."""

import json
from pathlib import Path

import pytest
from instance_rig import vllm

from runtime.instances.command_lines import address_of, launch_of
from runtime.protocol.instances import (
    HelixInstance,
    InstanceSet,
    InstancesRefused,
    TransformersInstance,
    UrlInstance,
    read_instances,
)


def test_the_command_line_of_vllm_has_what_it_needs_and_no_secret() -> None:
    spec = vllm(
        "/models/llama",
        gpus=(2, 3),
        tensor_parallel=2,
        max_context_tokens=8192,
        gpu_memory_utilization=0.85,
        extra_arguments=("--enforce-eager",),
        command=("vllm",),
        port=8001,
    )
    launch = launch_of(spec, model_name="llama", api_key="secret")
    assert " ".join(launch.argv) == (
        "vllm serve /models/llama --host 127.0.0.1 --port 8001 --served-model-name llama "
        "--tensor-parallel-size 2 --disable-uvicorn-access-log --gpu-memory-utilization 0.85 "
        "--max-model-len 8192 --enforce-eager"
    )
    assert launch.environment == {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "VLLM_API_KEY": "secret",
    }
    assert "secret" not in repr(launch)


def test_vllm_on_a_cpu_gets_its_threads_and_its_own_default_of_memory() -> None:
    launch = launch_of(vllm(cpu_threads=3), model_name="llama", api_key="secret")
    assert "--gpu-memory-utilization" not in launch.argv
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert launch.defaults == {"OMP_NUM_THREADS": "3", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def test_the_other_backends_are_told_to_listen_on_loopback_too() -> None:
    theirs = TransformersInstance(
        backend="transformers", name="t", model="/m", port=9000, device="cpu"
    )
    launch = launch_of(theirs, model_name="llama", api_key="secret")
    assert " ".join(launch.argv) == (
        "transformers serve /m --host 127.0.0.1 --port 9000 --device cpu"
    )
    assert not launch.environment
    address = address_of(theirs, model_name="llama", api_key="secret", environment={})
    assert (address.model, address.api_key, address.has_metrics) == ("/m", "", False)
    assert not address.takes_cache_salt
    ours = HelixInstance(
        backend="helix",
        name="h",
        checkpoint="/m",
        memory_budget_bytes=1 << 30,
        port=9001,
        relative_speed=0.5,
    )
    launch = launch_of(ours, model_name="llama", api_key="secret")
    assert launch.argv[1:5] == ("-m", "runtime", "serve", "--checkpoint")
    assert "--host 127.0.0.1 --port 9001 --model-name llama" in " ".join(launch.argv)
    assert "secret" not in " ".join(launch.argv)
    address = address_of(ours, model_name="llama", api_key="secret", environment={})
    assert address.takes_cache_salt
    url = UrlInstance(
        backend="url", name="u", url="https://x/v1", model="gpt", api_key_env="THEIR_KEY"
    )
    address = address_of(url, model_name="llama", api_key="no", environment={"THEIR_KEY": "theirs"})
    assert (address.url, address.model, address.api_key) == ("https://x", "gpt", "theirs")
    assert not address.takes_cache_salt  # what it does not know it may refuse


WHOLE = {
    "model_name": "llama",
    "api_key_hashes": ["0" * 64],
    "instances": [
        {"backend": "vllm", "name": "a", "model": "m", "port": 1, "gpus": [0]},
        {"backend": "url", "name": "b", "url": "http://b", "model": "m"},
    ],
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"gpus": [0, 1, 2], "tensor_parallel": 2}, "3 GPUs for a tensor-parallel degree of 2"),
        ({"gpus": [1, 1], "tensor_parallel": 2}, "names a GPU twice"),
        ({"name": "b"}, "the name 'b' is given to two instances"),
        ({"name": "../../etc"}, "instances.0.vllm.name"),
        ({"backend": "tgi"}, "instances.0"),
        ({"tensor_paralel": 2}, "instances.0.vllm.tensor_paralel"),
        ({"times": {"prefill": [0, 0, 0, -1], "decode": [0, 0, 0, 1]}}, "prefill.3"),
        ({"times": {"prefill": [0, 0, 0, 0], "decode": [0, 0, 0, 0]}}, "no batch takes no time"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_naming_what_is_wrong(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    first, second = WHOLE["instances"]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(WHOLE))
    assert [one.name for one in read_instances(path).instances] == ["a", "b"]
    path.write_text(json.dumps({**WHOLE, "instances": [{**first, **changes}, second]}))
    with pytest.raises(InstancesRefused, match=r"instances\.json") as refused:
        read_instances(path)
    assert complaint in str(refused.value)


def test_a_theta_that_no_router_takes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({**WHOLE, "theta": 1000}))
    with pytest.raises(InstancesRefused, match="theta: Input should be less than or equal to 100"):
        read_instances(path)


@pytest.mark.parametrize(
    "url",
    [
        "http://h:abc", "http://h:999999", "http://h:0", "http://[::1", "http://:80", "http://a b",
        "http://h?a=b", "http://h/v1#a",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_when_it_is_read(url: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        UrlInstance(backend="url", name="u", url=url, model="m")


def test_gpus_and_ports_belong_to_one_instance_each() -> None:
    first, _ = WHOLE["instances"]
    for changes, what in (({"port": 2}, "GPU 0"), ({"gpus": [1]}, "port 1")):
        twins = [first, {**first, "name": "c", **changes}]
        with pytest.raises(ValueError, match=what):
            InstanceSet.model_validate({**WHOLE, "instances": twins})
    ours = {
        "backend": "helix", "name": "d", "checkpoint": "/m", "memory_budget_bytes": 1, "port": 3,
    }  # fmt: skip
    for gpus in ([0], [1, 1]):
        with pytest.raises(ValueError, match=r"GPU [01] is given to two instances"):
            InstanceSet.model_validate({**WHOLE, "instances": [first, {**ours, "gpus": gpus}]})
