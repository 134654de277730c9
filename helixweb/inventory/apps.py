from django.apps import AppConfig


class InventoryConfig(AppConfig):
    name = "helixweb.inventory"
    label = "inventory"
