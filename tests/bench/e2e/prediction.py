"""What base/schedule predicts for a plan, on links of a given rate."""
import json
import pathlib
import subprocess

import wire_bytes
from cluster import TRAIN

GOODPUT = wire_bytes.SEGMENT_PAYLOAD / (wire_bytes.SEGMENT_PAYLOAD + wire_bytes.SEGMENT_HEADERS)


def pipeline_cost(plan, bits_per_second):
    """The input of the simulator (run/schedule/simulator.h); no rate: links cost nothing."""
    rate = bits_per_second * GOODPUT / 8 if bits_per_second else None
    stages = [{"forward": stage["forward_seconds"], "backward": stage["backward_seconds"],
               "optimizer": stage["optimizer_seconds"], "depth": stage["depth"],
               "activation_lead": stage["activation_lead"],
               "bytes_per_second": rate} for stage in plan["stages"]]
    boundaries = [{"forward_bytes": wire_bytes.stream_bytes(link["forward_bytes"]),
                   "backward_bytes": wire_bytes.stream_bytes(link["backward_bytes"]),
                   **{key: link[f"{key}_seconds"]
                      for key in ("forward_encode", "forward_decode",
                                  "backward_encode", "backward_decode")}}
                  for link in plan["links"]]
    return {"microbatches": TRAIN["microbatches"], "stages": stages, "boundaries": boundaries}


def simulate(programs, cost):
    program = pathlib.Path(programs) / "longhaul-simulate"
    done = subprocess.run([program], input=json.dumps(cost), stdout=subprocess.PIPE, text=True,
                          check=True, timeout=60)
    return json.loads(done.stdout)
