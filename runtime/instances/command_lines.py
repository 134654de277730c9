"""What an instance is started with; pure.

Every server listens on one address only, by default loopback: `vllm serve` would otherwise listen
on every interface, where much of it asks for no key. Keys go by the environment, as command lines
can be read by every user. Where others than this machine reach it, it speaks TLS.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.instances.certificate import CertificateFiles
from runtime.platforms import CUDA_ORDER
from runtime.protocol.instance_orders import InstanceAddress, instance_url
from runtime.protocol.instances import (
    HelixInstance,
    InstanceSpec,
    StartedInstance,
    TransformersInstance,
    UrlInstance,
    VllmInstance,
)

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line and what is added to the environment, which may hold a secret.

    `passes`: variables of this process that it gets beside those that every server gets. `defaults`
    are added where this process has no such variable.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    passes: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)


def address_of(
    spec: InstanceSpec,
    *,
    model_name: str,
    api_key: str,
    environment: Mapping[str, str],
    host: str = LOOPBACK,
    certificate: str = "",
) -> InstanceAddress:
    """`api_key` is for those that are started here, which listen on `host` and present
    `certificate`; of others it is in `environment`."""
    if isinstance(spec, UrlInstance):
        url = spec.url.rstrip("/").removesuffix("/v1")
        key = environment.get(spec.api_key_env, "")
        return InstanceAddress(
            url=url, model=spec.model, api_key=key, tells_usage=spec.stream_usage
        )
    url = instance_url(host, spec.port, certificate=certificate)
    if isinstance(spec, TransformersInstance):
        return InstanceAddress(
            url=url,
            model=spec.model,
            lists_model=False,  # it lists what the hub's cache holds
            has_metrics=False,
            tells_usage=False,
        )
    return InstanceAddress(
        url=url,
        model=model_name,
        api_key=api_key,
        takes_cache_salt=True,
        certificate=certificate,
    )


def launch_of(
    spec: StartedInstance,
    *,
    model_name: str,
    api_key: str,
    host: str = LOOPBACK,
    tls: CertificateFiles | None = None,
) -> Launch:
    """How the instance's process is started; it will answer for `model_name` with that key, with
    `tls` by HTTPS. `transformers serve` knows neither."""
    listening = (*_listening(spec, host), *_presenting(tls))
    if isinstance(spec, VllmInstance):
        return _vllm(spec, listening, model_name=model_name, api_key=api_key)
    if isinstance(spec, TransformersInstance):
        argv = (
            *spec.command,
            "serve",
            spec.model,
            *_listening(spec, host),
            "--device",
            spec.device,
        )
        return Launch(argv=(*argv, *spec.extra_arguments), passes=spec.pass_environment)
    return _helix(spec, listening, model_name=model_name, api_key=api_key)


def _vllm(
    spec: VllmInstance, listening: tuple[str, ...], *, model_name: str, api_key: str
) -> Launch:
    argv = [*spec.command, "serve", spec.model, *listening]
    argv += ["--served-model-name", model_name]
    argv += ["--tensor-parallel-size", str(spec.tensor_parallel)]
    # of every request; else the probes of each second would be most of the log
    argv += ["--disable-uvicorn-access-log"]
    if spec.gpu_memory_utilization is not None:
        argv += ["--gpu-memory-utilization", f"{spec.gpu_memory_utilization:g}"]
    if spec.max_context_tokens is not None:
        argv += ["--max-model-len", str(spec.max_context_tokens)]
    environment = {
        **_chosen(spec.gpus),
        "VLLM_API_KEY": api_key,
    }
    defaults = {}
    if spec.cpu_threads is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        # vLLM would bind its threads to cores that it takes for its own, as does each one beside it
        defaults["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        defaults["OMP_NUM_THREADS"] = str(spec.cpu_threads)
    return Launch(
        argv=(*argv, *spec.extra_arguments),
        environment=environment,
        passes=spec.pass_environment,
        defaults=defaults,
    )


def _helix(
    spec: HelixInstance, listening: tuple[str, ...], *, model_name: str, api_key: str
) -> Launch:
    argv = [sys.executable, "-m", "runtime", "serve", "--checkpoint", spec.checkpoint]
    argv += [*listening, "--model-name", model_name]
    argv += ["--memory-budget-bytes", str(spec.memory_budget_bytes)]
    argv += ["--relative-speed", f"{spec.relative_speed:g}", "--threads", str(spec.threads)]
    if spec.max_context_tokens is not None:
        argv += ["--max-context-tokens", str(spec.max_context_tokens)]
    environment = {"HELIX_API_KEY": api_key}
    if spec.gpus:
        argv += ["--tensor-parallel", str(len(spec.gpus))]
        environment |= _chosen(spec.gpus)
    return Launch(
        argv=(*argv, *spec.extra_arguments),
        environment=environment,
        passes=spec.pass_environment,
    )


def _chosen(gpus: Sequence[int]) -> dict[str, str]:
    """The variables of a process that has these GPUs, by their numbers in nvidia-smi."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus), **CUDA_ORDER}


def _listening(spec: StartedInstance, host: str) -> tuple[str, ...]:
    return "--host", host, "--port", str(spec.port)


def _presenting(tls: CertificateFiles | None) -> tuple[str, ...]:
    """In vLLM's words, which are ours too."""
    if tls is None:
        return ()
    return "--ssl-keyfile", str(tls.key), "--ssl-certfile", str(tls.certificate)
