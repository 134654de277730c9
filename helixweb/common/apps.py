from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "helixweb.common"
    label = "common"
