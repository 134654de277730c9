from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "helixweb.alerting"

    def ready(self) -> None:
        from helixweb.alerting.as_code import ALERT_RULES
        from helixweb.inventory.as_code import documents

        documents.register(ALERT_RULES)
