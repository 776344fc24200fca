#!/usr/bin/env python3
"""Checks exported Rath records. Needs only Python 3.8 or later.

The input is JSON lines, one record per line. The records of a session are in order; sessions may be interleaved.

    {"header":{<exact bytes>},"salt":"<32 hex digits>","body":{<exact bytes>}}

A record whose body was erased has only its header. Header and body are JSON strings if they contain control
characters or are not JSON objects, and in bundles of format 1. There are two hashes:

    record id   = SHA-256(header)          a header names its parents by their ids
    body_digest = SHA-256(salt + body)     is in the header

So the id of a session's last record covers all records before it. Nothing in the input covers the last record itself:
pin it with --head to an id from another source. The page "Records" of Rath's documentation states the rules.

A directory is checked as a bundle (records.jsonl, blobs, graph.json, SHA256SUMS), with all files: python3 verify.py .

Exit code: 0 valid, 3 something is not what was written, 2 usage.
"""
import argparse
import hashlib
import json
import math
import re
import sys
from pathlib import Path

ROOTS = {"created", "detached", "imported"}
BUNDLE = ["README.md", "SHA256SUMS", "graph.json", "records.jsonl", "verify.py"]
GRAPH = {"bundle", "of", "graph", "sessions", "merges", "records", "without_body", "blobs", "blob_bytes", "left_out",
         "left_out_blobs"}
LINE = 64 << 20  # the most bytes in a line of a bundle, without its line break
NESTING = 127  # how deeply objects and arrays in a body may nest
DIGEST = "[0-9a-f]{64}"
SESSION = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def parse(text, **more):
    """Parses JSON. None for invalid JSON, for numbers that do not fit a double (NaN too), and for too deep nesting."""
    try:
        return json.loads(text, parse_constant=number, parse_int=number, parse_float=number, **more)
    except (ValueError, RecursionError):
        return None


def number(text):
    """A JSON number as int or float. -0 is a float."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not a number, or one that does not fit a double")
    return int(text) if text != "-0" and text.lstrip("-").isdigit() else value


def parse_body(text):
    """The JSON object of a body. None if it is not an object, or breaks a limit that some JSON readers have."""
    body = parse(text) if text[:1] == "{" else None
    if text.count("{") + text.count("[") <= NESTING and "\\u" not in text:
        return body
    # Of a duplicate name, the last value counts, but the others must be checked too.
    layer, depth = [parse(text, object_pairs_hook=lambda pairs: [part for pair in pairs for part in pair])], 0
    while layer:
        if any(isinstance(part, str) and re.search("[\ud800-\udfff]", part) for part in layer):
            return None
        layer, depth = [part for outer in layer if isinstance(outer, list) for part in outer], depth + 1
        if depth >= NESTING and any(isinstance(part, list) for part in layer):
            return None
    return body


def unique_names(pairs):
    """An object without duplicate names, for parse."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("duplicate name")
    return dict(pairs)


def is_same(one, other):
    """Whether two values have the same JSON text. (In Python, 1, 1.0 and True are equal.)"""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def canonical(value):
    """The canonical form of a header: RFC 8785, with integers that fit a double exactly as the only numbers."""
    if isinstance(value, dict):
        in_order = sorted(value.items(), key=lambda field: field[0].encode("utf-16-be"))
        return "{" + ",".join(canonical(name) + ":" + canonical(field) for name, field in in_order) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, float) or isinstance(value, int) and abs(value) > 2**53:
        raise ValueError("not an integer that a header may contain")
    return json.dumps(value, ensure_ascii=False)


def is_canonical(text, value):
    try:
        return canonical(value) == text
    except (ValueError, RecursionError):
        return False


def is_number(value):
    return type(value) is int and value >= 0


def is_text(value, pattern="(?s).*"):
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def is_actor(value):
    return isinstance(value, dict) and is_text(value.get("kind")) and is_text(value.get("name")) and all(
        value.get(name) is None or is_text(value[name]) for name in ("principal", "how_authenticated"))


