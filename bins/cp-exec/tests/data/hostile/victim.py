# Runs outside, as whoever runs the tests: everything that a command could look for beyond its sandbox.
import ctypes, json, os, socket, sys, threading, time
out, tag = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(4, 1, 0, 0, 0)

def serve(family, kind, address):
    s = socket.socket(family, kind)
    s.bind(address)
    if kind == socket.SOCK_STREAM:
        s.listen(64)
        def accept():
            while True:
                c, _ = s.accept()
                c.sendall(b"hello")
                c.close()
        threading.Thread(target=accept, daemon=True).start()
    return s

kept = [serve(socket.AF_UNIX, socket.SOCK_STREAM, out + "/socket"),
        serve(socket.AF_UNIX, socket.SOCK_DGRAM, out + "/datagrams"),
        serve(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + tag),
        serve(socket.AF_UNIX, socket.SOCK_DGRAM, "\0" + tag + "-datagrams"),
        serve(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        serve(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        serve(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
        serve(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 0))]
os.chmod(out + "/socket", 0o777)
os.chmod(out + "/datagrams", 0o777)
number = os.getpid()
shm = libc.shmget(number, 4096, 0o1666)
sem = libc.semget(number, 1, 0o1666)
queue = libc.msgget(number, 0o1666)
# Small: all queues of a user together have an end.
posix = libc.mq_open(("/" + tag).encode(), 0o102, 0o666, (ctypes.c_long * 8)(0, 1, 8))
if min(shm, sem, queue, posix) < 0: sys.exit("no object to share")
name = "/dev/shm/" + tag
with open(name, "w") as f: f.write("the secret")
secret = os.open(out + "/secret", os.O_RDWR)
word = ctypes.create_string_buffer(b"the secret")
os.chdir(out)
print(json.dumps({
    "pid": number, "outside": out, "tag": tag, "fd": secret, "address": ctypes.addressof(word), "shm_file": name,
    "tcp": kept[4].getsockname()[1], "udp": kept[5].getsockname()[1],
    "tcp6": kept[6].getsockname()[1], "udp6": kept[7].getsockname()[1], "key": number,
}), flush=True)
sys.stdin.read()
libc.shmctl(shm, 0, None); libc.semctl(sem, 0, 0); libc.msgctl(queue, 0, None)
libc.mq_unlink(("/" + tag).encode())
os.unlink(name)
