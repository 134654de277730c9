from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "helixweb.monitoring"
    label = "monitoring"

    def ready(self) -> None:
        from helixweb.deployment.signals import report_received
        from helixweb.monitoring.receivers import keep_report

        report_received.connect(keep_report, dispatch_uid="monitoring-keep-report")
