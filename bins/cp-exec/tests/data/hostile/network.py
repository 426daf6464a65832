# Nothing outside is spoken to. The sandbox has a loopback interface of its own.
GROUP = "speaking to the network"
def connect(family, kind, address):
    s = socket.socket(family, kind); s.settimeout(3); s.connect(address)
    if kind == socket.SOCK_STREAM: same(s.recv(5), b"hello")
    else: twice(lambda: s.send(b"x"))

def sends(family, address):
    s = socket.socket(family, socket.SOCK_DGRAM); s.connect(address); twice(lambda: s.sendto(b"x", address))

# The second datagram fails if nobody received the first one.
def twice(send): send(); time.sleep(0.1); send()

ALL, TWO = "seccomp network landlock", "seccomp network"
for name, layers, needs, f in [
    ("tcp", ALL, "", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", V["tcp"]))),
    ("tcp6", ALL, "", lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", V["tcp6"]))),
    ("udp", TWO, "", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", V["udp"]))),
    ("udp6", TWO, "", lambda: connect(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", V["udp6"]))),
    ("udp_to", TWO, "", lambda: sends(socket.AF_INET, ("127.0.0.1", V["udp"]))),
    ("udp6_to", TWO, "", lambda: sends(socket.AF_INET6, ("::1", V["udp6"]))),
    ("netlink_diagnosis", "seccomp", "", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)),
    ("netlink_events", "seccomp", "", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)),
    ("raw", "seccomp capabilities", "root", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    ("packet", "seccomp capabilities", "root", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    ("vsock", "seccomp", "", lambda: socket.socket(40, socket.SOCK_STREAM)),
    ("crypto", "seccomp", "", lambda: socket.socket(38, socket.SOCK_SEQPACKET)),
    ("high_half", "seccomp", "", lambda: os.close(call(41, ctypes.c_uint64((1 << 40) | 40), 1, 0))),
    ("interfaces", "network", "", lambda: same(len([l for l in open("/proc/net/dev") if ":" in l and "lo:" not in l]) > 0, True)),
    ("abstract_socket", "network landlock", "", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + V["tag"])),
    ("abstract_datagrams", "network landlock", "", lambda: connect(socket.AF_UNIX, socket.SOCK_DGRAM, "\0" + V["tag"] + "-datagrams")),
    ("path_socket", "mount", "", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, OUT + "/socket")),
    ("path_datagrams", "mount", "", lambda: connect(socket.AF_UNIX, socket.SOCK_DGRAM, OUT + "/datagrams")),
    ("path_socket_by_own_root", "mount", "", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "/proc/self/root" + OUT + "/socket")),
    ("program", "seccomp network landlock", "", lambda: subprocess.check_call(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', %d), 3)" % V["tcp"]], stderr=-3)),
]: probe(GROUP, "network_" + name, layers, f, needs)
