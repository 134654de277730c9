"""`python -m runtime PROGRAM`: one program per kind of process.

Each is imported only when asked for, so that the agent and the coordinator never load torch.
"""

import importlib
import sys

from runtime.module_loading import loading
from runtime.thread_failure import exit_when_a_thread_fails

PROGRAMS = {
    "agent": ("runtime.agent.main", "join a cluster and run the stage it is assigned"),
    "stage": ("runtime.engine.main", "run layers of a model (started by the agent)"),
    "coordinator": ("runtime.coordinator.main", "serve clients over the deployed plan"),
    "front": ("runtime.front.main", "one endpoint over whole-model instances of any engine"),
    "serve": ("runtime.whole_model.main", "serve a checkpoint with our engine alone"),
    "measure-instance": ("runtime.front.measuring", "time a server over its API, for a front"),
    "profile": ("runtime.profiler.main", "measure what this machine does with a checkpoint"),
    "profile-node": ("runtime.profiler.background", "the same (started by the agent)"),
    "engine-facts": ("runtime.engine.vllm_facts", "what vLLM can run here (started by the agent)"),
    "checkpoint": ("runtime.models.main", "make a small Llama checkpoint for demo and tests"),
    "reference": ("runtime.models.reference", "generate with transformers, to compare with"),
}


def main(argv: list[str]) -> int:
    """Run the program named first in `argv`; returns the exit status (2: it was called wrongly)."""
    if not argv or argv[0] not in PROGRAMS:
        wrong = f"unknown program {argv[0]!r}\n" if argv and argv[0] not in ("-h", "--help") else ""
        lines = [f"  {name:16} {what}" for name, (_, what) in PROGRAMS.items()]
        usage = "usage: python -m runtime PROGRAM [OPTIONS]\n" + "\n".join(lines)
        is_help = bool(argv) and not wrong
        print(wrong + usage, file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    exit_when_a_thread_fails()
    program, _ = PROGRAMS[argv[0]]
    with loading(program):
        module = importlib.import_module(program)
    status: int = module.main(argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
