"""Matrix products of the blocks on torch's CPU: oneDNN where it is faster.

torch hands float32 products to a BLAS that on some processors (AMD's, measured)
reaches 36 % of what the machine can do, where oneDNN reaches 60 to 70 %. The
operator that `torch.compile` emits for them is not public: it is tried once,
timed once against `torch.nn.functional.linear`, and left alone if it is missing
or slower. `KERAS_VIT_LINEAR=plain` takes Keras' own product everywhere, which
is the tested reference; `onednn` takes this one without timing it.

In inference a transposed copy of each kernel is kept, as large as the kernels.
"""

import functools
import os
import time
import weakref

import keras

# Our names of activations that the operator can do by itself.
FUSED = {"gelu": "none", "gelu_tanh": "tanh"}
ROWS, SIDE, ROUNDS = 512, 768, 5  # of the products that are timed
_PACKED = {}  # id of a kernel to its state and the copy


def linear(dense, x, activation=None):
    """Returns `activation(dense(x))` by the fastest kernel of this machine.

    Args:
        dense: A built `keras.layers.Dense` without an activation.
        x: `(..., in)`.
        activation: Optional name, `"gelu"` or `"gelu_tanh"`, to be done where
            the product is; only where `fuses(dense, x)` says so.
    """
    if not _is_plain(dense, x):
        return dense(x)
    import torch

    if not _applies(dense, x):
        return _product(dense, x)
    kernel = dense.kernel.value
    bias = None if dense.bias is None else dense.bias.value
    if torch.is_grad_enabled() and (kernel.requires_grad or x.requires_grad):
        return _function().apply(x, kernel, bias)
    how = ("gelu", [], FUSED[activation]) if activation else ("none", [], "")
    return onednn_linear()(x, _packed(kernel), bias, *how)


def fuses(dense, x, activation):
    """Whether `linear` does this activation together with the product."""
    if activation not in FUSED or not _applies(dense, x):
        return False
    import torch

    trains = dense.kernel.value.requires_grad or x.requires_grad
    return not (torch.is_grad_enabled() and trains)


def _is_plain(dense, x):
    """Whether the layer is a product and a sum, of tensors of torch."""
    if keras.config.backend() != "torch":
        return False
    import torch

    return (
        isinstance(x, torch.Tensor)
        and dense.quantization_mode is None
        and not dense.lora_enabled
    )


def _product(dense, x):
    # What the layer does, by one call; `dense(x)` takes 0.1 ms for the way.
    import torch

    x = keras.ops.cast(x, dense.compute_dtype)
    kernel = dense.kernel.value.to(x.dtype)
    bias = None if dense.bias is None else dense.bias.value.to(x.dtype)
    return torch.nn.functional.linear(x, kernel.T, bias)


def _applies(dense, x):
    if not _is_plain(dense, x):
        return False
    import torch

    return (
        type(x) is torch.Tensor  # not a fake one, of a trace
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and dense.compute_dtype == "float32"
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and _wins()
    )


@functools.cache
def _wins():
    """Whether oneDNN's product is there, and the faster one, on this CPU."""
    choice = os.environ.get("KERAS_VIT_LINEAR", "auto")
    if choice == "plain" or onednn_linear() is None:
        return False
    if choice == "onednn":
        return True
    import torch

    x, kernel = torch.ones(ROWS, SIDE), torch.ones(SIDE, SIDE)
    with torch.no_grad():
        times = {}
        for name, product in (
            ("plain", lambda: torch.nn.functional.linear(x, kernel)),
            (
                "onednn",
                lambda: onednn_linear()(x, kernel, None, "none", [], ""),
            ),
        ):
            product()  # threads and buffers are made
            times[name] = min(_seconds(product) for _ in range(ROUNDS))
    return times["onednn"] < 0.95 * times["plain"]


def _seconds(function):
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


@functools.cache
def onednn_linear():
    """The operator, or `None` where this torch has none or another one."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return None
    try:
        operator = torch.ops.mkldnn._linear_pointwise
        x, weight = torch.ones(2, 3), torch.arange(12.0).reshape(4, 3)
        with torch.no_grad():
            found = operator(x, weight, torch.ones(4), "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return None
    right = torch.equal(found, x @ weight.T + 1)
    return operator if right else None


def _packed(kernel):
    """The kernel as `(out, in)`, contiguous; made again when it has changed."""
    key = id(kernel)
    state = (kernel._version, kernel.data_ptr())
    found = _PACKED.get(key)
    if found is None:
        weakref.finalize(kernel, _PACKED.pop, key, None)
    if found is None or found[0] != state:
        found = (state, kernel.detach().T.contiguous())
        _PACKED[key] = found
    return found[1]


@functools.cache
def _function():
    import torch
    from torch.autograd.function import once_differentiable

    class Linear(torch.autograd.Function):
        """`x @ kernel + bias` with all three products by oneDNN."""

        @staticmethod
        def forward(ctx, x, kernel, bias):
            ctx.save_for_backward(x, kernel)
            ctx.with_bias = bias is not None
            weight = kernel.T.contiguous()
            return onednn_linear()(x, weight, bias, "none", [], "")

        @staticmethod
        @once_differentiable
        def backward(ctx, gradient):
            x, kernel = ctx.saved_tensors
            product = onednn_linear()
            gradient = gradient.contiguous()
            rows = gradient.reshape(-1, gradient.shape[-1])
            by_x = by_kernel = by_bias = None
            if ctx.needs_input_grad[0]:
                # The kernel lies as the operator wants it: (in, out).
                by_x = product(gradient, kernel, None, "none", [], "")
            if ctx.needs_input_grad[1]:
                columns = x.reshape(-1, x.shape[-1]).T
                # Both as they lie, transposed: it reads strides, copies none.
                by_kernel = product(columns, rows.T, None, "none", [], "")
            if ctx.with_bias and ctx.needs_input_grad[2]:
                by_bias = rows.sum(dim=0)
            return by_x, by_kernel, by_bias

    return Linear
