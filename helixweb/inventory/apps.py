from django.apps import AppConfig


class InventoryConfig(AppConfig):
    name = "helixweb.inventory"
    label = "inventory"

    def ready(self) -> None:
        from helixweb.common.deferred import deferred
        from helixweb.common.metrics import register_metrics

        register_metrics(deferred("helixweb.inventory.metrics.collect"))
