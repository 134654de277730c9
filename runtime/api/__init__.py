"""What every OpenAI endpoint shares: API keys, budgets, fair queueing, error answers.

It does not know what computes an answer; `runtime.front` and `runtime.coordinator` use it.
"""
