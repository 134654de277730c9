"""The three languages spoken between processes: control (JSON), data (binary), openai.

Imports nothing of the runtime beside itself; helixweb, agent, stage and coordinator import it.
"""
