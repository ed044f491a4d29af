"""WebSocket frames of a client (RFC 6455), as far as MQTT has use for them: payload out, whatever the pieces that bytes come in.

The handshake is gateway.transport.handshake's.  Text, extensions and compression are refused, fragments and messages have no meaning:
MQTT is the stream of all payload [MQTT-6.0.0-2].

Always holds:
1. payload is given on as it comes: for a claimed length nothing is kept, and kept is at most one head, or one control frame;
2. the bytes given out, and the fault if there is one, do not depend on the pieces that bytes came in;
3. at most one pong is owed for each piece, and after a close or a fault nothing is read any more.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # Built without its C part.
    from websockets.utils import apply_mask

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
NOT_UTF_8: Final = 1007

CONTROL_BYTES_MAX: Final = 125

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_OPCODES: Final = frozenset((_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG))
_FIN, _RESERVED, _OPCODE, _MASKED = 0x80, 0x70, 0x0F, 0x80
_LENGTH_2, _LENGTH_8 = 126, 127
_MASK_BYTES = 4
_WHOLE = _FIN | _BINARY
_USHORT: Final = Struct(">H")
_ULONG: Final = Struct(">Q")


class WebSocketError(Exception):
    """The client broke the rules: close with this code.  `pieces`: payload that came before the fault in the same call."""

    def __init__(self, code: int, detail: str, pieces: list[bytes]) -> None:
        super().__init__(f"{detail} ({code})")
        self.code = code
        self.detail = detail
        self.pieces = pieces


class _Fault(Exception):
    def __init__(self, code: int, detail: str) -> None:
        self.code = code
        self.detail = detail


def frame(data_len: int) -> bytes:
    """The head of a binary frame of a server with so many bytes of payload."""
    return _head(_BINARY, data_len)


def close_frame(code: int) -> bytes:
    return _head(_CLOSE, 2) + _USHORT.pack(code)


def _head(opcode: int, length: int) -> bytes:
    first = _FIN | opcode
    if length < _LENGTH_2:
        return bytes((first, length))
    if length <= 0xFFFF:
        return bytes((first, _LENGTH_2)) + _USHORT.pack(length)
    return bytes((first, _LENGTH_8)) + _ULONG.pack(length)


class FrameReader:
    """What one client sends after the handshake.

    `answers`: control frames that are owed; whoever sends them empties it.  `closed`: its close frame has come, and the answer is owed.
    """

    __slots__ = ("_held", "_in_message", "_left", "_mask", "answers", "closed")

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.closed = False
        self._held = b""
        self._left = 0
        """Bytes of payload that are still to come of the frame that has begun."""
        self._mask = b""
        """Of that frame, turned so that it begins with the byte for what comes next."""
        self._in_message = False
        """The next frame of data has to be a continuation."""

    @property
    def held_bytes(self) -> int:
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """The payload in these bytes.  Raises WebSocketError, and then reads nothing any more."""
        pieces: list[bytes] = []
        if self.closed:
            return pieces
        if self._held:
            data = self._held + data
            self._held = b""
        pos, size = 0, len(data)
        try:
            while pos < size and not self.closed:
                if not self._left:
                    # Most frames are short, whole messages of their own, and all there.
                    if data[pos] == _WHOLE and pos + 8 <= size and not self._in_message:
                        second = data[pos + 1]
                        start = pos + 6 if second < _MASKED | _LENGTH_2 else pos + 8
                        end = start + (second & ~_MASKED if start == pos + 6 else data[pos + 2] << 8 | data[pos + 3])
                        if end <= size and _MASKED <= second < _MASKED | _LENGTH_8:
                            pieces.append(apply_mask(data[start:end], data[start - 4 : start]))
                            pos = end
                            continue
                    start = self._begin(data, pos, size)
                    if not start:
                        self._held = data[pos:]
                        break
                    pos = start
                    if not self._left:
                        continue
                end = min(size, pos + self._left)
                if end > pos:
                    pieces.append(self._unmasked(data[pos:end]))
                    pos = end
        except _Fault as fault:
            self.closed = True
            raise WebSocketError(fault.code, fault.detail, pieces) from None
        return pieces

    def _begin(self, data: bytes, pos: int, size: int) -> int:
        """Take the head of a frame of data, or a whole control frame; where what follows begins, 0 when it is not all there."""
        if size - pos < 2:
            return 0
        first, second = data[pos], data[pos + 1]
        opcode = first & _OPCODE
        self._check(first, second, opcode)
        length = second & ~_MASKED
        pos += 2
        if length >= _LENGTH_2:
            reads = _USHORT if length == _LENGTH_2 else _ULONG
            if size - pos < reads.size:
                return 0
            (length,) = reads.unpack_from(data, pos)
            if length >> 63:
                raise _Fault(PROTOCOL_ERROR, "a frame whose length has its highest bit set")
            pos += reads.size
        start = pos + _MASK_BYTES
        if start > size or (opcode >= _CLOSE and start + length > size):
            return 0
        self._mask = data[pos:start]
        self._left = length
        if opcode < _CLOSE:
            self._in_message = not first & _FIN
            return start
        body = self._unmasked(data[start : start + length]) if length else b""
        self._control(opcode, body)
        return start + length

    def _check(self, first: int, second: int, opcode: int) -> None:
        if first & _RESERVED:
            raise _Fault(PROTOCOL_ERROR, "a frame with reserved bits set")
        if opcode not in _OPCODES:
            raise _Fault(PROTOCOL_ERROR, f"a frame of the unknown kind {opcode}")
        if not second & _MASKED:
            raise _Fault(PROTOCOL_ERROR, "a frame without a mask")
        if opcode >= _CLOSE:
            if not first & _FIN or second & ~_MASKED > CONTROL_BYTES_MAX:
                raise _Fault(PROTOCOL_ERROR, f"a control frame in fragments, or of more than {CONTROL_BYTES_MAX} bytes")
        elif opcode == _TEXT:
            raise _Fault(UNSUPPORTED, "a text frame, where MQTT takes binary ones")  # [MQTT-6.0.0-1]
        elif (opcode == _CONTINUATION) != self._in_message:
            raise _Fault(PROTOCOL_ERROR, "a new message within another one" if self._in_message else "a continuation of no message")

    def _control(self, opcode: int, body: bytes) -> None:
        if opcode == _PING:
            # Whoever sends several at once gets an answer to the last, which is all that the RFC asks for.
            self.answers = [_head(_PONG, len(body)) + body]
        elif opcode == _CLOSE:
            answer = close_frame(_closing_code(body))
            self.closed = True
            self.answers.append(answer)

    def _unmasked(self, data: bytes) -> bytes:
        """The next bytes of the payload; turns the mask on."""
        count = len(data)
        self._left -= count
        mask = self._mask
        turn = count % _MASK_BYTES
        if turn:
            self._mask = mask[turn:] + mask[:turn]
        return apply_mask(data, mask)


def _closing_code(body: bytes) -> int:
    """What a close frame is answered with.  Raises _Fault."""
    if not body:
        return NORMAL
    if len(body) < 2:
        raise _Fault(PROTOCOL_ERROR, "a close frame of one byte")
    (code,) = _USHORT.unpack_from(body)
    if not (code in (1000, 1001, 1002, 1003) or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise _Fault(PROTOCOL_ERROR, f"a close frame with the code {code}")
    try:
        body[2:].decode()
    except UnicodeDecodeError:
        raise _Fault(NOT_UTF_8, "a close frame whose reason is not UTF-8") from None
    return int(code)
