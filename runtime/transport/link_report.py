"""What a process tells of a link it sends on."""

from runtime.protocol.control import LinkStats
from runtime.transport.link_scheduler import LinkScheduler


def link_stats(scheduler: LinkScheduler, *, now_s: float) -> LinkStats:
    """`now_s`: of the scheduler's clock."""
    rate, counters = scheduler.rate, scheduler.counters
    return LinkStats(
        bandwidth_bytes_per_s=rate.bytes_per_s,
        bandwidth_age_s=None if rate.measured_s is None else max(0.0, now_s - rate.measured_s),
        bandwidth_is_floor=rate.is_floor,
        rtt_s=scheduler.rtt_s,
        queueing_s=max(0.0, rate.queueing_s),
        waiting_bytes=scheduler.waiting_bytes,
        in_flight_bytes=scheduler.in_flight_bytes,
        urgent_bytes_per_s=scheduler.urgent_rate.bytes_per_s(now_s),
        bulk_bytes_per_s=scheduler.bulk_rate.bytes_per_s(now_s),
        urgent_bytes_total=counters.urgent_bytes,
        urgent_messages_total=counters.urgent_messages,
        bulk_bytes_total=counters.bulk_bytes,
        chunks_total=counters.chunks,
        filler_bytes_total=counters.filler_bytes,
        sent_again_total=counters.sent_again,
        stalled=scheduler.is_stalled(now_s),
    )
