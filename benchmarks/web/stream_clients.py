"""Open pages as far as a server can tell: many event streams read by one process.

    python -m benchmarks.web.stream_clients PORT STREAMS TOPICS SESSION

Says "open" once all are; when its input ends, writes [[event id, monotonic seconds], …] and how
many bytes came, as JSON.
"""

import asyncio
import json
import sys
import time

CHUNK_BYTES = 2**18


async def main() -> None:
    port, streams, topics, session = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    arrivals: list[tuple[int, float]] = []
    received = [0]
    opened: list[asyncio.Event] = [asyncio.Event() for _ in range(streams)]
    request = (
        f"GET /events?topics={topics} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Accept: text/event-stream\r\nCookie: sessionid={session}\r\n\r\n"
    ).encode()

    async def read(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * CHUNK_BYTES)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.splitlines()[0]:
            raise SystemExit(f"the stream was answered {head.splitlines()[0].decode()}")
        opened[number].set()
        pk, last = 0, b""
        while chunk := await reader.read(CHUNK_BYTES):
            received[0] += len(chunk)
            text = last + chunk
            begins = text.find(b"id: ")
            while begins >= 0:
                pk = int(text[begins + 4 : text.index(b"\n", begins)])
                ends = text.find(b"\n\n", begins)
                if ends < 0:
                    break
                arrivals.append((pk, time.monotonic()))
                begins = text.find(b"id: ", ends)
            last = text[begins:] if begins >= 0 else text[-64:].rpartition(b"\n\n")[2]

    tasks = [asyncio.create_task(read(number)) for number in range(streams)]
    await asyncio.gather(*(event.wait() for event in opened))
    print("open", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps({"arrivals": arrivals, "bytes": received[0]}), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
