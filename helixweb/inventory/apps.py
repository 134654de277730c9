from django.apps import AppConfig


class InventoryConfig(AppConfig):
    name = "helixweb.inventory"
    label = "inventory"

    def ready(self) -> None:
        from helixweb.common.metrics import register_metrics
        from helixweb.inventory import metrics

        register_metrics(metrics.collect)
