"""Pages of alerting."""

from django.urls import path

from helixweb.alerting import pages

urlpatterns = [
    path("alerts/", pages.alerts, name="alerts"),
    path("alerts/bell", pages.bell, name="alerts-bell"),
    path("alerts/<int:pk>/acknowledge", pages.acknowledge, name="alert-acknowledge"),
    path("alerts/rules/", pages.rules, name="alert-rules"),
    *pages.RulePages().urls,
    path("alerts/channels/", pages.channels, name="alert-channels"),
    *pages.ChannelPages().urls,
    path("alerts/channels/<int:pk>/test", pages.channel_test, name="alert-channel-test"),
    path("alerts/channels/<int:pk>/secret", pages.channel_secret, name="alert-channel-secret"),
    path("alerts/silences/", pages.silences, name="alert-silences"),
    *pages.SilencePages().urls,
    path("alerts/silences/<int:pk>/end", pages.silence_end, name="alert-silence-end"),
    path("alerts/deliveries/", pages.delivery_log, name="alert-deliveries"),
    path("alerts/deliveries/<int:pk>/again", pages.delivery_again, name="alert-delivery-again"),
]
