import socket
for host, port in [('loop', PORT), ('six', PORT), ('meta', 80), ('ten', 443), ('listed', PORT)]:
    try:
        with socket.create_connection((host + '.test', port), 5) as s:
            s.sendall(b'x'); print(host, s.recv(1))
    except OSError: print(host, 'denied')