HEADER_FIELDS = {
    "actor": is_actor,
    "body_digest": lambda digest: is_text(digest, DIGEST),
    "clock_behind": lambda behind: behind is None or is_number(behind),
    "kind": is_text,
    "parents": lambda parents: isinstance(parents, list) and all(is_text(parent, DIGEST) for parent in parents),
    "seq": is_number,
    "session": lambda session: is_text(session, SESSION),
    "step": lambda step: step is None or is_text(step, DIGEST),
    "time": is_number,
    "v": is_number,
}


def split_line(line):
    """Splits a line into the exact texts of header, salt and body."""
    if line.startswith('{"header":{') and line.endswith("}"):
        # No header contains ,"salt":" so the first occurrence ends the header.
        header, is_whole, rest = line[10:-1].partition(',"salt":"')
        if is_whole and rest[32:41] != '","body":':
            raise ValueError("it has no salt of 32 hex digits, or no body")
        return (header, rest[:32], rest[41:]) if is_whole else (header, None, None)
    fields = parse(line, object_pairs_hook=unique_names)
    if not isinstance(fields, dict) or not is_text(fields.get("header")) or set(fields) - {"header", "salt", "body"}:
        raise ValueError("it has no header, or other fields than header, salt and body")
    return fields["header"], fields.get("salt"), fields.get("body")


def has_exact_form(line):
    """Whether a line has the one allowed form: JSON strings only where header or body cannot be written as they are."""
    header, salt, body = split_line(line)
    texts = [header] if body is None else [header, body]
    fits = all(text[:1] == "{" and text[-1:] == "}" and not re.search("[\x00-\x1f]", text) for text in texts)
    if line.startswith('{"header":{'):
        return fits
    fields = {"header": header} if salt is None and body is None else {"header": header, "salt": salt, "body": body}
    is_compact = json.dumps(fields, ensure_ascii=False, separators=(",", ":")) == line
    return is_compact and not (fits and ',"salt":"' not in header)


class Record:
    """One line of the input. Raises ValueError if session, seq or parents cannot be read."""

    def __init__(self, line):
        self.text, salt, body = split_line(line.decode("utf-8").rstrip("\n"))
        self.header = parse(self.text)
        self.id = sha256(self.text.encode("utf-8"))
        if not isinstance(self.header, dict) or not all(
                HEADER_FIELDS[name](self.header.get(name)) for name in ("session", "seq", "parents")):
            raise ValueError("the header has no valid session, seq and parents")
        self.parents = self.header["parents"]
        self.time = self.header.get("time") if is_number(self.header.get("time")) else 0
        self.erased = salt is None and body is None
        if not self.erased and not (is_text(salt, "[0-9a-f]{32}") and is_text(body)):
            raise ValueError("it has no salt of 32 hex digits, or no body")
        self.body = None if self.erased else parse_body(body)
        self.body_digest = None if self.erased else sha256(bytes.fromhex(salt) + body.encode("utf-8"))


def fault_of_header(record, session, position):
    """What is wrong with the header of the record at a position: a name and the reason, or None."""
    header = record.header
    if is_number(header.get("v")) and header["v"] != 1:
        return "unreadable", f"the envelope has version {header['v']}; this program reads version 1"
    for name, fits in HEADER_FIELDS.items():
        if not fits(header.get(name)):
            return "malformed", f"header field {name!r} is missing or invalid"
    if not is_canonical(record.text, header):
        return "malformed", "the header is not in canonical form"
    if header["session"] != session:
        return "foreign", f"a record of session {header['session']} is at this position"
    if header["seq"] != position:
        return "reordered", f"record {header['seq']} is at this position"
    return None


def fault_of_record(record, before, may_be_closed=False):
    """What is wrong with a record whose header is valid. `before` is its predecessor, if the record names it as parent.
    `may_be_closed`: records may follow `closed`, as they may on the store's audit session."""
    header, kind = record.header, record.header["kind"]
    if not record.erased and record.body_digest != header["body_digest"]:
        return "altered_body", "the body does not match the digest in its header"
    if not record.erased and not isinstance(record.body, dict):
        return "malformed", "the body is not a valid JSON object"
    if (kind in ROOTS or kind == "forked") != (header["seq"] == 0):
        return "malformed", "created, forked, detached and imported are for the first record of a session only"
    least, most = (0, 0) if kind in ROOTS else (2, 64) if kind == "merged" else (1, 1)
    if not least <= len(record.parents) <= most:
        return "malformed", "the number of parents does not fit the kind"
    if before and before.header["kind"] == "closed" and not may_be_closed:
        return "malformed", "the session was closed before this record"
    if before and before.time > record.time:
        return "malformed", "its time is before its parent's"
    return None


