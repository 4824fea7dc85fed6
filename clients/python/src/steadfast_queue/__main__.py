"""`python -m steadfast_queue module:worker [--reload]`: runs a worker from the command line."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys

from .errors import SteadfastError
from .reload import run_and_reload
from .worker import Worker


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m steadfast_queue", description="Run a worker until SIGTERM or Ctrl-C."
    )
    parser.add_argument("worker", metavar="module:worker", help="where the Worker is, for example myapp.jobs:worker")
    parser.add_argument(
        "--reload", action="store_true", help="start again when a Python file changes (for development)"
    )
    parser.add_argument("--log-level", default="INFO", help="default INFO")
    arguments = parser.parse_args()
    logging.basicConfig(level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if arguments.reload:
        sys.exit(run_and_reload([arg for arg in sys.argv[1:] if arg != "--reload"]))
    worker = load(arguments.worker)
    try:
        worker.run()
    except SteadfastError as error:
        sys.exit(f"steadfast_queue: {error}")


def load(name: str) -> Worker:
    """The worker that `module:attribute` names, seen from the current directory."""
    module, separator, attribute = name.partition(":")
    if not separator or not module or not attribute:
        sys.exit(f"steadfast_queue: {name!r} is not module:worker, for example myapp.jobs:worker")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # a module that the named one imports
        sys.exit(f"steadfast_queue: there is no module {module!r} here")
    for part in attribute.split("."):
        if not hasattr(found, part):
            sys.exit(f"steadfast_queue: {module} has no {attribute}")
        found = getattr(found, part)
    if not isinstance(found, Worker):
        sys.exit(f"steadfast_queue: {name} is a {type(found).__name__}, not a Worker")
    return found


if __name__ == "__main__":
    main()
