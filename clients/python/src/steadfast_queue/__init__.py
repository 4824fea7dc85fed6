"""Client and worker library for Steadfast, the job queue that never loses a job it accepted.

`Client` enqueues and operates, `AsyncClient` does so from asyncio, `Worker` runs handlers. `steadfast_queue.testing` tests
handlers without a server. `python -m steadfast_queue module:worker` runs a worker."""

from .aio import AsyncClient
from .client import Client
from .context import Context, Signal, current_context
from .errors import (
    Cancelled,
    JobFailed,
    Permanent,
    Problem,
    Retry,
    Snooze,
    SteadfastError,
    Unreachable,
    WaitTimeout,
)
from .handler import Handler
from .identity import VERSION as __version__
from .job import Job, NewJob
from .worker import Worker

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "Context",
    "Handler",
    "Job",
    "JobFailed",
    "NewJob",
    "Permanent",
    "Problem",
    "Retry",
    "Signal",
    "Snooze",
    "SteadfastError",
    "Unreachable",
    "WaitTimeout",
    "Worker",
    "__version__",
    "current_context",
]
