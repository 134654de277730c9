from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "helixweb.monitoring"
    label = "monitoring"
