from django.apps import AppConfig


class DeploymentConfig(AppConfig):
    name = "helixweb.deployment"
    label = "deployment"