class SessionCheck:
    """Checks the records of one session, one after another."""

    def __init__(self, session, findings):
        self.session, self.findings = session, findings
        self.next = 0  # the position of the next record
        self.last = None  # the previous record, if its header is valid
        self.mismatch = None  # two neighbours that do not match; the record after them shows which one was altered
        self.readable = []  # positions and records with valid headers
        self.is_operator = False  # the store's audit session: records may follow `closed`

    def report(self, seq, what, why):
        self.findings.append({"what": what, "session": self.session, "seq": seq, "why": why})

    def report_missing(self, until):
        which = f"record {until} is" if self.next == until else f"records {self.next} to {until} are"
        self.report(self.next, "dropped", f"{which} missing")

    def report_altered(self, seq):
        self.report(seq, "altered_record", "its id is not the one that the next record, or the head, names")

    def check(self, position, record):
        if position < self.next:
            self.report(position, "duplicate", "two records have this position")
            return
        if position > self.next:
            self.report_missing(position - 1)
            self.last = None
        self.next = position + 1
        fault = fault_of_header(record, self.session, position)
        if fault:
            self.report(position, *fault)
            self.last = None
            return
        before = self.last if self.last and record.parents[:1] == [self.last.id] else None
        if position == 0 and record.header["kind"] == "created" and isinstance(record.body, dict):
            self.is_operator = record.body.get("run") == "rath/operator"
        fault = fault_of_record(record, before, self.is_operator)
        if fault:
            self.report(position, *fault)
        if self.mismatch:
            # A record whose id its successor names is unchanged.
            self.report_altered(self.mismatch[0] if before else self.mismatch[1])
            self.mismatch = None
        elif self.last and not before:
            self.mismatch = (position - 1, position)
        self.last = record
        self.readable.append((position, record))

    def finish(self, head):
        """Checks that the session ends at the pinned (seq, id), if there is one."""
        seq, head_id = head or (None, self.last and self.last.id)
        seq = max(self.next - 1, 0) if seq is None else seq
        fits = self.last and self.last.id == head_id
        if self.mismatch:
            self.report_altered(self.mismatch[0] if fits else self.mismatch[1])
        elif self.next <= seq:
            self.report_missing(seq)
        elif self.next > seq + 1:
            self.report(seq + 1, "index", f"the session has {self.next} records, but record {seq} is its head")
        elif self.last and not fits:
            self.report_altered(self.next - 1)

    def check_parents(self, by_id):
        """Checks parents in other sessions: fork points and merged heads."""
        for position, record in self.readable:
            for parent in record.parents[0 if position == 0 else 1:]:
                if parent not in by_id:
                    self.report(position, "broken_parent", f"its parent {parent} is not in the input")
                elif by_id[parent].time > record.time:
                    self.report(position, "malformed", "its time is before its parent's")

    def check_blobs(self, directory, seen, left_out):
        """Checks every blob that a body names, and all files and directories in trees."""
        for position, record in self.readable:
            inside = list(blobs_in(record.body))
            while inside:
                digest, size, is_tree = named = inside.pop()
                if named in seen:
                    continue
                seen.add(named)
                found = hash_file(directory / digest)
                if digest in left_out:
                    if found or left_out[digest] != size:
                        self.report(position, "blob_altered", f"blob {digest} is listed as left out, but it is present")
                elif found is None:
                    self.report(position, "blob_missing", f"blob {digest} is missing")
                elif found != (digest, size):
                    self.report(position, "blob_altered", f"blob {digest} does not match its digest")
                elif is_tree:
                    try:
                        entries = json.loads((directory / digest).read_bytes())["entries"]
                        inside += [(str(e["sha256"]), e["size"], e["kind"] == "directory") for e in entries]
                    except (KeyError, TypeError, ValueError):
                        self.report(position, "blob_altered", f"blob {digest} is not a tree")


