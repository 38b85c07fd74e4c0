#!/usr/bin/env python3
"""Reads timeframes from files of the sink "streams", with nothing but Python's standard library.

    python3 examples/files/read_tfs.py /data/epn-0              all closed files of a catalogue, checked
    python3 examples/files/read_tfs.py FILE.tf                  one file

Layout: docs/reference/tf-file.md (a TF), docs/reference/stream-files.md (a file, the catalogue).
"""
import pathlib
import sqlite3
import struct
import sys
import zlib

HEAD = struct.Struct("<4sHHIIQQIIQ")  # magic, version, flags, head bytes, attempt, run, TF, parts, missing, bytes
PART = struct.Struct("<HBBIQQQ")  # FLP, format, reserved, CRC-32C, incarnation, offset, bytes


def timeframes(file):
    """Yields (run, TF, {FLP: payload}, [missing FLPs]) for each TF of an open file."""
    while fixed := file.read(HEAD.size):
        magic, version, _, head_bytes, _, run, tf, parts, missing, _ = HEAD.unpack(fixed)
        if (magic, version) != (b"SHTF", 1):
            raise ValueError(f"found {magic} version {version}, expected b'SHTF' version 1")
        head = file.read(head_bytes - HEAD.size)
        table = [PART.unpack_from(head, PART.size * part) for part in range(parts)]
        absent = struct.unpack_from(f"<{missing}H", head, PART.size * parts)
        payloads = {flp: file.read(size) for flp, _, _, _, _, _, size in table}
        if any(len(payloads[part[0]]) != part[6] for part in table):
            raise ValueError(f"TF {tf} is cut")
        yield run, tf, payloads, list(absent)


def check(folder):
    """Compares the closed files of a catalogue with its checksums. Returns the number of TFs in Sheaf's own format."""
    rows = sqlite3.connect(f"file:{folder}/catalogue.sqlite?mode=ro", uri=True).execute(
        "SELECT name, bytes, records, adler32 FROM files WHERE state != 'open' ORDER BY id")
    tfs = 0
    for name, size, records, adler32 in rows.fetchall():
        path = pathlib.Path(folder, name)
        found, adler = 0, 1
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found, adler = found + len(block), zlib.adler32(block, adler)
            file.seek(0)
            # The format "raw" has no TFs, and those of "stf" are for O2's readers: bytes and checksum alone.
            is_tfs = path.suffix not in (".stf", ".raw")
            count = sum(1 for _ in timeframes(file)) if is_tfs else records
        if (found, adler, count) != (size, adler32, records):
            raise ValueError(f"{path}: {found} bytes, {adler:08x}, {count} TFs; the catalogue has {size}, {adler32:08x}, {records}")
        print(f"{path}: {count} TFs, {found} bytes, Adler-32 {adler:08x}")
        tfs += count if is_tfs else 0
    return tfs


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if pathlib.Path(argument).is_dir():
            print(check(argument), "TFs")
            continue
        with open(argument, "rb") as opened:
            for run, tf, payloads, missing in timeframes(opened):
                print(f"run {run:016x} TF {tf}: {sum(map(len, payloads.values()))} bytes of {len(payloads)} FLPs, missing {missing}")
