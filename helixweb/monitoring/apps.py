from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "helixweb.monitoring"

    def ready(self) -> None:
        from helixweb.common.deferred import deferred
        from helixweb.deployment.signals import report_received

        report_received.connect(
            deferred("helixweb.monitoring.services.keep_report"),
            dispatch_uid="monitoring-keep-report",
            weak=False,
        )
