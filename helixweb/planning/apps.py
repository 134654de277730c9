from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "helixweb.planning"
    label = "planning"
