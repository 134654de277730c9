"""Times of a layer on a node: measured, or derived from the published throughput table.

A problem file need not have layer times; T_j (Helix §4.3) it always has, and T_j was made from
them. Taking that apart: a batch of b decoding sequences and the prompt tokens that come with them
takes (per layer) d0 + a * tokens, so

    1 / (j T_j) = a + d0 O / ((I + O) b_j),       b_j = 0.3 KV_j / (L T_1 D)

with mean lengths I and O, L = I + O. b_j, the batch that a node runs when 0.3 of its KV room is
taken, is the artifact's assumption as far as its numbers show it: D is one round trip of layers,
T_1 averaged over all layers that the cluster could hold. `a` and d0 are fitted by least squares,
not below 0. This is an estimate. Against the measured tables of the seven published GPUs a layer's
decode times come out within -31 .. +20 % (5 to 300 sequences), a 750-token prompt's within
-24 .. +48 %, a 250-token chunk's within -32 .. +23 %: it knows no loss in small batches.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from planner.document import Section, integer, parse_document
from planner.domain.cluster import COORDINATOR, Link
from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile

TimingSource = Literal["measured", "derived"]

_TARGET_OCCUPANCY = 0.3
# If a fit gives tokens (almost) no cost, they get this share of the least time.
_LEAST_TOKEN_SHARE = 0.1
_FAR_TOKENS = 1000.0
_COLUMNS = ("model", "gpu", "phase", "batch_tokens", "time_ms_per_layer")


def layer_times_of(problem: Problem, node_name: str) -> LayerTimes:
    """The profile's measured layer times, else derived ones.

    Raises KeyError for an unknown node, InvalidProblem where a profile says nothing about speed.
    """
    profile = problem.profile_of(node_name)
    if profile.layer_times is not None:
        return profile.layer_times
    return derived_layer_times(problem, profile)


def latency_s(problem: Problem, link: Link) -> float:
    """Latency between two processes: the link's, and the hop's at either end if profiles have it.
    The coordinator has no profile, so it is assumed to be like the other end."""
    hops = [hop_s(problem, end) for end in (link.source, link.target) if end != COORDINATOR]
    return link.latency_s + (sum(hops) / len(hops) if hops else 0.0)


def hop_s(problem: Problem, node_name: str) -> float:
    """Seconds of a hop between two such nodes, from the profile; 0 if it was not measured."""
    times = problem.profile_of(node_name).layer_times
    return 0.0 if times is None else times.hop_s


def timing_source(problem: Problem) -> TimingSource:
    """The kind of times behind a forecast: "measured" only if every node's profile is."""
    used = {problem.profile_of(node.name).name for node in problem.cluster.nodes}
    measured = all(problem.compute_profiles[name].layer_times is not None for name in used)
    return "measured" if measured else "derived"


def derived_layer_times(problem: Problem, profile: ComputeProfile) -> LayerTimes:
    """The fit of the module's docstring. Raises InvalidProblem without any speed to fit."""
    held = [
        layers
        for layers in range(1, min(profile.max_layers, problem.model.num_layers) + 1)
        if profile.tokens_per_s[layers - 1] > 0 and profile.kv_capacity_token_layers[layers - 1] > 0
    ]
    if not held:
        raise InvalidProblem(
            f"compute profile {profile.name!r} has no number of layers with both tokens_per_s and "
            "kv_capacity_token_layers above 0, so no layer times follow from it; give it "
            "layer_times"
        )
    prompt, output = (
        problem.workload.mean_prompt_tokens,
        problem.workload.mean_output_tokens,
    )
    seconds_J = np.array([1 / (j * profile.tokens_per_s[j - 1]) for j in held])
    batch_per_kv = (
        _TARGET_OCCUPANCY
        * seconds_J[0]
        * held[0]
        / ((prompt + output) * _assumed_round_trip_s(problem))
    )
    kv_J = np.array([profile.kv_capacity_token_layers[j - 1] for j in held])
    base_per_second_J = output / (prompt + output) / (batch_per_kv * kv_J)
    token_s, base_s = _fitted(seconds_J, base_per_second_J)
    return LayerTimes(
        prompt=((_FAR_TOKENS, _FAR_TOKENS * token_s),),
        decode=((1.0, base_s + token_s), (_FAR_TOKENS, base_s + _FAR_TOKENS * token_s)),
    )


def attach_layer_times(
    problem: Problem, *, layer_times_csv: str, batch_limits_json: str | None, name_hint: str
) -> Problem:
    """The problem with measured times (and published batch limits) for the GPUs of its profiles.

    The CSV has the columns model, gpu, phase (prompt or decode), batch_tokens, time_ms_per_layer;
    rows of `problem.model.name` count. The JSON maps model -> gpu -> {max_layers,
    prompt_max_requests: {layers: count}, decode_max_tokens: {layers: count}}. Raises
    InvalidProblem naming the row, or the GPU that has none.
    """
    tables = _read_tables(layer_times_csv, model=problem.model.name, name_hint=name_hint)
    limits: Mapping[str, BatchLimits] = {}
    if batch_limits_json is not None:
        limits = _read_limits(batch_limits_json, model=problem.model.name, name_hint=name_hint)
    profiles = {}
    for name, profile in problem.compute_profiles.items():
        if profile.gpu not in tables:
            known = ", ".join(sorted(tables)) or "none"
            raise InvalidProblem(
                f"{name_hint}: no rows for model {problem.model.name!r} on GPU {profile.gpu!r}, "
                f"which profile {name!r} has; add them (GPUs with rows: {known})"
            )
        profiles[name] = replace(
            profile,
            layer_times=tables[profile.gpu],
            batch_limits=limits.get(profile.gpu, profile.batch_limits),
        )
    return replace(problem, compute_profiles=profiles)


