"""The OpenAI endpoint and model name of `chat` and `bench`."""

from argparse import Namespace

from helixweb.client import Row
from helixweb.command_line.command import CLUSTER, argument
from helixweb.command_line.failures import CommandFailed, NoSuchName
from helixweb.command_line.openai_stream import Endpoint, base_url
from helixweb.command_line.resolve import cluster_named, deployment_of
from helixweb.command_line.session import Session, session, settings_of

ENDPOINT = (
    argument("--endpoint", metavar="URL", help="any OpenAI API, without asking the site"),
    argument("--model", help="its name there (needed with --endpoint)"),
    CLUSTER,
)


def endpoint_of(arguments: Namespace) -> Endpoint:
    """Raises NoSuchName, CommandFailed, ClientError."""
    settings = settings_of(arguments)
    if arguments.endpoint is not None:
        if arguments.model is None:
            raise NoSuchName("--endpoint needs --model: the name of the model there")
        # The key that `login` saved is sent to the site only.
        around = arguments.surroundings
        key = arguments.key or around.environ.get("HELIXWEB_KEY", "")
        return Endpoint(url=base_url(arguments.endpoint), model=arguments.model, key=key)
    with session(arguments) as site:
        cluster = cluster_named(site.client, arguments.cluster)
        deployment = deployment_of(site.client, None, arguments.cluster)
        model = arguments.model or deployment["model_name"]
        return Endpoint(url=base_url(_address(site, cluster)), model=model, key=settings.key)


def _address(site: Session, cluster: Row) -> str:
    """The address of a coordinator that reports one; online coordinators first."""
    rows = [one for one in site.client.coordinators.all(cluster=cluster["id"]) if one["http_url"]]
    rows.sort(key=lambda one: one["state"] != "online")
    if not rows:
        raise CommandFailed(
            f"no coordinator of cluster {cluster['name']} has said where it is reached; start it "
            "with --host and --port, or give --endpoint URL"
        )
    return str(rows[0]["http_url"])
