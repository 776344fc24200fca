#!/usr/bin/env python3
"""Checks exported Rath records. Needs Python 3.8 or later and nothing else.

The input is JSON lines, one record a line. The records of a session stand in order; sessions may be mixed.

    {"header":{<exact bytes>},"salt":"<32 hex digits>","body":{<exact bytes>}}

A record whose body was erased has only its header. Where header and body are not JSON that fits in a line, and in
bundles of format 1, they stand in JSON strings. Two hashes carry everything:

    record id   = SHA-256(header)          a header names its parents by their ids
    body_digest = SHA-256(salt + body)     stands in the header

So the id of a session's last record vouches for everything behind it. Nothing in the input vouches for the last
record itself: pin it with --head to an id that you have from elsewhere. docs/records.md states the rules.

A directory is checked as a bundle (records.jsonl, blobs, graph.json, SHA256SUMS), every file of it: python3 verify.py .

Exit code: 0 sound, 3 something is not what was written, 2 usage.
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
LINE = 64 << 20  # a line of a bundle has no more bytes, without its line break
NESTING = 127  # objects and arrays in a body stand in each other at most so deeply
DIGEST = "[0-9a-f]{64}"
SESSION = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def parse(text, **more):
    """Reads JSON; None for what is not JSON, such as NaN, for numbers that no double holds, and for what is nested too
    deeply."""
    try:
        return json.loads(text, parse_constant=number, parse_int=number, parse_float=number, **more)
    except (ValueError, RecursionError):
        return None


def number(text):
    """A number of JSON: -0 is none of the whole ones."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not a number, or one that no double holds")
    return int(text) if text != "-0" and text.lstrip("-").isdigit() else value


def parse_body(text):
    """The object that a body is; None for what is none, or holds what readers stop at."""
    body = parse(text) if text[:1] == "{" else None
    if text.count("{") + text.count("[") <= NESTING and "\\u" not in text:
        return body
    # Of a name that stands twice the last value holds, but the others must be read too.
    layer, depth = [parse(text, object_pairs_hook=lambda pairs: [part for pair in pairs for part in pair])], 0
    while layer:
        if any(isinstance(part, str) and re.search("[\ud800-\udfff]", part) for part in layer):
            return None
        layer, depth = [part for outer in layer if isinstance(outer, list) for part in outer], depth + 1
        if depth >= NESTING and any(isinstance(part, list) for part in layer):
            return None
    return body


def once(pairs):
    """An object in which no name stands twice, for parse."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def is_same(one, other):
    """Whether two values are written as the same JSON: for Python 1, 1.0 and true are equal."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def canonical(value):
    """The one way to write a header: RFC 8785, where all numbers are integers that a double holds exactly."""
    if isinstance(value, dict):
        in_order = sorted(value.items(), key=lambda field: field[0].encode("utf-16-be"))
        return "{" + ",".join(canonical(name) + ":" + canonical(field) for name, field in in_order) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, float) or isinstance(value, int) and abs(value) > 2**53:
        raise ValueError("not a number for a header")
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


def take_apart(line):
    """Header, salt and body of a line, as exact texts."""
    if line.startswith('{"header":{') and line.endswith("}"):
        # No header has ,"salt":" in it: the first one is behind it.
        header, is_whole, rest = line[10:-1].partition(',"salt":"')
        if is_whole and rest[32:41] != '","body":':
            raise ValueError("there is no salt of 32 hex digits, or no body")
        return (header, rest[:32], rest[41:]) if is_whole else (header, None, None)
    fields = parse(line, object_pairs_hook=once)
    if not isinstance(fields, dict) or not is_text(fields.get("header")) or set(fields) - {"header", "salt", "body"}:
        raise ValueError("there is no header, or something besides header, salt and body")
    return fields["header"], fields.get("salt"), fields.get("body")


def is_as_written(line):
    """Whether a line is written in the one way to write it: in strings only what does not fit in a line as it is."""
    header, salt, body = take_apart(line)
    texts = [header] if body is None else [header, body]
    fits = all(text[:1] == "{" and text[-1:] == "}" and not re.search("[\x00-\x1f]", text) for text in texts)
    if line.startswith('{"header":{'):
        return fits
    fields = {"header": header} if salt is None and body is None else {"header": header, "salt": salt, "body": body}
    is_compact = json.dumps(fields, ensure_ascii=False, separators=(",", ":")) == line
    return is_compact and not (fits and ',"salt":"' not in header)


