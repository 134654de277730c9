"""Finds what limits a cluster now, from numbers alone, and describes it."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from helixweb.charts.chart import bit_rate_text
from helixweb.monitoring.cluster_load import LinkLoad, Load, NodeLoad

# A node that computes this much of the time has no more to give.
SATURATED = 0.85
# Below this share of the speed that the plan gives it, next to the others', a node is slow.
SLOW = 0.65
# A node limits the others if it is this busy, and about as busy as the busiest: a request's stages
# work in turn, so with few requests none of them is busy all the time.
HOLDS_UP = 0.6
ABOUT_AS_BUSY = 0.15
# Where half of the nodes wait for a core for this share of their steps, all of them share cores.
CROWDED = 0.2
# Pages in use; and what the coordinator has promised, which it keeps below the high-water mark.
KV_USED = 0.9
KV_PROMISED = 0.85
# The same while requests wait: the next one does not fit, though the last one that ended left room.
KV_PROMISED_AND_WAITED_FOR = 0.75
# Of the time of requests; where nodes have time to spare.
UNDER_WAY = 0.4


class Limit(StrEnum):
    """The kind of a limit."""

    SILENT_NODE = "silent node"
    SLOW_NODE = "slow node"
    KV_CACHE = "KV cache"
    CORES = "host CPU"
    COMPUTE = "compute"
    LINK = "link"
    ADMISSION = "admission"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`subject` is the node or link at fault, empty if none is; the rest are sentences."""

    limit: Limit
    subject: str
    headline: str
    evidence: str
    advice: str


def bottleneck(load: Load) -> Finding:
    """The first finding that applies, from the most severe limit to the merely busiest node."""
    heard = [node for node in load.nodes if node.busy_ratio is not None]
    if not heard:
        return _finding(
            Limit.UNKNOWN,
            "",
            _("No node is reporting, so nothing is known of what limits."),
            "",
            _("Check that the agents run and reach this site."),
        )
    found = (
        _silent(load)
        or _stalled_link(load.links)
        or _slow(heard)
        or _slow_link([link for link in load.links if link.limits])
        or _kv(load, heard)
        or _cores(heard)
        or _compute(heard)
        or _link(load.transfer_ratios)
        or _slow_link([link for link in load.links if link.slow])
    )
    if found is None:
        return _admission(load.waiting) if load.waiting else _nothing(load, heard)
    queue = f" {_requests(load.waiting)}." if load.waiting else ""
    return replace(found, evidence=found.evidence + queue)


def _finding(
    limit: Limit, subject: str, headline: str, evidence: str, advice: str, **values: object
) -> Finding:
    """The sentences may name `values`; a fraction is written as a percentage."""
    shown = {
        name: f"{value:.0%}" if isinstance(value, float) else value
        for name, value in values.items()
    }
    headline, evidence, advice = (text % shown for text in (headline, evidence, advice))
    return Finding(
        limit=limit, subject=subject, headline=headline, evidence=evidence, advice=advice
    )


def _silent(load: Load) -> Finding | None:
    silent = [node.name for node in load.nodes if node.busy_ratio is None]
    if not silent:
        return None
    headline = ngettext(
        "%(names)s is not reporting; requests avoid nodes that do not report.",
        "%(names)s are not reporting; requests avoid nodes that do not report.",
        len(silent),
    )
    return _finding(
        Limit.SILENT_NODE,
        silent[0],
        headline,
        _("%(silent)s of %(nodes)s nodes are silent."),
        _("See the node's page for its last message; plan without it if it stays away."),
        names=", ".join(silent[:3]) + (", …" if len(silent) > 3 else ""),
        silent=len(silent),
        nodes=len(load.nodes),
    )


def _slow(heard: Sequence[NodeLoad]) -> Finding | None:
    """A node that holds the others up because it is slower than the plan takes it to be."""
    speeds = _speeds(heard)
    least = max(HOLDS_UP, _busy(_busiest(heard)) - ABOUT_AS_BUSY)
    busy = [node for node in heard if node.name in speeds and _busy(node) >= least]
    if not busy or len(speeds) == 1:
        return None
    slowest = min(busy, key=lambda node: speeds[node.name])
    others = [speed for name, speed in speeds.items() if name != slowest.name]
    ratio = speeds[slowest.name] / statistics.median(others)
    if ratio >= SLOW:
        return None
    waits = ""
    if slowest.waiting_ratio >= CROWDED:
        waits = _(" It waits for a core for %(share)s of that, which other work has.")
    return _finding(
        Limit.SLOW_NODE,
        slowest.name,
        _("%(name)s is slow: it runs at %(ratio)s of the speed the plan gives it."),
        _(
            "It computes %(busy)s of the time; next to the other nodes' its "
            "tokens take %(times)s times as long as its profile says.%(waits)s"
        ),
        _(
            "Look for other work, heat or throttling on that machine; else profile "
            "it again and replan, so that it gets fewer layers or less flow."
        ),
        name=slowest.name,
        ratio=ratio,
        busy=_busy(slowest),
        times=f"{1 / ratio:.1f}",
        waits=waits % {"share": f"{slowest.waiting_ratio:.0%}"},
    )


