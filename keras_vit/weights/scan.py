"""Blocks stacked along a leading axis, seen one by one."""

import typing

STACKED = "Transformer/encoderblock/"


class Slice:
    """One block's part of a stacked tensor, read when it is asked for."""

    def __init__(self, stack, index):
        self._stack, self._index = stack, index
        self.shape = tuple(stack.shape[1:])
        self.dtype = stack.dtype

    def read(self):
        # The stack is read anew for each block: depth times the disk's work,
        # once the memory.
        return self._stack.read()[self._index]


def unscan(tensors: typing.Mapping) -> typing.Mapping:
    """Returns the tensors with those of a scanned encoder taken apart."""
    if not any(STACKED in name for name in tensors):
        return tensors
    apart = {}
    for name, tensor in tensors.items():
        if STACKED not in name:
            apart[name] = tensor
            continue
        for i in range(tensor.shape[0]):
            one = name.replace("encoderblock/", f"encoderblock_{i}/")
            apart[one] = Slice(tensor, i)
    return apart