class Record:
    """One line of the input. Raises ValueError when not even the record's place can be read."""

    def __init__(self, line):
        self.text, salt, body = take_apart(line.decode("utf-8").rstrip("\n"))
        self.header = parse(self.text)
        self.id = sha256(self.text.encode("utf-8"))
        if not isinstance(self.header, dict) or not all(
                HEADER_FIELDS[name](self.header.get(name)) for name in ("session", "seq", "parents")):
            raise ValueError("the header does not say where the record stands")
        self.parents = self.header["parents"]
        self.time = self.header.get("time") if is_number(self.header.get("time")) else 0
        self.erased = salt is None and body is None
        if not self.erased and not (is_text(salt, "[0-9a-f]{32}") and is_text(body)):
            raise ValueError("there is no salt of 32 hex digits, or no body")
        self.body = None if self.erased else parse_body(body)
        self.body_digest = None if self.erased else sha256(bytes.fromhex(salt) + body.encode("utf-8"))


def fault_of_header(record, session, place):
    """What is wrong with the header of a record that stands at a place: a name and the reason, or None."""
    header = record.header
    if is_number(header.get("v")) and header["v"] != 1:
        return "unreadable", f"the envelope has version {header['v']}; this program reads version 1"
    for name, fits in HEADER_FIELDS.items():
        if not fits(header.get(name)):
            return "malformed", f"header field {name!r} is missing or not what it should be"
    if not is_canonical(record.text, header):
        return "malformed", "the header is not in canonical form"
    if header["session"] != session:
        return "foreign", f"a record of session {header['session']} stands here"
    if header["seq"] != place:
        return "reordered", f"record {header['seq']} stands here"
    return None


def fault_of_record(record, before, may_be_closed=False):
    """What is wrong with a record whose header is in order. `before` is its predecessor, if it stands on that.
    `may_be_closed` says that records may follow `closed`, as they do on the operator session."""
    header, kind = record.header, record.header["kind"]
    if not record.erased and record.body_digest != header["body_digest"]:
        return "altered_body", "the body is not the one its header vouches for"
    if not record.erased and not isinstance(record.body, dict):
        return "malformed", "the body is not a JSON object that can be read"
    if (kind in ROOTS or kind == "forked") != (header["seq"] == 0):
        return "malformed", "created, forked, detached and imported begin a session, and nothing else does"
    least, most = (0, 0) if kind in ROOTS else (2, 64) if kind == "merged" else (1, 1)
    if not least <= len(record.parents) <= most:
        return "malformed", "the number of parents does not fit the kind"
    if before and before.header["kind"] == "closed" and not may_be_closed:
        return "malformed", "the session was closed before this record"
    if before and before.time > record.time:
        return "malformed", "its time is before its parent's"
    return None


