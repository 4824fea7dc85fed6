"""A worker in plain Python: lease, work, heartbeat, settle. Start as many as you like; kill them whenever you like."""
import json, os, threading, time, urllib.error, urllib.request

URL, LEASE_MS = os.environ.get("STEADFAST_URL", "http://127.0.0.1:8080"), int(os.environ.get("LEASE_MS", "30000"))
WORKER = f"py-{os.getpid()}-{os.urandom(4).hex()}"  # a name that no other process has
TOKEN = os.environ.get("STEADFAST_TOKEN")
HEADERS = {"content-type": "application/json"} | ({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})

def call(path, body):
    while True:  # heartbeats and settles may be sent again; a lease whose answer got lost expires
        try:
            request = urllib.request.Request(URL + path, json.dumps({"worker": WORKER, **body}).encode(), HEADERS)
            return json.load(urllib.request.urlopen(request, timeout=60))
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:
                raise SystemExit(f"{path}: {error.read().decode()}")
            time.sleep(1)

def work(job):  # yours goes here; an exception is a failed attempt
    time.sleep(job["payload"]["ms"] / 1000)
    return {"worked_on": job["payload"]}

def outcome(lease):
    report = {"job_id": lease["job"]["id"], "lease_token": lease["lease_token"]}
    try:
        return {**report, "outcome": "succeeded", "result": work(lease["job"])}
    except Exception as error:
        return {**report, "outcome": "failed", "error": repr(error)}

def heartbeats(leases, done):
    while not done.wait(LEASE_MS / 3000):
        keys = [{"job_id": lease["job"]["id"], "lease_token": lease["lease_token"]} for lease in leases]
        call("/leases/heartbeat", {"leases": keys})

while True:
    leases, done = call("/leases", {"max": 10, "lease_ms": LEASE_MS, "wait_ms": 10000})["leases"], threading.Event()
    threading.Thread(target=heartbeats, args=(leases, done), daemon=True).start()
    if leases:
        call("/leases/settle", {"outcomes": [outcome(lease) for lease in leases]})
    done.set()
