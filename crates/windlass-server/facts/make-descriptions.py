#!/usr/bin/env python3
"""Makes descriptions-1.36.gz: what the kinds and fields of Kubernetes v1.36 are for.

The texts are those of the OpenAPI specification of Kubernetes (Apache License 2.0), taken from the sources of
the crate k8s-openapi, which repeats them in its schemas. Run it where cargo has that crate:

    python3 make-descriptions.py ~/.cargo/registry/src/*/k8s-openapi-0.29.0 fields-1.36.json descriptions-1.36.gz

The file, when unpacked, has a line for each description: definitions start with their name, and the lines of
their fields follow, each indented by a tab. A name and its text are separated by a tab; a text that has been said
before is a number instead, that of the line (counted from 0) where it was. Line breaks inside texts are written \\n.
"""

import gzip
import io
import json
import pathlib
import re
import sys

TEXT = r'"((?:[^"\\]|\\.)*)"'
NAME = re.compile(r"fn schema_name\(\).*?" + TEXT + r"\.into\(\)", re.S)
OWN = re.compile(r'^            "description": ' + TEXT + r",$", re.M)
FIELD = re.compile(r'^                "([^"]+)": \(?\{$', re.M)
OF_FIELD = re.compile(
    r'^ {20}(?:"description": ' + TEXT + r',|schema_obj\.ensure_object\(\)\.insert\("description"\.into\(\), ' + TEXT + r"\.into\(\)\);)$",
    re.M,
)


def unescape(text):
    text = re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda found: chr(int(found[1], 16)), text)
    text = text.replace("\\'", "'").replace("\\0", "\\u0000")
    return json.loads(f'"{text}"')


def descriptions(crate):
    for path in sorted((crate / "src" / "v1_36").rglob("*.rs")):
        source = path.read_text()
        for impl in source.split("JsonSchema for ")[1:]:
            name = NAME.search(impl)
            if not name:
                continue
            own = OWN.search(impl)
            fields = {}
            starts = list(FIELD.finditer(impl))
            for at, start in enumerate(starts):
                end = starts[at + 1].start() if at + 1 < len(starts) else len(impl)
                text = OF_FIELD.search(impl, start.end(), end)
                if text:
                    fields[start[1]] = unescape(text[1] if text[1] is not None else text[2])
            yield name[1], unescape(own[1]) if own else "", fields


def main():
    crate, known, out = map(pathlib.Path, sys.argv[1:])
    known = set(json.loads(known.read_text())["definitions"])
    lines, seen = [], {}

    def line(name, text, indent):
        text = text.replace("\t", " ").replace("\n", "\\n")
        if text.isdigit():
            sys.exit(f"{name}: a text that is a number cannot be told from a reference")
        at = len(lines)
        shown = str(seen[text]) if text in seen and text else text
        seen.setdefault(text, at)
        lines.append(f"{indent}{name}\t{shown}")

    for name, own, fields in sorted(descriptions(crate)):
        if name not in known:
            continue
        line(name, own, "")
        for field, text in sorted(fields.items()):
            line(field, text, "\t")
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
        file.write("\n".join(lines).encode() + b"\n")
    out.write_bytes(packed.getvalue())
    print(f"{len(lines)} descriptions, {len(packed.getvalue())} bytes", file=sys.stderr)


main()
