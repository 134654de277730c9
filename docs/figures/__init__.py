"""Drawings of the documentation: `python -m docs.figures` writes all of them.

Each module but `example` has `draw()`, which gives the SVG of the same name. What is computed in a
drawing, the product's own code computes.
"""
