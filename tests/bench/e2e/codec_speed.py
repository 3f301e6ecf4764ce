#!/usr/bin/env python3
"""How fast codecs are, one core of the CPU or one GPU: longhaul-codec bench for each, several times in turn.

  tests/bench/e2e/codec_speed.py build/release/bin --csv rows.csv
  tests/bench/e2e/codec_speed.py build/gpu/bin --device cuda --csv rows.csv

Shapes: a microbatch of GPT2-XL, (1, 1024, 1600), and forty of them; on the CPU one of 64 Mi values.
"""
import argparse
import csv
import json
import pathlib
import subprocess
import sys

import needs
from cluster import Failed

COLUMNS = ("device", "codec", "dtype", "data", "ids", "samples", "elements", "repeat", "bits_per_element", "encode",
           "decode", "both_in_graph", "copy", "encode_of_copy", "decode_of_copy", "unit")
CPU_CODECS = ("bf16", "fp16", "tah", "fixed:bits=4", "fixed:bits=6", "fixed:bits=4,rounding=stochastic", "gauss",
              "gauss:bits=3,block=64", "gauss:bits=5", "dither:bits=2", "taco")
GPU_CODECS = ("tah", "fixed:bits=4,rounding=stochastic", "fixed:bits=6", "gauss", "gauss:bits=5", "dither:bits=2",
              "dither:bits=3", "zip", "taco", "predict/gauss:bits=4", "predict/gauss:bits=5")
ONE_MESSAGE, FORTY = (1, 1024 * 1600), (40, 40 * 1024 * 1600)


def settings(device):
    """(codec, dtype, data, ids, samples, elements) of each measurement."""
    if device == "cpu":
        return [(codec, "fp32", "normal", "random", 1, 1 << 24) for codec in CPU_CODECS]
    found = [(codec, "bf16", "normal", "random", *shape) for shape in (ONE_MESSAGE, FORTY)
             for codec in GPU_CODECS if not (codec.startswith("predict") and shape == FORTY)]
    found += [("tah", "bf16", "outliers", "random", *FORTY), ("zip", "bf16", "outliers", "random", *FORTY),
              ("gauss", "fp32", "normal", "random", *FORTY)]
    return found + [(codec, "bf16", "normal", "equal", *ONE_MESSAGE) for codec in GPU_CODECS
                    if codec.startswith("predict")]


def measure(programs, device, setting, rounds):
    """The columns of one row, less its repeat."""
    codec, dtype, data, ids, samples, elements = setting
    done = subprocess.run(
        [programs / "longhaul-codec", "bench", "--json", "--device", device, "--codec", codec, "--dtype", dtype,
         "--data", data, "--ids", ids, "--samples", str(samples), "--elements", str(elements), "--channels",
         "1600" if device != "cpu" else "1024", "--repeats", str(rounds)],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{codec}: {done.stderr.strip() or done.stdout.strip()}")
    got = json.loads(done.stdout)
    row = {"device": got.get("device", "cpu"), "codec": codec, "dtype": dtype, "data": data,
           "ids": ids if codec.startswith("predict") else "", "samples": samples, "elements": elements,
           "bits_per_element": f"{got['bits_per_element']:.4f}"}
    if device == "cpu":
        copy = got["memcpy_gb_per_s"]
        return {**row, "encode": got["encode_gb_per_s"], "decode": got["decode_gb_per_s"], "copy": copy,
                "encode_of_copy": got["encode_gb_per_s"] / copy, "decode_of_copy": got["decode_gb_per_s"] / copy,
                "unit": "GB/s"}
    return {**row, "encode": got["encode_us"], "decode": got["decode_us"], "both_in_graph": got["graph_us"],
            "copy": got["copy_us"], "encode_of_copy": got["encode_of_copy_rate"],
            "decode_of_copy": got["decode_of_copy_rate"], "unit": "us"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=31, help="timed by the program each time (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything (default %(default)s)")
    parser.add_argument("--codecs", default="", help="only these, with a ; between; default: all")
    parser.add_argument("--csv", type=pathlib.Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.codecs.split(";") if name]
    try:
        needs.check_programs(arguments.programs, ("longhaul-codec",))
        chosen = [each for each in settings(arguments.device) if not wanted or each[0] in wanted]
        if not chosen:
            raise Failed(f"--codecs: none of {wanted} is measured on {arguments.device}")
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for repeat in range(1, arguments.repeats + 1):
                for setting in chosen:
                    row = measure(arguments.programs, arguments.device, setting, arguments.rounds)
                    writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value
                                     for key, value in {**row, "repeat": repeat}.items()})
                    file.flush()
    except Failed as error:
        print(f"codec_speed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
