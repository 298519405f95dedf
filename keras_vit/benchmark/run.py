"""Interleaved measurements, and the table that they make."""

import dataclasses
import json
import logging
import os
import statistics
import subprocess
import sys

import keras

from keras_vit.benchmark.contestants import CONTESTANTS
from keras_vit.benchmark.contestants import Task
from keras_vit.benchmark.contestants import installed
from keras_vit.benchmark.floor import SIDE
from keras_vit.checks import check_choice
from keras_vit.costs import count_macs
from keras_vit.variants import vit_config

FLOOR = "matrix product"
logger = logging.getLogger("keras_vit")


def benchmark(task, peers=None, rounds=7, steps=1):
    """Measures this package and its peers side by side.

    Each in a process of its own, woken in turn (A B C A B C), so that what the
    machine does beside hits all alike; medians. The floor is the time that the
    multiply-adds of the model take at the speed of a product of 2048 x 2048
    float32 matrices by the fastest library here, in the same rounds. A training
    step counts three times the multiply-adds of inference.

    Args:
        task: A `Task`.
        peers: Names of `CONTESTANTS`; those that are installed by default.
        rounds: Int, how often each is woken.
        steps: Int, steps each time.

    Returns:
        A list of dicts, ours first: `name`, `ms` (median), `low` and `high`
        (quartiles), `images_per_second`, `ratio` (our throughput to theirs),
        `floor` (0..1), `first` (seconds of the first step), `peak` (bytes).

    Raises:
        ValueError: An unknown peer, one that is not installed, or any in int8.
        RuntimeError: This package fails, or a peer that was asked for; its
            last words are in the message. Others that fail are left out.
    """
    if task.dtype == "int8":
        peers = _no_peers(peers)
    backend = keras.config.backend()
    names = ["keras_vit", *_peers(peers, backend)]
    workers = {name: _Worker(name, task) for name in (FLOOR, *names)}
    try:
        for name in _that_fail(workers, peers is not None):
            workers.pop(name).stop()
            names.remove(name)
        for i in range(rounds + 1):
            for worker in workers.values():
                worker.steps(steps, keep=i > 0)
        results = {name: w.finish() for name, w in workers.items()}
    finally:
        for worker in workers.values():
            worker.stop()
    return _rows(task, names, results)


def _that_fail(workers, are_named):
    """The peers whose first step (compiled, then warm) fails."""
    for name, worker in list(workers.items()):
        try:
            worker.answer()
        except RuntimeError as error:
            if are_named or name in (FLOOR, "keras_vit"):
                raise
            logger.warning("left out: %s", error)
            yield name


class _Worker:
    def __init__(self, name, task):
        self.name, self.times, self.first = name, [], 0.0
        fields = json.dumps(dataclasses.asdict(task))
        path = [*sys.path[:1], os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "KERAS_BACKEND": keras.config.backend(),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "keras_vit.benchmark.worker", name, fields],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            said = self.process.communicate()[1].strip().splitlines()
            raise RuntimeError(
                f"A contestant has failed. Expected: {self.name} to run on "
                f"{keras.config.backend()}. Received: "
                f"{said[-1] if said else 'nothing'}."
            )
        found = json.loads(line)
        self.first = found.get("first", self.first)
        return found

    def steps(self, count, keep):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        times = self.answer()["times"]
        if keep:
            self.times += times

    def finish(self):
        self.process.stdin.close()
        return {
            "times": self.times,
            "first": self.first,
            "peak": self.answer()["peak"],
        }

    def stop(self):
        self.process.kill()
        for stream in (
            self.process.stdin,
            self.process.stdout,
            self.process.stderr,
        ):
            if stream and not stream.closed:
                stream.close()
        self.process.wait()


def _no_peers(peers):
    if peers:
        raise ValueError(
            f"The others are not quantised here. Expected: no peers for dtype "
            f"int8. Received: {', '.join(peers)}."
        )
    return []


def _peers(peers, backend):
    there = [name for name in installed(backend) if name != "keras_vit"]
    if peers is None:
        return there
    for name in peers:
        check_choice("peer", name, CONTESTANTS)
        if name not in there:
            raise ValueError(
                f"This peer cannot run here. Expected: it to be installed, "
                f"and one that runs on {backend}. Received: {name!r}; there "
                f"are {', '.join(there) or 'none'}."
            )
    return list(peers)


def _rows(task, names, results):
    product = statistics.median(results[FLOOR]["times"])
    speed = 2 * SIDE**3 / product  # operations per second
    config = vit_config(task.variant, image_size=task.image_size)
    work = 2 * count_macs(config.replace(num_classes=1000)) * task.batch
    work *= 3 if task.mode == "train" else 1
    ours = statistics.median(results["keras_vit"]["times"])
    rows = []
    for name in names:
        times = results[name]["times"]
        median = statistics.median(times)
        low, _, high = statistics.quantiles(times, n=4)
        rows.append(
            {
                "name": name,
                "ms": 1000 * median,
                "low": 1000 * low,
                "high": 1000 * high,
                "images_per_second": task.batch / median,
                "ratio": median / ours,
                "floor": work / speed / median,
                "first": results[name]["first"],
                "peak": results[name]["peak"],
            }
        )
    return rows


def task_of(**fields):
    """Returns a `Task`; its words are checked here.

    Raises:
        ValueError: Unknown mode or dtype, or training in int8.
    """
    task = Task(**fields)
    check_choice("mode", task.mode, ("infer", "train"))
    check_choice("dtype", task.dtype, ("float32", "bfloat16", "int8"))
    if task.dtype == "int8" and task.mode == "train":
        raise ValueError(
            "Kernels of int8 are not trained. Expected: mode 'infer', or dtype "
            "float32 or bfloat16. Received: mode 'train' with dtype int8."
        )
    vit_config(task.variant, image_size=task.image_size)
    return task
