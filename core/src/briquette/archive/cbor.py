"""Deterministic CBOR, the subset that archive headers use (RFC 8949, section 4.2).

Integers of up to 64 bits, byte and text strings, arrays, maps with text keys, false, true, null, and floats,
which always take eight bytes. One value has one encoding, and the decoder refuses every other one, so that
``dumps(loads(b)) == b`` for whatever it accepts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, TypeAlias

from ..errors import ArchiveError, UsageError

Value: TypeAlias = "None | bool | int | float | str | bytes | list[Value] | dict[str, Value]"

#: arrays and maps may be nested this deep
MAX_DEPTH: Final = 16

_FLOAT = struct.Struct(">d")
_NAN = b"\x7f\xf8" + bytes(6)
#: the smallest argument that needs 1, 2, 4, 8 bytes
_LEAST = (24, 1 << 8, 1 << 16, 1 << 32)


def dumps(obj: object) -> bytes:
    """Return the encoding of `obj`.

    Parameters
    ----------
    obj : None, bool, int, float, str, bytes, list, tuple or mapping with str keys
        Tuples are written as arrays. Every NaN is written as the one quiet NaN.

    Raises
    ------
    UsageError
        For another type, an integer of more than 64 bits, or nesting deeper than `MAX_DEPTH`.
    """
    out = bytearray()
    _write(out, obj, 0)
    return bytes(out)


def loads(buf: bytes | bytearray | memoryview) -> Value:
    """Return the one value that `buf` encodes.

    Raises
    ------
    ArchiveError
        For anything `dumps` would not have written: bytes that end early or follow the value, a length beyond
        the input, a repeated or misplaced key, a number not in its shortest form, an unknown type.
    """
    data = bytes(buf)
    try:
        value, at = _read(data, 0, 0)
    except IndexError:
        raise ArchiveError(f"CBOR: the input ends at byte {len(data)}, where a value should start") from None
    except UnicodeDecodeError as exc:
        raise ArchiveError(f"CBOR: the text {bytes(exc.object[:40])!r} is not UTF-8: {exc.reason}") from None
    if at != len(data):
        raise ArchiveError(f"CBOR: {len(data) - at} bytes follow the value, which ends at byte {at}")
    return value


def _head(out: bytearray, major: int, n: int) -> None:
    if n < 24:
        out.append(major | n)
    elif n < 1 << 8:
        out += bytes((major | 24, n))
    elif n < 1 << 16:
        out.append(major | 25)
        out += n.to_bytes(2, "big")
    elif n < 1 << 32:
        out.append(major | 26)
        out += n.to_bytes(4, "big")
    elif n < 1 << 64:
        out.append(major | 27)
        out += n.to_bytes(8, "big")
    else:
        raise UsageError(f"an integer of {n.bit_length()} bits cannot be archived; at most 64 bits can")


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"text {value!r} cannot be archived: {exc}") from exc


def _write(out: bytearray, obj: object, depth: int) -> None:
    if isinstance(obj, str):
        body = _utf8(obj)
        _head(out, 0x60, len(body))
        out += body
    elif obj is None:
        out.append(0xF6)
    elif isinstance(obj, bool):
        out.append(0xF5 if obj else 0xF4)
    elif isinstance(obj, int):
        _head(out, 0x20 if obj < 0 else 0x00, -1 - obj if obj < 0 else obj)
    elif isinstance(obj, float):
        out.append(0xFB)
        out += _NAN if obj != obj else _FLOAT.pack(obj)
    elif isinstance(obj, bytes):
        _head(out, 0x40, len(obj))
        out += obj
    elif depth >= MAX_DEPTH:
        raise UsageError(f"values nested more than {MAX_DEPTH} deep, or of type {type(obj).__name__}, cannot be archived")
    elif isinstance(obj, list | tuple):
        _head(out, 0x80, len(obj))
        for item in obj:
            _write(out, item, depth + 1)
    elif isinstance(obj, Mapping):
        _head(out, 0xA0, len(obj))
        keyed = []
        for key, value in obj.items():
            if not isinstance(key, str):
                raise UsageError(f"map key {key!r} is a {type(key).__name__}; keys must be text")
            body = _utf8(key)
            keyed.append((len(body), body, value))
        keyed.sort(key=lambda entry: entry[:2])  # which is the order of the encoded keys
        for size, body, value in keyed:
            _head(out, 0x60, size)
            out += body
            _write(out, value, depth + 1)
    else:
        raise UsageError(
            f"a value of type {type(obj).__name__} cannot be archived ({obj!r}); "
            "use None, bool, int, float, str, bytes, or lists and maps of them"
        )


def _read(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    first = data[at]
    if 0x60 <= first < 0x78:  # short text and small numbers are most of what a header holds
        end = at + first - 0x5F
        return _text(data, at + 1, end), end
    if first < 24:
        return first, at + 1
    start = at
    at += 1
    major, n = first >> 5, first & 31
    if n > 27:
        raise ArchiveError(f"CBOR: byte {start} is 0x{first:02x}, an indefinite length or a reserved form")
    if n > 23:
        form = n - 24
        end = at + (1 << form)
        if end > len(data):
            raise ArchiveError(f"CBOR: the value at byte {start} needs {end - len(data)} bytes more than there are")
        if major == 7:
            return _float(data, start, at), end
        n = int.from_bytes(data[at:end], "big")
        if n < _LEAST[form]:
            raise ArchiveError(f"CBOR: the number {n} at byte {start} is not in its shortest form")
        at = end
    if major == 0:
        return n, at
    if major == 1:
        return -1 - n, at
    if major < 4:
        end = at + n
        if major == 3:
            return _text(data, at, end), end
        if end > len(data):
            raise ArchiveError(f"CBOR: a string of {n} bytes at byte {start} reaches beyond the input of {len(data)} bytes")
        return data[at:end], end
    if major < 6:
        if depth >= MAX_DEPTH:
            raise ArchiveError(f"CBOR: the value at byte {start} is nested more than {MAX_DEPTH} deep")
        if n * (major - 3) > len(data) - at:  # an item takes a byte at least, an entry of a map two
            raise ArchiveError(f"CBOR: a collection of {n} at byte {start} reaches beyond the input of {len(data)} bytes")
        return _array(data, at, n, depth + 1) if major == 4 else _map(data, at, n, depth + 1)
    if major == 7 and 20 <= n <= 22:
        return (False, True, None)[n - 20], at
    raise ArchiveError(f"CBOR: byte {start} is 0x{first:02x}, a tag or simple value that headers do not use")


def _text(data: bytes, at: int, end: int) -> str:
    if end > len(data):
        raise ArchiveError(f"CBOR: a text of {end - at} bytes at byte {at} reaches beyond the input of {len(data)} bytes")
    return data[at:end].decode()


def _float(data: bytes, start: int, at: int) -> float:
    if data[start] != 0xFB:
        raise ArchiveError(f"CBOR: byte {start} is 0x{data[start]:02x}; floats must take eight bytes")
    value: float = _FLOAT.unpack_from(data, at)[0]
    if value != value and data[at : at + 8] != _NAN:
        raise ArchiveError(f"CBOR: the NaN at byte {start} is not in its one form")
    return value


def _array(data: bytes, at: int, n: int, depth: int) -> tuple[Value, int]:
    items: list[Value] = []
    for _ in range(n):
        item, at = _read(data, at, depth)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, n: int, depth: int) -> tuple[Value, int]:
    items: dict[str, Value] = {}
    last = b""
    for _ in range(n):
        start = at
        key, at = _read(data, at, depth)
        if not isinstance(key, str):
            raise ArchiveError(f"CBOR: the map key at byte {start} is not text")
        encoded = data[start:at]
        if encoded <= last:
            fault = "twice" if encoded == last else "out of order"
            raise ArchiveError(f"CBOR: the map key {key!r} at byte {start} stands {fault}")
        last = encoded
        items[key], at = _read(data, at, depth)
    return items, at
