"""Decompress and decode the contents of a file, and reject files that are not tables."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib

SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"\xd0\xcf\x11\xe0": "an old Excel or Office file",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "a file packed by bzip2",
    b"\xfd7zXZ": "a file packed by xz",
    b"7z\xbc\xaf": "a 7-Zip archive",
    b"\x28\xb5\x2f\xfd": "a file packed by Zstandard",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "an array of NumPy",
    b"ARROW1": "an Arrow or Feather file",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
}
EXPORT = "export it as CSV"
CURES = {
    "a zip archive": "unpack it",
    "a 7-Zip archive": "unpack it",
    "a file packed by bzip2": "unpack it, or pack it by gzip",
    "a file packed by xz": "unpack it, or pack it by gzip",
    "a file packed by Zstandard": "unpack it, or pack it by gzip",
    "an Excel file": "save the sheet as CSV",
    "an old Excel or Office file": "save the sheet as CSV",
    "an SQLite database": "export a table of it as CSV",
    "an array of NumPy": "pandas.DataFrame(...).to_csv(...) makes a table of it",
    "an Arrow or Feather file": "save it as Parquet",
}


def unpacked(name: str, data: bytes) -> bytes:
    """Return the bytes of a file, decompressed if it is a gzip file.

    Raises
    ------
    ValueError
        If the file is damaged or empty, or has another format, which the message names.
    """
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise ValueError(
                f"{name} is damaged: the gzip file ends too early; copy or download it again"
            ) from None
        except (OSError, zlib.error) as error:
            raise ValueError(
                f"{name} is damaged: gzip can't unpack it ({error}); copy or download it again"
            ) from None
        if not data.strip():
            raise ValueError(f"{name} can't be read as a table: it is empty")
    elif name.endswith(".gz"):
        raise ValueError(f"{name} can't be read as a table: its name ends in .gz, but gzip did not pack it")
    for signature, what in SIGNATURES.items():
        if data.startswith(signature):
            excel = what == "a zip archive" and b"xl/" in data
            _refuse(name, "an Excel file" if excel else what)
    return data


def text_of(name: str, data: bytes) -> tuple[str, list[str]]:
    """Return the text of a file, with line feeds between the lines, and a note if its encoding was guessed.

    Raises
    ------
    ValueError
        If the file is empty, or contains HTML, XML, JSON or binary data.
    """
    notes = []
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", errors="replace")
            notes.append("the text is not UTF-8: it was read as Windows-1252 (Latin-1)")
    if "\0" in text:
        _refuse(name, "binary data, or text in UTF-16 without a byte order mark")
    if not text.strip():
        raise ValueError(f"{name} can't be read as a table: it is empty")
    start = text[:1000].lstrip().lower()
    if start.startswith(("<!doctype html", "<html")):
        _refuse(name, "an HTML page")
    if start.startswith("<?xml"):
        _refuse(name, "an XML file")
    if start.startswith(("{", "[")) and _is_json(text):
        _refuse(name, "a JSON file")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _is_json(text: str) -> bool:
    """Whether a text is JSON, or its first line is JSON."""
    for part in (text, text.strip().partition("\n")[0]):
        try:
            json.loads(part)
        except ValueError:
            continue
        return True
    return False


def _refuse(name: str, what: str) -> None:
    raise ValueError(f"{name} is no table but {what}: {CURES.get(what, EXPORT)}")
