"""`helixweb login`: save the site's address and an API key in a file of the user."""

import getpass

from helixweb.client import checked_key, checked_url
from helixweb.command_line import settings_file
from helixweb.command_line.command import command
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.session import Session
from helixweb.command_line.settings_file import Settings
from runtime.protocol.trust import stays_here


@command()
def login(site: Session, *, forget: bool = False) -> None:
    """Save the site's address and an API key for other commands.

    --forget: remove what was saved
    """
    path = settings_file.path_of(site.around.environ)
    if forget:
        path.unlink(missing_ok=True)
        site.around.say(f"{path} is gone")
        return
    url = checked_url(site.url_before(settings_file.read(path).url))
    settings = Settings(url=url, key=_key(site))
    with site.client_of(settings) as client:
        count = client.clusters.page(limit=1).count
    settings_file.write(path, settings)
    if url.startswith("http:") and not stays_here(url):
        site.around.warn("the key goes over the network in clear; use https:// if the site has it")
    site.around.say(f"{url} knows the key ({count} clusters); saved in {path}")


def _key(site: Session) -> str:
    """The key: given, typed without echo, or the first line of a pipe."""
    key, around = site.given_key, site.around
    if not key and around.input.isatty():
        key = getpass.getpass("API key (Settings > API keys): ", stream=around.err)
    elif not key:
        key = around.input.readline()
    if not key.strip():
        raise BadUsage("no key was given; make one under Settings > API keys")
    return checked_key(key.strip())