def hash_file(path):
    """Digest and size of a file, read in parts; None if it does not exist."""
    if not path.is_file():
        return None
    whole, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            whole.update(part)
            size += len(part)
    return whole.hexdigest(), size


def blobs_in(body):
    """Yields (digest, size, whether it is a tree) for each blob named by a body: an object with exactly these keys."""
    inside = [body]
    while inside:
        value = inside.pop()
        if isinstance(value, dict):
            digest, size, media_type = value.get("digest"), value.get("bytes"), value.get("media_type")
            is_size = is_number(size) and size < 2**64
            if len(value) == 3 and is_text(digest, DIGEST) and is_size and is_text(media_type):
                yield digest, size, media_type == "application/vnd.rath.tree+json"
            else:
                inside.extend(value.values())
        elif isinstance(value, list):
            inside.extend(value)


def group_by_session(records):
    """Groups records by session, as (position, record), in the order of the input.

    A record belongs after its first parent if the input had that parent before; otherwise its header decides. The
    sorted numbers are the positions of the session. A missing, duplicate or misplaced record does not match its own.
    """
    sessions, positions = {}, {}
    for record in records:
        session, seq = record.header["session"], record.header["seq"]
        if record.header.get("kind") != "forked" and record.parents and record.parents[0] in positions:
            session, before = positions[record.parents[0]]
            seq = before + 1
        positions[record.id] = session, seq
        sessions.setdefault(session, []).append((seq, record))
    return {session: list(zip(sorted(seq for seq, _ in records), [record for _, record in records]))
            for session, records in sessions.items()}


