"""Load-balanced frame building for streaming data acquisition.

A source gives the pieces of a detector's stream to a farm, a consumer takes whole timeframes (TFs) from it:

    import sheaf

    with sheaf.Source("farm.toml", index=0) as source:
        for tf_id in range(1000):
            source.send(tf_id, numpy_array)

    for tf in sheaf.consume("shm:/run/sheaf/epn-0"):
        for part in tf.parts:
            work(part.array("uint32"))

`simulate` simulates farms of any size, with a policy of your own among those of Sheaf; `register_policy` and `main`
make a program of it that is the whole of `sheaf`, for live farms and the lab; `run_source` and `run_sink` make programs
of a source and a sink. `farm` starts a whole farm of
real processes for a test, `open_tfs` reads files of TFs, `program` finds the program `sheaf`.
"""

from ._sheaf import (
    BadConfig,
    Consumer,
    ConsumerError,
    FileError,
    ForkError,
    Job,
    Part,
    PolicyError,
    ReturnedError,
    RunOver,
    SheafError,
    Source,
    SourceError,
    Target,
    Targets,
    Tf,
    TfFile,
    __version__,
    check_policy,
    log_to_stderr,
    register_policy,
)
from ._consume import consume, consume_async
from ._extend import ContractError, Sink, check_sink, check_source, run_sink, run_source
from ._farm import Farm, FarmError, farm
from ._main import main
from ._program import ProgramError, data_inspect, program, run
from ._simulate import Policy, Simulation, simulate

open_tfs = TfFile

__all__ = [
    "BadConfig",
    "Consumer",
    "ConsumerError",
    "ContractError",
    "Farm",
    "FarmError",
    "FileError",
    "ForkError",
    "Job",
    "Part",
    "Policy",
    "PolicyError",
    "ProgramError",
    "ReturnedError",
    "RunOver",
    "SheafError",
    "Simulation",
    "Sink",
    "Source",
    "SourceError",
    "Target",
    "Targets",
    "Tf",
    "TfFile",
    "__version__",
    "check_policy",
    "check_sink",
    "check_source",
    "consume",
    "consume_async",
    "data_inspect",
    "farm",
    "log_to_stderr",
    "main",
    "open_tfs",
    "program",
    "register_policy",
    "run",
    "run_sink",
    "run_source",
    "simulate",
]
