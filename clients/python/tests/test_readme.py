"""The README is run as it is printed: each Python block in order, against a real server, with its own worker running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from steadfast_queue import Client
from steadfast_queue.testing import Server
from support import until

STORES = ["sqlite"]
README = Path(__file__).parents[1] / "README.md"
ROOT_README = Path(__file__).parents[3] / "README.md"
PYTHON = os.environ.get("README_PYTHON", sys.executable)
"""`check` names the interpreter of an environment that has only the wheel."""


def blocks(readme: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)


def test_the_readme_works_as_printed(server: Server, client: Client, tmp_path: Path) -> None:
    first, *others = blocks(README)
    assert first.startswith("# jobs.py\n")
    assert len(others) == 5
    (tmp_path / "jobs.py").write_text(first)
    environment = {
        **os.environ,
        "STEADFAST_URL": server.url,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(tmp_path),
    }
    command = re.findall(r"^python (-m steadfast_queue \S+)", README.read_text(), re.MULTILINE)[0].split()
    worker = subprocess.Popen([PYTHON, *command], cwd=tmp_path, env=environment)
    try:
        until("the worker declares its kinds", lambda: {"welcome", "export"} <= {k["kind"] for k in client.kinds()})
        said = ""
        for number, block in enumerate(others):
            script = tmp_path / f"block_{number}.py"
            script.write_text(block)
            ran = subprocess.run(
                [PYTHON, str(script)],
                check=False,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert ran.returncode == 0, f"{block}\n{ran.stderr}"
            said += ran.stdout
        assert "{'sent': 2}" in said
        assert "exported" in said
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()


def test_the_example_in_the_readme_of_the_server_works_as_printed(
    server: Server, client: Client, tmp_path: Path
) -> None:
    [example] = blocks(ROOT_README)
    (tmp_path / "example.py").write_text(example)
    environment = {**os.environ, "STEADFAST_URL": server.url, "PYTHONDONTWRITEBYTECODE": "1"}
    worker = subprocess.Popen([PYTHON, "example.py"], cwd=tmp_path, env=environment)
    try:
        until("its job has succeeded", lambda: [job for job in client.jobs() if job.result == "hello 42"])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()


def test_every_call_that_the_readme_names_exists() -> None:
    listed = re.findall(r"Also: (.*?)Answers are", README.read_text(), re.DOTALL)[0]
    names = re.findall(r"`(\w+)`", listed)
    assert len(names) > 25
    assert [name for name in names if not hasattr(Client, name)] == []
