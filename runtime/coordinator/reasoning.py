"""Divides an answer into what the model thinks and what it says, by the tags around its thoughts.

Qwen, DeepSeek and most others write `<think>`, Mistral `[THINK]`, Seed `<seed:think>`. Some chat
templates write the opening tag themselves, so that the answer begins with a thought.
"""

from runtime.coordinator.message_pieces import Format, Growing, Pieces, Thought, begins, skip, until

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
)


def tags_in(template: str) -> tuple[str, str] | None:
    """The tags that a chat template knows; None: its model does not mark thoughts."""
    return next((tags for tags in TAGS if tags[1] in template), None)


def read_thoughts(text: Growing, *, tags: tuple[str, str], is_open: bool, rest: Format) -> Pieces:
    """The thoughts of an answer, then by `rest` what the model says.

    `is_open`: the prompt ended with the opening tag. Line breaks next to the tags are left out.
    """
    opening, closing = tags
    if is_open or (yield from begins(text, opening)):
        if not is_open:
            text.held = text.held.lstrip().removeprefix(opening)
        yield from skip(text, "\n")
        yield from until(text, closing, say=Thought, trims="\n")
        yield from skip(text, "\n")
    yield from rest(text)
