"""A profile as people read it: its speeds, the arithmetic of its memory, and its versions.

A profile says how many tokens of KV cache are left at each number of layers held. From one number
to the next a layer's weights take room away, so the curve itself tells what a token's keys and
values of one layer take: no other source is needed, and none is guessed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """Bytes with `max_layers` held; None where the curve does not tell.

    `kv_bytes_per_token_layer` is what a token takes in one layer's cache.
    """

    profile: Profile
    weights_bytes: float
    kv_bytes_per_token_layer: float | None
    kv_room_bytes: float | None
    left_bytes: float

    @property
    def label(self) -> str:
        """Told apart from the profiles of other models."""
        return f"{self.profile.name} ({self.profile.model.name})"

    @property
    def steps(self) -> list[tuple[int, float, float, float]]:
        """(layers held, bytes of their weights, tokens/s, KV room in tokens x layers)."""
        per_layer = self.profile.model.bytes_per_layer
        return [
            (layers, layers * per_layer, speed, room) for layers, speed, room in self.profile.steps
        ]


def profile_view(profile: Profile) -> ProfileView:
    """`profile` with its model."""
    per_layer = profile.model.bytes_per_layer
    weights = profile.max_layers * per_layer
    rooms = [room for _, _, room in profile.steps]
    per_token = _bytes_per_token_layer(rooms, bytes_per_layer=per_layer)
    room = None if per_token is None else min(rooms[-1] * per_token, profile.vram_bytes - weights)
    return ProfileView(
        profile=profile,
        weights_bytes=weights,
        kv_bytes_per_token_layer=per_token,
        kv_room_bytes=room,
        left_bytes=max(0.0, profile.vram_bytes - weights - (room or 0.0)),
    )


def _bytes_per_token_layer(rooms: Sequence[float], *, bytes_per_layer: float) -> float | None:
    """What one layer's weights take, divided by the room that goes with them."""
    if len(rooms) < 2 or rooms[0] <= rooms[-1]:
        return None
    return bytes_per_layer * (len(rooms) - 1) / (rooms[0] - rooms[-1])


def profiles_memory(views: Sequence[ProfileView]) -> Chart:
    """What each holds with the most layers it can hold."""
    return memory_bars(
        {
            name: {
                "weights": view.weights_bytes,
                "KV cache room": max(0.0, view.kv_room_bytes or 0.0),
                "left": view.left_bytes,
            }
            for name, view in zip(_names(views), views, strict=True)
        }
    )


def profile_speed(views: Sequence[ProfileView]) -> Chart:
    """Tokens/s against layers held, a line each."""
    return speed_curves(
        [
            SpeedCurve(
                name=name,
                tokens_per_s=tuple(speed for _, speed, _ in view.profile.steps),
                is_measured=view.profile.origin == "measured",
            )
            for name, view in zip(_names(views), views, strict=True)
        ]
    )


def _names(views: Sequence[ProfileView]) -> list[str]:
    """What a chart calls them: with model, and with cluster, where these tell them apart.

    Bars and lines of one name would be drawn as one.
    """
    several_models = len({view.profile.model_id for view in views}) > 1
    names = [view.label if several_models else view.profile.name for view in views]
    shown = Counter(names)
    return [
        f"{name}, {view.profile.cluster.name}" if shown[name] > 1 else name
        for name, view in zip(names, views, strict=True)
    ]


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
