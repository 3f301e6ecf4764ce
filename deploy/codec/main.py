"""Runs one codec class of a user for longhaul-worker (codec/python/process.h), which is at the other end of standard input.

usage: main.py MODULE CLASS [key=value...]

The class:

    class Codec:
        def __init__(self, **arguments): ...          # the keys of the codec string, as texts
        def encode(self, x, context): ...             # x: float32 (samples, tokens, channels), read-only. Returns bytes
        def decode(self, body, shape, context): ...   # body: bytes. Returns an array of `shape`

A module is searched in the current folder first, then where this Python has its packages.
"""
import ast
import dataclasses
import importlib
import os
import select
import socket
import struct
import sys
import threading
import traceback

import numpy

# As process.cc has them.
REQUEST = struct.Struct("<4I5Q2I")
ANSWER = struct.Struct("<IIQ")
ENCODE, DECODE = 1, 2
GOOD, RAISED = 0, 1
LONGEST_SENTENCE = 2000


@dataclasses.dataclass(frozen=True)
class Context:
    """Which tensor it is. Sender and receiver see the same; two tensors of a run differ in a field."""
    seed: int  # of the run
    step: int
    replica: int
    edge: int  # which pair of stages
    direction: str  # "forward": activations; "backward": gradients
    microbatch: int

    def rng(self):
        """Random numbers of this tensor alone: the same at both ends, and when a step is repeated."""
        return numpy.random.Generator(numpy.random.Philox(numpy.random.SeedSequence(
            [self.seed, self.step, self.replica, self.edge, self.direction == "backward", self.microbatch])))


def argument(text):
    """A number, True, False or None where the text is one; else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def sentence(error):
    """What was raised, and where in the user's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__ and "importlib" not in frame.filename]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}".encode()[:LONGEST_SENTENCE]


class Link:
    def __init__(self, connection):
        self.connection = connection

    def read(self, size):
        """None where the other side has gone."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.connection.recv_into(view)
            if got == 0:
                return None
            view = view[got:]
        return data

    def answer(self, kind, body):
        self.connection.sendall(ANSWER.pack(kind, 0, len(body)))
        self.connection.sendall(body)


def leave_with(connection):
    """Ends this process when the other side goes, even while a class computes without end."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    os._exit(1)


def make(module, name, arguments):
    sys.path.insert(0, os.getcwd())
    kind = getattr(importlib.import_module(module), name, None)
    if kind is None:
        raise AttributeError(f"the module {module} ({sys.modules[module].__file__}) has no class {name}")
    codec = kind(**{key: argument(value) for key, _, value in (word.partition("=") for word in arguments)})
    for method in ("encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise TypeError(f"{module}:{name} has no method {method}")
    return codec


def encoded(codec, data, shape, context):
    x = numpy.frombuffer(data, numpy.float32).reshape(shape)
    x.flags.writeable = False
    body = codec.encode(x, context)
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError(f"encode returned {type(body).__name__}, not bytes")
    return memoryview(body).cast("B")


def decoded(codec, data, shape, context):
    x = numpy.asarray(codec.decode(bytes(data), shape, context))
    if x.shape != shape:
        raise ValueError(f"decode returned an array of {x.shape}, not of {shape}")
    return memoryview(numpy.ascontiguousarray(x, numpy.float32)).cast("B")


def serve(codec, link):
    while True:
        header = link.read(REQUEST.size)
        if header is None:
            return
        what, *shape, size, seed, step, edge, microbatch, replica, backward = REQUEST.unpack(header)
        data = link.read(size)
        if data is None:
            return
        context = Context(seed, step, replica, edge, "backward" if backward else "forward", microbatch)
        try:
            body = (encoded if what == ENCODE else decoded)(codec, data, tuple(shape), context)
        except Exception as error:
            link.answer(RAISED, sentence(error))
        else:
            link.answer(GOOD, body)


def main():
    connection = socket.socket(fileno=0)
    threading.Thread(target=leave_with, args=(connection,), daemon=True).start()
    link = Link(connection)
    try:
        codec = make(sys.argv[1], sys.argv[2], sys.argv[3:])
    except Exception as error:
        link.answer(RAISED, sentence(error))
        return
    link.answer(GOOD, b"")
    serve(codec, link)


if __name__ == "__main__":
    main()
