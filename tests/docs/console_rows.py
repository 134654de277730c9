"""`python -m tests.docs.console_rows CHAT_URL`: the rows of the world; prints NAME=value lines."""

import os
import sys

from tests.e2e.site_world import make_world


def main(chat_url: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    import django

    django.setup()
    from django.contrib.auth import get_user_model

    from helixweb.common.api_keys import create_api_key
    from helixweb.inventory.models import Cluster

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
    for name, value in told.items():
        print(f"{name}={value}")


if __name__ == "__main__":
    main(*sys.argv[1:])
