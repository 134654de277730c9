"""One OpenAI-compatible endpoint over whole-model instances: routes, relays, isolates what fails.

Torch-free; enters servers by their URLs only. Only the `front` program imports it.
"""
