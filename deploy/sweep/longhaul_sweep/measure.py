"""What a point's run says of the point. Pure."""
import math
import statistics

from .cluster import Failed
from .texts import quantile

SAME = ("id", "rate_bits_per_second", "delay_seconds", "jitter_seconds", "loss_share", "links", "forward", "backward", "schedule",
        "variant", "repeat")  # what a point is
SHARES = ("compute_share", "optimizer_share", "wait_input_share", "wait_gradient_share", "codec_wait_share", "codec_share")
LOSSES = ("loss", "validation_loss", "clean_validation_loss")


def unmeasured(point, state="waiting", reason="", run_id=""):
    return {**{key: point[key] for key in SAME}, "state": state, "reason": reason, "run_id": run_id}


class StageShares:
    """Means of what stages do with their time, over the observed steps after warm-up."""

    def __init__(self, warm_up):
        self.warm_up, self.last, self.seen = warm_up, {}, {}

    def add(self, status):
        """A status of the run; one that was seen before does not count again."""
        for stage in status["stages"]:
            cell = stage["replica"], stage["stage"]
            if stage["step"] > max(self.warm_up, self.last.get(cell, 0)):
                self.last[cell] = stage["step"]
                self.seen.setdefault(cell, []).append(stage)

    def means(self, assignment):
        return [self._mean(cell) for cell in assignment["cells"]]

    def _mean(self, cell):
        seen = self.seen.get((cell["id"]["replica"], cell["id"]["stage"]), [])
        return {**cell["id"], "worker": cell["worker_name"], "first_layer": cell["first_layer"], "layers": cell["layers"],
                "depth": cell["depth"],
                **{share: sum(stage[share] for stage in seen) / len(seen) if seen else 0 for share in SHARES}}


def _difference(before, after, key):
    """None where nothing counts, or counters began anew."""
    if not before or not after or before[key] is None or after[key] is None or after[key] < before[key]:
        return None
    return after[key] - before[key]


def bytes_between(before, after):
    """Bytes of each worker's link between two states of the cluster, with all headers."""
    links = []
    for old, new in zip(before["workers"], after["workers"]):
        up, down = ((old[way], new[way]) for way in ("uplink", "downlink"))
        links.append({"worker": new["name"], "up": _difference(*up, "bytes"), "down": _difference(*down, "bytes"),
                      "up_acknowledgements": _difference(*up, "acknowledgement_bytes"),
                      "down_acknowledgements": _difference(*down, "acknowledgement_bytes"),
                      "dropped_packets": sum(_difference(*way, "dropped_packets") or 0 for way in (up, down))})
    return links


def _curve(step, replayed):
    there = {"loss": True, "validation_loss": step["has_validation"], "clean_validation_loss": True}

    def loss(name):
        """A replay learns nothing: what it reports as loss is not one."""
        value = step[name]
        return None if replayed or not there[name] or value is None or not math.isfinite(value) else value

    return {"step": step["step"], "seconds": step["seconds"], **{name: loss(name) for name in LOSSES}}


def measured(point, warm_up, status, steps, prediction, shares, link_bytes):
    """The result of a run that is done. `steps`: its records; the one of step 0 is a validation before the first step."""
    after = [step for step in steps if step["step"] > warm_up]
    if not after:
        raise Failed(f"the run is done and reported {len(steps)} steps, none after its {warm_up} of warm-up")
    seconds = [step["seconds"] for step in after]
    plan, replayed = status["plan"], status["replay_source"] != ""
    return {
        **unmeasured(point, "done", run_id=status["run_id"]),
        "replayed": replayed, "replay_source": status["replay_source"],
        "started_unix_ms": status["started_unix_ms"], "ended_unix_ms": status["ended_unix_ms"],
        "steps": sum(step["step"] > 0 for step in steps), "warm_up": warm_up, "tokens_per_step": point["tokens_per_step"],
        "tokens_per_second": point["tokens_per_step"] / quantile(seconds, 0.5),
        **{key: quantile(seconds, share)
           for key, share in (("step_seconds", 0.5), ("step_seconds_low", 0.25), ("step_seconds_high", 0.75))},
        **prediction,
        "plan_simulated_seconds": plan["prediction"]["step_seconds"],
        "plan_bound_seconds": plan["prediction"]["lower_bound_seconds"], "explanation": plan["explanation"],
        **{f"{what}_per_step": float(statistics.median(step[what] for step in after))
           for what in ("link_bytes", "payload_bytes")},
        "stages": shares.means(plan["assignment"]), "link_bytes": link_bytes,
        "curve": [_curve(step, replayed) for step in steps]}
