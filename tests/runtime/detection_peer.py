"""A process with a transport and nothing else: `detection_peer.py KEY_FILE WATCHER_KEY`.

Prints where it listens. Takes turns of a few milliseconds until its stdin ends; SIGUSR1 makes one
turn last until SIGUSR2.
"""

import signal
import sys
import threading
import time
from pathlib import Path

from runtime.protocol.control import PeerAddress
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport


def main(key_file: Path, watcher_key: str) -> None:
    hangs: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: hangs.append(number))
    signal.signal(signal.SIGUSR2, lambda *_: hangs.clear())
    watcher = PeerAddress(name="watcher", endpoint="tcp://127.0.0.1:9", public_key=watcher_key)
    transport = ZmqTransport(
        name="peer", bind="tcp://127.0.0.1:0", keys=KeyPair.load(key_file), peers=[watcher]
    )
    for _ in range(2):  # a whole turn, so that one is known before it is watched
        transport.receive(timeout_s=0)
        time.sleep(0.005)
    print(transport.endpoint, flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        transport.receive(timeout_s=0.05)
        time.sleep(0.002)
        while hangs and not ended.is_set():
            time.sleep(0.01)
    transport.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
