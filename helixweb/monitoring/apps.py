from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "helixweb.monitoring"
    label = "monitoring"

    def ready(self) -> None:
        from helixweb.common.metrics import register_metrics
        from helixweb.deployment.signals import report_received
        from helixweb.monitoring import metrics
        from helixweb.monitoring.receivers import keep_report

        report_received.connect(keep_report, dispatch_uid="monitoring-keep-report")
        register_metrics(metrics.collect)
