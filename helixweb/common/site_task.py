"""What every Celery task of the site derives from."""

from typing import Any

from celery import Task


class SiteTask(Task):  # type: ignore[type-arg]
    """A task acts for the site: it reads rows of all clusters."""

    abstract = True

    def __call__(self, *args: Any, **options: Any) -> Any:
        from helixweb.common.actor import acting_for_site  # needs the models

        with acting_for_site():
            return super().__call__(*args, **options)
