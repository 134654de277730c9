"""Agents of language models use the site by the Model Context Protocol, with a key."""

import json
from typing import Any

import jsonschema
import pytest
from django.contrib.auth import get_user_model
from rest_framework.test import APIClient

from helixweb.access.mcp import operations
from helixweb.common.models import ApiKey
from helixweb.inventory.models import Change, Cluster
from tests.helixweb.looking import answered, program_of

pytestmark = pytest.mark.django_db


class Agent:
    """A client with a key of these scopes."""

    def __init__(self, user: Any, *scopes: str) -> None:
        self.client = program_of(user, *scopes)
        self.client.credentials(
            **self.client._credentials, HTTP_ACCEPT="application/json, text/event-stream"
        )

    def ask(self, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        answer = answered(self.client.post("/api/v1/mcp/", message), 200)
        body = answer.json()
        assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
        return body.get("result") or body

    def call(self, name: str, /, **arguments: Any) -> tuple[Any, bool]:
        result = self.ask("tools/call", name=name, arguments=arguments)
        (content,) = result["content"]
        text = content["text"]
        return (json.loads(text) if text[:1] in "{[" else text), result["isError"]


def test_a_client_greets_lists_tools_and_calls_them(user: Any) -> None:
    agent = Agent(user, "read", "write")
    greeting = agent.ask("initialize", protocolVersion="2025-06-18", capabilities={})
    assert greeting["protocolVersion"] == "2025-06-18"
    assert greeting["capabilities"] == {"tools": {}}
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert agent.client.post("/api/v1/mcp/", told).status_code == 202
    assert agent.client.get("/api/v1/mcp/").status_code == 405
    names = {tool["name"] for tool in agent.ask("tools/list")["tools"]}
    assert {"clusters_create", "clusters_list", "clusters_retrieve"} <= names
    made, is_error = agent.call("clusters_create", body={"name": "new"})
    assert not is_error, made
    assert Cluster.unscoped.get(name="new").pk == made["id"]
    listed, _ = agent.call("clusters_list", limit=1, fields=["id", "name"])
    assert listed["results"] == [{"id": made["id"], "name": "new"}]
    found, _ = agent.call("clusters_retrieve", id=made["id"])
    assert found["name"] == "new"
    gone, is_error = agent.call("clusters_destroy", id=made["id"])
    assert not is_error, gone


def test_every_tool_has_a_name_that_clients_take_and_a_schema_of_its_own(user: Any) -> None:
    tools = Agent(user, "read", "write").ask("tools/list")["tools"]
    assert len(tools) > 80
    for tool in tools:
        assert 1 <= len(tool["name"]) <= 64, tool["name"]
        assert tool["description"]
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert "#/components" not in json.dumps(tool)
    assert not [one.path for one in operations().values() if "/agent/" in one.path]


def test_a_key_does_by_a_tool_what_it_may_do_and_no_more(user: Any) -> None:
    reader = Agent(user, "read")
    assert all(tool["annotations"]["readOnlyHint"] for tool in reader.ask("tools/list")["tools"])
    refused, is_error = reader.call("clusters_create", body={"name": "new"})
    assert is_error
    assert "lacks the scope write" in refused["detail"]
    stranger = get_user_model().objects.create_user("eve")
    for call, arguments in (("clusters_list", {}), ("clusters_create", {"body": {"name": "new"}})):
        refused, is_error = Agent(stranger, "read", "write").call(call, **arguments)
        assert is_error
        assert refused["status"] == 403
    assert not Cluster.unscoped.exists()


def test_without_a_good_key_nothing_is_answered(user: Any, browser: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert APIClient().post("/api/v1/mcp/", message).status_code == 401
    assert browser.post("/api/v1/mcp/", message, "application/json").status_code == 401
    agent = Agent(user, "read")
    ApiKey.objects.all().delete()
    assert agent.client.post("/api/v1/mcp/", message).status_code == 401


def test_what_is_no_call_of_a_tool_is_refused_with_the_reason(user: Any) -> None:
    agent = Agent(user, "read")
    assert agent.ask("tools/call", name="nothing")["error"]["code"] == -32602
    assert agent.ask("resources/list")["error"]["code"] == -32601
    told, is_error = agent.call("clusters_retrieve", name="new")
    assert is_error
    assert "does not take name; it takes fields, id" in told
    told, is_error = agent.call("clusters_retrieve")
    assert is_error
    for arguments in ([1], "id", 7, False):
        told = agent.ask("tools/call", name="clusters_list", arguments=arguments)
        assert told["error"]["code"] == -32602, arguments
    assert agent.client.post("/api/v1/mcp/", [{"id": 1}]).status_code == 400


def test_a_call_is_noted_once_as_the_operation_that_it_is(user: Any) -> None:
    agent = Agent(user, "read", "write")
    changes = Change.unscoped.count()
    agent.ask("tools/list")
    assert Change.unscoped.count() == changes
    agent.call("clusters_create", body={"name": "new"})
    assert Change.unscoped.count() == changes + 1
    assert Change.unscoped.latest("pk").name == "new"
