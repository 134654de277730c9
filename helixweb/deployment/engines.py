"""Which engines compute the layers of a deployment, and what forbids it."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext as _

from helixweb.deployment.options import DeployOptions
from helixweb.inventory.engines import choice_of, takes_engines, why_text
from helixweb.inventory.models import LanguageModel
from runtime.protocol.engines import Engine


def obstacles_to_engines(
    options: DeployOptions, *, model: LanguageModel, hardware: Mapping[str, Any]
) -> Iterator[str]:
    """One sentence each, with its remedy; `hardware` is that of every node with layers."""
    for name in sorted(set(options.engine_by_node) - set(hardware)):
        yield _(
            "An engine is named for node %(name)s, which holds no layers in this plan; leave it "
            "out."
        ) % {"name": name}
    for name, known in sorted(hardware.items()):
        asked = options.engine_of(name)
        choice = choice_of(known, model, asked=asked)
        if choice is not None and choice.engine is None:
            yield _("Node %(name)s cannot run %(model)s: %(why)s.") % {
                "name": name,
                "model": model.name,
                "why": why_text(choice),
            }
        if not known or known.get("emulated") or asked is Engine.AUTO:
            continue
        if not takes_engines(known):
            yield _(
                "Node %(name)s is asked for the engine %(engine)s, which its agent is too old to "
                "take; update it, or choose the engine auto for the node."
            ) % {"name": name, "engine": asked.value}
