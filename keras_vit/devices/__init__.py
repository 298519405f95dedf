"""Which devices a run uses: one call for every backend."""

import importlib

import keras

from keras_vit.devices.group import Devices
from keras_vit.devices.layout import layout_map
from keras_vit.devices.spec import parse

__all__ = ["Devices", "layout_map", "use_devices"]


def use_devices(devices="auto", dtype="auto"):
    """Makes what is built after it train on these devices.

    JAX: `keras.distribution`, `DataParallel` or, with `model=`, a mesh over
    which the weights are split by `layout_map`; across hosts with the
    environment variables `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `_NUM_PROCESSES`
    and `_PROCESS_ID`. TensorFlow: `MirroredStrategy`, or `TPUStrategy` as a
    best effort. torch: the processes that `torchrun` has started.

    Call it first in a process. The batch size of a recipe is that of all
    devices together, so its learning rate stays what it is.

    Args:
        devices: `"auto"` (every accelerator, else one CPU device), `"cpu"`,
            `"gpu"` or `"tpu"`, with a number if not all (`"gpu:4"`,
            `"cpu:8"`), or a mesh, `"model=4,data=2"`.
        dtype: Dtype policy to set. `"auto"` is `"mixed_bfloat16"` on GPU and
            TPU where none has been chosen, `None` leaves it.

    Returns:
        A `Devices`: `replicas`, `process`, `writer`, and what a script calls
        to be the same everywhere.

    Raises:
        ValueError: There are no such devices, or the backend cannot; the
            message says which way works.

    Example:
    ```python
    devices = keras_vit.use_devices("auto")
    with devices.scope():
        model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
        model.compile(keras.optimizers.SGD(0.01), keras_vit.Crossentropy())
    model = devices.prepare(model)
    images = np.zeros((8, 28, 28, 3), "uint8")
    model.fit(images, np.arange(8), callbacks=devices.callbacks(), verbose=0)
    ```
    """
    spec = parse(devices)
    backend = keras.config.backend()
    module = importlib.import_module(f"keras_vit.devices.on_{backend}")
    found = module.use(spec)
    if dtype == "auto":
        chosen = keras.config.dtype_policy().name != "float32"
        dtype = None if chosen or found.kind == "cpu" else "mixed_bfloat16"
    if dtype is not None:
        keras.config.set_dtype_policy(dtype)
    return found
