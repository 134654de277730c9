"""Rows of alerting."""

import math
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext as _

from helixweb.access.scope import InCluster
from helixweb.alerting import signing
from helixweb.alerting.kinds import DEFAULTS, Bad, Kind, Severity
from helixweb.alerting.outbound import TargetRefused, parse_target
from helixweb.alerting.states import State
from helixweb.common.models import Job
from helixweb.inventory.columns import cluster_key, name_column, unique
from planner import InvalidProblem

LONGEST_S = 30 * 86_400.0
MOST_ADDRESSES = 20
SUBJECT_LENGTH = 200
STATES = [(state.value, state.value) for state in State]
OPEN = (State.PENDING.value, State.FIRING.value)


def validate_seconds(value: float) -> None:
    if not 0 <= value <= LONGEST_S:
        raise ValidationError(_("Give 0 to %(most)s seconds.") % {"most": f"{LONGEST_S:,.0f}"})


def validate_threshold(value: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= 1e15):
        raise ValidationError(_("Give a number from 0 to 1e15."))


def validate_url(value: str) -> None:
    """Validate a URL's form; its address is checked whenever something is sent."""
    if not value:
        return
    try:
        parse_target(value)
    except TargetRefused as error:
        raise ValidationError(str(error)) from error


def validate_addresses(value: Any) -> None:
    if not isinstance(value, list) or len(value) > MOST_ADDRESSES:
        raise ValidationError(
            _("Give a list of at most %(most)s addresses.") % {"most": MOST_ADDRESSES}
        )
    for address in value:
        try:
            validate_email(address)
        except (ValidationError, TypeError) as error:
            raise ValidationError(
                _("%(address)s is no e-mail address.") % {"address": repr(address)[:100]}
            ) from error


class Evaluation(InCluster):
    """When a cluster's rules were last evaluated; its row is the lock of an evaluation."""

    cluster = models.OneToOneField(
        "inventory.Cluster", on_delete=models.CASCADE, related_name="alert_evaluation"
    )
    at = models.DateTimeField()


