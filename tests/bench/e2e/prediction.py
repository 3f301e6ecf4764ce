"""What run/schedule predicts for a plan, on links of a given rate."""
import json
import pathlib
import subprocess

import wire_bytes
from cluster import TRAIN

GOODPUT = wire_bytes.SEGMENT_PAYLOAD / (wire_bytes.SEGMENT_PAYLOAD + wire_bytes.SEGMENT_HEADERS)


def pipeline_cost(plan, bits_per_second):
    """The input of the simulator (run/schedule/simulator.h); no rate: links cost nothing."""
    rate = bits_per_second * GOODPUT / 8 if bits_per_second else None
    slices = int(plan["assignment"].get("slices", 1))
    stages = [{"forward": times["forward_seconds"] / slices,
               "backward": times["backward_seconds"] / slices,
               "optimizer": times["optimizer_seconds"], "depth": cell["depth"],
               "activation_lead": cell["activation_lead"], "bytes_per_second": rate}
              for cell, times in zip(plan["assignment"]["cells"], plan["cells"])]
    boundaries = [{way: {"bytes": wire_bytes.stream_bytes(edge[way]["bytes"] // slices),
                         "encode": times[way]["encode_seconds"] / slices,
                         "decode": times[way]["decode_seconds"] / slices}
                   for way in ("forward", "backward")}
                  for edge, times in zip(plan["assignment"]["edges"], plan["edges"])]
    return {"microbatches": TRAIN["microbatches"], "slices": slices, "stages": stages,
            "boundaries": boundaries}


def simulate(programs, cost):
    program = pathlib.Path(programs) / "longhaul-simulate"
    done = subprocess.run([program], input=json.dumps(cost), stdout=subprocess.PIPE, text=True,
                          check=True, timeout=60)
    return json.loads(done.stdout)
