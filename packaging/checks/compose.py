"""What the schema does not say of compose.yaml: what is mounted exists, secrets are declared and made, nobody is privileged.

usage: compose.py"""

import pathlib
import re
import sys

import yaml


def fail(message):
    sys.exit(f"compose.yaml: {message}")


def main():
    compose = yaml.safe_load(pathlib.Path("compose.yaml").read_text())
    made = set(re.findall(r"^secret (\w+) ", pathlib.Path("packaging/secrets").read_text(), re.M))
    for name, secret in compose["secrets"].items():
        if secret != {"file": f"secrets/{name}"} or name not in made:
            fail(f"packaging/secrets does not make the secret {name}")
    ours = 0
    for name, service in compose["services"].items():
        for secret in service.get("secrets", []):
            if secret not in compose["secrets"]:
                fail(f"{name} takes the secret {secret}, which is not declared")
        for variable, value in service.get("environment", {}).items():
            if variable.endswith("_FILE") and value.removeprefix("/run/secrets/") not in service["secrets"]:
                fail(f"{name}: {variable} names {value}, which is not mounted")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not pathlib.Path(source).exists() if source.startswith("./") else source not in compose["volumes"]:
                fail(f"{name} mounts {source}, which does not exist")
        if service["image"] == "steadfast":
            ours += 1
            if not service["read_only"] or service["cap_drop"] != ["ALL"]:
                fail(f"{name} can be written to, or has capabilities")
            if "healthcheck" not in service:
                fail(f"{name} has no health check of its role")
    if ours != 5:
        fail(f"{ours} services of this image instead of 5")
    print(f"{len(compose['services'])} services, {len(compose['secrets'])} secrets as files")


main()
