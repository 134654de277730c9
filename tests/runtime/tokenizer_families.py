"""Small checkpoints whose tokenizers and chat templates are built as those of known families."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from runtime.models.tiny_checkpoint import CHAT_TEMPLATE as DEMO

LLAMA_3 = (
    "{{- bos_token }}{%- if tools %}<|start_header_id|>ipython<|end_header_id|>"
    "{{ tools | tojson(indent=4) }}<|eot_id|>{%- endif %}{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{- message['content'] | trim }}"
    "{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{%- endfor %}"
    "{{- '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}"
)
QWEN = (
    "{%- if tools %}<|im_start|>system\n<tools>{% for tool in tools %}\n{{ tool | tojson }}"
    "{% endfor %}\n</tools><tool_call></tool_call><|im_end|>\n{%- endif %}"
    "{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role == 'tool' %}"
    "{{- '<|im_start|>user\n<tool_response>\n' + content + '\n</tool_response><|im_end|>\n' }}"
    "{%- else %}{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}"
    "{%- endif %}{{- '<|im_start|>' + message.role + '\n' + content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '\n<tool_call>\n' }}{{ call.function | tojson }}{{ '\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
MISTRAL = (
    "{{ bos_token }}{%- for message in messages %}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{%- endif %}"
    "{%- if message.role == 'user' %}{{ '[INST] ' + message.content + '[/INST]' }}"
    "{%- else %}{{ ' ' + message.content | trim + eos_token }}{%- endif %}{%- endfor %}"
)
BAR = "\uff5c"
DEEPSEEK = (
    "{{ bos_token }}{%- for message in messages %}"
    "{%- if message.role == 'user' %}{{ '<|User|>' + message.content }}"
    "{%- elif message.role == 'assistant' %}"
    "{{ '<|Assistant|>' + message.content + eos_token }}"
    "{%- else %}{{ message.content }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|Assistant|>' }}{%- endif %}"
).replace("|", BAR)
CORPUS = ["Hello, how are you? I am fine.", "Where do layers run?", "the user and the system end"]
ALL_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True)
class Family:
    """`specials` are the tokens that structure a chat; `ordinary` ones are added tokens, too, but
    the tokenizer does not mark them as special. `roles`: which the template takes."""

    template: str
    bos: str
    eos: str
    build: Callable[[], Tokenizer]
    specials: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    ordinary: tuple[str, ...] = ()
    roles: tuple[str, ...] = ALL_ROLES
    has_tools: bool = False
    keeps_spaces: bool = True  # decoding gives back every space

    @property
    def controls(self) -> tuple[str, ...]:
        """All tokens that structure a chat."""
        return (self.bos, self.eos, *self.specials, *self.markers)

    def write(self, directory: Path) -> Path:
        tokenizer = self.build()
        for text in (*self.controls, *self.ordinary):
            special = text not in self.markers + self.ordinary
            tokenizer.add_tokens([AddedToken(text, special=special, normalized=False)])
        bos = tokenizer.token_to_id(self.bos)
        tokenizer.post_processor = TemplateProcessing(
            single=f"{self.bos} $A", special_tokens=[(self.bos, bos)]
        )
        directory.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(directory / "tokenizer.json"))
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos,
            "eos_token": self.eos,
            "chat_template": self.template,
            "clean_up_tokenization_spaces": False,
        }
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        size = tokenizer.get_vocab_size()
        (directory / "config.json").write_text(json.dumps({"vocab_size": size}))
        return directory


def byte_level(*, ignore_merges: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentence_pieces() -> Tokenizer:
    """As converted from SentencePiece before Metaspace: spaces are written into the text."""
    pieces = sorted({*"".join(CORPUS).replace(" ", "▁"), *"<>/[]|_sINT▁"})
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {piece: number for number, piece in enumerate(["<unk>", *fallback, *pieces])}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def metaspace_pieces() -> Tokenizer:
    tokenizer = sentence_pieces()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def unigram() -> Tokenizer:
    """The control tokens are words of its vocabulary, too."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=90,
        special_tokens=["<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        initial_alphabet=[*"<>/s[]INT|_"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 20, trainer)
    return tokenizer


FAMILIES = {
    "llama-3": Family(
        template=LLAMA_3,
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        specials=("<|start_header_id|>", "<|end_header_id|>"),
        build=lambda: byte_level(ignore_merges=True),
        has_tools=True,
    ),
    "qwen": Family(
        template=QWEN,
        bos="<|endoftext|>",
        eos="<|im_end|>",
        specials=("<|im_start|>",),
        ordinary=("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"),
        build=byte_level,
        has_tools=True,
    ),
    "mistral": Family(
        template=MISTRAL,
        bos="<s>",
        eos="</s>",
        specials=("[INST]", "[/INST]"),
        build=sentence_pieces,
        roles=("user", "assistant"),
        keeps_spaces=False,
    ),
    "mistral-metaspace": Family(
        template=MISTRAL,
        bos="<s>",
        eos="</s>",
        specials=("[INST]", "[/INST]"),
        build=metaspace_pieces,
        roles=("user", "assistant"),
        keeps_spaces=False,
    ),
    "unigram": Family(
        template=MISTRAL,
        bos="<s>",
        eos="</s>",
        build=unigram,
        roles=("user", "assistant"),
        keeps_spaces=False,
    ),
    "deepseek": Family(
        template=DEEPSEEK,
        bos=f"<{BAR}begin▁of▁sentence{BAR}>",
        eos=f"<{BAR}end▁of▁sentence{BAR}>",
        markers=(f"<{BAR}User{BAR}>", f"<{BAR}Assistant{BAR}>"),
        build=byte_level,
        roles=("system", "user", "assistant"),
    ),
    "demo": Family(
        template=DEMO,
        bos="<|begin|>",
        eos="<|end|>",
        specials=("<|user|>", "<|assistant|>", "<|system|>"),
        build=byte_level,
    ),
}
