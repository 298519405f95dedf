"""TensorFlow: `tf.distribute` strategies, entered by `Devices.scope`."""

import os

from keras_vit.devices.group import Devices
from keras_vit.devices.spec import check_count


class _Strategy(Devices):
    accumulates = False

    def __init__(self, kind, strategy):
        super().__init__(kind, strategy.num_replicas_in_sync)
        self.strategy = strategy

    def scope(self):
        return self.strategy.scope()


def use(spec):
    """Returns the devices of this process; the model is built in a scope."""
    import tensorflow as tf

    if spec.model > 1:
        raise ValueError(
            "TensorFlow splits no weights here. Expected: data parallelism, "
            f"such as 'gpu:4'. Received: model={spec.model}. Set "
            "KERAS_BACKEND=jax, which splits them."
        )
    if len(os.environ.get("TF_CONFIG", "")) > 2:
        raise ValueError(
            "Keras' fit fails under MultiWorkerMirroredStrategy. Expected: "
            "one process. Received: TF_CONFIG, which asks for several. Set "
            "KERAS_BACKEND=jax and KERAS_DISTRIBUTION_NUM_PROCESSES."
        )
    gpus = tf.config.list_physical_devices("GPU")
    kind = spec.kind or ("gpu" if gpus else "cpu")
    if kind == "tpu":
        return _Strategy("tpu", _tpu_strategy(tf))
    wanted = spec.data or spec.count
    if kind == "cpu" and wanted:
        _ask_for_cpus(tf, wanted)
    found = tf.config.list_logical_devices(kind.upper())
    count = wanted or (len(found) if kind == "gpu" else 1)
    check_count(count, [d.name for d in found], kind)
    if count == 1:
        return Devices(kind)
    names = [d.name for d in found[:count]]
    return _Strategy(kind, tf.distribute.MirroredStrategy(names))


def _ask_for_cpus(tf, count):
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, parts)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise ValueError(
                f"The number of CPU devices is fixed once TensorFlow has "
                f"begun. Expected: use_devices before anything is computed. "
                f"Received: a request for {count}. Call it first in the "
                f"process."
            ) from error


def _tpu_strategy(tf):
    # Best effort: JAX is the way to TPUs that Keras supports (G05).
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
    return tf.distribute.TPUStrategy(resolver)
