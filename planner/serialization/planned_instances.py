"""Whole-model instances in plan files: `instances` and `method_choice` of `helixweb.plan/1`."""

from dataclasses import asdict
from typing import cast

from planner.document import Section, integer
from planner.domain.errors import InvalidProblem
from planner.domain.instance import (
    Backend,
    DegreeRank,
    EngineTerms,
    InstanceTimes,
    MethodChoice,
    MethodForecast,
    PlannedInstance,
)
from planner.serialization.placements import one_of


def instances_to_dict(instances: tuple[PlannedInstance, ...]) -> list[dict[str, object]]:
    """The list that `instances_from` reads."""
    return [
        asdict(one) | {"gpus": list(one.gpus), "times": times_to_dict(one.times)}
        for one in instances
    ]


def choice_to_dict(choice: MethodChoice) -> dict[str, object]:
    """The section that `choice_from` reads."""
    return {
        "chosen": choice.chosen,
        "candidates": [asdict(one) for one in choice.candidates],
        "degrees": [asdict(one) | {"nodes": list(one.nodes)} for one in choice.degrees],
    }


def instances_from(top: Section) -> tuple[PlannedInstance, ...]:
    """Raises InvalidProblem, also for two of the same name."""
    found = tuple(_instance(section) for section in top.sections("instances"))
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidProblem(
            f"{top.path_of('instances')} has {twice[0]!r} twice; give each its own name"
        )
    return found


def choice_from(section: Section) -> MethodChoice:
    section.allow_only("chosen", "candidates", "degrees")
    return MethodChoice(
        chosen=section.text("chosen"),
        candidates=tuple(_candidate(one) for one in section.sections("candidates")),
        degrees=tuple(_degree(one) for one in section.sections("degrees")),
    )


def times_to_dict(times: InstanceTimes) -> dict[str, object]:
    """The section that `times_from` reads."""
    return {"prefill": list(times.prefill), "decode": list(times.decode)}


def times_from(section: Section) -> InstanceTimes:
    """{"prefill": [p1..p4], "decode": [p5..p8]}."""
    section.allow_only("prefill", "decode")
    return InstanceTimes(prefill=_terms(section, "prefill"), decode=_terms(section, "decode"))


def _terms(section: Section, key: str) -> EngineTerms:
    terms = section.numbers_from_zero(key)
    if len(terms) != 4:
        raise InvalidProblem(
            f"{section.path_of(key)} has {len(terms)} numbers; give the four of the latency model"
        )
    return terms[0], terms[1], terms[2], terms[3]


def _instance(section: Section) -> PlannedInstance:
    section.allow_only(
        "name",
        "node",
        "gpus",
        "tensor_parallel",
        "backend",
        "output_tokens_per_s",
        "kv_room_tokens",
        "times",
    )
    return PlannedInstance(
        name=section.name("name"),
        node=section.name("node"),
        gpus=tuple(
            integer(value, f"{section.path_of('gpus')}[{index}]", minimum=0)
            for index, value in enumerate(section.items("gpus"))
        ),
        tensor_parallel=section.integer("tensor_parallel", minimum=1),
        backend=cast(Backend, one_of(section, "backend", Backend)),
        output_tokens_per_s=section.number_from_zero("output_tokens_per_s"),
        kv_room_tokens=section.integer("kv_room_tokens", minimum=1),
        times=times_from(section.section("times")),
    )


def _candidate(section: Section) -> MethodForecast:
    section.allow_only("method", "output_tokens_per_s", "remark")
    predicted = section.value("output_tokens_per_s")
    return MethodForecast(
        method=section.text("method"),
        output_tokens_per_s=(
            None if predicted is None else section.number_from_zero("output_tokens_per_s")
        ),
        remark=section.text("remark"),
    )


def _degree(section: Section) -> DegreeRank:
    section.allow_only(
        "machine",
        "nodes",
        "degree",
        "instances",
        "kv_room_tokens",
        "static_tokens_per_s",
        "simulated_tokens_per_s",
        "output_tokens_per_s",
        "refused",
    )
    return DegreeRank(
        machine=section.text("machine"),
        nodes=section.texts("nodes"),
        degree=section.integer("degree", minimum=1),
        instances=section.integer("instances", minimum=0),
        kv_room_tokens=section.integer("kv_room_tokens", minimum=0),
        static_tokens_per_s=section.number_from_zero("static_tokens_per_s"),
        simulated_tokens_per_s=section.number_from_zero("simulated_tokens_per_s"),
        output_tokens_per_s=section.number_from_zero("output_tokens_per_s"),
        refused=section.text("refused"),
    )
