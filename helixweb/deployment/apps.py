from django.apps import AppConfig


class DeploymentConfig(AppConfig):
    name = "helixweb.deployment"

    def ready(self) -> None:
        from django.db.models.signals import post_delete, post_save

        from helixweb.access.signals import rights_changed
        from helixweb.common import jobs
        from helixweb.common.deferred import deferred
        from helixweb.common.models import ApiKey
        from helixweb.inventory.signals import links_asked, links_at_work_asked, profiles_missing
        from helixweb.planning.models import PlanRun

        for signal, sender, path in (
            (post_save, ApiKey, "announcing.announce_keys"),
            (post_delete, ApiKey, "announcing.announce_keys"),
            (rights_changed, None, "announcing.announce_keys"),
            (links_asked, None, "links.links_in_use"),
            (links_at_work_asked, None, "links.links_at_work"),
            (profiles_missing, None, "profiling.measure_missing"),
            (jobs.over, PlanRun, "services.repairing.follow_search"),
        ):
            path = f"helixweb.deployment.{path}"
            signal.connect(deferred(path), sender=sender, dispatch_uid=path, weak=False)
