"""Codecs of tests that are classes of Python (tests/support/python_codecs.h)."""
import os
import time
import zlib

import numpy


class Planes:
    """Loses nothing of finite numbers: the first bytes of all elements, then the second, ..., through zlib."""

    def encode(self, x, context):
        x = numpy.where(numpy.isfinite(x), x, numpy.float32("nan"))
        return zlib.compress(numpy.ascontiguousarray(x.view(numpy.uint8).reshape(-1, 4).T).tobytes(), 1)

    def decode(self, body, shape, context):
        planes = numpy.frombuffer(zlib.decompress(body), numpy.uint8).reshape(4, -1)
        return numpy.ascontiguousarray(planes.T).view(numpy.float32).reshape(shape)


class Noisy:
    """8 bits an element and a scale, rounded at random."""

    def __init__(self, levels=127):
        self.levels = levels

    def encode(self, x, context):
        scale = numpy.float32(numpy.abs(x).max() / self.levels or 1)
        noise = context.rng().random(x.shape, numpy.float32)
        return scale.tobytes() + numpy.floor(x / scale + noise).astype(numpy.int8).tobytes()

    def decode(self, body, shape, context):
        return numpy.frombuffer(body, numpy.int8, offset=4).reshape(shape) * numpy.frombuffer(body, numpy.float32, count=1)


class Counting:
    """State: sends the number of the call, which the other side must have, too."""

    def __init__(self):
        self.calls = 0

    def encode(self, x, context):
        self.calls += 1
        return bytes([self.calls]) + x.astype(numpy.float16).tobytes()

    def decode(self, body, shape, context):
        self.calls += 1
        if body[0] != self.calls:
            raise ValueError(f"call {self.calls} got the tensor of call {body[0]}")
        return numpy.frombuffer(body, numpy.float16, offset=1).reshape(shape)


class Faulty:
    """Does what `how` says, in encode."""

    def __init__(self, how="raises"):
        if how == "refuses":
            raise ValueError("there is nothing to be made")
        self.how = how

    def encode(self, x, context):
        if self.how == "raises":
            raise RuntimeError("no room\nfor this")
        if self.how == "dies":
            os.kill(os.getpid(), 9)
        if self.how == "hangs":
            time.sleep(1000)
        if self.how == "floods":
            return bytes(5 * x.size + 1000)
        return 7

    def decode(self, body, shape, context):
        return numpy.zeros(3) if self.how == "shape" else numpy.zeros(shape)


class Encoder:
    def encode(self, x, context):
        return b""


class Mortal(Planes):
    """Dies when it encodes a tensor of this step."""

    def __init__(self, step):
        self.step = step

    def encode(self, x, context):
        if context.step == self.step:
            os.kill(os.getpid(), 9)
        return super().encode(x, context)
