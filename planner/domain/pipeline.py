"""The stages one request visits (Helix §5.1)."""

from dataclasses import dataclass

from planner.domain.errors import InvalidPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """One node and the layers [first, end) the request runs there (all held, or fewer)."""

    node: str
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages that together run every layer exactly once, in order."""

    stages: tuple[PipelineStage, ...]

    def __post_init__(self) -> None:
        expected = 0
        for stage in self.stages:
            if stage.first != expected or stage.end <= stage.first:
                raise InvalidPlacement(
                    f"pipeline runs layers [{stage.first}, {stage.end}) on {stage.node!r} where "
                    f"layer {expected} must come next"
                )
            expected = stage.end

    @property
    def num_layers(self) -> int:
        return self.stages[-1].end if self.stages else 0
