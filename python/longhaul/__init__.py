"""longhaul for notebooks and scripts: submit runs, follow them, plot losses, export models (docs/guide/python.md).

    import longhaul
    run = longhaul.Client().submit("run.yaml", set={"train.steps": 20})
    for step in run.follow():
        print(step.step, step.loss)
    run.export("model")

Everything is done by the program `longhaul`, whose coordinator, certificates and messages are those of the command line.
Nothing but Python's standard library is needed.
"""
from .client import Client, Run
from .errors import Error, RunFailed
from .plot import Plot, plot
from .records import Status, Step, Worker

__all__ = ["Client", "Error", "Plot", "Run", "RunFailed", "Status", "Step", "Worker", "plot"]
