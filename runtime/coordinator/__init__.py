"""The process that faces chat clients: OpenAI HTTP in, data frames out; torch-free.

Nobody imports it but `python -m runtime coordinator`; it serves on while helixweb is down.
"""
