"""An inventory as a file, over REST: asked, brought in, and made up; for the tests of both."""

import random
from typing import Any

from django.contrib.auth import get_user_model
from rest_framework.test import APIClient

from helixweb.inventory.models import Change, Cluster, LanguageModel
from tests.helixweb.looking import answered, api_of

EXPORT, IMPORT = "/api/v1/export/", "/api/v1/import/"
Document = dict[str, Any]


def client() -> APIClient:
    return api_of(get_user_model().objects.get(username="ada"))


def exported(**query: Any) -> Document:
    answer = answered(client().get(EXPORT, query), 200)
    return answer.json()


def bring_in(document: Document, **query: Any) -> Any:
    return client().post(IMPORT + asked(query), document)


def bring_in_text(text: str | bytes, media: str = "application/yaml", **query: Any) -> Any:
    content = text.encode() if isinstance(text, str) else text
    return client().generic("POST", IMPORT + asked(query), content, content_type=media)


def asked(query: Document) -> str:
    return "?" + "&".join(f"{name}={value}" for name, value in query.items())


def steps(answer: Any) -> list[tuple[str, str, str]]:
    assert answer.status_code == 200, answer.content
    return [(one["action"], one["kind"], one["name"]) for one in answer.json()["steps"]]


def told_rows() -> int:
    """Lines of the change log about rows; the rest tells that something was asked."""
    return Change.unscoped.filter(action__in=("added", "changed", "removed")).count()


def wipe() -> None:
    Cluster.unscoped.all().delete()
    LanguageModel.objects.all().delete()


def made_up(dice: random.Random) -> Document:
    """Any inventory: every key of every kind of row, with names that files may take otherwise."""
    odd = [
        "1e5",
        "yes",
        "null",
        "~",
        "a: b",
        "- x",
        "#c",
        "O'Neil",
        '"q"',
        "节点",
        "=1+1",
        "'-x",
        "0x1",
    ]

    def names(count: int) -> list[str]:
        return [f"{dice.choice(odd)} {number}" for number in dice.sample(range(99), count)]

    def numbers(count: int) -> list[float]:
        return [dice.uniform(0, 1e4) * 10 ** dice.randint(-9, 9) for _ in range(count)]

    def link(source: str, target: str) -> Document:
        bandwidth, latency = numbers(2)
        return {
            "source": source, "target": target, "bandwidth_bytes_per_s": bandwidth + 1,
            "latency_s": latency % 3600,
            "origin": dice.choice(["measured", "imported", "estimated"]),
        }  # fmt: skip

    def cluster(name: str, models: list[str]) -> Document:
        nodes, regions, profiles = names(4), names(2), names(2)
        layers = dice.randint(1, 3)
        ends = ["coordinator", *nodes]
        pairs = [(one, other) for one in ends for other in ends if one != other]
        return {
            "name": name, "coordinator_region": regions[0], "mean_prompt_tokens": 7.5,
            "mean_output_tokens": dice.randint(1, 99), "source": "line\nline\ttab",
            "replanning": dice.choice(["automatic", "ask", "never"]),
            "profiles": [
                {
                    "model": model, "name": one, "gpu": dice.choice(odd), "vram_bytes": 1e9,
                    "max_layers": layers,
                    "tokens_per_s": [min(1e9, speed) for speed in numbers(layers)],
                    "kv_capacity_token_layers": numbers(layers), "price_per_hour": None,
                    "layer_times": {"prompt": [[1.0, 1e-4], [9.0, 1e-3]], "decode": [[1.0, 1e-4]]},
                    "batch_limits": {
                        "prompt_max_requests": [4] * layers, "decode_max_tokens": [8] * layers,
                    },
                    "instance_times": {"2": {"prefill": [0.0] * 3 + [1e-3], "decode": [1e-3] * 4}},
                    "origin": "measured",
                }
                for model in models for one in profiles
            ],
            "nodes": [
                {
                    "name": one, "region": dice.choice(regions), "gpus": dice.randint(1, 8),
                    "profile_name": dice.choice(["", *profiles]),
                    "price_per_hour": dice.choice([None, 0.25]),
                    "tags": sorted(dice.sample(["1e5", "null", "fast", "a.b-c"], 2)),
                }
                for one in nodes
            ],
            "region_links": [link(one, other) for one in regions for other in regions],
            "links": [link(*pair) for pair in dice.sample(pairs, 5)],
            "shared_bandwidths": [
                {
                    "name": one, "members": dice.sample([*ends, regions[0]], 2),
                    "direction": "ingress", "scope": dice.choice(["nic", "region"]),
                    "bandwidth_bytes_per_s": 5,
                }
                for one in names(2)
            ],
        }  # fmt: skip

    models = names(2)
    return {
        "format": "helixweb.inventory/1",
        "models": [
            {
                "name": one, "num_layers": dice.randint(1, 90), "token_bytes": 4,
                "activation_bytes_per_token": numbers(1)[0] + 1, "bytes_per_layer": 1 / 3,
                "checkpoint": dice.choice(["", "/models/1e5"]), "max_context_tokens": 2048,
                "num_heads": None, "num_kv_heads": dice.choice([None, 8]),
                "vllm_flags": dice.choice(["", "--max-num-seqs 8"]),
            }
            for one in models
        ],
        "clusters": [cluster(one, models) for one in names(2)],
    }  # fmt: skip
