# Attacks on the socket of the supervisor; afterwards it still serves.
import os, resource, socket, subprocess, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect('/run/cp-exec/supervisor')
    return s
def ask(bytes):
    s = connect()
    try:
        s.send(bytes)
        return s.recv(1 << 20)
    except OSError: pass
def garbage():
    for bytes in (b'x', b'{', b'\xff' * 100, b'{"host":"claude"}', b'null'): assert not ask(bytes)
def with_descriptors():
    s = connect(); socket.send_fds(s, [b'{}'], [0] * 200); assert not s.recv(1)
def orphaned():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        s.connect('/run/cp-exec/supervisor')
        os._exit(0)
    os.wait()
    try:
        s.send(b'{}')
        s.recv(1)
    except OSError: pass
def closing():
    for _ in range(1000): connect().close()
def deaf():
    for _ in range(50): s = connect(); s.send(b'{}'); s.close()
held = {
    "silent": lambda: [connect() for _ in range(15)], "many": lambda: [connect() for _ in range(1000)],
    "garbage": garbage, "long": lambda: ask(b'x' * (10 << 20)), "descriptors": with_descriptors, "orphaned": orphaned,
    "closing": closing, "deaf": deaf,
}[sys.argv[1]]()
began = time.time()
served = subprocess.run(['bin/cp-exec', '--format', 'raw', '--', 'echo', 'served'], capture_output=True, text=True)
print(served.stdout.strip(), time.time() - began < 4)