class Bundle:
    """A directory with records, blobs and an index. Raises ValueError if the index (graph.json) cannot be read."""

    def __init__(self, directory, findings):
        self.directory, self.findings = directory, findings
        graph = parse((directory / "graph.json").read_text(encoding="utf-8"), object_pairs_hook=unique_names)
        if not isinstance(graph, dict) or graph.get("bundle") not in (1, 2, 3) or not is_number(graph["bundle"]):
            raise ValueError("graph.json is not from a bundle of format 1, 2 or 3")
        if set(graph) - {"because"} != GRAPH | ({"order"} if graph["bundle"] >= 3 else set()):
            raise ValueError("graph.json does not have the fields of its format")
        self.graph = graph
        self.heads = {head["session"]: (head["seq"], head["head"]) for head in graph["sessions"]}
        self.left_out = {blob["digest"]: blob["bytes"] for blob in graph["left_out_blobs"]}
        self.left_out_records = list(graph["left_out"])

    def report(self, name, why):
        self.findings.append({"what": "bundle", "session": None, "seq": None, "why": f"{name}: {why}"})

    def check_files(self, seen):
        """Checks that files and SHA256SUMS agree, and that a record names every blob."""
        there, named = set(), {digest for digest, _, _ in seen}
        for path in sorted([*self.directory.iterdir(), *self.directory.glob("blobs/*")]):
            name = path.relative_to(self.directory).as_posix()
            if name == "blobs" and path.is_dir() and not path.is_symlink():
                continue
            if path.is_symlink() or not path.is_file():
                self.report(name, "it is not a plain file")
            elif name not in BUNDLE and not is_text(name, f"blobs/{DIGEST}"):
                self.report(name, "it does not belong in a bundle")
            elif name.startswith("blobs/") and name[6:] not in named:
                self.report(name, "no record names it")
            there.add(name)
        lines = (self.directory / "SHA256SUMS").read_bytes().decode("utf-8").split("\n")
        listed, last = {}, ""
        for number, line in enumerate(lines[:-1], 1):
            match = re.fullmatch(f"({DIGEST})  ([^\n]+)", line)
            if not match or match[2] <= last:
                self.report("SHA256SUMS", f"line {number} cannot be read, or is out of order")
            else:
                listed[match[2]], last = match[1], match[2]
        if lines[-1]:
            self.report("SHA256SUMS", "its last line is truncated")
        # From format 3 on, records.jsonl has no sum: each of its bytes is hashed as part of a record.
        unlisted = {"SHA256SUMS"} if self.graph["bundle"] < 3 else {"SHA256SUMS", "records.jsonl"}
        for name in sorted(unlisted & set(listed)):
            self.report("SHA256SUMS", f"it lists {name}")
        for name in sorted((set(listed) | there) - unlisted):
            if name not in there:
                self.report(name, "SHA256SUMS lists it, but it does not exist")
            elif name not in listed:
                self.report(name, "SHA256SUMS does not list it")
            elif hash_file(self.directory / name)[0] != listed[name]:
                self.report(name, "its digest is not the one in SHA256SUMS")

    def check_order(self, records):
        """Checks that every record comes after its parents."""
        before = set()
        for record in records:
            if not before.issuperset(record.parents):
                self.report("records.jsonl", f"a parent of {record.id[:12]} does not come before it")
            before.add(record.id)

    def check_graph(self, records, named):
        """Checks that graph.json agrees with the records."""
        by_id = {record.id: record for record in records}
        reference_to = lambda id: {"session": by_id[id].header["session"], "seq": by_id[id].header["seq"], "id": id}
        sessions, merges = {}, []
        for record in records:
            header = record.header
            head = sessions.setdefault(header["session"], {"session": header["session"], "birth": header["kind"]})
            if header["seq"] == 0 and record.parents:
                head["origin"] = reference_to(record.parents[0])
            head["seq"], head["head"] = header["seq"], record.id
            if header["kind"] == "merged":
                took = [reference_to(parent) for parent in record.parents[1:]]
                merges.append({"into": reference_to(record.id), "took": took})
        blobs = list(self.directory.glob("blobs/*"))
        expected = {
            "sessions": [sessions[session] for session in sorted(sessions)], "merges": merges, "records": len(records),
            "without_body": sum(record.erased for record in records), "blobs": len(blobs),
            "blob_bytes": sum(path.stat().st_size for path in blobs),
        }
        if self.graph["bundle"] >= 3:
            expected["order"] = sha256(b"".join(bytes.fromhex(record.id) for record in records))
        for name, value in expected.items():
            if not is_same(self.graph[name], value):
                self.report("graph.json", f"{name!r} does not agree with the records")
        of, is_whole, because = self.graph["of"], self.graph["graph"], self.graph.get("because")
        if not isinstance(of, list) or not all(is_text(session) and session in sessions for session in of):
            self.report("graph.json", "it names an exported session that has no records")
        if type(is_whole) is not bool or not (because is None or is_text(because)):
            self.report("graph.json", "`graph` or `because` is invalid")
        for blob in self.graph["left_out_blobs"]:
            fits = set(blob) == {"digest", "bytes", "rule"} and is_number(blob["bytes"]) and is_text(blob["rule"])
            if not fits or blob["digest"] not in named:
                self.report("graph.json", "it lists a left-out blob that no record names, or lists it in a wrong form")
        for left in self.left_out_records:
            record = by_id.get(left["record"]["id"])
            fits = record and is_same(left, {"record": reference_to(record.id), "kind": record.header["kind"],
                                             "rule": left["rule"]})
            if not fits or not record.erased:
                self.report("graph.json", "it lists a left-out record that is present or unknown")
        listed = [left["record"]["id"] for left in self.left_out_records if is_text(left["rule"])]
        for record in records:
            if record.erased and record.id not in listed:
                self.report("graph.json", f"it does not say why {record.id[:12]} has no body")
        if not self.findings and listed != [record.id for record in records if record.erased]:
            self.report("graph.json", "it does not list the records without a body in their order")

    def what_was_left_out(self):
        erased = sum(left.get("rule") == "erased" for left in self.left_out_records)
        bodies, blobs = len(self.left_out_records) - erased, len(self.left_out)
        return f", left out when it was exported: bodies {bodies}, blobs {blobs}" if bodies or blobs else ""

    def check(self, records, seen):
        self.check_files(seen)
        if not self.findings:
            self.check_order(records)
            try:
                self.check_graph(records, {digest for digest, _, _ in seen})
            except (KeyError, TypeError) as error:
                self.report("graph.json", f"it cannot be read: {error!r}")


