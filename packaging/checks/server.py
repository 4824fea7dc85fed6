"""A server to check things with: started in a directory of its own on a free port, with a token, and stopped in order."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

# Machines are slow; what has not happened by then never will.
DEADLINE_S = 120
TOKEN = "a-token-for-this-check-only"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, look):
    """Looks again and again until something is the case."""
    give_up = time.monotonic() + DEADLINE_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > give_up:
            sys.exit(f"waited in vain: {what}")
        time.sleep(0.2)


def get_json(url, body=None, method=None, token=None):
    """The answer as JSON, or None if there is none yet."""
    request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("content-type", "application/json")
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or "null")
    except urllib.error.HTTPError as error:
        if error.code < 500:
            sys.exit(f"{url}: {error.code} {error.read().decode()}")
    except OSError:
        pass
    return None


class Server:
    """`serve` with a token; `before` stands before it on the command line, like strace."""

    def __init__(self, program, directory, before=(), settings="", **variables):
        self.program, self.directory = program, pathlib.Path(directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, mode=0o700)
        (self.directory / "steadfast.toml").write_text(settings)
        (self.directory / "steadfast.toml").chmod(0o600)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {"PATH": os.environ["PATH"], "API_BIND_ADDR": f"127.0.0.1:{self.port}", "STEADFAST_ADMIN_TOKEN": TOKEN}
        self.log = open(self.directory / "log", "w")
        self.process = subprocess.Popen(
            [*before, program, "serve"], cwd=self.directory, env=environment | variables, stdout=self.log, stderr=self.log
        )
        until(f"the server is ready; see {self.directory}/log", lambda: get_json(f"{self.url}/readyz"))

    def command(self, *arguments):
        """A command of the command line; what it prints."""
        environment = {"PATH": os.environ["PATH"], "STEADFAST_URL": self.url, "STEADFAST_TOKEN": TOKEN}
        done = subprocess.run(
            [self.program, *arguments], env=environment, cwd=self.directory, capture_output=True, text=True, timeout=DEADLINE_S
        )
        if done.returncode:
            sys.exit(f"steadfast {' '.join(arguments)}: {done.stderr}")
        return done.stdout.strip()

    def call(self, method, path, body=None):
        return get_json(f"{self.url}{path}", body, method, TOKEN)

    def stop(self, pid=None):
        os.kill(pid or self.process.pid, signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        self.log.close()
        if code:
            sys.exit(f"SIGTERM ended it with {code}; see {self.directory}/log")
