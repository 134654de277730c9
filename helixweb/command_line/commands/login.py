"""`helixweb login`: save the site's address and an API key in a file of the user."""

import getpass
from argparse import Namespace

from helixweb.client.connection import checked_key, checked_url
from helixweb.command_line import settings_file
from helixweb.command_line.command import argument, command
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.session import DEFAULT_URL, client_for, key_of_environment
from helixweb.command_line.settings_file import Settings
from helixweb.command_line.surroundings import Surroundings


@command(argument("--forget", action="store_true", help="remove what was saved"), opens=False)
def login(arguments: Namespace) -> None:
    around: Surroundings = arguments.surroundings
    path = settings_file.path_of(around.environ)
    if arguments.forget:
        path.unlink(missing_ok=True)
        around.say(f"{path} is gone")
        return
    stored = settings_file.read(path)
    url = arguments.url or around.environ.get("HELIXWEB_URL") or stored.url or DEFAULT_URL
    settings = Settings(url=checked_url(url), key=_key(arguments))
    with client_for(arguments, settings, timeout_s=arguments.timeout) as client:
        count = client.clusters.page(limit=1).count
    settings_file.write(path, settings)
    if settings.url.startswith("http:") and not _is_this_machine(settings.url):
        around.warn("the key goes over the network in clear; use https:// if the site has it")
    around.say(f"{settings.url} knows the key ({count} clusters); saved in {path}")


def _key(arguments: Namespace) -> str:
    """The key: given, typed without echo, or the first line of a pipe."""
    around: Surroundings = arguments.surroundings
    key = arguments.key or key_of_environment(around)
    if not key and around.input.isatty():
        key = getpass.getpass("API key (Settings > API keys): ", stream=around.err)
    elif not key:
        key = around.input.readline()
    if not key.strip():
        raise BadUsage("no key was given; make one under Settings > API keys")
    return checked_key(key.strip())


def _is_this_machine(url: str) -> bool:
    return url.startswith(("http://127.", "http://localhost", "http://[::1]"))
