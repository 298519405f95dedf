"""An array into a variable, with no more copies than the backend needs."""

import keras


def fill(variable, array):
    """Does `variable.assign(array)`, which is the tested reference, faster.

    Args:
        variable: A `keras.Variable`.
        array: A NumPy array of its shape, which nobody else writes to: on
            torch the variable may keep its memory.
    """
    backend = keras.config.backend()
    if backend == "torch" and array.flags.writeable:
        _fill_torch(variable, array)
    elif (
        backend == "tensorflow" and array.ndim > 1 and array.flags.f_contiguous
    ):
        # As `(out, in)` in a torch file: NumPy would walk across the rows.
        variable.assign(keras.ops.transpose(array.T))
    else:
        variable.assign(array)


def _fill_torch(variable, array):
    import torch

    tensor = torch.from_numpy(array)  # Keras would copy it first
    value = variable.value
    same = (
        type(value) is torch.nn.Parameter
        and (value.device, value.dtype) == (tensor.device, tensor.dtype)
        and value.shape == tensor.shape
    )
    if same and array.flags.c_contiguous and _is_whole(array):
        # Pages that torch touches for the first time are what a copy costs.
        value.data = tensor
    else:
        variable.assign(tensor)


def _is_whole(array):
    """Whether the memory of an array is its own, not part of a larger one."""
    base = array.base
    return base is None or getattr(base, "nbytes", None) == array.nbytes
