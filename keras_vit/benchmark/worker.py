"""One contestant in a process of its own, woken in turn.

Reads lines from its input: a number, so many steps; writes the seconds of each
as JSON. At the end of the input it writes the peak of its memory.
"""

import json
import resource
import sys
import time

PAUSE = 0.3  # seconds


def main():
    """Serves one contestant."""
    from keras_vit.benchmark.contestants import CONTESTANTS
    from keras_vit.benchmark.contestants import Task
    from keras_vit.benchmark.floor import matrix_product

    name, fields = sys.argv[1], json.loads(sys.argv[2])
    task = Task(**fields)
    say = _quiet_output()
    row = CONTESTANTS.get(name)
    step = (matrix_product if row is None else row.make)(task)
    begun = time.perf_counter()
    step()
    say({"first": time.perf_counter() - begun})
    for line in sys.stdin:
        times = []
        # Threads of whoever was awake before spin for a while, and caches are
        # theirs: the first step after that is not counted.
        time.sleep(PAUSE)
        step()
        for _ in range(int(line)):
            begun = time.perf_counter()
            step()
            times.append(time.perf_counter() - begun)
        say({"times": times})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kilobytes on Linux, bytes on macOS.
    scale = 1 if sys.platform == "darwin" else 1024
    say({"peak": peak * scale})


def _quiet_output():
    """Keeps the output for answers: libraries print what they like."""
    out, sys.stdout = sys.stdout, sys.stderr

    def say(answer):
        out.write(json.dumps(answer) + "\n")
        out.flush()

    return say


if __name__ == "__main__":
    main()
