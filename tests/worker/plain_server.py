# SPDX-License-Identifier: Apache-2.0
"""As much of http.server as engine.py needs, with the same names: http.server takes longer to import than all else of an engine's start."""
import socketserver


class Headers:
    """Names as they came; they are found in capitals or not."""

    def __init__(self):
        self.pairs = []

    def get(self, name, default=None):
        return next((value for key, value in self.pairs if key.lower() == name.lower()), default)

    def __getitem__(self, name):
        return self.get(name)

    def keys(self):
        return [key for key, _ in self.pairs]


class Handler(socketserver.StreamRequestHandler):
    """do_GET, do_POST and the like answer; a connection serves many requests."""

    def handle(self):
        self.close_connection = False
        try:
            while not self.close_connection and self.read_head():
                answer = getattr(self, "do_" + self.command, None)
                if answer:
                    answer()
                else:
                    self.close_connection = True
                    self.send_response(501)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
        except (BrokenPipeError, ConnectionResetError):
            pass # whoever asked has gone

    def read_head(self):
        """False: there is no other request."""
        line = self.rfile.readline(65537)
        words = line.decode("latin-1").split()
        if len(words) != 3:
            return False
        self.command, self.path, version = words
        self.headers, self.lines = Headers(), []
        while (line := self.rfile.readline(65537)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").rstrip("\r\n").partition(":")
            self.headers.pairs.append((name, value.strip()))
        kept = self.headers.get("Connection", "").lower()
        self.close_connection = kept == "close" or (version == "HTTP/1.0" and kept != "keep-alive")
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def send_response(self, status):
        self.lines = [f"HTTP/1.1 {status} {'OK' if status == 200 else 'Status'}"]

    def send_header(self, name, value):
        self.lines.append(f"{name}: {value}")
        if name.lower() == "connection":
            self.close_connection = value.lower() == "close"

    def end_headers(self):
        self.wfile.write("".join(line + "\r\n" for line in self.lines + [""]).encode("latin-1"))


class Server(socketserver.ThreadingTCPServer):
    """A thread for each connection, which ends with the process."""
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024
