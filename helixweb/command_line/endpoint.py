"""The OpenAI endpoint and model name of `chat` and `bench`."""

import argparse
from dataclasses import dataclass

from helixweb.client import Row
from helixweb.command_line.completion_words import cluster_names
from helixweb.command_line.openai_stream import base_url
from helixweb.command_line.registry import completed_by
from helixweb.command_line.reporting import CommandFailed, NoSuchName
from helixweb.command_line.resolve import cluster_named, in_service
from helixweb.command_line.session import Session, session, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`url` ends with /v1."""

    url: str
    model: str
    key: str


def endpoint_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", metavar="URL", help="any OpenAI API, without asking the site")
    parser.add_argument("--model", help="its name there (needed with --endpoint)")
    completed_by(parser.add_argument("--cluster", help="its name or id"), cluster_names)


def endpoint_of(arguments: argparse.Namespace) -> Endpoint:
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
        deployment = in_service(site.client, cluster["id"])
        if deployment is None:
            raise NoSuchName(f"nothing is deployed on cluster {cluster['name']}; deploy a plan")
        address = _address(site, cluster)
        model = arguments.model or deployment["model_name"]
        return Endpoint(url=base_url(address), model=model, key=settings.key)


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
