"""Computing again in the backward pass what was not kept in the forward one.

`keras.RematScope` of Keras 3.15 does not serve a block: on TensorFlow it fails
in every graph, on JAX and torch with dropout. And XLA on a CPU takes out the
barrier of `jax.checkpoint`, finds that both passes compute the same, and keeps
everything after all. Hence one function per backend, and each makes what it
computes again depend on the gradient that arrives.
"""

import keras
from keras import ops


def recompute(function, *args):
    """Returns `function(*args)` and keeps no more of it than `args`.

    Args:
        function: A pure function of tensors, to a tensor or a list of them.
            A gradient reaches only what is among `args`.
        args: Tensors.
    """
    if keras.config.backend() == "jax":
        return _on_jax(function)(*args)
    if keras.config.backend() == "tensorflow":
        return _on_tensorflow(function, args)
    return _on_torch(function, args)


def recompute_layer(layer, function, *args):
    """Returns `function(*args)`, a part of `layer` and of its weights.

    What the layer draws at random is drawn again, the same.

    Args:
        layer: A built layer, whose variables are those of `function`.
        function: Takes `args`, returns a tensor.
        args: Tensors, or `None`.
    """
    given = [x for x in args if x is not None]
    states = list(layer.non_trainable_variables)
    weights = list(layer.trainable_variables)
    variables = weights + states

    def pure(*tensors):
        tensors, values = tensors[: len(given)], tensors[len(given) :]
        rest = iter(tensors)
        inputs = [None if x is None else next(rest) for x in args]
        mapping = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping) as scope:
            y = function(*inputs)
        return [y, *(scope.get_current_value(v) for v in states)]

    values = [ops.convert_to_tensor(v) for v in weights]
    # Copied: torch counts on what it was given, and draws change it in place.
    values += [ops.copy(v) for v in states]
    y, *states_after = recompute(pure, *given, *values)
    for variable, value in zip(states, states_after, strict=True):
        variable.assign(value)
    return y


def _on_torch(function, args):
    from torch.utils import checkpoint

    if args[0].device.type == "meta":
        return function(*args)  # Keras infers shapes on this device.
    # torch ends the second pass early by an exception, whose traceback holds
    # all of its tensors until the garbage collector comes.
    with checkpoint.set_checkpoint_early_stop(False):
        return keras.remat(function)(*args)


def _on_tensorflow(function, args):
    # It warns of every integer, such as the state of a generator.
    of_floats = [keras.backend.is_float_dtype(x.dtype) for x in args]

    def pure(*floats):
        rest = iter(floats)
        both = zip(args, of_floats, strict=True)
        return function(*(next(rest) if of else x for x, of in both))

    both = zip(args, of_floats, strict=True)
    return keras.remat(pure)(*(x for x, of in both if of))


def _on_jax(function):
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def again(*args):
        return function(*args)

    def forward(*args):
        return function(*args), args

    def backward(args, gradient):
        first, *others = args
        arrived = jax.tree.leaves(gradient)[0].ravel()[0]
        # Zero, unless it is no number: the compiler cannot know which.
        zero = jnp.where(arrived == arrived, 0.0, jnp.nan)
        first = first + zero.astype(first.dtype)
        return jax.vjp(function, first, *others)[1](gradient)

    again.defvjp(forward, backward)
    return again
