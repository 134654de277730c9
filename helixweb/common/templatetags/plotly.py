"""Template tags for pages with charts."""

from django import template

from helixweb.common.plotly_finder import map_style_id

register = template.Library()
register.simple_tag(map_style_id, name="plotly_map_style_id")
