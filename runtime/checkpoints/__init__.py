"""Checkpoint formats: what a checkpoint says of itself, whether a folder or a GGUF file.

Loads neither torch nor transformers, so that the coordinator can read tokenizers.
"""