class Line:
    """The records of one session, checked one after another."""

    def __init__(self, session, findings):
        self.session, self.findings = session, findings
        self.next = 0  # the place of the next record
        self.last = None  # the record before, if its header is in order
        self.misfit = None  # two neighbours that do not fit; the record after them shows which one was altered
        self.readable = []  # places and records whose headers are in order
        self.is_operator = False  # whether the store's own account is kept here: it goes on behind `closed`

    def report(self, seq, what, why):
        self.findings.append({"what": what, "session": self.session, "seq": seq, "why": why})

    def report_missing(self, until):
        which = f"record {until} is" if self.next == until else f"records {self.next} to {until} are"
        self.report(self.next, "dropped", f"{which} missing")

    def report_altered(self, seq):
        self.report(seq, "altered_record", "its id is not the one that the next record, or the head, stands on")

    def check(self, place, record):
        if place < self.next:
            self.report(place, "duplicate", "two records claim this place")
            return
        if place > self.next:
            self.report_missing(place - 1)
            self.last = None
        self.next = place + 1
        fault = fault_of_header(record, self.session, place)
        if fault:
            self.report(place, *fault)
            self.last = None
            return
        before = self.last if self.last and record.parents[:1] == [self.last.id] else None
        if place == 0 and record.header["kind"] == "created" and isinstance(record.body, dict):
            self.is_operator = record.body.get("run") == "rath/operator"
        fault = fault_of_record(record, before, self.is_operator)
        if fault:
            self.report(place, *fault)
        if self.misfit:
            # The one that its successor stands on is as it was written.
            self.report_altered(self.misfit[0] if before else self.misfit[1])
            self.misfit = None
        elif self.last and not before:
            self.misfit = (place - 1, place)
        self.last = record
        self.readable.append((place, record))

    def finish(self, head):
        """Ends the line at the pinned (seq, id); without one it ends where it ends."""
        seq, head_id = head or (None, self.last and self.last.id)
        seq = max(self.next - 1, 0) if seq is None else seq
        fits = self.last and self.last.id == head_id
        if self.misfit:
            self.report_altered(self.misfit[0] if fits else self.misfit[1])
        elif self.next <= seq:
            self.report_missing(seq)
        elif self.next > seq + 1:
            self.report(seq + 1, "index", f"the session has {self.next} records, but record {seq} is its head")
        elif self.last and not fits:
            self.report_altered(self.next - 1)

    def check_parents(self, by_id):
        """Parents on other lines: fork points and merged heads."""
        for place, record in self.readable:
            for parent in record.parents[0 if place == 0 else 1:]:
                if parent not in by_id:
                    self.report(place, "broken_parent", f"its parent {parent} is not in the input")
                elif by_id[parent].time > record.time:
                    self.report(place, "malformed", "its time is before its parent's")

    def check_blobs(self, directory, seen, left_out):
        """Every blob that a body names; of a directory tree, also every file and directory in it."""
        for place, record in self.readable:
            inside = list(blobs_in(record.body))
            while inside:
                digest, size, is_tree = named = inside.pop()
                if named in seen:
                    continue
                seen.add(named)
                found = hash_file(directory / digest)
                if digest in left_out:
                    if found or left_out[digest] != size:
                        self.report(place, "blob_altered", f"blob {digest} is listed as left out, and is here")
                elif found is None:
                    self.report(place, "blob_missing", f"blob {digest} is not there")
                elif found != (digest, size):
                    self.report(place, "blob_altered", f"blob {digest} is not what its name says")
                elif is_tree:
                    try:
                        entries = json.loads((directory / digest).read_bytes())["entries"]
                        inside += [(str(e["sha256"]), e["size"], e["kind"] == "directory") for e in entries]
                    except (KeyError, TypeError, ValueError):
                        self.report(place, "blob_altered", f"blob {digest} is not a tree")


def hash_file(path):
    """Digest and size of a file, read in parts; None if it is not there."""
    if not path.is_file():
        return None
    whole, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            whole.update(part)
            size += len(part)
    return whole.hexdigest(), size


def blobs_in(body):
    """Every blob that a body names (digest, size, whether it is a tree): objects with exactly these three keys."""
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


def arrange(records):
    """Each session's (place, record), in the order of the input.

    A record stands behind its first parent if the input had that before, else where its header says. The sorted
    numbers are the places of the line: what is missing, doubled or out of order does not fit its place.
    """
    lines, stands = {}, {}
    for record in records:
        session, seq = record.header["session"], record.header["seq"]
        if record.header.get("kind") != "forked" and record.parents and record.parents[0] in stands:
            session, before = stands[record.parents[0]]
            seq = before + 1
        stands[record.id] = session, seq
        lines.setdefault(session, []).append((seq, record))
    return {session: list(zip(sorted(seq for seq, _ in line), [record for _, record in line]))
            for session, line in lines.items()}


