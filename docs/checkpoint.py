#!/usr/bin/env python3
"""Checks signed checkpoints of a Rath store with Python's standard library alone.

Reads lines as printed by `rath checkpoint list --print`. Each line must be in canonical form, be signed by the key that
it names, and follow the previous line; a new key must be signed by the old one. With --records, reads the records that
`rath log SESSION --raw` prints and compares them with --heads, the list of heads whose digest is in the last line
(`rath show` prints the blob). verify.py checks the records themselves.

Exit code: 0 valid, 3 something does not match, 2 usage.
"""
import argparse
import hashlib
import json
import sys

# Ed25519 (RFC 8032, section 6), verification only. It is slow, and handles no secrets.
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)

LONGEST = 32 * 1024  # the most bytes in a line, with surrounding white space


def recover_x(y, sign):
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def point(data):
    """A point in extended coordinates, or None."""
    number = int.from_bytes(data, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    x = recover_x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


def add(a, b):
    first, second = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    third, fourth = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = second - first, fourth - third, fourth + third, second + first
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number, base):
    result = (0, 1, 1, 0)
    while number:
        if number & 1:
            result = add(result, base)
        base, number = add(base, base), number >> 1
    return result


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = (recover_x(BASE_Y, 0), BASE_Y, 1, recover_x(BASE_Y, 0) * BASE_Y % P)


def signed(key, statement, signature):
    key, signature = bytes.fromhex(key), bytes.fromhex(signature)
    if len(key) != 32 or len(signature) != 64:
        return False
    public, commitment = point(key), point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if public is None or commitment is None or scalar >= ORDER:
        return False
    small = times(8, public)
    if small[0] % P == 0 and (small[1] - small[2]) % P == 0:
        return False  # a key of small order: signatures for it need no secret
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + key + statement).digest(), "little") % ORDER
    left, right = times(scalar, BASE), add(commitment, times(challenge, public))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


def canonical(value):
    """The canonical form (RFC 8785) of a value whose numbers are integers and whose names are ASCII."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def is_signed(value, key):
    statement = {name: field for name, field in value.items() if name != "signature"}
    return signed(key, canonical(statement), value["signature"])


def check_line(text, before, say):
    """Checks one line; `before` is the previous line as (text, fields)."""
    it = json.loads(text)
    say(it["checkpoint"] == 1, f"version {it['checkpoint']} is unknown")
    say(canonical(it) == text.encode(), "the line is not in canonical form")
    say(is_signed(it, it["key"]), "the signature does not match: the line was altered or forged")
    for succession in it.get("successions", []):
        say(is_signed(succession, succession["from"]), "a key did not sign its successor")
    if before is None:
        return it
    text_before, last = before
    if it["no"] != last["no"] + 1:
        say(False, f"checkpoint {it['no']} comes after {last['no']}")
        return it
    say(it["store"] == last["store"], "it is of another store than the previous line")
    say(it.get("previous") == hashlib.sha256(text_before.encode()).hexdigest(), "it does not follow the previous line")
    say(it["time"] >= last["time"], "it is older than the previous line")
    key = last["key"]
    for succession in it.get("successions", []):
        key = succession["key"] if succession["from"] == key else None
    why = "NEW CHAIN: no earlier key signed its key" if it.get("anew") else "the previous key did not sign its key"
    say(key == it["key"], why)
    return it


def keys_behind(it):
    """The key that signed the line, and the earlier keys whose signatures lead to it."""
    keys = [it["key"]]
    for succession in reversed(it.get("successions", [])):
        if succession["key"] == keys[-1]:
            keys.append(succession["from"])
    return keys


def check_heads(path, it, records, say):
    """Checks that the list of heads has the digest in the line, and that the exported records are those in the list."""
    with open(path, "rb") as file:
        text = file.read()
    say(hashlib.sha256(text).hexdigest() == it["heads"], "the list of heads does not have the signed digest")
    heads = {session: (int(seq), id) for session, seq, id in (line.split() for line in text.decode().splitlines())}
    say(len(heads) == it["sessions"], "the list has another number of sessions")
    say(sum(seq + 1 for seq, _ in heads.values()) == it["records"], "the list has another number of records")
    for session in sorted({session for session, _ in records}):
        if session in heads:
            seq, id = heads[session]
            found = records.get((session, seq))
            say(found is not None, f"{session}: record {seq} is not in the export")
            say(found in (None, id), f"{session}: record {seq} is not the one that was signed")


def header_of(line):
    """The exact bytes of the header in a line: as they are, or decoded from a JSON string."""
    if line.startswith(b'{"header":{') and line.endswith(b"}"):
        # No header contains ,"salt":" so the first occurrence ends the header.
        return line[10:-1].partition(b',"salt":"')[0]
    return json.loads(line.decode())["header"].encode()


def read_records(path):
    records = {}
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                exact = header_of(line.strip())
                header = json.loads(exact.decode())
                place = header["session"], header["seq"]
            except UnicodeDecodeError:
                raise ValueError(f"line {number} of the records is not UTF-8") from None
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                raise ValueError(f"line {number} of the records is not a record: {error!r}") from None
            records[place] = hashlib.sha256(exact).hexdigest()
    return records


def read_lines(path):
    """Yields number and bytes of each non-blank line."""
    with sys.stdin.buffer if path == "-" else open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            line = line[:-1] if line.endswith(b"\n") else line
            if line.strip():
                yield number, line


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("lines", metavar="FILE", help="lines of checkpoints, oldest first; - is standard input")
    options.add_argument("--key", metavar="HEX", help="the public key that must have signed, itself or by a successor")
    options.add_argument("--heads", metavar="FILE", help="the list of heads whose digest is in the last line")
    options.add_argument("--records", metavar="FILE", help="exported records, to compare with --heads")
    given = options.parse_args()
    if given.records and not given.heads:
        options.error("--records needs --heads")
    try:
        return check(given, options)
    except OSError as error:
        options.error(str(error))


def check(given, options):
    wrong, before, keys = [], None, set()
    for number, exact in read_lines(given.lines):
        def say(fits, why, number=number):
            if not fits:
                wrong.append(f"line {number}: {why}")
        try:
            say(len(exact) <= LONGEST, f"it has more than {LONGEST} bytes")
            line = exact.decode().strip()
            before = line, check_line(line, before, say)
            keys.update(keys_behind(before[1]))
        except UnicodeDecodeError:
            wrong.append(f"line {number} is not a checkpoint: it is not UTF-8")
            break
        except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
            wrong.append(f"line {number} is not a checkpoint: {error!r}")
            break
    if before is None and not wrong:
        options.error("the input has no lines")
    if given.key and given.key not in keys:
        wrong.append(f"no line leads to key {given.key}")
    if given.heads and before and not wrong:
        try:
            records = read_records(given.records) if given.records else {}
            check_heads(given.heads, before[1], records, lambda fits, why: fits or wrong.append(why))
        except UnicodeDecodeError:
            wrong.append("the list of heads is not UTF-8")
        except ValueError as error:
            wrong.append(f"the list of heads or the records cannot be read: {error}")
    for why in wrong:
        print(why)
    if not wrong:
        it = before[1]
        print(f"valid: {it['no']} checkpoints of store {it['store']}, the last with {it['records']} records in "
              f"{it['sessions']} sessions, key {it['key']}")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
