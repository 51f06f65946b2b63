"""Many TLS connections at once, through a server that hands on what they say to an echo server of this program's.

    tls.py PORT ECHO_PORT CONNECTIONS [PID]  counts the kernel threads of the process while they are open
"""

import os
import socket
import ssl
import sys
import threading


def echo(listener):
    def serve(peer):
        with peer:
            while said := peer.recv(65536):
                peer.sendall(said)

    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


port, echo_port, count = map(int, sys.argv[1:4])
listener = socket.create_server(("127.0.0.1", echo_port), backlog=1000)
threading.stack_size(256 * 1024)
threading.Thread(target=echo, args=(listener,), daemon=True).start()
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
connections = []
for number in range(count):
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    connections.append(context.wrap_socket(plain))
for turn in range(3):
    said = [b"%d of %d" % (turn, number) * 500 for number in range(count)]
    for connection, text in zip(connections, said):
        connection.sendall(text)
    for connection, text in zip(connections, said):
        heard = b""
        while len(heard) < len(text):
            more = connection.recv(65536)
            assert more, "closed"
            heard += more
        assert heard == text
if len(sys.argv) > 4:
    print(f"{count} connections, {len(os.listdir(f'/proc/{sys.argv[4]}/task'))} kernel threads")
large = os.urandom(3_000_000)
sender = threading.Thread(target=connections[0].sendall, args=(large,))
sender.start()
heard = 0
while heard < len(large):
    more = connections[0].recv(65536)
    assert more == large[heard : heard + len(more)], heard
    heard += len(more)
sender.join()
# Half of them end in TLS, half just go.
for connection in connections[::2]:
    connection.unwrap().close()
for connection in connections[1::2]:
    connection.close()
print("done", flush=True)
os._exit(0)
