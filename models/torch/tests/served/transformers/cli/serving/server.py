# SPDX-License-Identifier: Apache-2.0
"""Stand-in: answers POST with the tokens of one request, and GET with how many graphs the server made itself."""
import http.server
import json

from ...generation.continuous_batching.model_runner import ModelRunner
from .utils import GenerationState  # noqa: F401


def build_server(model_manager, chat_handler, generation_state, enable_cors=False):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({"own_graphs": ModelRunner.own_graphs})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(chat_handler.handle_request(body))

        def answer(self, value):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *what):
            pass

    return Handler