def _assumed_round_trip_s(problem: Problem) -> float:
    """Seconds a token takes through all layers, each at the mean speed of those holdable."""
    layers, seconds = 0.0, 0.0
    for node in problem.cluster.nodes:
        profile = problem.profile_of(node.name)
        speed = profile.throughput_tokens_per_s(1)
        if speed > 0:
            layers += profile.max_layers
            seconds += profile.max_layers / speed
    if layers == 0:
        raise InvalidProblem(
            f"no node of cluster {problem.cluster.name!r} computes with one layer; give the "
            "profiles layer_times, or tokens_per_s above 0"
        )
    return problem.model.num_layers * seconds / layers


def _fitted(
    seconds_J: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    base_per_second_J: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> tuple[float, float]:
    """(a, d0), both >= 0, least squares of relative errors of a + d0 * base = seconds."""
    design = np.stack([1 / seconds_J, base_per_second_J / seconds_J], axis=1)
    ones = np.ones(len(seconds_J))
    least_token_s = _LEAST_TOKEN_SHARE * float(seconds_J.min())
    if len(seconds_J) > 1:
        token_s, base_s = np.linalg.lstsq(design, ones, rcond=None)[0].tolist()
        if base_s < 0:
            return max(least_token_s, float(design[:, 0] @ ones / (design[:, 0] ** 2).sum())), 0.0
        if token_s >= least_token_s:
            return token_s, base_s
    left = ones - least_token_s * design[:, 0]
    return least_token_s, float(design[:, 1] @ left / (design[:, 1] ** 2).sum())


def _read_tables(text: str, *, model: str, name_hint: str) -> dict[str, LayerTimes]:
    """GPU -> times of one model."""
    reader = csv.DictReader(io.StringIO(text))
    missing = [key for key in _COLUMNS if key not in (reader.fieldnames or ())]
    if missing:
        raise InvalidProblem(
            f"{name_hint}: the first row lacks the column {missing[0]!r}; it must name "
            f"{', '.join(_COLUMNS)}"
        )
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in reader:
        where = f"{name_hint}, row {reader.line_num}"
        if row["phase"] not in ("prompt", "decode"):
            raise InvalidProblem(f"{where}: phase is {row['phase']!r}; use prompt or decode")
        try:
            tokens, milliseconds = float(row["batch_tokens"]), float(row["time_ms_per_layer"])
        except (TypeError, ValueError):
            raise InvalidProblem(
                f"{where}: batch_tokens is {row['batch_tokens']!r} and time_ms_per_layer "
                f"{row['time_ms_per_layer']!r}; both must be numbers"
            ) from None
        if row["model"] != model or tokens == milliseconds == 0:
            continue
        if not (0 < tokens < float("inf") and 0 < milliseconds < float("inf")):
            raise InvalidProblem(
                f"{where}: {tokens:g} tokens take {milliseconds:g} ms; both must be above 0 "
                "and finite (or both 0)"
            )
        points.setdefault((row["gpu"], row["phase"]), []).append((tokens, milliseconds / 1e3))
    tables = {}
    for gpu in {gpu for gpu, _ in points}:
        for phase in ("prompt", "decode"):
            if (gpu, phase) not in points:
                raise InvalidProblem(
                    f"{name_hint}: GPU {gpu!r} has no {phase} rows for model {model!r}; add them"
                )
        try:
            tables[gpu] = LayerTimes(
                prompt=tuple(sorted(points[gpu, "prompt"])),
                decode=tuple(sorted(points[gpu, "decode"])),
            )
        except InvalidProblem as error:
            raise InvalidProblem(f"{name_hint}: model {model!r}, GPU {gpu!r}: {error}") from None
    return tables


def _read_limits(text: str, *, model: str, name_hint: str) -> Mapping[str, BatchLimits]:
    """GPU -> limits of one model; other keys of the file say what profiles say already."""
    top = Section.at(parse_document(text, name_hint=name_hint), "")
    if not top.has(model):
        return {}
    gpus = top.section(model)
    return {
        gpu: BatchLimits(
            prompt_max_requests=_counts(gpus.section(gpu), "prompt_max_requests"),
            decode_max_tokens=_counts(gpus.section(gpu), "decode_max_tokens"),
        )
        for gpu in gpus.values
    }


def _counts(gpu: Section, key: str) -> tuple[int, ...]:
    """{"1": 380, "2": 380, ...} by layers held, without gaps."""
    section = gpu.section(key)
    return tuple(
        integer(section.value(str(layers)), section.path_of(str(layers)))
        for layers in range(1, len(section.values) + 1)
    )
