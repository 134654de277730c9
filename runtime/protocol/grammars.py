"""How a JSON schema becomes a matcher, alike where it is tried out and where it is followed.

Uses llguidance, which is optional (extra `grammar`) and imported at the first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# The library's own defaults, held here so that a schema tried out by one release is followed within
# the same limits by another. Fuel is its unit of work: a mask may take some 15 ms.
MOST_ITEMS_IN_ROW = 2_000
MOST_LEXER_STATES = 250_000
MOST_SYMBOLS = 500_000
INITIAL_LEXER_FUEL = 1_000_000
STEP_LEXER_FUEL = 200_000
STEP_ITEMS = 50_000
# Between the parts of an answer: nothing, one space, or a line break with its indentation. Without
# a bound a model may write white space until max_tokens. A schema's own "x-guidance" comes first.
WHITE_SPACE = r"(?: |\r?\n[ \t]{0,32})?"


def matcher_of(schema: str, tokenizer: "LLTokenizer") -> "LLMatcher":
    """The state of an answer in `schema` that has not begun. May take minutes and gigabytes: a
    stranger's schema is tried out first (`runtime.coordinator.schema_check`).

    Raises ValueError if the schema cannot be followed.
    """
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        max_items_in_row=MOST_ITEMS_IN_ROW,
        initial_lexer_fuel=INITIAL_LEXER_FUEL,
        step_lexer_fuel=STEP_LEXER_FUEL,
        step_max_items=STEP_ITEMS,
        max_lexer_states=MOST_LEXER_STATES,
        max_grammar_size=MOST_SYMBOLS,
        verbose_errors=False,
    )
    if not schema.lstrip().startswith("{"):
        schema = f'{{"allOf": [{schema}]}}'  # true or false: options are put into objects alone
    grammar = LLMatcher.grammar_from_json_schema(
        schema, defaults={"whitespace_pattern": WHITE_SPACE}
    )
    matcher = LLMatcher(tokenizer, grammar, limits=limits)
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    return matcher
