"""The versions of a profile as people read them. Reads only."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from django.utils.translation import gettext as _

from helixweb.inventory.models import Profile, ProfileVersion
from helixweb.inventory.services.problems import compute_profile
from planner.serialization import profile_to_dict

# Of a profile; measuring is done by hand, so that there are few.
SHOWN = 20
_PHASES = ("prompt", "decode")


def version_lines(profile: Profile) -> list[dict[str, Any]]:
    """The newest first; of one that is `used` plans computed now take their numbers."""
    used = profile_to_dict(compute_profile(profile))
    rows = list(profile.versions.select_related("profile").order_by("-number")[:SHOWN])
    same = next((row.pk for row in rows if row.document == used), None)
    return [_line(row, used, is_used=row.pk == same) for row in rows]


def _line(row: ProfileVersion, used: Mapping[str, Any], *, is_used: bool) -> dict[str, Any]:
    """Evidence of an imported file is not checked: it holds what the file had."""
    told = row.evidence or {}
    error = told.get("interpolation_error")
    return {
        "row": row,
        "used": is_used,
        "slower_text": "" if is_used else _slower_text(row.document, used),
        "seconds": told.get("seconds"),
        "waited_s": told.get("waited_s", 0.0),
        "nic_bytes_per_s": told.get("nic_bytes_per_s"),
        "fits": [
            (phase, f"{fit['median_error']:.1%}, {fit['worst_error']:.1%}")
            for phase in _PHASES
            if _has_numbers(fit := told.get(f"{phase}_fit"), "median_error", "worst_error")
        ],
        "interpolation_error": error if isinstance(error, int | float) else None,
        "points": [
            {
                **point,
                "least_ms": 1e3 * point["seconds"],
                "spread_text": f"{point['median_s'] / point['seconds'] - 1:.0%}",
            }
            for point in told.get("points", ())
            if _has_numbers(point, "layers", "batch", "tokens", "seconds", "median_s", "runs")
            and point.get("phase") in _PHASES
            and point["seconds"] > 0
        ],
        "factors": [
            (phase, factor["factor"], factor["error"])
            for phase in _PHASES
            if _has_numbers(factor := told.get(phase), "factor", "error")
        ],
    }


def _has_numbers(told: object, *names: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(told, dict) and all(isinstance(told.get(name), int | float) for name in names)


def _slower_text(document: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    """Its speed against what plans use, with as many layers as both can hold; empty: not known."""
    layers = min(len(document["tokens_per_s"]), len(used["tokens_per_s"]))
    if layers == 0 or not used["tokens_per_s"][layers - 1]:
        return ""
    slower = 1 - document["tokens_per_s"][layers - 1] / used["tokens_per_s"][layers - 1]
    text = _("%(share)s slower") if slower >= 0 else _("%(share)s faster")
    return text % {"share": f"{abs(slower):.0%}"}
