"""The closed formulas of wire_bytes.py against what longhaul-codec writes. Argument: the program."""
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import wire_bytes

PROGRAM = ""
# What a plan holds: canonical codec strings.
CODECS = [
    "none", "bf16", "fp16",
    "fixed:bits=3,tile=64,rounding=nearest", "fixed:bits=10,tile=32,rounding=stochastic",
    "tah:p=0.8,tile=64,alloc=64,tau=2,rounding=nearest",
    "tah:p=0.3,tile=32,alloc=token,tau=0,rounding=stochastic",
    "tah:p=0.5,tile=64,alloc=256,tau=2,rounding=nearest",
    "gauss:bits=4,block=128",
    "gauss:bits=3,block=512",
]


def npy(shape):
    header = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    count = shape[0] * shape[1] * shape[2]
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header +
            struct.pack(f"<{count}f", *(k % 97 - 48 for k in range(count))))


class WireBytesTest(unittest.TestCase):
    def test_sizes_are_those_of_the_codecs(self):
        with tempfile.TemporaryDirectory() as folder:
            x, blob = pathlib.Path(folder, "x.npy"), pathlib.Path(folder, "x.lh")
            for shape in [(1, 8, 256), (3, 5, 200), (2, 1, 33)]:
                x.write_bytes(npy(shape))
                for codec in CODECS:
                    subprocess.run([PROGRAM, "encode", "--codec", codec, x, "-o", blob],
                                   check=True, timeout=60, stdout=subprocess.DEVNULL)
                    self.assertEqual(wire_bytes.blob_bytes(codec, *shape), blob.stat().st_size,
                                     f"{codec} of {shape}")

    def test_an_unknown_codec_is_refused(self):
        with self.assertRaises(ValueError):
            wire_bytes.blob_bytes("taco:block=256", 1, 1, 64)

    def test_every_chunk_has_its_headers(self):
        self.assertEqual(wire_bytes.stream_bytes(1), 1 + 160)
        self.assertEqual(wire_bytes.stream_bytes(65440), 65440 + 160)
        self.assertEqual(wire_bytes.stream_bytes(65441), 65441 + 320)

    def test_a_full_segment_is_a_full_frame(self):
        self.assertEqual(wire_bytes.on_ethernet(1448), 1514)

    def test_a_middle_worker_sends_activations_and_gradients(self):
        cells = [{"id": {"replica": 0, "stage": stage}, "worker_name": name}
                 for stage, name in enumerate("abc")]
        edges = [{"from": upper["id"], "to": lower["id"], "forward": {"codec": "none"},
                  "backward": {"codec": "bf16"}} for upper, lower in zip(cells, cells[1:])]
        plan = {"assignment": {"cells": cells, "edges": edges}}
        got = wire_bytes.expected_bytes(plan, {"context": 16, "hidden": 64},
                                        {"microbatches": 2, "microbatch_size": 1, "steps": 3})

        def sent(blob):
            return 3 * wire_bytes.on_ethernet(2 * (blob + 160) + 64 + 96 + 16)

        down, up = sent(64 + 4096), sent(64 + 2048)
        self.assertEqual(got, {"a": {"uplink": down, "downlink": up},
                               "b": {"uplink": down + up, "downlink": down + up},
                               "c": {"uplink": up, "downlink": down}})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
