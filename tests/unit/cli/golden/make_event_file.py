"""Writes events.tfevents beside this file with TensorBoard's own writer (pip install tensorboard setuptools).

The test holds longhaul's bytes against all but the first record, in which this writer names itself.
"""
import pathlib
import tempfile

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

EVENTS = [
    (1700000000.25, 0, {"loss/validation": 4.5, "loss/validation_clean": 4.25}),
    (1700000001.5, 1, {"loss/training": 4.125, "optimizer/gradient_norm": 1.5, "optimizer/learning_rate": 1e-3,
                       "step/seconds": 1.25, "step/link_bytes": 70000, "step/payload_bytes": 65536}),
    (1700000303.0, 300, {"loss/training": float("nan"), "optimizer/gradient_norm": float("inf")}),
]

with tempfile.TemporaryDirectory() as folder:
    writer = EventFileWriter(folder)
    for time, step, scalars in EVENTS:
        value = [Summary.Value(tag=tag, simple_value=number) for tag, number in scalars.items()]
        writer.add_event(Event(wall_time=time, step=step, summary=Summary(value=value)))
    writer.close()
    written = next(pathlib.Path(folder).iterdir()).read_bytes()
pathlib.Path(__file__).with_name("events.tfevents").write_bytes(written)
