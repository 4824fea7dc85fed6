"""Asks a real Prometheus, which scrapes a real server with jobs, for every expression of the dashboard and of the alerts. None
may be empty: an empty panel looks like a quiet system, and an alert that cannot answer never fires.

usage: expressions.py PROGRAM DIRECTORY    (prometheus on PATH)"""

import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

import yaml
from server import Server, free_port, get_json, until

# Alerts that are rightly empty, and why.
EMPTY_BY_RIGHT = {"SteadfastAbsent": "there is a target"}


def load(server):
    """Jobs that succeed, fail and are retried; a worker over HTTP; schedules that fire and one that is refused."""
    for kind in ("report", "strict"):
        server.command("kinds", "put", kind)
        server.command("schedules", "put", kind, "--every", "1s", "--kind", kind, "--payload", "{}")
    server.call("PUT", "/kinds/strict", {"schema": {"type": "object", "required": ["user"]}})
    text = {"text": "It works. The rest is up to you.", "max_words": 3}
    mail = {"to": "a@example.org", "subject": "s", "body": "b"}
    jobs = [{"kind": "summarize_text", "payload": text}, {"kind": "send_email", "payload": mail}] * 100
    server.call("POST", "/jobs/batch", {"jobs": jobs})
    server.call("POST", "/jobs", {"kind": "summarize_text", "payload": text})
    asked = {"worker": "check", "kinds": ["report"], "max": 5, "lease_ms": 30000, "wait_ms": 5000}
    leases = until("a scheduled job can be leased", lambda: server.call("POST", "/leases", asked)["leases"])
    outcomes = [{"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "succeeded"} for lease in leases]
    server.call("POST", "/leases/settle", {"worker": "check", "outcomes": outcomes})
    server.call("GET", "/stats")
    server.call("GET", "/jobs")


def configuration(server, directory):
    """The one that is shipped, with another way to find the server, another place for its token, and more haste."""
    (directory / "token").write_text(server.command("tokens", "create", "prometheus", "--scope", "read"))
    shipped = yaml.safe_load(pathlib.Path("packaging/prometheus/prometheus.yaml").read_text())
    shipped["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    shipped["rule_files"] = [str(pathlib.Path("packaging/prometheus/rules.yaml").resolve())]
    (scrape,) = shipped["scrape_configs"]
    del scrape["dns_sd_configs"]
    scrape["static_configs"] = [{"targets": [f"127.0.0.1:{server.port}"]}]
    scrape["authorization"]["credentials_file"] = str(directory / "token")
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(shipped))
    return directory / "prometheus.yaml"


def expressions():
    """(where, name, expression) of all; comparisons answer 0 or 1 instead of leaving series out."""
    dashboard = json.loads(pathlib.Path("packaging/grafana/steadfast.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "30s").replace("$queue", ".*").replace("$kind", ".*")
            yield "panel", panel["title"], expression
    rules = yaml.safe_load(pathlib.Path("packaging/prometheus/rules.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield "alert", rule["alert"], re.sub(r"(>=|<=|==|>|<) (?=[0-9])", r"\1 bool ", rule["expr"])


def ask(url, expression):
    answer = get_json(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    return answer["data"]["result"] if answer else []


def evaluated(url):
    """The rules by name, once Prometheus has evaluated all of them."""
    answer = get_json(f"{url}/api/v1/rules")
    groups = answer["data"]["groups"] if answer else []
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    return rules if rules and all(rule["health"] != "unknown" for rule in rules.values()) else None


def check_rules(url):
    """Prometheus evaluates the rules as they are, without an error; the refused schedule makes one fire."""
    rules = until("the rules are evaluated", lambda: evaluated(url))
    bad = [name for name, rule in rules.items() if rule["health"] != "ok" or rule.get("lastError")]
    if bad:
        sys.exit(f"rules that Prometheus cannot evaluate: {bad}")
    until("SteadfastTicksLost fires", lambda: (evaluated(url) or rules)["SteadfastTicksLost"]["state"] == "firing")
    return len(rules)


def check_all(url):
    asked = list(expressions())
    # All at once: a panel that needs two scrapes has them when the last has its answer.
    open_questions = [question for question in asked if question[1] not in EMPTY_BY_RIGHT]
    def unanswered():
        open_questions[:] = [question for question in open_questions if not ask(url, question[2])]
        return not open_questions
    try:
        until("every expression has an answer", unanswered)
    finally:
        for where, name, expression in open_questions:
            print(f"empty: {where} {name}: {expression}", file=sys.stderr)
    for where, name, expression in asked:
        if name in EMPTY_BY_RIGHT and ask(url, expression):
            sys.exit(f"{where} {name} is said to be empty ({EMPTY_BY_RIGHT[name]}), and is not")
    return len(asked)


def main(program, directory):
    directory = pathlib.Path(directory).resolve()
    # Built-in kinds sleep and sometimes fail: outcomes of all sorts without anybody to call.
    server = Server(program, directory, STEADFAST_EXECUTOR="simulated", WORKER_CONCURRENCY="16")
    url = f"http://127.0.0.1:{(port := free_port())}"
    arguments = [f"--config.file={configuration(server, directory)}", f"--storage.tsdb.path={directory}/data"]
    with open(directory / "prometheus.log", "w") as log:
        prometheus = subprocess.Popen(["prometheus", *arguments, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            until("Prometheus scrapes the server", lambda: ask(url, 'up{job="steadfast"} == 1'))
            load(server)
            count = check_all(url)
            rules = check_rules(url)
        finally:
            prometheus.terminate()
            prometheus.wait(60)
            server.process.poll() is None and server.stop()
    print(f"{count} expressions answered ({len(EMPTY_BY_RIGHT)} empty by right: {EMPTY_BY_RIGHT}), {rules} rules evaluated")


main(*sys.argv[1:])
