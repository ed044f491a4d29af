"""A client's connection by WebSocket: handshake first, then MQTT's bytes in and out of frames."""

from __future__ import annotations

from actors.connection import ClientConnection, ConnectionOwner, Gone
from actors.listening.arrival import Arrival
from actors.listening.options import ENCRYPTED
from gateway.transport.handshake import Handshake
from gateway.transport.websocket import NORMAL, FrameReader, WebSocketError, close_frame, frame


class WebSocketConnection(ClientConnection):
    """The time that the handshake takes is part of that until CONNECT; nothing is written before it is done."""

    __slots__ = ("_frames", "_handshake")

    def __init__(self, owner: ConnectionOwner, socket: int, arrival: Arrival, gone: Gone) -> None:
        super().__init__(owner, socket, arrival, gone)
        door = arrival.door
        self._handshake: Handshake | None = Handshake(door.ws_path, door.kind in ENCRYPTED, door.ws_origins)
        self._frames = FrameReader()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._handshake is not None:
            data = self._shake(self._handshake, data)
        frames = self._frames
        try:
            pieces = frames.feed(data)
        except WebSocketError as error:
            super().data_received(b"".join(error.pieces))
            self._give_up(close_frame(error.code), error.detail)
            return
        if pieces:
            super().data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if frames.answers and not self._closing:
            answers = b"".join(frames.answers)
            frames.answers = []
            if frames.closed:
                self._give_up(answers, "closed by the peer")
            else:
                self._send(answers)

    def write(self, data: bytes) -> None:
        self._send(frame(len(data)) + data)

    def close(self) -> None:
        if self._handshake is None and not self._closing:
            self._send(close_frame(NORMAL))
        super().close()

    def _shake(self, handshake: Handshake, data: bytes) -> bytes:
        """What follows the request, when that is complete and good."""
        answer = handshake.feed(data)
        if answer is None:
            return b""
        if not answer.opened:
            self._give_up(answer.data, answer.detail)
            return b""
        self._handshake = None
        self._send(answer.data)
        return answer.rest
