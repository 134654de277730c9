"""The rows of the world in which documented commands run, as environment variables."""

from django.contrib.auth import get_user_model

from helixweb.common.api_keys import create_api_key
from helixweb.inventory.models import Cluster
from tests.e2e.site_world import make_world


def main(chat_url: str) -> dict[str, str]:
    world = make_world("docs", chat_url=chat_url)
    user = get_user_model().objects.get(username=world["user"])
    key = create_api_key(name="docs", user=user, scopes=["read", "write", "serve"])
    told = {
        "KEY": key.secret,
        "USERNAME": user.username,
        "CLUSTER": world["cluster"],
        "CLUSTER_NAME": Cluster.unscoped.get(pk=world["cluster"]).name,
        "NODE": world["node"],
        "PLAN": world["plan"],
        "DEPLOYMENT": world["deployment"],
        "MODEL": world["model_name"],
    }
    return {name: str(value) for name, value in told.items()}
