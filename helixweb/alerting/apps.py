from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "helixweb.alerting"
    label = "alerting"

    def ready(self) -> None:
        from helixweb.alerting import metrics
        from helixweb.common.metrics import register_metrics

        register_metrics(metrics.collect)
