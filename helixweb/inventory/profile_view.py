"""Charts of profiles, and the versions of one. Reads only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from django.utils.translation import gettext as _

from helixweb.charts.chart import Chart
from helixweb.charts.memory_bars import memory_bars
from helixweb.charts.speed_curves import SpeedCurve, speed_curves
from helixweb.inventory.models import Profile, ProfileVersion
from helixweb.inventory.services.problems import compute_profile
from planner.serialization import profile_to_dict

# Of a profile; measuring is done by hand, so that there are few.
SHOWN = 20
_PHASES = ("prompt", "decode")


def profiles_memory(profiles: Sequence[Profile]) -> Chart:
    """Bars of each profile's memory with the most layers it can hold."""
    return memory_bars(
        {
            name: {
                "weights": profile.weights_bytes,
                "KV cache room": max(0.0, profile.kv_room_bytes or 0.0),
                "left": profile.left_bytes,
            }
            for name, profile in zip(_names(profiles), profiles, strict=True)
        }
    )


def profile_speed(profiles: Sequence[Profile]) -> Chart:
    """Tokens/s against layers held, a line each."""
    return speed_curves(
        [
            SpeedCurve(
                name=name,
                tokens_per_s=tuple(speed for _, _, speed, _ in profile.steps),
                is_measured=profile.origin == "measured",
            )
            for name, profile in zip(_names(profiles), profiles, strict=True)
        ]
    )


def _names(profiles: Sequence[Profile]) -> list[str]:
    """Names of profiles in a chart, with model and cluster where they are needed to be unique.

    Bars and lines of one name would be drawn as one.
    """
    several_models = len({profile.model_id for profile in profiles}) > 1
    names = [profile.label if several_models else profile.name for profile in profiles]
    shown = Counter(names)
    return [
        f"{name}, {profile.cluster.name}" if shown[name] > 1 else name
        for name, profile in zip(names, profiles, strict=True)
    ]


def version_lines(profile: Profile) -> list[dict[str, Any]]:
    """The newest first; of one that is `used` plans computed now take their numbers."""
    used = profile_to_dict(compute_profile(profile))
    rows = list(profile.versions.select_related("profile").order_by("-number")[:SHOWN])
    same = next((row.pk for row in rows if row.document == used), None)
    return [_line(row, used, is_used=row.pk == same) for row in rows]


def _line(row: ProfileVersion, used: Mapping[str, Any], *, is_used: bool) -> dict[str, Any]:
    """Evidence of an imported file is not checked: it holds what the file had."""
    evidence = row.evidence or {}
    error = evidence.get("interpolation_error")
    return {
        "row": row,
        "used": is_used,
        "slower_text": "" if is_used else _slower_text(row.document, used),
        "seconds": evidence.get("seconds"),
        "waited_s": evidence.get("waited_s", 0.0),
        "nic_bytes_per_s": evidence.get("nic_bytes_per_s"),
        "fits": [
            (phase, f"{fit['median_error']:.1%}, {fit['worst_error']:.1%}")
            for phase in _PHASES
            if _has_numbers(fit := evidence.get(f"{phase}_fit"), "median_error", "worst_error")
        ],
        "interpolation_error": error if isinstance(error, int | float) else None,
        "points": [
            {
                **point,
                "least_ms": 1e3 * point["seconds"],
                "spread_text": f"{point['median_s'] / point['seconds'] - 1:.0%}",
            }
            for point in evidence.get("points", ())
            if _has_numbers(point, "layers", "batch", "tokens", "seconds", "median_s", "runs")
            and point.get("phase") in _PHASES
            and point["seconds"] > 0
        ],
        "factors": [
            (phase, factor["factor"], factor["error"])
            for phase in _PHASES
            if _has_numbers(factor := evidence.get(phase), "factor", "error")
        ],
    }


def _has_numbers(item: object, *names: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(item, dict) and all(isinstance(item.get(name), int | float) for name in names)


def _slower_text(document: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    """Its speed relative to the used profile's, with as many layers as both can hold; empty:
    unknown."""
    layers = min(len(document["tokens_per_s"]), len(used["tokens_per_s"]))
    if layers == 0 or not used["tokens_per_s"][layers - 1]:
        return ""
    slower = 1 - document["tokens_per_s"][layers - 1] / used["tokens_per_s"][layers - 1]
    text = _("%(share)s slower") if slower >= 0 else _("%(share)s faster")
    return text % {"share": f"{abs(slower):.0%}"}
