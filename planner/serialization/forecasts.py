"""The forecast in a plan file."""

from dataclasses import asdict
from typing import Literal, cast

from planner.document import Section, integer
from planner.domain.errors import InvalidProblem
from planner.domain.plan_forecast import (
    EstimatedFigures,
    Objective,
    Percentiles,
    PlanForecast,
    SimulatedFigures,
)
from planner.domain.serving_policy import (
    InvalidPolicy,
    Messages,
    ReturnPath,
    ServingPolicy,
    Transmission,
)
from planner.serialization.placements import one_of

_Timing = Literal["measured", "derived"]


def forecast_to_dict(forecast: PlanForecast) -> dict[str, object]:
    """The section that `forecast_from` reads."""
    document = asdict(forecast)
    if forecast.simulated is not None:
        document["simulated"]["seeds"] = list(forecast.simulated.seeds)
    return document


def forecast_from(section: Section) -> PlanForecast:
    section.allow_only(*PlanForecast.__dataclass_fields__)
    return PlanForecast(
        objective=cast(Objective, one_of(section, "objective", Objective)),
        value=section.number_from_zero("value"),
        timing=cast(_Timing, one_of(section, "timing", _Timing)),
        policy=_policy(section.section("policy")),
        mean_prompt_tokens=section.positive_number("mean_prompt_tokens"),
        mean_output_tokens=section.positive_number("mean_output_tokens"),
        estimated=_estimated(section.section("estimated")),
        simulated=None
        if section.value("simulated") is None
        else _simulated(section.section("simulated")),
    )


def _estimated(section: Section) -> EstimatedFigures:
    keys = tuple(EstimatedFigures.__dataclass_fields__)
    section.allow_only(*keys)
    return EstimatedFigures(**{key: section.number_from_zero(key) for key in keys})


def _simulated(section: Section) -> SimulatedFigures:
    section.allow_only(*SimulatedFigures.__dataclass_fields__)
    return SimulatedFigures(
        seeds=tuple(
            integer(seed, f"{section.path_of('seeds')}[{index}]", minimum=0)
            for index, seed in enumerate(section.items("seeds"))
        ),
        requests_per_s=_number_or_none(section, "requests_per_s"),
        window_s=section.number_from_zero("window_s"),
        decode_tokens_per_s=section.number_from_zero("decode_tokens_per_s"),
        prompt_tokens_per_s=section.number_from_zero("prompt_tokens_per_s"),
        ttft=_percentiles(section.section("ttft")),
        itl=_percentiles(section.section("itl")),
        tpot=_percentiles(section.section("tpot")),
        e2e=_percentiles(section.section("e2e")),
        requests_in_flight=section.number_from_zero("requests_in_flight"),
        utilisation_mean=section.number_from_zero("utilisation_mean"),
        # Files of before have no share: what they tell of was simulated whole, or not said.
        simulated_share=section.positive_number("simulated_share")
        if section.has("simulated_share")
        else 1.0,
    )


def _percentiles(section: Section) -> Percentiles:
    keys = tuple(Percentiles.__dataclass_fields__)
    section.allow_only(*keys)
    return Percentiles(**{key: section.number_from_zero(key) for key in keys})


def _policy(section: Section) -> ServingPolicy:
    section.allow_only(*ServingPolicy.__dataclass_fields__)
    try:
        return ServingPolicy(
            prompt_chunk_tokens=_count_or_none(section, "prompt_chunk_tokens"),
            decode_cap_divisor=_number_or_none(section, "decode_cap_divisor"),
            decode_cap_floor=section.integer("decode_cap_floor", minimum=1),
            # Policies written before nodes measured their cap, and before tokens went straight
            # back, are without the two keys: the cap was the divisor's, the way the coordinator's.
            measured_micro_batches=_number_or_none(section, "measured_micro_batches")
            if section.has("measured_micro_batches")
            else None,
            published_batch_limits=section.boolean("published_batch_limits"),
            messages=cast(Messages, one_of(section, "messages", Messages)),
            transmission=cast(Transmission, one_of(section, "transmission", Transmission)),
            decode_lane_share=section.number("decode_lane_share"),
            piece_bytes=_number_or_none(section, "piece_bytes"),
            return_path=cast(ReturnPath, one_of(section, "return_path", ReturnPath))
            if section.has("return_path")
            else "coordinator",
            starvation_limit=_count_or_none(section, "starvation_limit"),
            kv_high_water=section.number("kv_high_water"),
            step_overhead_s=section.number("step_overhead_s"),
        )
    except InvalidPolicy as error:
        raise InvalidProblem(f"{section.path}: {error}") from None


def _number_or_none(section: Section, key: str) -> float | None:
    return None if section.value(key) is None else section.number(key)


def _count_or_none(section: Section, key: str) -> int | None:
    return None if section.value(key) is None else section.integer(key, minimum=1)
