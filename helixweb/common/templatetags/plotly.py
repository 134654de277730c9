"""What pages with charts need before Plotly loads."""

from django import template

from helixweb.common.plotly_finder import map_style_id

register = template.Library()
register.simple_tag(map_style_id, name="plotly_map_style_id")
