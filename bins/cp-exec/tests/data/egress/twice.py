import socket, time
for _ in range(20):
    with socket.create_connection(('registry.test', 80), 5) as s:
        s.sendall(b'x'); assert s.recv(1) == b'x'
    time.sleep(.02)
