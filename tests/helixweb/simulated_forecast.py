"""A forecast by simulation, for pages and commands that only show one."""

from planner.simulator.forecast import Forecast, Spread

_SPREAD = Spread(count=9, p50_s=0.02, p95_s=1.5, p99_s=2.0)
FORECAST = Forecast(
    decode_tokens_per_s=41.5, prompt_tokens_per_s=80.0, ttft=_SPREAD, itl=_SPREAD, tpot=_SPREAD,
    e2e=_SPREAD, queue=_SPREAD, requests_finished=9, requests_running=2.0, utilisation_mean=0.75,
    utilisation_max=0.9, batch_decodes=2.0, convoy=1.0, kv_peak=0.5, nodes={}, links=(),
    window_s=60.0, simulated_s=90.0, events=100,
)  # fmt: skip
