"""Results of a sweep as tests want them: two rates, two codec pairs, two schedules."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "deploy/sweep"))


def waiting(rate, links, schedule):
    codec = "none" if links == "fp32" else "tah"
    return {"id": f"{rate}/{links}/{schedule}", "rate_bits_per_second": rate, "delay_seconds": 0.0, "jitter_seconds": 0.0,
            "loss_share": 0.0, "links": links, "forward": codec, "backward": codec, "schedule": schedule, "variant": "", "repeat": 1,
            "state": "waiting", "reason": "", "run_id": ""}


def step_of(number, steps, seconds, loss):
    return {"step": number, "seconds": seconds, "loss": loss, "validation_loss": loss + 0.1 if number % 5 == 0 else None,
            "clean_validation_loss": loss + 0.05 if number == steps else None}


def measured(rate, links, schedule):
    """Losses fall, lower where less is sent; a step takes what a link of that rate makes of it."""
    sent = (4.0 if links == "fp32" else 0.6) * (1.5 if schedule == "1f1b" else 1.0)
    seconds, steps = 0.1 + sent * 2e6 / rate, 20
    return {
        **waiting(rate, links, schedule), "state": "done", "run_id": "tiny-p1-abcdef", "replayed": False, "replay_source": "",
        "started_unix_ms": 1_700_000_000_000, "ended_unix_ms": 1_700_000_060_000, "steps": steps, "warm_up": 2,
        "tokens_per_step": 4096, "tokens_per_second": 4096 / seconds, "step_seconds": seconds, "step_seconds_low": 0.98 * seconds,
        "step_seconds_high": 1.05 * seconds, "simulated_seconds": 0.97 * seconds, "bound_seconds": 0.9 * seconds,
        "floor_seconds": 0.0, "bottleneck": "egress of stage 1", "plan_simulated_seconds": 0.05, "plan_bound_seconds": 0.05,
        "explanation": "4 stages: what sets the bound is the egress of stage 1.", "link_bytes_per_step": sent * 250_000,
        "payload_bytes_per_step": sent * 249_000,
        "stages": [{"replica": 0, "stage": i, "worker": f"worker{i + 1}", "first_layer": i, "layers": 1, "depth": 8,
                    "compute_share": 0.3, "optimizer_share": 0.05, "wait_input_share": 0.2, "wait_gradient_share": 0.35,
                    "codec_wait_share": 0.02, "codec_share": 0.1} for i in range(4)],
        "link_bytes": [{"worker": f"worker{i + 1}", "up": 1_000_000 + i, "down": 2_000_000 + i, "up_acknowledgements": 10_000,
                        "down_acknowledgements": 20_000, "dropped_packets": i} for i in range(4)],
        "curve": [step_of(number, steps, seconds, 5.5 / (1 + 0.05 * number) + sent / 20) for number in range(1, steps + 1)]}


def sample():
    return {"title": "A sweep", "version": "0.1.0",
            "machine": {"cpu": "Some CPU", "cores": 2, "memory_bytes": 8 << 30, "system": "Some Linux 1", "kernel": "Linux 6.1",
                        "gpus": "4 x Some GPU"},
            "identity": [{"what": "rates", "text": "20mbit, 5mbit"}, {"what": "the base run", "text": "name: tiny\nmodel: x\n"}],
            "points": [measured(rate, links, schedule) for rate in (20_000_000, 5_000_000) for links in ("fp32", "paper")
                       for schedule in ("link-aware", "1f1b")]}


def fresh():
    """The same, of which nothing has run."""
    results = sample()
    results["points"] = [waiting(point["rate_bits_per_second"], point["links"], point["schedule"]) for point in results["points"]]
    return results


def replayed(source="one GPU a stage"):
    results = sample()
    for point in results["points"]:
        point.update(replayed=True, replay_source=source)
        for step in point["curve"]:
            step.update(loss=None, validation_loss=None, clean_validation_loss=None)
    return results
