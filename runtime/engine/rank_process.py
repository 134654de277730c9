"""The process of a rank other than 0."""

from multiprocessing.connection import Connection

from runtime.module_loading import loading

with loading("runtime.engine.follower"):  # before what it is called with is unpickled
    from runtime.engine.follower import RankShare, follow


def run_rank(share: RankShare, rank: int, ranks: int, meeting: str, pipe: Connection) -> None:
    """Take part in the steps of rank 0 until `pipe` ends."""
    follow(share, rank, ranks, meeting, pipe)
