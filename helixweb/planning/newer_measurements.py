"""Plans that are older than measurements of what they were computed from."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Max, QuerySet
from django.utils.translation import gettext as _

from helixweb.inventory.models import Change, Link, Node, Origin, Profile
from helixweb.planning.models import Plan, PlanRun

# What a problem is built from.
INPUTS = ("node", "link", "regionlink", "sharedbandwidth", "profile")
_EDITS = (Change.Action.ADDED, Change.Action.CHANGED, Change.Action.REMOVED)
_PROCESS_NEWS = "announced itself anew"
_MEASURED = (Origin.MEASURED, Origin.REFINED)
_NAMED = 5  # of more profiles only their number is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerMeasurements:
    """Measurements since a plan's problem was built: profiles that nodes use, and links.

    `computed_since` is the newest run that was started after all of it, if there is one.
    """

    plan: Plan
    profiles: tuple[str, ...]
    links: int
    computed_since: PlanRun | None

    @property
    def text(self) -> str:
        """A short text of what is newer."""
        count = len(self.profiles)
        words = []
        if count:
            names = ", ".join(self.profiles) if count <= _NAMED else count
            words.append(_("profiles: %(names)s") % {"names": names})
        if self.links:
            words.append(_("links: %(count)s") % {"count": self.links})
        return "; ".join(words)


def newer_measurements(plan: Plan) -> NewerMeasurements | None:
    """None if there are none, or if the plan is of a copy that was changed for a what-if.

    A measurement that confirms the one before changes no numbers, so it does not count.
    """
    run = _first_run(plan)
    if run is not None and run.what_if:
        return None
    edits = edits_after(plan, kinds=("profile", "link"))
    profiles = Profile.unscoped.filter(
        pk__in=edits.filter(kind="profile").values("row_id"),
        model=plan.model_id,
        origin__in=_MEASURED,
        name__in=Node.unscoped.filter(cluster=plan.cluster_id).values("profile_name"),
    )
    links = Link.unscoped.filter(
        pk__in=edits.filter(kind="link").values("row_id"), origin__in=_MEASURED
    )
    names, count = tuple(profiles.values_list("name", flat=True)), links.count()
    if not names and not count:
        return None
    last_at = edits.aggregate(last_at=Max("at"))["last_at"]
    later = PlanRun.unscoped.filter(
        cluster=plan.cluster_id, model=plan.model_id, created_at__gt=last_at, what_if="",
        continues=None, mix=None,
    ).exclude(status=PlanRun.Status.FAILED)  # fmt: skip
    return NewerMeasurements(
        plan=plan, profiles=names, links=count, computed_since=later.only("pk").first()
    )


def edits_after(plan: Plan, *, kinds: Collection[str] = INPUTS) -> QuerySet[Change]:
    """Lines of the change log about what the plan's problem was built from, since it was built."""
    run = _first_run(plan)
    if run is None:
        built_at = plan.created_at
    else:
        built_at = run.created_at if run.mix is None else run.mix.created_at
    return Change.unscoped.filter(
        cluster=plan.cluster_id, kind__in=kinds, action__in=_EDITS, at__gt=built_at
    ).exclude(text=_PROCESS_NEWS)


def _first_run(plan: Plan) -> PlanRun | None:
    """The run that the plan's problem was built for; runs that continue it share the problem."""
    runs = PlanRun.unscoped.select_related("mix").only(
        "created_at", "what_if", "continues_id", "mix__created_at"
    )
    run, pk = None, plan.run_id
    while pk is not None:
        run = runs.get(pk=pk)
        pk = run.continues_id
    return run
