"""Pages of alerting."""

from django.urls import path

from helixweb.alerting import channel_pages, rule_pages, views
from helixweb.alerting.models import AlertRule, Channel

RULES, CHANNELS = rule_pages.RulePages(), channel_pages.ChannelPages()

urlpatterns = [
    path("alerts/", views.alerts, name="alerts"),
    path("alerts/bell", views.bell, name="alerts-bell"),
    path("alerts/<int:pk>/acknowledge", views.acknowledge, name="alert-acknowledge"),
    path("alerts/rules/", rule_pages.rules, name="alert-rules"),
    path(
        "alerts/rules/new/<int:cluster_pk>",
        RULES.view("new", by="cluster_pk"),
        name="alert-rule-new",
    ),
    path("alerts/rules/<int:pk>/", RULES.view("edit", of=AlertRule), name="alert-rule-edit"),
    path(
        "alerts/rules/<int:pk>/delete", RULES.view("delete", of=AlertRule), name="alert-rule-delete"
    ),
    path("alerts/channels/", channel_pages.channels, name="alert-channels"),
    path(
        "alerts/channels/new/<int:cluster_pk>", channel_pages.channel_new, name="alert-channel-new"
    ),
    path("alerts/channels/<int:pk>/", CHANNELS.view("edit", of=Channel), name="alert-channel-edit"),
    path(
        "alerts/channels/<int:pk>/delete",
        CHANNELS.view("delete", of=Channel),
        name="alert-channel-delete",
    ),
    path("alerts/channels/<int:pk>/test", channel_pages.channel_test, name="alert-channel-test"),
    path(
        "alerts/channels/<int:pk>/secret", channel_pages.channel_secret, name="alert-channel-secret"
    ),
    path("alerts/silences/", views.silences, name="alert-silences"),
    path("alerts/silences/new/<int:cluster_pk>", views.silence_new, name="alert-silence-new"),
    path("alerts/silences/<int:pk>/end", views.silence_end, name="alert-silence-end"),
    path("alerts/deliveries/", channel_pages.delivery_log, name="alert-deliveries"),
    path(
        "alerts/deliveries/<int:pk>/again",
        channel_pages.delivery_again,
        name="alert-delivery-again",
    ),
]
