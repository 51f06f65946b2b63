"""Python's web server with a thread for each connection, and clients that keep theirs.

    web.py serve                       prints its port
    web.py ask PORT CONNECTIONS PID    prints how many kernel threads the server has meanwhile
"""

import http.client
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(f"you want {self.path}".encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1000


def ask(port, count, pid):
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(count)]
    for turn in range(3):
        for number, connection in enumerate(connections):
            connection.request("GET", f"/{turn}/{number}")
        for number, connection in enumerate(connections):
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"you want /%d/%d" % (turn, number))
    body = os.urandom(500_000)
    for connection in connections[:20]:
        connection.request("POST", "/", body)
        assert connection.getresponse().read() == body
    print(len(os.listdir(f"/proc/{pid}/task")))


if sys.argv[1] == "serve":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
else:
    ask(*map(int, sys.argv[2:5]))