class Bundle:
    """A directory with records, blobs, and files that say what is in it. Raises ValueError when it is not even that."""

    def __init__(self, directory, findings):
        self.directory, self.findings = directory, findings
        graph = parse((directory / "graph.json").read_text(encoding="utf-8"), object_pairs_hook=once)
        if not isinstance(graph, dict) or graph.get("bundle") not in (1, 2, 3) or not is_number(graph["bundle"]):
            raise ValueError("graph.json is not that of a bundle of format 1, 2 or 3")
        if set(graph) - {"because"} != GRAPH | ({"order"} if graph["bundle"] >= 3 else set()):
            raise ValueError("graph.json has other fields than that of a bundle")
        self.graph = graph
        self.heads = {head["session"]: (head["seq"], head["head"]) for head in graph["sessions"]}
        self.left_out = {blob["digest"]: blob["bytes"] for blob in graph["left_out_blobs"]}
        self.left_out_records = list(graph["left_out"])

    def report(self, name, why):
        self.findings.append({"what": "bundle", "session": None, "seq": None, "why": f"{name}: {why}"})

    def check_files(self, seen):
        """Every file is listed with its digest, every listed file is there, and every blob is named by a record."""
        there, named = set(), {digest for digest, _, _ in seen}
        for path in sorted([*self.directory.iterdir(), *self.directory.glob("blobs/*")]):
            name = path.relative_to(self.directory).as_posix()
            if name == "blobs" and path.is_dir() and not path.is_symlink():
                continue
            if path.is_symlink() or not path.is_file():
                self.report(name, "it is not a plain file")
            elif name not in BUNDLE and not is_text(name, f"blobs/{DIGEST}"):
                self.report(name, "it is no part of a bundle")
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
            self.report("SHA256SUMS", "its last line is cut")
        # From format 3 on the records have no sum of their own: every byte of them is hashed as a record's.
        unlisted = {"SHA256SUMS"} if self.graph["bundle"] < 3 else {"SHA256SUMS", "records.jsonl"}
        for name in sorted(unlisted & set(listed)):
            self.report("SHA256SUMS", f"it lists {name}")
        for name in sorted((set(listed) | there) - unlisted):
            if name not in there:
                self.report(name, "SHA256SUMS lists it, and it is not there")
            elif name not in listed:
                self.report(name, "SHA256SUMS does not list it")
            elif hash_file(self.directory / name)[0] != listed[name]:
                self.report(name, "its bytes are not those that SHA256SUMS vouches for")

    def check_order(self, records):
        """Before a record stands what it stands on, also on other lines."""
        before = set()
        for record in records:
            if not before.issuperset(record.parents):
                self.report("records.jsonl", f"a parent of {record.id[:12]} does not stand before it")
            before.add(record.id)

    def check_graph(self, records, named):
        """What graph.json says must be what the records say."""
        by_id = {record.id: record for record in records}
        place = lambda id: {"session": by_id[id].header["session"], "seq": by_id[id].header["seq"], "id": id}
        sessions, merges = {}, []
        for record in records:
            header = record.header
            head = sessions.setdefault(header["session"], {"session": header["session"], "birth": header["kind"]})
            if header["seq"] == 0 and record.parents:
                head["origin"] = place(record.parents[0])
            head["seq"], head["head"] = header["seq"], record.id
            if header["kind"] == "merged":
                merges.append({"into": place(record.id), "took": [place(parent) for parent in record.parents[1:]]})
        blobs = list(self.directory.glob("blobs/*"))
        says = {
            "sessions": [sessions[session] for session in sorted(sessions)], "merges": merges, "records": len(records),
            "without_body": sum(record.erased for record in records), "blobs": len(blobs),
            "blob_bytes": sum(path.stat().st_size for path in blobs),
        }
        if self.graph["bundle"] >= 3:
            says["order"] = sha256(b"".join(bytes.fromhex(record.id) for record in records))
        for name, value in says.items():
            if not is_same(self.graph[name], value):
                self.report("graph.json", f"{name!r} is not what the records say")
        of, is_whole, because = self.graph["of"], self.graph["graph"], self.graph.get("because")
        if not isinstance(of, list) or not all(is_text(session) and session in sessions for session in of):
            self.report("graph.json", "it is said to be of a session that has no records")
        if type(is_whole) is not bool or not (because is None or is_text(because)):
            self.report("graph.json", "it does not say what was asked for, or why something was left out")
        for blob in self.graph["left_out_blobs"]:
            fits = set(blob) == {"digest", "bytes", "rule"} and is_number(blob["bytes"]) and is_text(blob["rule"])
            if not fits or blob["digest"] not in named:
                self.report("graph.json", "it lists a blob as left out that no record names, or not as it should")
        for left in self.left_out_records:
            record = by_id.get(left["record"]["id"])
            fits = record and is_same(left, {"record": place(record.id), "kind": record.header["kind"],
                                             "rule": left["rule"]})
            if not fits or not record.erased:
                self.report("graph.json", "it lists a record as left out that is here, or that nobody knows")
        listed = [left["record"]["id"] for left in self.left_out_records if is_text(left["rule"])]
        for record in records:
            if record.erased and record.id not in listed:
                self.report("graph.json", f"it does not say why {record.id[:12]} has no body")
        if not self.findings and listed != [record.id for record in records if record.erased]:
            self.report("graph.json", "it does not list what has no body in the order of the records")

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
    """Adds to the findings; returns the number of sessions, and the blobs that are named."""
    arranged = arrange(records)
    lines = [Line(session, findings) for session in {**arranged, **heads}]
    for line in lines:
        for place, record in arranged.get(line.session, []):
            line.check(place, record)
        line.finish(heads.get(line.session))
    by_id, seen = {record.id: record for record in records}, set()
    for line in lines:
        line.check_parents(by_id)
        if blobs:
            line.check_blobs(blobs, seen, left_out)
    return len(arranged), seen


