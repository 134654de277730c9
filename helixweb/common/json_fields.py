"""One member of a JSON column, taken out of it by the database."""

import json
from typing import Any

from django.db.models import Func, JSONField, Value


def member(field: str, key: str) -> "JsonMember":
    """The value of `field` under `key`, None if there is none; digits are a name, not an index.

    (A KeyTransform would take "7" for the eighth of a list.)
    """
    return JsonMember(field, key=key)


class JsonMember(Func):
    """SQL of `member`."""

    output_field = JSONField()

    def __init__(self, field: str, *, key: str) -> None:
        super().__init__(field)
        self.key = key

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        path = Value(f"$.{json.dumps(self.key, ensure_ascii=False)}")
        return self._with(path, compiler, connection, template="JSON_EXTRACT(%(expressions)s)")

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self._with(
            Value(self.key), compiler, connection, template="(%(expressions)s::text)",
            arg_joiner=" -> ",
        )  # fmt: skip

    def _with(self, path: Value, compiler: Any, connection: Any, **how: str) -> Any:
        whole = self.copy()
        whole.set_source_expressions([*self.get_source_expressions(), path])
        return super(JsonMember, whole).as_sql(compiler, connection, **how)
