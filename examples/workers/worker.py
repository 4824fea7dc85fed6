"""A worker in plain Python: lease, work, heartbeat, settle. Start as many as you like; kill them whenever you like.

Ctrl-C or SIGTERM: takes no more jobs, lets running ones finish for GRACE_S seconds, gives the others back, exits 0."""
import http.client, json, os, random, signal, sys, threading, time, urllib.error, urllib.request

URL, TOKEN = os.environ.get("STEADFAST_URL", "http://127.0.0.1:8080"), os.environ.get("STEADFAST_TOKEN")
SLOTS, LEASE_MS = int(os.environ.get("SLOTS", "10")), int(os.environ.get("LEASE_MS", "30000"))
GRACE_S = float(os.environ.get("GRACE_S", "20"))
WORKER = f"py-{os.getpid()}-{os.urandom(4).hex()}"  # a name that no other process has
HEADERS = {"content-type": "application/json"} | ({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})

class Permanent(Exception):
    """Raise it where another attempt cannot help."""

def welcome(payload, stop):  # yours goes here. stop is an Event: once it is set, end soon by raising anything
    if not isinstance(payload.get("user"), int):
        raise Permanent("payload.user is not a number")
    if stop.wait(payload.get("takes_ms", 100) / 1000):  # stands for the work
        raise InterruptedError
    return {"welcomed": payload["user"]}

HANDLERS = {"welcome": welcome}  # only these kinds are asked for

class Refused(Exception):
    """The server said no, and would say it again."""

class Lease:
    def __init__(self, lease):
        self.job, self.key = lease["job"], {"job_id": lease["job"]["id"], "lease_token": lease["lease_token"]}
        self.stop, self.told = threading.Event(), None  # told: why it must stop, as an outcome; or "lost"

    def tell(self, why):
        self.told = self.told or why
        self.stop.set()

running, freed, stopping = {}, threading.Event(), threading.Event()

def log(*words):
    print(WORKER, *words, file=sys.stderr, flush=True)

def call(path, body, timeout_s=30):  # None: no answer, or one that says try again
    request = urllib.request.Request(URL + path, json.dumps({"worker": WORKER, **body}).encode(), HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return json.load(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:
            raise Refused(f"{path}: {error.code} {error.read().decode(errors='replace')}") from None
        log(f"{path}: {error}; trying again")

def backoff_s(tries):  # 0.2 s, doubling up to 5 s; not the same for all workers
    return min(5, 0.1 * 2 ** min(tries, 6)) * random.uniform(0.5, 1)

def settle(lease, report):  # may be sent again: it is recorded once
    tries = 0
    while not (answer := call("/leases/settle", {"outcomes": [{**lease.key, **report}]})):
        time.sleep(backoff_s(tries := tries + 1))
    log(lease.job["id"], report["outcome"], answer["outcomes"][0]["status"], report.get("error", ""))

def report(lease):
    try:
        if lease.told:
            raise InterruptedError
        result = HANDLERS[lease.job["kind"]](lease.job["payload"], lease.stop)
        json.dumps(result)  # a result that is no JSON is a failed attempt
        return {"outcome": "succeeded", "result": result}
    except Exception as error:
        if lease.told:  # it ended because it was told to
            return {"outcome": lease.told}
        failed = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}
        return {**failed, "permanent": isinstance(error, Permanent)}

def run(lease):  # one job, in a thread of its own
    try:
        outcome = report(lease)
        if lease.told != "lost":  # what is lost belongs to another worker
            settle(lease, outcome)
    except Refused as error:
        log(error, "(the lease runs out and the job starts again)")
    finally:
        del running[lease.key["lease_token"]]
        freed.set()

def heartbeats():  # for all leases at once, also while their outcomes are on the way
    while True:
        time.sleep(LEASE_MS / 3000)
        leases = [lease for lease in list(running.values()) if lease.told != "lost"]
        try:
            answer = leases and call("/leases/heartbeat", {"leases": [lease.key for lease in leases]}, LEASE_MS / 3000)
        except Refused as error:
            answer = log(error)
        if answer and answer["worker"] == "drain":
            stopping.set()
        for lease, beat in zip(leases, answer["leases"] if answer else []):
            if beat["status"] != "ok":
                log(beat["job_id"], beat["status"])
                lease.tell("cancelled" if beat["status"] == "cancel" else "lost")

def on_signal(number, _):
    if stopping.is_set():
        os._exit(128 + number)  # the second signal; leases run out
    stopping.set()

def work():  # until it is told to stop
    tries = 0
    while not stopping.is_set():
        freed.clear()
        if len(running) == SLOTS:
            freed.wait(1)
            continue
        # A short poll: it cannot be interrupted without losing what it may bring.
        ask = {"kinds": list(HANDLERS), "max": SLOTS - len(running), "lease_ms": LEASE_MS, "wait_ms": 2000}
        answer = call("/leases", ask)
        for lease in map(Lease, answer["leases"] if answer else []):
            running[lease.key["lease_token"]] = lease
            if stopping.is_set():
                lease.tell("released")
            threading.Thread(target=run, args=[lease], daemon=True).start()
        tries = 0 if answer else tries + 1
        if tries:
            stopping.wait(backoff_s(tries))

def all_end(within_s):
    end = time.monotonic() + within_s
    while running and time.monotonic() < end:
        time.sleep(0.05)

def finish():
    log(f"stopping; {len(running)} jobs run")
    all_end(GRACE_S)
    for lease in list(running.values()):
        lease.tell("released")
    all_end(2)
    for lease in list(running.values()):  # its handler does not listen
        if lease.told != "lost":
            call("/leases/settle", {"outcomes": [{**lease.key, "outcome": lease.told}]})

if __name__ == "__main__":
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    threading.Thread(target=heartbeats, daemon=True).start()
    refused = None
    try:
        work()
    except Refused as error:  # a wrong token, say: no reason to drop what runs
        refused = error
    finish()
    sys.exit(f"{WORKER} {refused}" if refused else 0)