def verify(records, heads, blobs, findings, left_out=()):
    """Adds to the findings; returns the number of sessions, and the named blobs."""
    arranged = group_by_session(records)
    checks = [SessionCheck(session, findings) for session in {**arranged, **heads}]
    for check in checks:
        for position, record in arranged.get(check.session, []):
            check.check(position, record)
        check.finish(heads.get(check.session))
    by_id, seen = {record.id: record for record in records}, set()
    for check in checks:
        check.check_parents(by_id)
        if blobs:
            check.check_blobs(blobs, seen, left_out)
    return len(arranged), seen


def read(name, records, findings, is_exact=False, is_summed=True):
    """Reads lines. In a bundle, their form is exact; if SHA256SUMS does not cover the file, to the byte."""
    with sys.stdin.buffer if name == "-" else open(name, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if is_exact and not (line.startswith(b"{") and line.endswith(b"\n")):
                    raise ValueError("it is blank or truncated")
                if is_exact and len(line) > LINE + 1:
                    raise ValueError(f"it is longer than {LINE} bytes")
                if not is_summed and not has_exact_form(line.decode("utf-8").rstrip("\n")):
                    raise ValueError("it does not have the exact form")
                if line.strip():
                    records.append(Record(line))
            except ValueError as error:
                why = f"line {number} of {name} cannot be read: {error}"
                findings.append({"what": "unreadable", "session": None, "seq": None, "why": why})


def read_bundle(directory, records, findings):
    """Reads a bundle. A directory that is not a bundle is a finding."""
    missing = [name for name in BUNDLE if not (directory / name).is_file()]
    bundle = None
    try:
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        bundle = Bundle(directory, findings)
        read(directory / "records.jsonl", records, findings, is_exact=True, is_summed=bundle.graph["bundle"] < 3)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{directory} is not a complete bundle: {error!r}" if isinstance(error, KeyError) else str(error)
        findings.append({"what": "bundle", "session": None, "seq": None, "why": why})
    return bundle


def pinned_head(text):
    match = re.fullmatch(f"(?P<session>{SESSION})(@(?P<seq>[0-9]+))?=(?P<id>{DIGEST})", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is neither SESSION=ID nor SESSION@SEQ=ID")
    return match["session"], (match["seq"] and int(match["seq"]), match["id"])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", metavar="FILE",
                         help="JSON lines (- is standard input), or the directory of a bundle")
    options.add_argument("--blobs", type=Path, metavar="DIR", help="check blobs too: files named by their hex digest")
    options.add_argument("--head", type=pinned_head, action="append", default=[], metavar="SESSION[@SEQ]=ID",
                         help="the last record of a session; can be given several times")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    given = options.parse_args()
    records, findings, bundle, heads = [], [], None, dict(given.head)
    try:
        if Path(given.files[0]).is_dir():
            if len(given.files) > 1 or given.blobs:
                options.error("check a bundle without other files and without --blobs")
            bundle = read_bundle(Path(given.files[0]), records, findings)
        else:
            for name in given.files:
                read(name, records, findings)
    except OSError as error:
        options.error(str(error))
    if bundle:
        # A head pinned by hand must agree with the bundle's own.
        for session, (seq, head) in heads.items():
            if head != bundle.heads.get(session, (seq, None))[1]:
                bundle.report("graph.json", f"session {session} does not end with the pinned record")
        heads = {**bundle.heads}
        given.blobs = bundle.directory / "blobs"
    if given.blobs and not given.blobs.is_dir() and not bundle:
        options.error(f"{given.blobs} is not a directory")
    if not records and not findings and not bundle:
        options.error("the input has no records")

    sessions, seen = verify(records, heads, given.blobs, findings, bundle.left_out if bundle else ())
    if bundle:
        bundle.check(records, seen)
    erased = sum(record.erased for record in records)
    if given.json:
        print(json.dumps({"records": len(records), "sessions": sessions, "erased": erased, "findings": findings}))
    else:
        for finding in findings:
            where = f"{finding['session']}@{finding['seq']}: " if finding["session"] else ""
            print(f"{where}{finding['what']}: {finding['why']}")
        verdict = f"NOT VALID; findings: {len(findings)}" if findings else "valid"
        print(f"{verdict}; records: {len(records)}, sessions: {sessions}, erased: {erased}"
              f"{bundle.what_was_left_out() if bundle else ''}")
    return 3 if findings else 0


if __name__ == "__main__":
    # File names need not be valid UTF-8.
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
