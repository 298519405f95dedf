"""The language of pickle, read as data: nothing it names is ever called.

A pickle is a program for a small stack machine that may call any function of
any module. This machine knows the same words, but calls only the builders
that it is given, by name; it imports nothing.
"""

import io
import pickletools
import typing

from keras_vit.weights.tensor_file import Bounded
from keras_vit.weights.tensor_file import guarded

MAX_BYTES = 2**26  # of one pickle; that of a model takes less than a MB
_MARK = object()
_PLAIN = (str, int, float, bool, bytes, type(None))


class Record:
    """An object of a class that is data only; what it held is `state`."""

    def __init__(self, *_):
        self.state = None


class Global(typing.NamedTuple):
    """A name that the pickle mentions, and what stands for it here."""

    name: str
    build: typing.Callable


def load(
    path,
    stream: typing.BinaryIO | bytes,
    find: typing.Callable[[str], typing.Callable],
    persistent: typing.Callable[[typing.Any], typing.Any],
) -> typing.Any:
    """Returns what one pickle says; the stream then stands behind it.

    Args:
        path: The file, for errors.
        stream: The pickle.
        find: Called with `"module.name"`; returns what builds an inert value
            from the arguments, or raises.
        persistent: Called with each persistent id.

    Raises:
        CheckpointError: No pickle, or one that does more than hold data.
    """
    if isinstance(stream, bytes):
        stream = io.BytesIO(stream)
    with guarded(path, "the pickle in this file"):
        machine = _Machine(find, persistent)
        for opcode, argument, _ in pickletools.genops(
            Bounded(stream, MAX_BYTES)
        ):
            machine.step(opcode.name, argument)
        return machine.stack.pop()


class _Machine:
    def __init__(self, find, persistent):
        self.find, self.persistent = find, persistent
        self.stack, self.memo = [], {}

    def step(self, name, argument):
        if name in _CONSTANTS:
            self.stack.append(argument)
        elif name in _FRESH:
            self.stack.append(_FRESH[name]())
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"the word {name} is not read here")

    def since_mark(self):
        """Takes off the stack all that lies above the last mark."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("there is no mark on the stack")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def mark(self, _):
        self.stack.append(_MARK)

    def drop(self, _):
        self.stack.pop()

    def repeat(self, _):
        self.stack.append(self.stack[-1])

    def put(self, index):
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def get(self, index):
        self.stack.append(self.memo[index])

    def tuple_of(self, count):
        items = self.stack[len(self.stack) - count :]
        if len(items) < count or any(item is _MARK for item in items):
            raise ValueError("a tuple reaches below its mark")
        del self.stack[len(self.stack) - count :]
        self.stack.append(tuple(items))

    def dict_of(self, _):
        items = self.since_mark()
        self.stack.append({})
        self.set_items(items)

    def append(self, items):
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Record):
            raise TypeError(f"cannot append to a {type(target).__name__}")

    def set_items(self, items):
        target = self.stack[-1]
        if isinstance(target, dict):
            target.update(pairs_of(zip(items[::2], items[1::2], strict=True)))
        elif not isinstance(target, Record):
            raise TypeError(f"cannot set items of a {type(target).__name__}")

    def set_item(self, _):
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def name_global(self, name):
        name = name.replace(" ", ".", 1)
        self.stack.append(Global(name, self.find(name)))

    def stack_global(self, _):
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("the name of a global is no text")
        self.name_global(f"{module} {name}")

    def build(self, keywords):
        if keywords:
            self.stack.pop()
        arguments, target = self.stack.pop(), self.stack.pop()
        self.stack.append(call(target, arguments))

    def set_state(self, _):
        state = self.stack.pop()
        # An ordered dictionary may have attributes; they are no weights.
        if isinstance(self.stack[-1], Record):
            self.stack[-1].state = state

    def resolve(self, _):
        self.stack.append(self.persistent(self.stack.pop()))


def call(target: typing.Any, arguments: typing.Any) -> typing.Any:
    """Builds the inert value that stands for `target(*arguments)`."""
    if not isinstance(target, Global) or not isinstance(arguments, tuple):
        raise TypeError(f"a {type(target).__name__} cannot be called")
    return target.build(*arguments)


def pairs_of(items: typing.Iterable) -> dict:
    """A dictionary of pairs, whose keys are plain or tuples of plain values.

    Anything deeper could take for ever to hash.
    """
    values = {}
    for key, value in items:
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, _PLAIN) for part in parts):
            raise TypeError(f"a {type(key).__name__} cannot be a key here")
        values[key] = value
    return values


# fmt: off
_CONSTANTS = frozenset((
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING",
    "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BYTEARRAY8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "FLOAT", "BINFLOAT",
))
_FRESH = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list, "NONE": lambda: None,
    "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}
_STEPS = {
    "MARK": _Machine.mark, "POP": _Machine.drop, "DUP": _Machine.repeat,
    "POP_MARK": lambda m, _: m.since_mark(),
    "PUT": _Machine.put, "BINPUT": _Machine.put, "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "GET": _Machine.get, "BINGET": _Machine.get, "LONG_BINGET": _Machine.get,
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "DICT": _Machine.dict_of,
    "FROZENSET": lambda m, _: m.stack.append(m.since_mark()),
    "APPEND": lambda m, _: m.append([m.stack.pop(-1)]),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "ADDITEMS": lambda m, _: m.append(m.since_mark()),
    "SETITEM": _Machine.set_item,
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "GLOBAL": _Machine.name_global, "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": lambda m, _: m.build(False),
    "NEWOBJ": lambda m, _: m.build(False),
    "NEWOBJ_EX": lambda m, _: m.build(True),
    "BUILD": _Machine.set_state,
    "PERSID": lambda m, arg: m.stack.append(m.persistent(arg)),
    "BINPERSID": _Machine.resolve,
}
# fmt: on