def read(name, records, findings, is_exact=False, is_summed=True):
    """Reads lines; in a bundle, exactly those that were written, to the byte where no sum vouches for the file."""
    with sys.stdin.buffer if name == "-" else open(name, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if is_exact and not (line.startswith(b"{") and line.endswith(b"\n")):
                    raise ValueError("it is blank, or cut off")
                if is_exact and len(line) > LINE + 1:
                    raise ValueError(f"it is longer than {LINE} bytes")
                if not is_summed and not is_as_written(line.decode("utf-8").rstrip("\n")):
                    raise ValueError("it is not written as it should be")
                if line.strip():
                    records.append(Record(line))
            except ValueError as error:
                why = f"line {number} of {name} cannot be read: {error}"
                findings.append({"what": "unreadable", "session": None, "seq": None, "why": why})


def read_bundle(directory, records, findings):
    """Reads a bundle; what is not one is a finding."""
    missing = [name for name in BUNDLE if not (directory / name).is_file()]
    bundle = None
    try:
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        bundle = Bundle(directory, findings)
        read(directory / "records.jsonl", records, findings, is_exact=True, is_summed=bundle.graph["bundle"] < 3)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{directory} is not a whole bundle: {error!r}" if isinstance(error, KeyError) else str(error)
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
                         help="JSON lines, - is standard input; or the directory of a bundle")
    options.add_argument("--blobs", type=Path, metavar="DIR", help="check blobs too: files named by their hex digest")
    options.add_argument("--head", type=pinned_head, action="append", default=[], metavar="SESSION[@SEQ]=ID",
                         help="the record in which a session must end; can be given several times")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    given = options.parse_args()
    records, findings, bundle, heads = [], [], None, dict(given.head)
    try:
        if Path(given.files[0]).is_dir():
            if len(given.files) > 1 or given.blobs:
                options.error("a bundle is checked by itself")
            bundle = read_bundle(Path(given.files[0]), records, findings)
        else:
            for name in given.files:
                read(name, records, findings)
    except OSError as error:
        options.error(str(error))
    if bundle:
        # What was pinned by hand wins; what the bundle says of its heads must hold as well.
        for session, (seq, head) in heads.items():
            if head != bundle.heads.get(session, (seq, None))[1]:
                bundle.report("graph.json", f"session {session} does not end in the record that was pinned")
        heads = {**bundle.heads}
        given.blobs = bundle.directory / "blobs"
    if given.blobs and not given.blobs.is_dir() and not bundle:
        options.error(f"{given.blobs} is not a directory")
    if not records and not findings and not bundle:
        options.error("there is no record in the input")

    sessions, seen = verify(records, heads, given.blobs, findings, bundle.left_out if bundle else ())
    if bundle:
        bundle.check(records, seen)
    erased = sum(record.erased for record in records)
    if given.json:
        print(json.dumps({"records": len(records), "sessions": sessions, "erased": erased, "findings": findings}))
    else:
        for finding in findings:
            place = f"{finding['session']}@{finding['seq']}: " if finding["session"] else ""
            print(f"{place}{finding['what']}: {finding['why']}")
        verdict = f"NOT SOUND; findings: {len(findings)}" if findings else "sound"
        print(f"{verdict}; records: {len(records)}, sessions: {sessions}, erased: {erased}"
              f"{bundle.what_was_left_out() if bundle else ''}")
    return 3 if findings else 0


if __name__ == "__main__":
    # Names of files need not be text.
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
