"""REST: events, of rows that whoever asks may see."""

from collections.abc import Iterable

from helixweb.access.needs import OWN, needs
from helixweb.access.roles_of_holders import topic_of
from helixweb.access.topics import unheard
from helixweb.common.rest.events import EventsView


@needs(OWN)
class EventsOfRows(EventsView):
    """Ends when the roles of whoever reads it change; asked for anew it knows the new ones."""

    def unheard(self, topics: Iterable[str]) -> list[str]:
        return unheard(topics, self.request._request)

    def ending(self) -> str:
        return topic_of(int(self.request.user.pk or 0))
