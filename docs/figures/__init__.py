"""Drawings of the documentation: `python -m docs.figures` writes every one anew.

Each module but `drawing` and `example` has `draw()`, which gives the SVG of the same name. What is
computed in a drawing, the product's own code computes.
"""
