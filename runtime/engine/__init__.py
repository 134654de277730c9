"""The stage process: intake, batcher, KV pages, model runner, sampler, and the loop over them.

Loads torch. Imports runtime.models, protocol and transport; runtime.profiler may import it.
"""
