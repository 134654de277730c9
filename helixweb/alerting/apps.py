from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "helixweb.alerting"

    def ready(self) -> None:
        from helixweb.alerting.as_code import ALERT_RULES
        from helixweb.common.deferred import deferred
        from helixweb.common.metrics import register_metrics
        from helixweb.inventory.as_code import kinds

        register_metrics(deferred("helixweb.alerting.metrics.collect"))
        kinds.register(ALERT_RULES)
