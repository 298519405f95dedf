"""JAX: `keras.distribution`, across hosts by `jax.distributed`."""

import contextlib
import os
import sys

import keras
import numpy as np

from keras_vit.devices.beside import tensorflow_beside
from keras_vit.devices.group import Devices
from keras_vit.devices.layout import check_divisible
from keras_vit.devices.layout import layout_map
from keras_vit.devices.spec import check_count


def use(spec):
    """Sets the distribution of this process; returns the devices."""
    import jax

    if "tensorflow" in sys.modules:
        tensorflow_beside()
    if "KERAS_DISTRIBUTION_NUM_PROCESSES" in os.environ:
        keras.distribution.initialize()
    if spec.kind == "cpu" and spec.count:
        _ask_for_cpus(jax, spec.count)
    kind = spec.kind or jax.default_backend().replace("cuda", "gpu")
    found = jax.devices(kind)
    if spec.model > 1 or spec.data:
        return _mesh(jax, spec, kind, found)
    count = spec.count or (1 if kind == "cpu" and not spec.kind else len(found))
    count = max(count, jax.process_count())
    check_count(count, found, kind)
    names = [f"{d.platform}:{d.id}" for d in found[:count]]
    parallel = keras.distribution.DataParallel(
        devices=names, auto_shard_dataset=False
    )
    keras.distribution.set_distribution(parallel if count > 1 else None)
    return _Hosts(kind, count, jax.process_index(), jax.process_count())


def _mesh(jax, spec, kind, found):
    data = spec.data or len(found) // spec.model
    check_count(spec.model * max(data, 1), found, kind)
    devices = found[: data * spec.model]
    mesh = keras.distribution.DeviceMesh(
        (data, spec.model),
        ("batch", "model"),
        np.array([f"{d.platform}:{d.id}" for d in devices]).reshape(
            data, spec.model
        ),
    )
    parallel = _Checked(
        layout_map=layout_map(mesh),
        batch_dim_name="batch",
        auto_shard_dataset=False,
    )
    keras.distribution.set_distribution(parallel)
    return _Hosts(kind, data, jax.process_index(), jax.process_count())


class _Hosts(Devices):
    """Several processes, each with devices of its own."""

    @contextlib.contextmanager
    def alone(self, model):
        if self.processes == 1:
            yield model
            return
        shared = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            copy = type(model).from_config(model.get_config())
            for ours, theirs in zip(copy.weights, model.weights, strict=True):
                ours.assign(keras.ops.convert_to_numpy(theirs))
            yield copy
        finally:
            keras.distribution.set_distribution(shared)


class _Checked(keras.distribution.ModelParallel):
    """Says which weight cannot be split, before the backend fails at it."""

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        parts = dict(
            zip(
                self.device_mesh.axis_names, self.device_mesh.shape, strict=True
            )
        )
        check_divisible(
            variable.path, variable.shape, layout.axes, parts["model"]
        )
        return layout


def _ask_for_cpus(jax, count):
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        if len(jax.devices("cpu")) < count:
            raise ValueError(
                f"The number of CPU devices is fixed once JAX has begun. "
                f"Expected: use_devices before anything is computed. "
                f"Received: {len(jax.devices('cpu'))} devices, asked for "
                f"{count}. Call it first in the process."
            ) from error
