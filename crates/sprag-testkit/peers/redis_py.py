"""The lock of redis-py, as a process that tests drive: try, hold or rounds."""

import os
import sys
import time

import redis

mode, host, port, key = sys.argv[1:5]
client = redis.Redis(host=host, port=int(port))


def lock():
    return client.lock(key, timeout=10, sleep=0.002)


def section(folder):
    """Adds one to the counter, and leaves a mark if somebody else is doing the same."""
    inside, counter = os.path.join(folder, "inside"), os.path.join(folder, "counter")
    try:
        os.mkdir(inside)
    except FileExistsError:
        open(os.path.join(folder, "overlap"), "w").close()
    with open(counter) as file:
        count = int(file.read())
    time.sleep(0.001)
    with open(counter, "w") as file:
        file.write(str(count + 1))
    try:
        os.rmdir(inside)
    except FileNotFoundError:
        open(os.path.join(folder, "overlap"), "w").close()


if mode == "try":
    mine = lock()
    granted = mine.acquire(blocking=False)
    print("granted" if granted else "held", flush=True)
    if granted:
        mine.release()
elif mode == "hold":
    with lock():
        print("granted", flush=True)
        sys.stdin.read()
    print("released", flush=True)
else:
    folder, rounds = sys.argv[5], 0
    while not os.path.exists(os.path.join(folder, "enough")):
        with lock():
            section(folder)
        rounds += 1
        if rounds == 1:
            print("ready", flush=True)
        # Others get their turn.
        time.sleep(0.025)
    print("done", rounds, flush=True)
