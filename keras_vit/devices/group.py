"""The devices in use, alike on every backend."""

import contextlib

import numpy as np


class Devices:
    """What `use_devices` returns: how many replicas, and which part is ours.

    Attributes:
        kind: `"cpu"`, `"gpu"` or `"tpu"`.
        replicas: Int, parts that each batch is split into.
        process: Int, number of this process among `processes`.
        processes: Int; more than one under `torchrun` or across hosts.
        writer: Whether this process writes checkpoints and logs.
    """

    accumulates = True  # whether Keras gathers gradients here

    def __init__(self, kind, replicas=1, process=0, processes=1):
        self.kind = kind
        self.replicas = replicas
        self.process = process
        self.processes = processes

    @property
    def writer(self):
        """Whether this process writes checkpoints and logs: one does."""
        return self.process == 0

    def scope(self):
        """Returns a context in which the model is built and compiled."""
        return contextlib.nullcontext()

    def prepare(self, model):
        """Makes a built model train on all devices; returns the model."""
        return model

    @contextlib.contextmanager
    def alone(self, model):
        """Gives a model of these weights that each process uses for itself.

        To measure and to save: `predict` of a model that several hosts share
        would leave each with a part of the answers.

        Args:
            model: A `keras.Model` that was trained on all devices.
        """
        yield model

    def callbacks(self):
        """Returns callbacks that `fit` needs here, first of all."""
        return []

    def share(self, batches):
        """Returns the part of each batch that this process feeds.

        The global batch, and with it the learning rate, stays what the recipe
        says, however many processes there are.

        Args:
            batches: A `data.Batches`, or anything with `stream(start)`.
        """
        if self.processes == 1:
            return batches
        return _Share(batches, self.process, self.processes)

    def __repr__(self):
        return (
            f"Devices({self.kind}, replicas={self.replicas}, process "
            f"{self.process} of {self.processes})"
        )


class _Share:
    """One process's rows of each batch."""

    def __init__(self, batches, process, processes):
        self.batches = batches
        self.process = process
        self.processes = processes

    def stream(self, start=0):
        """Yields our rows of the batches of step `start` and on."""
        inner = self.batches.stream(start)
        try:
            for batch in inner:
                yield tuple(map(self._rows, batch))
        finally:
            inner.close()

    def _rows(self, array):
        if len(array) % self.processes:
            raise ValueError(
                f"A batch is shared alike. Expected: a batch size that is a "
                f"multiple of {self.processes} processes. Received: "
                f"{len(array)}."
            )
        size = len(array) // self.processes
        first = self.process * size
        return np.asarray(array)[first : first + size]
