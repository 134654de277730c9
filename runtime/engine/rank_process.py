"""The process of a rank other than 0."""

from multiprocessing.connection import Connection

from runtime.module_loading import loading

with loading("runtime.engine.follower"):  # before what it is called with is unpickled
    from runtime.engine.follower import follow
    from runtime.engine.stage_engine import RankPlace, RankTask


def run_rank(task: RankTask, place: RankPlace, pipe: Connection) -> None:
    """Take part in the steps of rank 0 until `pipe` ends."""
    follow(task, place, pipe)
