"""The process that faces chat clients: OpenAI HTTP in, data frames out; torch-free.

Only `python -m runtime coordinator` imports it; it serves on while helixweb is down.
"""