def _speeds(heard: Sequence[NodeLoad]) -> dict[str, float]:
    """By node. Where most of them wait for cores, as those do that share a machine, each waits in
    another measure, and that says nothing of one of them: then it does not count."""
    known = [node for node in heard if node.speed is not None]
    if not known:
        return {}
    crowded = statistics.median(node.waiting_ratio for node in known) >= CROWDED
    speeds = {node.name: node.own_speed if crowded else node.speed for node in known}
    return {name: speed for name, speed in speeds.items() if speed is not None}


def _stalled_link(links: Sequence[LinkLoad]) -> Finding | None:
    stalled = [link.name for link in links if link.stalled]
    if not stalled:
        return None
    return _finding(
        Limit.LINK,
        stalled[0],
        _("The link %(name)s takes no prompts: what was sent is not answered."),
        _("%(stalled)s of %(links)s links that the plan uses are stalled."),
        _(
            "Check the network between the two, and that both were started with the "
            "same --data-security; plan without the node if it stays away."
        ),
        name=stalled[0],
        stalled=len(stalled),
        links=len(links),
    )


def _slow_link(links: Sequence[LinkLoad]) -> Finding | None:
    """The one of these that is farthest below what the plan counts on."""
    if not links:
        return None
    link = min(links, key=lambda one: one.measured_bytes_per_s / one.counted_bytes_per_s)
    costs = (
        _(
            "It carries %(carries_tokens_per_s)s of the %(planned_tokens_per_s)s "
            "tokens/s that the plan sends over it"
        )
        if link.carries_tokens_per_s < link.planned_tokens_per_s
        else _(
            "It still carries the %(planned_tokens_per_s)s tokens/s of the plan, but "
            "prompts are longer on their way"
        )
    )
    waits = _("; what waits for it now takes %(queue_s)s s") if link.queue_s >= 1 else ""
    routed = _("Requests are routed by what it does now, as far as there is another way. ")
    return _finding(
        Limit.LINK,
        link.name,
        _(
            "The link %(name)s is slow: it does %(rate)s, the plan counts on "
            "%(counted_bytes_per_s)s."
        )
        if link.slow
        else _("Prompts pile up at the link %(name)s, which does %(rate)s."),
        f"{costs}{waits}.",
        _(
            "%(routed)sOn the network's page the measured rate can count in the next "
            "plan, and weights can stay with the plan's; replan if it stays slow."
        ),
        name=link.name,
        rate=bit_rate_text(link.measured_bytes_per_s),
        counted_bytes_per_s=bit_rate_text(link.counted_bytes_per_s),
        carries_tokens_per_s=f"{link.carries_tokens_per_s:.0f}",
        planned_tokens_per_s=f"{link.planned_tokens_per_s:.0f}",
        queue_s=f"{link.queue_s:.0f}",
        routed=routed if link.follows else "",
    )


def _kv(load: Load, heard: Sequence[NodeLoad]) -> Finding | None:
    """Finding: KV room, not speed, limits the number of requests."""
    fullest = max(heard, key=lambda node: _fullness(node, waiting=load.waiting))
    if _fullness(fullest, waiting=load.waiting) < 1:
        return None
    used, promised = fullest.kv_used_ratio, fullest.kv_promised_ratio
    shares = []
    if used is not None:
        shares.append(_("%(used)s of its pages are in use") % {"used": f"{used:.0%}"})
    if promised is not None:
        may_need = _("requests that run may need %(promised)s of them")
        shares.append(may_need % {"promised": f"{promised:.0%}"})
    busiest = _busiest(heard)
    spare = (
        _(" %(name)s computes %(busiest)s of the time, so more room alone would bring little.")
        if _busy(busiest) >= SATURATED
        else _(" Computing is not what limits: the busiest node does %(busiest)s of the time.")
    )
    return _finding(
        Limit.KV_CACHE,
        fullest.name,
        _("The KV cache of %(name)s is nearly full."),
        _("There, %(shares)s.%(spare)s"),
        _(
            "Give it fewer layers, so that more memory is left for pages, or add a "
            "node; shorter prompts and answers need less."
        ),
        name=fullest.name,
        shares=_(" and ").join(shares),
        spare=spare % {"name": busiest.name, "busiest": f"{_busy(busiest):.0%}"},
    )


