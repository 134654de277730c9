"""Which solvers this site has, and how far Gurobi's licence goes, as the About page tells."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from django.utils.translation import gettext as _

# Without a licence Gurobi takes models of so many variables and rows.
SIZE_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverState:
    """One solver; `version` empty: not installed. `expires`: YYYY-MM-DD, empty: not known."""

    name: str
    version: str
    licence: str
    expires: str = ""
    is_limited: bool = False


def solver_states() -> tuple[SolverState, ...]:
    """HiGHS and Gurobi; asks Gurobi for its licence, which may take a second."""
    return _highs(), _gurobi()


def _highs() -> SolverState:
    return SolverState(
        name="HiGHS", version=_version("highspy"), licence=_("free software (MIT), without limits")
    )


def _gurobi() -> SolverState:
    found = _version("gurobipy")
    if not found:
        return SolverState(name="Gurobi", version="", licence=_("not installed: HiGHS searches"))
    import gurobipy  # loads slowly, and only this page needs it in the web process

    try:
        with gurobipy.Env(empty=True) as environment:
            environment.setParam("OutputFlag", 0)
            environment.start()
            return _licensed(gurobipy, environment, found)
    except gurobipy.GurobiError as error:
        return SolverState(
            name="Gurobi",
            version=found,
            licence=_("no usable licence: %(error)s") % {"error": error},
        )


def _licensed(gurobipy: Any, environment: Any, found: str) -> SolverState:
    """Solves a model that is one variable too large for a licence with limits."""
    with gurobipy.Model(env=environment) as model:
        day = f"{model.LicenseExpiration:08d}"
        expires = f"{day[:4]}-{day[4:6]}-{day[6:]}" if len(day) == 8 and day < "9" else ""
        model.addMVar(SIZE_LIMIT + 1)
        try:
            model.optimize()
        except gurobipy.GurobiError as error:
            if error.errno != gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
                raise
            return SolverState(
                name="Gurobi",
                version=found,
                licence=_("limited to %(size_limit)s variables and rows; HiGHS searches beyond")
                % {"size_limit": f"{SIZE_LIMIT:,}"},
                expires=expires,
                is_limited=True,
            )
    return SolverState(
        name="Gurobi", version=found, licence=_("without size limit"), expires=expires
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
