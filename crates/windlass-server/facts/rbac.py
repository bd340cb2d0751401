#!/usr/bin/env python3
"""Makes rbac-1.36.json from the default roles and bindings that Kubernetes' tests expect.

rbac.py DIRECTORY > rbac-1.36.json

DIRECTORY holds the files of plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata at the tag v1.36.4: lists of
objects in YAML, of which a name, rules and subjects are facts. What all of them have in common is left out. It needs
PyYAML.
"""

import json
import pathlib
import sys

import yaml

FILES = {
    "clusterRoles": ["cluster-roles.yaml", "controller-roles.yaml"],
    "roles": ["namespace-roles.yaml"],
    "clusterRoleBindings": ["cluster-role-bindings.yaml", "controller-role-bindings.yaml"],
    "roleBindings": ["namespace-role-bindings.yaml"],
}
GROUP = "rbac.authorization.k8s.io/"
RULE = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"]


def role(found):
    labels = [name.removeprefix(GROUP) for name in found["metadata"].get("labels", {}) if name.startswith(GROUP)]
    made = {"labels": sorted(labels)} if labels else {}
    for selector in found.get("aggregationRule", {}).get("clusterRoleSelectors", []):
        (label,) = selector["matchLabels"]
        made["aggregates"] = label.removeprefix(GROUP)
    made["rules"] = [{key: rule[key] for key in RULE if key in rule} for rule in found["rules"] or []]
    return made


def subject(found):
    name = found["name"]
    return f"{found['kind']}:{found['namespace']}/{name}" if "namespace" in found else f"{found['kind']}:{name}"


def binding(found):
    to = found["roleRef"]
    return {"kind": to["kind"], "role": to["name"], "subjects": [subject(one) for one in found.get("subjects") or []]}


def key(found):
    metadata = found["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]


def main():
    directory = pathlib.Path(sys.argv[1])
    sections = []
    for section, files in FILES.items():
        make = binding if section.endswith("Bindings") else role
        made = {key(one): make(one) for name in files for one in yaml.safe_load((directory / name).read_text())["items"]}
        lines = [f"{json.dumps(name)}:{json.dumps(made[name], separators=(',', ':'))}" for name in sorted(made)]
        sections.append(f"{json.dumps(section)}:{{\n" + ",\n".join(lines) + "\n}")
    print("{\n" + ",\n".join(sections) + "\n}")


main()
