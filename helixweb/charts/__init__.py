"""Domain objects drawn as Plotly figures: pure functions to plain JSON, no ORM, no requests.

Every app of the web may import it. static/js/charts.js draws what comes out.
"""
