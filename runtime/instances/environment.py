"""What a server that is started here sees of this process's environment; pure.

Not all of it: there may be the keys of other servers, a database's password, a join token. What
programs need to find themselves, their devices and their caches goes by name; what looks like a
secret is not passed on under any prefix. A file may name more (`pass_environment`).
"""

import re
from collections.abc import Collection, Mapping

_NAMES = frozenset(
    {
        "CURL_CA_BUNDLE",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",  # allocators
        "LOGNAME",
        "PATH",
        "REQUESTS_CA_BUNDLE",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
_PREFIXES = (
    "CONDA_", "CUBLAS_", "CUDA_", "CUDNN_", "FLASHINFER_", "GLOO_", "GOMP_", "HF_", "HIP_", "HSA_",
    "HUGGINGFACE_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTHON",
    "PYTORCH_", "RAY_", "ROCM_", "ROCR_", "TOKENIZERS_", "TORCH", "TRANSFORMERS_", "TRITON_",
    "UCX_", "VLLM_", "XDG_",
)  # fmt: skip
_SECRET = re.compile(r"(?:^|_)(?:API_?KEYS?|KEY|TOKENS?|SECRETS?|PASS(?:WORD|WD)?|CREDENTIALS?)$")


def passed_on(environment: Mapping[str, str], *, also: Collection[str] = ()) -> dict[str, str]:
    """The part of `environment` that a server gets; `also` are names that a file asks for."""
    return {
        name: value
        for name, value in environment.items()
        if name in also or (_is_of_use(name) and not _SECRET.search(name))
    }


def _is_of_use(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)
