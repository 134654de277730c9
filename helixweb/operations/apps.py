from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "helixweb.operations"
    label = "operations"
