"""What schemas do not say of the manifests as kustomize renders them: pods are restricted, secrets are files, versions agree.

usage: manifests.py RENDERED.yaml..."""

import pathlib
import re
import sys

import yaml

BASE = pathlib.Path("packaging/kubernetes")


def fail(message):
    sys.exit(f"packaging/kubernetes: {message}")


def pods(documents):
    for document in documents:
        template = document.get("spec", {}).get("template") if isinstance(document.get("spec"), dict) else None
        if template:
            yield document["metadata"]["name"], template


def check_pod(name, template, version):
    pod = template["spec"]
    context = pod["securityContext"]
    if not context["runAsNonRoot"] or context["seccompProfile"]["type"] != "RuntimeDefault":
        fail(f"{name}: the pod is not restricted")
    if pod["automountServiceAccountToken"]:
        fail(f"{name}: the pod gets a token of the cluster")
    for container in pod["containers"]:
        inner = container["securityContext"]
        restricted = not inner["allowPrivilegeEscalation"] and inner["capabilities"] == {"drop": ["ALL"]}
        if not restricted or not inner["readOnlyRootFilesystem"]:
            fail(f"{name}: the container is not restricted")
        if container["image"] != f"steadfast:{version}":
            fail(f"{name}: the image is {container['image']}, the version is {version}")
        # The programs follow no link to a secret, and refuse one that every user may read.
        if any("subPath" not in mount for mount in container["volumeMounts"]):
            fail(f"{name}: a secret is not mounted by subPath")
    for volume in pod["volumes"]:
        if volume["secret"]["defaultMode"] & 0o027:
            fail(f"{name}: others may read or change the secret")


def check_files():
    for kustomization in BASE.glob("*/kustomization.yaml"):
        for resource in yaml.safe_load(kustomization.read_text())["resources"]:
            if not (kustomization.parent / resource).exists():
                fail(f"{kustomization} names {resource}, which does not exist")
    monitor = yaml.safe_load((BASE / "monitoring/pod-monitor.yaml").read_text())
    return {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}


def main(*rendered):
    version = re.search(r'^version = "(.*)"', pathlib.Path("Cargo.toml").read_text(), re.M)[1]
    documents = [document for file in rendered for document in yaml.safe_load_all(pathlib.Path(file).read_text())]
    found = list(pods(documents))
    if len(found) != 3:
        fail(f"{len(found)} pods instead of 3")
    ports = set()
    for name, template in found:
        check_pod(name, template, version)
        for container in template["spec"]["containers"]:
            ports |= {port["name"] for port in container.get("ports", [])}
    if check_files() != ports:
        fail(f"the pod monitor does not read all of {ports}")
    print(f"{len(documents)} objects, {len(found)} of them pods: restricted, secrets are files, version {version}")


main(*sys.argv[1:])
