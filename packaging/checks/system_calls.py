"""Compares the system calls of a server that runs jobs, a command among them, with the filter of the systemd units. A call
outside of it would fail there with EPERM, and only there.

usage: system_calls.py PROGRAM DIRECTORY    (strace and systemd-analyze on PATH)"""

import os
import pathlib
import re
import subprocess
import sys

from server import Server, until

SETTINGS = """
[commands.echo]
program = "/bin/cat"
"""


# What is called by root only, which the units never run as, and why.
BY_ROOT_ONLY = {"fchown": "SQLite gives a new file to the owner of the directory, if it may"}


def expanded(names):
    """The system calls of sets like @system-service, with the sets in them."""
    calls = set()
    for name in names:
        if not name.startswith("@"):
            calls.add(name)
            continue
        shown = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True).stdout
        members = [line.strip() for line in shown.splitlines()[1:]]
        calls |= expanded([member for member in members if member and not member.startswith("#")])
    return calls


def allowed():
    """What the units let through; they are all hardened in the same way (tests/cli/packaging.rs)."""
    unit = pathlib.Path("packaging/systemd/steadfast.service").read_text()
    filters = re.findall(r"^SystemCallFilter=(.*)$", unit, re.M)
    calls = expanded(["@default"])
    for names in filters:
        if names.startswith("~"):
            calls -= expanded(names[1:].split())
        else:
            calls |= expanded(names.split())
    return calls


def traced(directory):
    """Names of calls that were made, from lines like `123 openat(AT_FDCWD, …` and `123 <... futex resumed>`."""
    lines = (directory / "trace").read_text(errors="replace").splitlines()
    return {found[1] for line in lines if (found := re.match(r"\d+\s+(\w+)\(", line))}


def main(program, directory):
    directory = pathlib.Path(directory).resolve()
    before = ["strace", "-f", "-qq", "-o", str(directory / "trace"), "-s", "0"]
    server = Server(program, directory, before, SETTINGS, STEADFAST_OUTBOUND_ALLOW="loopback")
    text = '{"text":"It works. The rest is up to you."}'
    for kind, payload in (("summarize_text", text), ("echo", '{"user":42}')):
        server.command("enqueue", kind, payload, "--wait")
    # A call to another server: itself, by a name that has to be looked up. It says no.
    server.call("POST", "/jobs", {"kind": "webhook_delivery", "payload": {"url": f"http://localhost:{server.port}/livez", "body": {}}})
    until("the webhook is tried", lambda: server.call("GET", "/jobs?kind=webhook_delivery")[0]["last_error"])
    server.command("stats")
    # strace passes no signals on to what it traces.
    children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    server.stop(int(children[0]))
    made = traced(directory)
    if len(made) < 30:
        sys.exit(f"only {len(made)} system calls were seen: {sorted(made)}")
    refused = made - allowed()
    if os.geteuid() == 0:
        refused -= BY_ROOT_ONLY.keys()
    if refused:
        sys.exit(f"the filter of the units refuses system calls that the server makes: {sorted(refused)}")
    print(f"{len(made)} different system calls, all of them let through")


main(*sys.argv[1:])
