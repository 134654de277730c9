"""The versions of a profile as people read them. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from helixweb.inventory.models import Profile, ProfileVersion
from helixweb.inventory.services.problems import compute_profile
from planner.serialization import profile_to_dict

# Of a profile; measuring is done by hand, so that there are few.
SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLine:
    """How well an equation says what was measured; errors are shares."""

    phase: str
    points: int
    median_error: float
    worst_error: float

    @property
    def text(self) -> str:
        return f"{self.median_error:.1%}, {self.worst_error:.1%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointLine:
    """A step that was timed; milliseconds. `spread`: how much longer its median run took."""

    phase: str
    layers: int
    batch: int
    tokens: int
    least_ms: float
    spread: float
    runs: int

    @property
    def spread_text(self) -> str:
        return f"{self.spread:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """`interpolation_error`: of decode steps between the sizes that were timed, as estimated; a
    share. `used`: plans computed now stand on it. `slower`: it does so much less a second than
    what plans use, a share; None: not known."""

    row: ProfileVersion
    used: bool
    slower: float | None
    seconds: float | None
    waited_s: float
    nic_bytes_per_s: float | None
    fits: tuple[FitLine, ...]
    interpolation_error: float | None
    points: tuple[PointLine, ...]
    factors: tuple[tuple[str, float, float], ...]

    @property
    def slower_text(self) -> str:
        """Against what plans use; empty where that is not known."""
        if self.slower is None:
            return ""
        share = f"{abs(self.slower):.0%}"
        return (
            _("%(share)s slower") % {"share": share}
            if self.slower >= 0
            else _("%(share)s faster") % {"share": share}
        )


def version_lines(profile: Profile) -> list[VersionLine]:
    """The newest first."""
    used = profile_to_dict(compute_profile(profile))
    rows = list(profile.versions.select_related("profile").order_by("-number")[:SHOWN])
    same = next((row.pk for row in rows if row.document == used), None)
    return [_line(row, used, is_used=row.pk == same) for row in rows]


def _line(row: ProfileVersion, used: Mapping[str, Any], *, is_used: bool) -> VersionLine:
    told = row.evidence or {}
    return VersionLine(
        row=row,
        used=is_used,
        slower=None if is_used else _slower(row.document, used),
        seconds=told.get("seconds"),
        waited_s=told.get("waited_s", 0.0),
        nic_bytes_per_s=told.get("nic_bytes_per_s"),
        fits=tuple(
            FitLine(
                phase=phase,
                points=told[key]["points"],
                median_error=told[key]["median_error"],
                worst_error=told[key]["worst_error"],
            )
            for phase, key in (("prompt", "prompt_fit"), ("decode", "decode_fit"))
            if _is_fit(told.get(key))
        ),
        interpolation_error=_share(told.get("interpolation_error")),
        points=tuple(_point(point) for point in told.get("points", ()) if _is_point(point)),
        factors=tuple(
            (phase, float(told[phase]["factor"]), float(told[phase]["error"]))
            for phase in ("prompt", "decode")
            if _is_factor(told.get(phase))
        ),
    )


def _slower(document: Mapping[str, Any], used: Mapping[str, Any]) -> float | None:
    """By the speed with as many layers as both can hold."""
    layers = min(len(document["tokens_per_s"]), len(used["tokens_per_s"]))
    if layers == 0 or not used["tokens_per_s"][layers - 1]:
        return None
    share: float = document["tokens_per_s"][layers - 1] / used["tokens_per_s"][layers - 1]
    return 1 - share


def _point(point: Mapping[str, Any]) -> PointLine:
    return PointLine(
        phase=point["phase"],
        layers=point["layers"],
        batch=point["batch"],
        tokens=point["tokens"],
        least_ms=1e3 * point["seconds"],
        spread=point["median_s"] / point["seconds"] - 1,
        runs=point["runs"],
    )


# Evidence of an imported file is whatever was in it.


def _share(told: object) -> float | None:
    return float(told) if isinstance(told, int | float) else None


def _is_fit(told: object) -> bool:
    return isinstance(told, dict) and all(
        isinstance(told.get(key), int | float) for key in ("points", "median_error", "worst_error")
    )


def _is_point(told: object) -> bool:
    keys = ("layers", "batch", "tokens", "seconds", "median_s", "runs")
    return (
        isinstance(told, dict)
        and told.get("phase") in ("prompt", "decode")
        and all(isinstance(told.get(key), int | float) for key in keys)
        and told["seconds"] > 0
    )


def _is_factor(told: object) -> bool:
    return isinstance(told, dict) and all(
        isinstance(told.get(key), int | float) for key in ("factor", "error")
    )
