# Nothing stays behind that lends rights: no mode, no device, no capability of a file.
GROUP = "leaving set-user-id and set-group-id files"
FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY

def made():
    name = fresh("file"); open(name, "w").close(); return name

def new(): return fresh("new").encode()

for bits in (0o4755, 0o2755, 0o6755, 0o4000):
    o = oct(bits)[2:]
    for name, f in [
        ("open", lambda: call(2, new(), FLAGS, bits)),
        ("openat", lambda: call(257, -100, new(), FLAGS, bits)),
        ("creat", lambda: call(85, new(), bits)),
        ("temporary", lambda: call(257, -100, b".", os.O_TMPFILE | os.O_RDWR, bits)),
        ("mknod", lambda: call(133, new(), 0o100000 | bits, 0)),
        ("mknodat", lambda: call(259, -100, new(), 0o100000 | bits, 0)),
        ("fifo", lambda: call(133, new(), 0o010000 | bits, 0)),
    ]: probe(GROUP, "set_id_%s_%s" % (name, o), "seccomp", f)
probe(GROUP, "set_id_openat2", "seccomp", lambda: call(437, -100, new(), (ctypes.c_uint64 * 3)(FLAGS, 0o4755, 0), 24))

def flagged(flag):
    fd = os.open(made(), os.O_RDONLY)
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", flag)); fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0))

BOTH = "seccomp capabilities"
capability = bytes([1, 0, 0, 2]) + bytes([0, 0x20, 0, 0]) + bytes(12)
for name, layers, f in [
    ("character", BOTH, lambda: os.mknod(fresh(), 0o020666, os.makedev(1, 3))),
    ("block", BOTH, lambda: os.mknod(fresh(), 0o060666, os.makedev(8, 0))),
    ("whiteout", "seccomp", lambda: os.mknod(fresh(), 0o020000, 0)),
    ("character_at", BOTH, lambda: call(259, -100, new(), 0o020666, os.makedev(1, 5))),
    ("file_capability", "capabilities", lambda: os.setxattr(made(), "security.capability", capability)),
    ("file_capability_of_descriptor", "capabilities", lambda: os.setxattr(os.open(made(), os.O_RDWR), "security.capability", capability)),
    ("trusted_attribute", "capabilities", lambda: os.setxattr(made(), "trusted.overlay.opaque", b"y")),
    ("immutable", "capabilities", lambda: flagged(0x10)),
    ("append_only", "capabilities", lambda: flagged(0x20)),
    ("another_owner", "capabilities", lambda: os.chown(made(), 4711, 4711)),
    ("another_group", "capabilities", lambda: os.chown(made(), -1, 4711)),
]: probe("leaving devices, file capabilities and other owners", "leave_" + name, layers, f, "root")

# What was written is not executed.
def copied(directory):
    # Random, because another user's run may have left a file with the same process id.
    name = "%s/%s-%s" % (directory, fresh("true"), os.urandom(8).hex())
    subprocess.check_call(["cp", "/bin/true", name]); os.chmod(name, 0o755); return name

def executes(words):
    try: subprocess.check_call(words, stderr=-3)
    finally: os.remove(words[-1])

def script():
    name = fresh("script"); open(name, "w").write("#!/bin/sh\nexit 0\n"); os.chmod(name, 0o755); return os.path.abspath(name)

def mapped(path):
    with open(path, "rb") as f: mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)

def library():
    name = fresh("lib") + ".so"; open(name, "wb").write(open("/lib/x86_64-linux-gnu/libm.so.6", "rb").read()); ctypes.CDLL(os.path.abspath(name))

LOADER = "/lib64/ld-linux-x86-64.so.2"
for name, layers, f in [
    ("work", "mount landlock", lambda: executes([copied(os.getcwd())])),
    ("temporary", "mount landlock", lambda: executes([copied("/tmp")])),
    ("shared_memory", "mount landlock", lambda: executes([copied("/dev/shm")])),
    ("script", "mount landlock", lambda: executes([script()])),
    ("loader", "mount", lambda: executes([LOADER, copied(os.getcwd())])),
    ("loader_temporary", "mount", lambda: executes([LOADER, copied("/tmp")])),
    ("mapped", "mount", lambda: mapped(copied(os.getcwd()))),
    ("library", "mount", library),
    ("link", "mount landlock", lambda: (os.symlink(copied(os.getcwd()), "l" + ME), executes(["./l" + ME]))),
    ("descriptor", "mount landlock", lambda: child(lambda: os.execve(os.open(copied(os.getcwd()), os.O_RDONLY), ["x"], {}))),
    ("own_root", "mount landlock", lambda: executes(["/proc/self/root" + copied(os.getcwd())])),
]: probe("executing what was written", "execute_" + name, layers, f)

def in_memory(flags):
    fd = call(319, b"x", flags); os.write(fd, open("/bin/true", "rb").read())
    child(lambda: os.execve(fd, ["x"], {}))

for name, f in [("memory", lambda: in_memory(0)), ("sealed", lambda: in_memory(2)), ("executable", lambda: in_memory(0x10))]:
    probe("executing a file in memory", "memory_" + name, "seccomp", f)