def _cores(heard: Sequence[NodeLoad]) -> Finding | None:
    """The machine whose nodes wait most for its CPU cores, if they could use more."""
    nodes_of: defaultdict[str, list[NodeLoad]] = defaultdict(list)
    for node in heard:
        nodes_of[node.host or node.name].append(node)

    def delayed(host: str) -> float:
        return sum(node.delayed_ratio for node in nodes_of[host])

    host = max(nodes_of, key=delayed)
    busy = sum(map(_busy, nodes_of[host]))
    if busy < SATURATED or delayed(host) < CROWDED * busy:
        return None
    return _finding(
        Limit.CORES,
        host,
        _("The CPU of %(host)s limits: its nodes' steps wait for a core %(share)s of their time."),
        _("Its nodes: %(names)s."),
        _(
            "Run fewer nodes or less other work on that machine, or give each node cores of its "
            "own; profiles measured without that contention promise too much."
        ),
        host=host,
        share=delayed(host) / busy,
        names=", ".join(node.name for node in nodes_of[host]),
    )


def _compute(heard: Sequence[NodeLoad]) -> Finding | None:
    busiest = _busiest(heard)
    if _busy(busiest) < SATURATED:
        return None
    others = [_busy(node) for node in heard if node.name != busiest.name]
    evidence = _("It computes %(busy)s of the time.")
    if others:
        evidence += _(" The others do %(others)s on average.")
    return _finding(
        Limit.COMPUTE,
        busiest.name,
        _("Computing on %(name)s limits."),
        evidence,
        _("The plan's page says what a faster node or one more would bring."),
        name=busiest.name,
        busy=_busy(busiest),
        others=statistics.mean(others or [0.0]),
    )


def _link(transfer_ratios: Mapping[str, float]) -> Finding | None:
    name = max(transfer_ratios, key=transfer_ratios.__getitem__, default="")
    share = transfer_ratios.get(name, 0.0)
    if share < UNDER_WAY:
        return None
    return _finding(
        Limit.LINK,
        name,
        _("The link %(name)s limits: requests spend %(share)s of their time on it."),
        _("Nodes have time to spare."),
        _(
            "A plan that crosses it less often is faster; see the network's page for "
            "what was measured of it."
        ),
        name=name,
        share=share,
    )


def _admission(waiting: int) -> Finding:
    return _finding(
        Limit.ADMISSION,
        "",
        _("%(waiting)s for a pipeline, though no node is full or busy."),
        _("A pipeline is free for a request when all of its nodes have room for it."),
        _("A request that needs much room lets none pass it; long prompts need most."),
        waiting=_requests(waiting),
    )


def _nothing(load: Load, heard: Sequence[NodeLoad]) -> Finding:
    busiest = _busiest(heard)
    fullest = max((node.kv_used_ratio or 0.0 for node in heard), default=0.0)
    return _finding(
        Limit.NOTHING,
        "",
        _("Nothing limits at this load.") if load.running else _("Idle: no request runs."),
        _(
            "The busiest node, %(name)s, computes %(busiest)s of the time, the "
            "fullest KV cache is %(fullest)s full, and no request waits."
        ),
        "",
        name=busiest.name,
        busiest=_busy(busiest),
        fullest=fullest,
    )


def _busiest(heard: Sequence[NodeLoad]) -> NodeLoad:
    return max(heard, key=_busy)


def _busy(node: NodeLoad) -> float:
    return node.busy_ratio or 0.0


def _fullness(node: NodeLoad, *, waiting: int) -> float:
    """1 or more: full."""
    most = KV_PROMISED_AND_WAITED_FOR if waiting else KV_PROMISED
    return max((node.kv_used_ratio or 0.0) / KV_USED, (node.kv_promised_ratio or 0.0) / most)


def _requests(number: int) -> str:
    return ngettext("%(number)s request waits", "%(number)s requests wait", number) % {
        "number": number
    }
