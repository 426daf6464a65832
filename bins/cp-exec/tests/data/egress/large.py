import hashlib, random, threading
s = socket.create_connection(('registry.test', 80))
sent, got, n = hashlib.sha256(), hashlib.sha256(), 0
def send():
    r = random.Random(7)
    for _ in range(100):
        b = r.randbytes(1 << 20); sent.update(b); s.sendall(b)
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send); t.start()
while b := s.recv(1 << 18):
    got.update(b); n += len(b)
t.join(); print(n == 100 << 20, sent.digest() == got.digest())
