"""How many ranks share the layers of each node of a deployment, and what forbids it."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext as _

from helixweb.deployment.options import DeployOptions
from helixweb.inventory.models import LanguageModel
from runtime.protocol.head_shares import why_not_shared


def obstacles_to_ranks(
    options: DeployOptions, *, model: LanguageModel, hardware: Mapping[str, Any]
) -> Iterator[str]:
    """One sentence each, with its remedy.

    `hardware` is that of every node of the placement; None: not known, or of no matter since no
    ranks share its layers.
    """
    for name in sorted(set(options.tensor_parallel_by_node) - set(hardware)):
        yield _(
            "Ranks are asked of node %(name)s, which holds no layers in this plan; leave it out."
        ) % {"name": name}
    for name, known in sorted(hardware.items()):
        ranks = options.ranks_of(name)
        if ranks == 1 or not known:
            continue
        places, what = len(known["gpus"]), "GPUs"
        if not places:
            places, what = known["cpu_count"], _("processors and no GPU")
        if ranks > places:
            yield (
                _(
                    "%(ranks)s ranks need as many GPUs, node %(name)s has %(places)s "
                    "%(what)s; choose at most %(places)s ranks for it."
                )
                % {"ranks": ranks, "name": name, "places": places, "what": what}
                if what == "GPUs"
                else _(
                    "%(ranks)s ranks are more than node %(name)s can run, which has "
                    "%(places)s %(what)s; choose at most %(places)s ranks for it."
                )
                % {"ranks": ranks, "name": name, "places": places, "what": what}
            )
    if model.num_heads is None or model.num_kv_heads is None:
        return
    for ranks in sorted({options.ranks_of(name) for name in hardware}):
        why = why_not_shared(heads=model.num_heads, kv_heads=model.num_kv_heads, ranks=ranks)
        if why:
            yield _("Model %(name)s: %(why)s.") % {"name": model.name, "why": why}
