"""longhaul-codec as a user calls it: exit codes, messages, files. Argument: the program."""

import array
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


def npy(descr, shape, data):
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def values(count):
    return [((k * 2654435761) % 65536 - 32768) / 4096 for k in range(count)]


class ToolTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.x = self.path("x.npy")
        self.values = values(6 * 200)
        self.write(self.x, npy("<f4", (2, 3, 200), array.array("f", self.values).tobytes()))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, path, data):
        with open(path, "wb") as file:
            file.write(data)

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def call(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def payload(self, path):
        data = self.read(path)
        return data[10 + struct.unpack("<H", data[8:10])[0] :]

    def test_usage(self):
        self.assertIn("longhaul-codec 0.", self.call("--version").stdout)
        self.assertIn("tau=0..1000", self.call("--help").stdout)
        self.call(code=2)
        self.call("frobnicate", code=2)
        self.call("encode", self.x, code=2)
        self.call("bench", "--elements", "0", code=2)
        self.call("encode", self.x, "-o", self.path("x.lh"), "--dtype", "int8", code=2)
        wrong = self.call("error", self.x, "--codec", "tahh", code=2)
        self.assertIn("did you mean 'tah'", wrong.stderr)

    def test_round_trip_is_exact_with_none(self):
        self.call("encode", "--codec", "none", self.x, "-o", self.path("x.lh"))
        self.call("decode", self.path("x.lh"), "-o", self.path("y.npy"))
        self.assertEqual(self.payload(self.path("y.npy")), self.payload(self.x))

    def test_round_trip_of_every_codec(self):
        for codec in ["bf16", "fp16", "fixed:bits=6", "tah:p=0.5,rounding=stochastic", "tah",
                      "gauss", "aqsgd:bits=2", "taco", "taco:format=int8,block=32"]:
            self.call("encode", "--codec", codec, "--seed", "7", self.x, "-o", self.path("x.lh"))
            self.call("decode", self.path("x.lh"), "-o", self.path("y.npy"))
            decoded = array.array("f", self.payload(self.path("y.npy")))
            self.assertEqual(len(decoded), len(self.values))
            for got, wanted in zip(decoded, self.values):
                self.assertLess(abs(got - wanted), 2.5, codec)

    def test_bf16_and_fp16_files(self):
        half = npy("<f2", (5,), struct.pack("<5e", 0.5, -1, 2, 0, 65504))
        self.write(self.path("h.npy"), half)
        self.call("encode", "--codec", "fp16", self.path("h.npy"), "-o", self.path("h.lh"))
        self.call("decode", self.path("h.lh"), "-o", self.path("h2.npy"))
        self.assertEqual(self.payload(self.path("h2.npy")), self.payload(self.path("h.npy")))

        raw = npy("<u2", (2, 2), struct.pack("<4H", 0x3F80, 0xBF80, 0x4000, 0))
        self.write(self.path("b.npy"), raw)
        failed = self.call(
            "encode", "--codec", "bf16", self.path("b.npy"), "-o", self.path("b.lh"), code=1
        )
        self.assertIn("--dtype bf16", failed.stderr)
        flags = ["--codec", "bf16", "--dtype", "bf16"]
        self.call("encode", *flags, self.path("b.npy"), "-o", self.path("b.lh"))
        self.call("decode", self.path("b.lh"), "-o", self.path("b2.npy"))
        self.assertEqual(self.payload(self.path("b2.npy")), self.payload(self.path("b.npy")))
        self.call("decode", self.path("b.lh"), "--dtype", "fp32", "-o", self.path("b3.npy"))
        wide = struct.unpack("<4f", self.payload(self.path("b3.npy")))
        self.assertEqual(wide, (1, -1, 2, 0))

    def test_inspect(self):
        self.call("encode", "--codec", "tah", self.x, "-o", self.path("x.lh"))
        self.assertIn("fourth bits", self.call("inspect", self.path("x.lh")).stdout)
        shown = json.loads(self.call("inspect", "--json", self.path("x.lh")).stdout)
        self.assertEqual(shown["shape"], [2, 3, 200])
        self.assertEqual(shown["dtype"], "fp32")
        self.assertEqual(shown["bytes"], os.path.getsize(self.path("x.lh")))
        self.assertEqual(sum(s["bytes"] for s in shown["sections"]), shown["bytes"])
        self.call("encode", "--codec", "gauss", self.x, "-o", self.path("x.lh"))
        shown = json.loads(self.call("inspect", "--json", self.path("x.lh")).stdout)
        self.assertEqual(
            [section["name"] for section in shown["sections"]],
            ["header", "exponents", "scales", "codes"],
        )
        self.assertEqual(sum(s["bytes"] for s in shown["sections"]), shown["bytes"])

    def test_inspect_of_taco(self):
        self.call("encode", "--codec", "taco", self.x, "-o", self.path("x.lh"))
        shown = json.loads(self.call("inspect", "--json", self.path("x.lh")).stdout)
        self.assertEqual(
            [(section["name"], section["bytes"]) for section in shown["sections"]],
            [("header", 64), ("scales", 32), ("codes", 5 * 256)],  # of 1,200 elements
        )

    def test_codecs_that_remember(self):
        self.call("encode", "--codec", "aqsgd", self.x, "-o", self.path("x.lh"))
        shown = json.loads(self.call("inspect", "--json", self.path("x.lh")).stdout)
        self.assertEqual(sum(s["bytes"] for s in shown["sections"]), shown["bytes"])
        self.assertEqual([s["name"] for s in shown["sections"]][-1], "bodies")
        moved = [v + 0.01 * ((k * 7) % 11 - 5) for k, v in enumerate(self.values)]
        self.write(self.path("moved.npy"),
                   npy("<f4", (2, 3, 200), array.array("f", moved).tobytes()))
        error = ["error", "--json", "--codec", "aqsgd:bits=4", self.path("moved.npy")]
        whole = json.loads(self.call(*error).stdout)
        difference = json.loads(self.call(*error, "--previous", self.x).stdout)
        self.assertGreater(whole["bits_per_element"], 16)
        # The scale of each channel is shared by six elements only.
        self.assertLess(difference["bits_per_element"], 10)
        self.assertLess(difference["relative_l2"], 0.01)
        refused = self.call("error", "--codec", "tah", self.x, "--previous", self.x, code=1)
        self.assertIn("remember", refused.stderr)
        self.write(self.path("other.npy"), npy("<f4", (5,), bytes(20)))
        self.call("error", "--codec", "aqsgd", self.x, "--previous", self.path("other.npy"), code=1)

    def test_error(self):
        exact = json.loads(self.call("error", "--json", "--codec", "none", self.x).stdout)
        self.assertEqual((exact["mse"], exact["relative_l2"]), (0, 0))
        self.assertAlmostEqual(exact["cosine"], 1)
        coarse = json.loads(self.call("error", "--json", "--codec", "fixed:bits=3", self.x).stdout)
        fine = json.loads(self.call("error", "--json", "--codec", "fixed:bits=8", self.x).stdout)
        self.assertLess(fine["mse"], coarse["mse"] / 100)
        self.assertIn("bits/element", self.call("error", self.x).stdout)

    def tables(self, *arguments):
        """Rows of `errors` or `ablate`: tensor -> [row]."""
        shown = json.loads(self.call(*arguments, "--json").stdout)
        return {tensor["tensor"]: tensor["codecs"] for tensor in shown["tensors"]}

    def test_errors_compares_codecs_on_the_same_tensors(self):
        tables = self.tables("errors")
        self.assertEqual(list(tables), ["gaussian", "student-t-3", "outlier-channels"])
        for rows in tables.values():
            by_name = {row["codec"]: row for row in rows}
            families = {name.partition(":")[0] for name in by_name}
            self.assertEqual(families, {"none", "bf16", "fp16", "fixed", "tah", "gauss", "taco"})
            self.assertEqual(by_name["none"]["relative_l2"], 0)
            gauss = [by_name[f"gauss:bits={bits},block=128"] for bits in range(2, 7)]
            for coarse, fine in zip(gauss, gauss[1:]):
                self.assertLess(fine["relative_l2"], coarse["relative_l2"])
                self.assertGreater(fine["cosine"], coarse["cosine"])
                self.assertAlmostEqual(fine["bits_per_element"], coarse["bits_per_element"] + 1, 2)
        other = self.tables("errors", "--seed", "1", "--codec", "tah")["gaussian"]
        same = next(row for row in tables["gaussian"] if row["codec"] == other[0]["codec"])
        self.assertNotEqual(other[0]["relative_l2"], same["relative_l2"])
        self.assertAlmostEqual(other[0]["relative_l2"], same["relative_l2"], 2)

    def test_errors_of_files(self):
        single = json.loads(self.call("error", "--json", "--codec", "gauss", self.x).stdout)
        rows = self.tables("errors", self.x, "--codec", "gauss", "--codec", "fixed:bits=3")[self.x]
        self.assertEqual([row["codec"].partition(":")[0] for row in rows], ["gauss", "fixed"])
        for key in ("bits_per_element", "relative_l2", "cosine"):
            self.assertEqual(rows[0][key], single[key])
        twice = self.path("twice.npy")
        doubled = [2 * value for value in self.values]
        self.write(twice, npy("<f4", (2, 3, 200), array.array("f", doubled).tobytes()))
        shown = self.call("errors", self.x, twice, "--codec", "gauss", "--summary").stdout
        # Twice the values, the same error.
        value = f"{single['relative_l2']:.4f}"
        self.assertIn(f"{value} - {value}", shown)
        self.assertIn(self.x, self.call("errors", self.x).stdout)

    def test_errors_and_ablate_refuse_what_they_cannot_read(self):
        empty = self.path("empty.npy")
        self.write(empty, npy("<f4", (0, 3), b""))
        for command in ("errors", "ablate"):
            self.assertIn("absent.npy", self.call(command, self.path("absent.npy"), code=1).stderr)
            self.assertIn("has none", self.call(command, empty, code=1).stderr)
            self.assertIn("--dtype", self.call(command, self.x, "--dtype", "fp16", code=1).stderr)
        self.call("errors", self.x, "--codec", "gauss:bits=9", code=2)
        self.call("ablate", self.x, "--codec", "tah", code=2)

    def test_ablate(self):
        for name, rows in self.tables("ablate").items():
            groups = {}
            for row in rows:
                groups.setdefault(row["group"], []).append(row)
            shares = groups["share of INT4"]  # 100%, 80%, 50%, 0%, and INT2
            for finer, coarser in zip(shares, shares[1:]):
                self.assertLess(finer["relative_l2"], coarser["relative_l2"], name)
                self.assertGreater(finer["bits_per_element"], coarser["bits_per_element"])
            for on, off in zip(*[iter(groups["pivot to slot 0: on, off"])] * 2):
                # Six bits a tile of 64.
                self.assertAlmostEqual(
                    on["bits_per_element"] - off["bits_per_element"], 6 / 64, places=2
                )
            if name == "outlier-channels":
                self.assertLess(on["relative_l2"], off["relative_l2"] / 2)
            steps = {row["codec"]: row["relative_l2"] for row in groups["steps of taco"]}
            small = [row for group, of in groups.items() if group.startswith("the same, el") for row in of]
            small = {row["codec"]: row["relative_l2"] for row in small}
            # The codec itself, by the reference; alpha is worth nothing beside a scale.
            taco = groups["8 bits of taco"]
            self.assertAlmostEqual(steps["all, as the paper has it"], taco[0]["relative_l2"], 4)
            self.assertAlmostEqual(
                steps["all, as the paper has it"], steps["transform and scale, without alpha"], 5
            )
            # Only a scale of some kind holds small elements.
            self.assertAlmostEqual(
                small["all, as the paper has it"], steps["all, as the paper has it"], 5
            )
            self.assertGreater(small["plain cast to E4M3"], 0.2)
            self.assertGreater(small["transform alone"], 0.2)
            self.assertGreater(taco[1]["relative_l2"], 1.8 * taco[0]["relative_l2"])
            self.assertLess(taco[2]["relative_l2"], taco[0]["relative_l2"] / 3)
        self.assertIn("INT2", self.call("ablate", self.x).stdout)

    def test_without_a_pivot_to_move_its_ablation_changes_nothing(self):
        first = [8.0 if k % 200 % 64 == 0 else value / 8 for k, value in enumerate(self.values)]
        self.write(self.x, npy("<f4", (2, 3, 200), array.array("f", first).tobytes()))
        rows = self.tables("ablate", self.x)[self.x]
        on, off = [row for row in rows if row["group"].startswith("pivot")][:2]
        self.assertAlmostEqual(on["relative_l2"], off["relative_l2"], 4)

    def test_nonfinite_tiles_are_reported(self):
        bad = list(self.values)
        bad[3] = float("nan")
        self.write(self.x, npy("<f4", (2, 3, 200), array.array("f", bad).tobytes()))
        shown = self.call("encode", self.x, "-o", self.path("x.lh")).stdout
        self.assertIn("1 tiles", shown)
        self.assertIn("left out         64", self.call("error", self.x).stdout)

    def test_files_that_are_not_what_they_should_be(self):
        self.call("encode", self.path("absent.npy"), "-o", self.path("x.lh"), code=1)
        self.call("encode", self.x, "-o", self.path("absent/x.lh"), code=1)
        self.call("inspect", self.x, code=1)
        self.write(self.path("empty"), b"")
        self.call("encode", self.path("empty"), "-o", self.path("x.lh"), code=1)
        self.call("decode", self.path("empty"), "-o", self.path("y.npy"), code=1)
        self.call("encode", self.x, "-o", self.path("x.lh"))
        blob = self.read(self.path("x.lh"))
        # A header that announces 2^30 elements: refused before memory is asked for.
        large = blob[:8] + struct.pack("<3I", 1, 1 << 15, 1 << 15) + blob[20:]
        for data in [blob[:-1], blob + b"x", blob[:40], b"LHBL" * 30, large]:
            self.write(self.path("bad.lh"), data)
            self.call("decode", self.path("bad.lh"), "-o", self.path("y.npy"), code=1)
            self.call("inspect", self.path("bad.lh"), code=1)
        self.assertFalse(os.path.exists(self.path("y.npy")))

    def test_bench(self):
        shown = json.loads(
            self.call("bench", "--elements", "5000", "--repeats", "2", "--json").stdout
        )
        self.assertGreater(shown["encode_gb_per_s"], 0)
        self.assertGreater(shown["memcpy_gb_per_s"], 0)
        self.assertIn("of memcpy", self.call("bench", "--elements", "64", "--codec", "none").stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
