"""Latency model of an engine's batches, fitted to a short sweep (Xiong et al. §3.1).

With batch size b, prompts of I tokens and a context of c tokens,

    T_prefill(b, I) = p1 b I + p2 b + p3 I + p4                                      (equation 3)
    tau_decode(b, c) = p5 b c + p6 b + p7 c + p8,   T_decode = sum of it over tokens  (equation 4)

Our extension, for engines that are measured: with two requests or more a step takes p9 more,

    tau_decode(b, c) = p5 b c + p6 b + p7 c + p8 + p9 [b > 1],

since a single row is multiplied by other kernels (matrix times vector) than several are. The paper
measured batches where that does not show; `python -m benchmarks.instances.fit` prints both forms.

`planner.latency_fit` finds the parameters.
"""

from dataclasses import dataclass

# Of batch times tokens, of the batch, of the tokens, and the constant.
Terms = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The four parameters of an equation, how sure they are, and how well they say what was seen.

    `standard_errors` are in the parameters' units, None where there are not more points than
    parameters. Errors are relative, of the points that were fitted. `several_s` is p9, the term
    that is not the paper's; 0 where that is not fitted. Of given parameters nothing else is known.
    """

    parameters: Terms
    standard_errors: Terms | None = None
    points: int = 0
    median_error: float = 0.0
    worst_error: float = 0.0
    several_s: float = 0.0

    def seconds(self, batch: float, tokens: float) -> float:
        """Seconds by the equation."""
        both, per_request, per_token, base = self.parameters
        several_s = self.several_s if batch > 1 else 0.0
        return both * batch * tokens + per_request * batch + per_token * tokens + base + several_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """One engine on one kind of machine, at one tensor-parallel degree."""

    prefill: Fit
    decode: Fit

    def prefill_s(self, *, batch: float, input_tokens: float) -> float:
        """Seconds until `batch` prompts of `input_tokens` have their first token (equation 3)."""
        return self.prefill.seconds(batch, input_tokens)

    def decode_step_s(self, *, batch: float, context_tokens: float) -> float:
        """Seconds of one iteration over contexts of so many tokens (tau of equation 4)."""
        return self.decode.seconds(batch, context_tokens)

    def decode_s(self, *, batch: float, input_tokens: float, output_tokens: float) -> float:
        """Seconds for `output_tokens` iterations, the context growing by one each (equation 4)."""
        mean_context = input_tokens + (output_tokens + 1) / 2
        return output_tokens * self.decode.seconds(batch, mean_context)

    def batch_s(self, *, batch: float, input_tokens: float, output_tokens: float) -> float:
        """Seconds from prompts to last tokens of a batch that stays together (static batching)."""
        return self.prefill_s(batch=batch, input_tokens=input_tokens) + self.decode_s(
            batch=batch, input_tokens=input_tokens, output_tokens=output_tokens
        )
