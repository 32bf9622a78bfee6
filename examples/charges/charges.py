#!/usr/bin/env python3
"""A service that knows nothing of idempotency: each POST to /charges makes a charge, GET lists them.

    python3 charges.py [PORT]

It is what docs/http-idempotency.md puts `ratchet proxy` in front of. Only the standard library.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

charges = []
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with lock:
            self.answer(200, charges)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            charge = {"id": len(charges) + 1, "amount": asked["amount"]}
            charges.append(charge)
        self.answer(201, charge)

    def answer(self, status, value):
        body = (json.dumps(value) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 3000), Handler)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
