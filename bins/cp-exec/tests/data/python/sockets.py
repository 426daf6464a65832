import socket
def itself():
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0)); a.settimeout(5)
    a.sendto(b"x", a.getsockname()); assert a.recv(1) == b"x"
for name, f in [
    ("itself", itself),
    ("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    ("tcp", lambda: socket.create_server(("127.0.0.1", 0))),
    ("udp6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)),
    ("unix", lambda: socket.socketpair()),
    ("host", lambda: socket.create_connection(("127.0.0.1", PORT), 2)),
    ("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    ("vsock", lambda: socket.socket(40, socket.SOCK_STREAM)),
    ("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    ("alg", lambda: socket.socket(38, 5)),
]: attempt(name, f)