class Channel(InCluster):
    """A notification channel of a cluster: POSTs to `url`, or mails to `addresses`.

    `sealed_secret` signs what is posted; see `signing.py`. With `alive_every_s` a delivery is sent
    at this interval even if nothing fires, so that the receiver notices when the site is down.
    `failures` counts consecutive deliveries that failed for good.
    """

    class Way(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"

    cluster = cluster_key("alert_channels")
    name = name_column()
    way = models.CharField(max_length=8, choices=Way.choices)
    url = models.CharField(max_length=500, blank=True, validators=[validate_url])
    addresses = models.JSONField(default=list, blank=True, validators=[validate_addresses])
    sealed_secret = models.TextField(blank=True, editable=False)
    enabled = models.BooleanField(default=True)
    send_resolved = models.BooleanField(default=True)
    least_severity = models.CharField(
        max_length=8, choices=Severity.choices, default=Severity.WARNING
    )
    alive_every_s = models.FloatField(null=True, blank=True, validators=[validate_seconds])
    failures = models.PositiveIntegerField(default=0, editable=False)
    disabled_why = models.TextField(blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    secret = ""  # what `sealed_secret` hides, of a row that was created just now

    class Meta:
        ordering = ["name"]
        constraints = [unique("alert_channel_unique_in_cluster", "cluster", "name")]

    def __str__(self) -> str:
        return self.name

    def save(self, **options: Any) -> None:
        """A new webhook gets its secret; a channel that is enabled again has no failures yet."""
        if self._state.adding and self.way == self.Way.WEBHOOK:
            self.secret = signing.new_secret()
            self.sealed_secret = signing.seal(self.secret)
        if self.enabled and self.disabled_why:
            self.failures, self.disabled_why = 0, ""
        super().save(**options)

    def check_row(self) -> None:
        """Raises InvalidProblem."""
        if self.way == self.Way.WEBHOOK and not self.url:
            raise InvalidProblem(_("A webhook needs the URL that is posted to."))
        if self.way == self.Way.EMAIL and not self.addresses:
            raise InvalidProblem(_("Mails need at least one address."))


class AlertRule(InCluster):
    """When an alert begins and ends. Without `channels` it notifies all channels of the cluster."""

    cluster = cluster_key("alert_rules")
    name = name_column()
    kind = models.CharField(max_length=24, choices=Kind.choices)
    threshold = models.FloatField(validators=[validate_threshold])
    clears_at = models.FloatField(validators=[validate_threshold])
    for_s = models.FloatField(default=0, validators=[validate_seconds])
    resolve_s = models.FloatField(default=0, validators=[validate_seconds])
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    enabled = models.BooleanField(default=True)
    channels = models.ManyToManyField(Channel, blank=True, related_name="rules")

    class Meta:
        ordering = ["name"]
        constraints = [unique("alert_rule_unique_in_cluster", "cluster", "name")]

    def __str__(self) -> str:
        return self.name

    def check_row(self) -> None:
        """Raises InvalidProblem."""
        if self.is_bad(self.clears_at):
            error = _("It is over at %(clears_at)s, which is past its threshold of %(threshold)s.")
            numbers = {
                "clears_at": f"{self.clears_at:g}",
                "threshold": f"{self.threshold:g}",
            }
            raise InvalidProblem(
                _("alert rule %(name)s: %(error)s")
                % {"name": repr(self.name), "error": error % numbers}
            )

    @property
    def bad(self) -> Bad:
        return DEFAULTS[Kind(self.kind)].bad

    @property
    def unit(self) -> str:
        """The unit of its threshold."""
        return DEFAULTS[Kind(self.kind)].unit

    def is_bad(self, value: float) -> bool:
        return value > self.threshold if self.bad is Bad.ABOVE else value < self.threshold

    def is_good(self, value: float) -> bool:
        return value <= self.clears_at if self.bad is Bad.ABOVE else value >= self.clears_at


class Alert(InCluster):
    """A rule's finding about one subject (a node, a link, …), from its beginning to its end.

    `said` is the sentence about the last reading, in the form of events. `turn` is 1 once the alert
    fires, 2 once it is over.
    """

    cluster = cluster_key("alerts")
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts")
    subject = models.CharField(max_length=SUBJECT_LENGTH)
    severity = models.CharField(max_length=8, choices=Severity.choices)
    state = models.CharField(max_length=8, choices=STATES)
    value = models.FloatField(null=True)
    said = models.JSONField(default=dict)
    since = models.DateTimeField()
    good_since = models.DateTimeField(null=True)
    fired_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    flaps = models.PositiveIntegerField(default=0)
    turn = models.PositiveSmallIntegerField(default=0)
    silenced = models.BooleanField(default=False)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    comment = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            unique("alert_one_open_of_rule_and_subject", "rule", "subject", among=Q(state__in=OPEN))
        ]
        indexes = [models.Index(fields=["cluster", "state"], name="alert_in_cluster_by_state")]

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}"


class Silence(InCluster):
    """A time without notifications of a cluster's alerts: of one rule's or all, of one subject's
    or all."""

    cluster = cluster_key("alert_silences")
    rule = models.ForeignKey(AlertRule, null=True, blank=True, on_delete=models.CASCADE)
    subject = models.CharField(max_length=SUBJECT_LENGTH, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    comment = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL
    )

    class Meta:
        ordering = ["-ends_at", "-pk"]

    def check_row(self) -> None:
        """Raises InvalidProblem."""
        if self.ends_at <= self.starts_at:
            raise InvalidProblem(_("A silence ends after it begins."))
        if self.rule is not None and self.rule.cluster_id != self.cluster_id:
            raise InvalidProblem(_("Rule %(rule)s is of another cluster.") % {"rule": self.rule})

    def __str__(self) -> str:
        return f"silence until {self.ends_at:%Y-%m-%d %H:%M}"


class Delivery(InCluster, Job):
    """One message to a channel, and its status; stored in the transaction of the alerts' changes.

    `number` identifies it to the receiver in every attempt. Alerts in `told` may be added until
    the first attempt.
    """

    class Occasion(models.TextChoices):
        ALERTS = "alerts"
        TEST = "test"
        ALIVE = "alive"

    cluster_path = "channel__cluster"

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    occasion = models.CharField(max_length=8, choices=Occasion.choices)
    number = models.UUIDField(unique=True)
    told = models.JSONField(default=list)
    next_try_at = models.DateTimeField()

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["status", "next_try_at"], name="delivery_due")]

    def __str__(self) -> str:
        return f"delivery {self.number} to {self.channel}"


class DeliveryAttempt(InCluster):
    """One try. `code` is what the receiver answered; null: nothing came, and `error` says why."""

    cluster_path = "delivery__channel__cluster"

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="attempts")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    took_s = models.FloatField()
    code = models.PositiveIntegerField(null=True)
    error = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["pk"]
