"""An example for every body of the OpenAPI document, out of its schema: names as in the demo."""

import re
from collections.abc import Mapping
from typing import Any

# What fields of these names hold, where that is more telling than their type. A schema that does
# not allow the value, or says another type, goes by its type.
VALUES: Mapping[str, Any] = {
    "actor": "ada",
    "at": "2026-01-31T12:00:00Z",
    "bandwidth_bytes_per_s": 1.25e8,
    "batch": "7f1d2c3b-0f6e-4b86-9a5e-2f4f2b1f6a10",
    "bytes_per_layer": 1.6e9,
    "activation_bytes_per_token": 16384.0,
    "checkpoint": "/models/llama-3-8b",
    "cluster": 1,
    "command": "curl -fsSL http://127.0.0.1:8000/join.sh | sh -s -- --token hlxj_…",
    "coordinator_region": "home",
    "created_by": "ada",
    "data_endpoint": "tcp://10.0.0.7:7000",
    "detail": "name: This field is required.",
    "document": {"format": "helixweb.profile/1"},
    "endpoint": "tcp://10.0.0.7:7000",
    "error": "",
    "excluded_nodes": ["laptop"],
    "figure": "flow",
    "flow_tokens_per_s": 420.0,
    "format": "helixweb.problem/1",
    "gap": 0.05,
    "gpu": "A100-40GB",
    "hostname": "tower.example",
    "http_url": "http://10.0.0.2:8100",
    "id": 1,
    "latency_s": 0.0005,
    "limit": 50,
    "message": "",
    "model": 1,
    "model_name": "llama-3-8b",
    "name": "tower",
    "node": 1,
    "node_name": "tower",
    "num_layers": 32,
    "phase": "prompt",
    "plan": 1,
    "problem": {"format": "helixweb.problem/1"},
    "profile_name": "A100-40GB",
    "q": "tower",
    "region": "home",
    "secret": "hlxj_…",
    "source": "tower",
    "target": "laptop",
    "to_reach": ["tcp://10.0.0.7:7000"],
    "tokens_per_s": [9000.0, 4500.0],
    "kv_capacity_token_layers": [400000.0, 380000.0],
    "topic": "cluster:1",
    "topics": "cluster:1,plan-run:2",
    "ttft_p50_s": 0.21,
    "upper_bound_tokens_per_s": 442.0,
    "username": "ada",
    "uuid": "2b0a9d53-5f0b-4c0e-9d5c-0b6f2d3b8f11",
    "node_uuid": "2b0a9d53-5f0b-4c0e-9d5c-0b6f2d3b8f11",
    "version": "0.1.0",
    "vram_bytes": 4.0e10,
}  # fmt: skip
_BY_FORMAT = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "uuid": "7f1d2c3b-0f6e-4b86-9a5e-2f4f2b1f6a10",
    "uri": "http://127.0.0.1:8000/api/v1/plan-runs/1/",
    "email": "ada@example.org",
    "ipv4": "10.0.0.7",
    "binary": "",
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
    "object": dict,
}  # fmt: skip
# Of schemas that hold themselves.
_DEEPEST = 8


class Examples:
    """Of the schemas of one document."""

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = components

    def of(self, schema: Mapping[str, Any], *, name: str = "", depth: int = 0) -> Any:
        """A value that the schema allows; `name`: of the field that holds it."""
        schema = self._resolved(schema)
        if "example" in schema:
            return schema["example"]
        kind = _kind(schema)
        told = VALUES.get(name)
        if told is not None and _allows(schema, kind, told):
            return told
        for choice in ("const", "default"):
            if schema.get(choice) is not None:
                return schema[choice]
        if schema.get("enum"):
            return schema["enum"][0]
        if kind == "object":
            return self._object(schema, depth=depth)
        if kind == "array":
            return self._array(schema, name=name, depth=depth)
        return _scalar(schema, kind)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while True:
            if "$ref" in schema:
                schema = self._components[schema["$ref"].rpartition("/")[2]]
            elif schema.get("allOf"):
                first, *others = (self._resolved(part) for part in schema["allOf"])
                schema = dict(first)
                for other in others:
                    properties = {**schema.get("properties", {}), **other.get("properties", {})}
                    schema |= {**other, "properties": properties}
            elif one_of := schema.get("oneOf") or schema.get("anyOf"):
                whole = [part for part in one_of if part.get("type") != "null"]
                schema = (whole or one_of)[0]
            else:
                return schema

    def _object(self, schema: Mapping[str, Any], *, depth: int) -> dict[str, Any]:
        if depth > _DEEPEST:
            return {}
        shown = {
            name: self.of(part, name=name, depth=depth + 1)
            for name, part in schema.get("properties", {}).items()
        }
        others = schema.get("additionalProperties")
        if not shown and isinstance(others, Mapping) and others:
            shown = {"tower": self.of(others, depth=depth + 1)}
        return shown

    def _array(self, schema: Mapping[str, Any], *, name: str, depth: int) -> list[Any]:
        if schema.get("prefixItems"):
            return [self.of(part, depth=depth + 1) for part in schema["prefixItems"]]
        if depth > _DEEPEST:
            return []
        one = self.of(schema.get("items", {}), name=name.removesuffix("s"), depth=depth + 1)
        return [one] * max(1, int(schema.get("minItems", 0)))


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    return str(kind)


def _allows(schema: Mapping[str, Any], kind: str, value: Any) -> bool:
    if kind == "" or not isinstance(value, _TYPES.get(kind, ())):
        return False
    if schema.get("enum") and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        fits = len(value) <= schema.get("maxLength", len(value))
        return fits and re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, dict):
        return not schema.get("properties")
    return True


def _scalar(schema: Mapping[str, Any], kind: str) -> Any:
    if kind == "string":
        return _BY_FORMAT.get(str(schema.get("format")), "x" * int(schema.get("minLength", 0)))
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        number = least + 1 if "exclusiveMinimum" in schema else least
        most = schema.get("maximum")
        fits = most is None or most >= 1
        number = max(number, 1) if fits else number
        return int(number) if kind == "integer" else float(number)
    return {"boolean": False}.get(kind)


def add_examples(result: dict[str, Any], **hook: Any) -> dict[str, Any]:
    """drf-spectacular's hook: to every JSON body that has none."""
    examples = Examples(result["components"]["schemas"])
    for operations in result["paths"].values():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for body in bodies:
                for media_type, content in body.get("content", {}).items():
                    if "json" in media_type and not {"example", "examples"} & content.keys():
                        content["example"] = examples.of(content.get("schema", {}))
    return result
