"""How long the server takes for each page of a large site, and how many queries.

    python -m benchmarks.web.pages --data-dir DIR [--database-url URL] [--repeats N] [PAGE ...]

Every page is asked for through the whole stack of middleware, in this process, at the time of the
newest sample. A time is that of one answer; CPU seconds stand beside those of the clock, which a
busy machine stretches. PAGEs: only those whose address contains one of these words.
"""

import argparse
import time
from unittest import mock

from benchmarks.web.opening import open_site, site_arguments

WANTED_P95_S = 0.3


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from benchmarks.web.asking import Browser, addresses, newest_moment

    browser, now, slow = Browser(), newest_moment(), []
    print(f"{'p50 ms':>7} {'p95 ms':>7} {'CPU p95':>8} {'queries':>8} {'kB':>7}  page")
    with mock.patch("django.utils.timezone.now", return_value=now):
        for address in addresses():
            if arguments.pages and not any(word in address for word in arguments.pages):
                continue
            queries = browser.queries(address)
            walls, cpus, size = [], [], 0
            for _ in range(arguments.repeats):
                began, began_cpu = time.perf_counter(), time.process_time()
                size = browser.size(address)
                walls.append(time.perf_counter() - began)
                cpus.append(time.process_time() - began_cpu)
            if _p95(cpus) > WANTED_P95_S:
                slow.append(address)
            print(
                f"{1e3 * sorted(walls)[len(walls) // 2]:7.0f} {1e3 * _p95(walls):7.0f} "
                f"{1e3 * _p95(cpus):8.0f} {queries:8d} {size / 1e3:7.0f}  {address}",
                flush=True,
            )
    print(f"Above {1e3 * WANTED_P95_S:.0f} ms of CPU: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.pages", description=__doc__)
    site_arguments(parser)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
