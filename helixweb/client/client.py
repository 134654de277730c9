"""The client: `Client(url, key=…).nodes.all(cluster=1)`."""

from collections.abc import Callable, Iterable, Iterator

from helixweb.client.events import Event, follow
from helixweb.client.generated.resources import Resources


class Client(Resources):
    """Rows are plain dicts, typed as `helixweb.client.generated.schemas` says."""

    def follow(
        self,
        topics: Iterable[str],
        *,
        last_id: str = "",
        tell: Callable[[str], None] = lambda text: None,
    ) -> Iterator[Event]:
        """Events such as those of `cluster:1` and `plan-run:2`, for ever; see `follow`."""
        return follow(self, list(topics), last_id=last_id, tell=tell)
