from django.apps import AppConfig


class DeploymentConfig(AppConfig):
    name = "helixweb.deployment"
    label = "deployment"

    def ready(self) -> None:
        from django.db.models.signals import post_delete, post_save

        from helixweb.access.signals import rights_changed
        from helixweb.common.metrics import register_metrics
        from helixweb.common.models import ApiKey
        from helixweb.deployment import metrics
        from helixweb.deployment.link_view import links_at_work
        from helixweb.deployment.links import links_in_use
        from helixweb.deployment.pushing import announce_keys
        from helixweb.inventory.signals import links_asked, links_at_work_asked

        for signal in (post_save, post_delete):
            signal.connect(announce_keys, sender=ApiKey, dispatch_uid="deployment-announce-keys")
        rights_changed.connect(announce_keys, dispatch_uid="deployment-announce-rights")
        links_asked.connect(links_in_use, dispatch_uid="deployment-links-in-use")
        links_at_work_asked.connect(links_at_work, dispatch_uid="deployment-links-at-work")
        register_metrics(metrics.collect)
