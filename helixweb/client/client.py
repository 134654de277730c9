"""The client: `Client(url, key=…).nodes.all(cluster=1)`."""

from collections.abc import Callable, Iterable, Iterator

from helixweb.client.connection import Connection
from helixweb.client.events import Event, follow
from helixweb.client.rows import Rows


class Client(Connection):
    """A connection whose attributes are collections: `plan_runs` is `/api/v1/plan-runs/`."""

    def __getattr__(self, name: str) -> Rows:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return Rows(self, name.replace("_", "-"))

    def follow(
        self,
        topics: Iterable[str],
        *,
        last_id: str = "",
        tell: Callable[[str], None] = lambda text: None,
    ) -> Iterator[Event]:
        """Events of topics such as `cluster:1` and `plan-run:2`, without end; see `follow`."""
        return follow(self, list(topics), last_id=last_id, tell=tell)
