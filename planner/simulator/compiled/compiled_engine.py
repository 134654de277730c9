"""Makes an engine: compiled where the package was built with a C compiler, or in Python."""

from planner.simulator.engine import Engine, EngineSetup
from planner.simulator.python_engine import PythonEngine


def new_engine(setup: EngineSetup) -> Engine:
    """An engine at time 0 with nothing running."""
    return PythonEngine(setup)
