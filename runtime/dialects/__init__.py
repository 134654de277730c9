"""Other APIs for chats, as translations: each request becomes a chat completion, and its answer or
event stream is translated back. Keys, limits, metrics and traces are those of the chat completion.
"""

from collections.abc import Callable, Mapping

from runtime.api.translation import Translation
from runtime.dialects.messages import CountTokens, Messages
from runtime.dialects.responses import Responses

DIALECTS: Mapping[str, Callable[[], Translation]] = {
    "/v1/messages": Messages,
    "/v1/messages/count_tokens": CountTokens,
    "/v1/responses": Responses,
}
