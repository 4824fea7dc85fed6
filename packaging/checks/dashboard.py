"""The dashboard is JSON that Grafana can show: known types, no panel on top of another, a legend and a source for each query.

usage: dashboard.py DIRECTORY"""

import json
import pathlib
import sys

import yaml

COLUMNS = 24
TYPES = {"heatmap", "stat", "timeseries"}


def fail(message):
    sys.exit(f"packaging/grafana: {message}")


def cells(panel):
    at = panel["gridPos"]
    if at["x"] + at["w"] > COLUMNS:
        fail(f"{panel['title']} is wider than the screen")
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def main(directory):
    directory = pathlib.Path(directory)
    dashboard = json.loads((directory / "steadfast.json").read_text())
    if dashboard["uid"] != "steadfast":
        fail("the uid is not steadfast: links to it break")
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    if names != {"datasource", "queue", "kind"}:
        fail(f"variables: {names}")
    taken, ids = set(), set()
    for panel in dashboard["panels"]:
        if panel["type"] not in TYPES or not panel["targets"] or panel["id"] in ids:
            fail(f"{panel['title']}: type, targets or id")
        if taken & cells(panel):
            fail(f"{panel['title']} is on top of another panel")
        taken |= cells(panel)
        ids.add(panel["id"])
        for target in panel["targets"]:
            if target["datasource"]["uid"] != "${datasource}" or not target["expr"]:
                fail(f"{panel['title']}: a query without a source")
    for provisioned in directory.glob("provisioning/*/*.yaml"):
        yaml.safe_load(provisioned.read_text())
    print(f"{len(dashboard['panels'])} panels, {sum(len(panel['targets']) for panel in dashboard['panels'])} expressions")


main(sys.argv[1])
