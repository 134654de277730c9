"""What a deployment delivers now and what limits it, for its page."""

from dataclasses import dataclass
from typing import Any

from django import template
from django.utils import timezone

from helixweb.deployment.models import Deployment
from helixweb.monitoring.bottleneck import Finding
from helixweb.monitoring.history import current_sample
from helixweb.monitoring.load import finding_of
from helixweb.monitoring.presentation import numbers, serving_of

register = template.Library()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingNow:
    """`numbers` as for tiles, None each while nothing is reported; `finding` None then, too."""

    numbers: Any
    finding: Finding | None


@register.simple_tag
def serving_now(deployment: Deployment) -> ServingNow:
    """By the newest report on the generation of `deployment`."""
    now = timezone.now()
    cluster = deployment.cluster
    sample = current_sample(cluster, now=now)
    if sample is None or sample.generation != deployment.generation or sample.simulated:
        return ServingNow(numbers=numbers(None), finding=None)
    finding = finding_of(cluster, serving_of(cluster, sample), sample, now=now)
    return ServingNow(numbers=numbers(sample), finding=finding)
