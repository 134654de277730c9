"""Our engine alone: one stage with all layers and the coordinator's HTTP face, without helixweb.

Torch-free itself; the stage is a child process. Only the `serve` program imports it.
"""
