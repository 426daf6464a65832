import struct
def question(name, kind=1):
    labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.'))
    return b'\x12\x34\x01\0\0\x01\0\0\0\0\0\0' + labels + b'\0' + struct.pack('>HH', kind, 1)
def udp(server, name, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(5); s.sendto(question(name), (server, 53)); return s.recv(512)
def tcp(server, name):
    with socket.create_connection((server, 53), 5) as s:
        m = question(name); s.sendall(struct.pack('>H', len(m)) + m)
        f = s.makefile('rb'); return f.read(struct.unpack('>H', f.read(2))[0])
code = lambda reply: reply[3] & 15
address = lambda reply: socket.inet_ntoa(reply[-4:])
own = '127.0.0.53'
attempt('udp', lambda: (code(udp(own, 'registry.test')), code(udp(own, 'other.test'))))
attempt('tcp', lambda: (code(tcp(own, 'registry.test')), code(tcp(own, 'other.test'))))
attempt('same', lambda: address(udp(own, 'registry.test')) == address(tcp(own, 'REGISTRY.test')))
attempt('connect', lambda: ask(address(tcp(own, 'registry.test')), 80))
for server in ['8.8.8.8', '10.0.0.1', '192.0.2.1']:
    attempt('udp', lambda: udp(server, 'registry.test'))
    attempt('tcp', lambda: tcp(server, 'registry.test'))
attempt('ipv6', lambda: udp('2001:4860:4860::8888', 'registry.test', socket.AF_INET6))
