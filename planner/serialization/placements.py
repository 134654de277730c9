"""Placements, in plan files and in files of published placements; what all files share."""

from dataclasses import dataclass

from planner.document import Section, parse_document, wrong_type
from planner.domain.errors import InvalidProblem
from planner.domain.placement import LayerRange, Placement
from planner.serialization.records import value_from


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlacement:
    """A published placement and the max flow that its authors computed for it."""

    placement: Placement
    max_flow_tokens_per_s: float


def published_placements_from_text(
    text: str, *, name_hint: str, num_layers: int
) -> dict[str, PublishedPlacement]:
    """A file of named placements: name -> layers {node: [first, end]}, max_flow_tokens_per_s."""
    try:
        top = Section.at(parse_document(text, name_hint=name_hint), "")
        published = {}
        for name in top.values:
            section = top.section(name)
            section.allow_only("layers", "max_flow_tokens_per_s")
            published[name] = PublishedPlacement(
                placement=placement_from(section.section("layers"), num_layers=num_layers),
                max_flow_tokens_per_s=value_from(
                    section.value("max_flow_tokens_per_s"),
                    section.path_of("max_flow_tokens_per_s"),
                    float,
                ),
            )
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None
    return published


def check_format(top: Section, expected: str) -> None:
    found = top.value("format")
    if found != expected:
        raise wrong_type("format", found, f"{expected!r}")


def placement_from(section: Section, *, num_layers: int) -> Placement:
    layers = {}
    for name in section.values:
        path = section.path_of(name)
        bounds = section.items(name)
        if len(bounds) != 2:
            raise wrong_type(path, bounds, "two whole numbers [first, end]")
        first, end = (
            value_from(bound, f"{path}[{index}]", int) for index, bound in enumerate(bounds)
        )
        if not first < end <= num_layers:
            raise InvalidProblem(
                f"{path} is [{first}, {end}]; it must satisfy first < end <= {num_layers}"
            )
        layers[name] = LayerRange(first=first, end=end)
    return Placement(layers=layers)
