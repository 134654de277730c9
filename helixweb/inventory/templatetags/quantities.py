"""Template filters: {% load quantities %}{{ value|bytes }} {{ value|bit_rate }} …"""

from django import template

from helixweb.charts.quantities import age_text, bit_rate_text, bytes_text, duration_text

register = template.Library()
register.filter("bytes", bytes_text)
register.filter("bit_rate", bit_rate_text)
register.filter("duration", duration_text)
register.filter("age", age_text)
