"""Options of `vllm serve` that a site may pass to the instances that agents start."""

import shlex
from collections.abc import Iterator

# They change how a model is served, not which code or which files of the machine vLLM loads.
_SWITCHES = frozenset(
    {
        "--async-scheduling",
        "--disable-custom-all-reduce",
        "--enable-auto-tool-choice",
        "--enable-chunked-prefill",
        "--enable-expert-parallel",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--enforce-eager",
        "--no-enable-chunked-prefill",
        "--no-enable-prefix-caching",
    }
)
_WITH_VALUE = frozenset(
    {
        "--attention-backend",
        "--block-size",
        "--chat-template-content-format",
        "--cpu-offload-gb",
        "--dtype",
        "--gpu-memory-utilization",
        "--kv-cache-dtype",
        "--limit-mm-per-prompt",
        "--max-logprobs",
        "--max-num-batched-tokens",
        "--max-num-seqs",
        "--override-generation-config",
        "--quantization",
        "--reasoning-parser",
        "--seed",
        "--swap-space",
        "--tool-call-parser",
    }
)


def parse_vllm_flags(text: str) -> tuple[str, ...]:
    """The words of `text` as a shell would split them.

    Raises ValueError, naming the word, for an option that is not allowed, is given twice, or lacks
    its value, and for a value without an option.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{text!r} cannot be split into words: {error}; close the quote") from None
    check_vllm_flags(words)
    return words


def check_vllm_flags(words: tuple[str, ...]) -> None:
    """Raises ValueError as `parse_vllm_flags` does."""
    seen: set[str] = set()
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if option in seen:
            raise ValueError(f"{option} is given twice; give it once")
        seen.add(option)
        if option in _SWITCHES:
            if equals:
                raise ValueError(f"{option} takes no value; leave out {value!r}")
        elif option in _WITH_VALUE:
            _check_value(option, value if equals else next(left, ""))
        else:
            raise ValueError(_refusal(word))


def most_requests(words: tuple[str, ...], *, default: int) -> int:
    """How many requests vLLM computes at once with these options; `default` if they do not say."""
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--max-num-seqs":
            value = value if equals else words[at + 1]
            is_whole = value.isascii() and value.isdecimal()
            return min(default, max(1, int(value))) if is_whole else default
    return default


def _check_value(option: str, value: str) -> None:
    if not value or value.startswith("-"):
        raise ValueError(f"{option} needs a value behind it")


def _refusal(word: str) -> str:
    if not word.startswith("-"):
        return f"{word!r} belongs to no option; write options as --name value"
    return (
        f"{word!r} is not passed to vLLM from a site; if a machine may use it, its administrator "
        f"adds it to the agent's --vllm-args. Allowed: {', '.join(allowed_flags())}"
    )


def allowed_flags() -> Iterator[str]:
    return iter(sorted(_SWITCHES | _WITH_VALUE))
