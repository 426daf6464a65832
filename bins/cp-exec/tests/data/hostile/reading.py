# What lies outside is not read, by whatever way to it.
SECRET, FILES = OUT + "/secret", "mount landlock"
here = os.getcwd()

def read(path):
    with open(path, "rb") as f:
        same(f.read(10), b"the secret")

def from_above(start):
    os.fchdir(os.open(start, os.O_RDONLY | os.O_DIRECTORY))
    for _ in range(30): os.chdir("..")
    read("." + SECRET)

def through_link(to, below=""):
    name = fresh("link"); os.symlink(to, name); read(name + below)

def chain():
    first = fresh("chain"); os.symlink(OUT, first)
    second = fresh("chain"); os.symlink(first, second)
    read(second + "/secret")

def by_path_descriptor():
    fd = os.open(SECRET, os.O_PATH); read("/proc/self/fd/%d" % fd)

def mapped():
    with open(SECRET, "rb") as f: same(mmap.mmap(f.fileno(), 10, prot=mmap.PROT_READ)[:10], b"the secret")

def sent(way):
    fd = os.open(SECRET, os.O_RDONLY)
    if way == "sendfile":
        r, w = os.pipe(); os.sendfile(w, fd, 0, 10); same(os.read(r, 10), b"the secret")
    if way == "splice":
        r, w = os.pipe(); os.splice(fd, w, 10); same(os.read(r, 10), b"the secret")
    if way == "copy":
        name = fresh(); to = os.open(name, os.O_RDWR | os.O_CREAT); os.copy_file_range(fd, to, 10); read(name)
    if way == "preadv":
        b = bytearray(10); os.preadv(fd, [b], 0); same(bytes(b), b"the secret")

def linked():
    name = fresh("hard"); os.link(SECRET, name); read(name)

def by_handle():
    fd = os.open(OUT, os.O_RDONLY)
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)); mount = ctypes.c_int()
    call(303, -100, SECRET.encode(), handle, ctypes.byref(mount), 0)
    same(os.read(call(304, fd, handle, os.O_RDONLY), 10), b"the secret")

def chroot_trick():
    # The old way out of a changed root: a directory that stays open while the root moves below it.
    up = os.open(".", os.O_RDONLY); name = fresh("jail"); os.mkdir(name); os.chroot(name); os.fchdir(up)
    for _ in range(30): os.chdir("..")
    os.chroot("."); read(SECRET)

def watched():
    fd = call(294, 0); call(254, fd, SECRET.encode(), 0x20)

def locked():
    fcntl.flock(os.open(OUT, os.O_RDONLY), fcntl.LOCK_SH)

def listed(names):
    if "secret" not in names: raise OSError(errno.ENOENT, "it is not listed")

def entries():
    fd = os.open(OUT, os.O_RDONLY | os.O_DIRECTORY); listed(os.listdir(fd))

V_PROC = "/proc/%d" % V["pid"]
for name, f in [
    ("directly", lambda: read(SECRET)),
    ("dots", lambda: read("../outside/secret")),
    ("many_dots", lambda: read("../" * 40 + SECRET[1:])),
    ("own_root", lambda: read("/proc/self/root" + SECRET)),
    ("thread_root", lambda: read("/proc/thread-self/root" + SECRET)),
    ("own_directory", lambda: read("/proc/self/cwd/../outside/secret")),
    ("fchdir", lambda: from_above(".")),
    ("fchdir_root", lambda: from_above("/proc/self/root")),
    ("link", lambda: through_link(SECRET)),
    ("relative_link", lambda: through_link("../outside/secret")),
    ("link_to_directory", lambda: through_link(OUT, "/secret")),
    ("chain_of_links", chain),
    ("path_descriptor", by_path_descriptor),
    ("mapped", mapped),
    ("sendfile", lambda: sent("sendfile")),
    ("splice", lambda: sent("splice")),
    ("copy_file_range", lambda: sent("copy")),
    ("preadv", lambda: sent("preadv")),
    ("another_program", lambda: same(subprocess.check_output(["cat", SECRET], stderr=-3), b"the secret")),
    ("shell_redirection", lambda: same(subprocess.check_output(["sh", "-c", "read x <%s || :; printf %%s \"$x\"" % SECRET], stderr=-3), b"the secret")),
    ("list", lambda: listed(os.listdir(OUT))),
    ("list_by_descriptor", entries),
    ("list_parent", lambda: listed(os.listdir("../outside"))),
    ("lock", locked),
    ("another_home", lambda: os.listdir(V["home"])),
    ("ledger_of_cp_exec", lambda: open(V["cp_home"] + "/ledger/cp-exec.jsonl").read()),
    ("policy", lambda: open(V["cp_home"] + "/config/policy.toml").read()),
    ("confirmation_key", lambda: open(V["cp_home"] + "/keys/confirm.key", "rb").read()),
]: probe("reading files outside", "read_" + name, FILES, f)
probe("reading files outside", "read_hard_link", FILES, linked)
probe("reading files outside", "read_shadow", FILES, lambda: open("/etc/shadow").read(), "root")
probe("reading files outside", "read_by_handle", "mount landlock seccomp capabilities", by_handle, "root")
probe("reading files outside", "read_chroot_trick", "mount landlock seccomp capabilities", chroot_trick, "root")

# What a name tells without being opened: Landlock does not cover it.
for name, f in [
    ("stat", lambda: os.stat(SECRET)),
    ("lstat", lambda: os.lstat(SECRET)),
    ("access", lambda: os.access(SECRET, os.F_OK) or sent("")),
    ("statfs", lambda: os.statvfs(OUT)),
    ("statx", lambda: call(332, -100, SECRET.encode(), 0, 0xfff, ctypes.create_string_buffer(256))),
    ("readlink", lambda: os.readlink(OUT + "/link")),
    ("list_attributes", lambda: os.listxattr(SECRET)),
    ("open_as_path", lambda: os.open(SECRET, os.O_PATH)),
    ("watch", watched),
    ("change_directory", lambda: os.chdir(OUT)),
    ("stat_through_link", lambda: (os.symlink(SECRET, "stat-" + ME) if not os.path.islink("stat-" + ME) else 0, os.stat("stat-" + ME))),
    ("name_to_handle", lambda: call(303, -100, SECRET.encode(), ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.byref(ctypes.c_int()), 0)),
]: probe("looking at names outside", "look_" + name, "mount", f)

# What is hidden in a directory that may be read, and the devices and views of the kernel.
for name in (".env", "sub/.env", "private/key", "private/deeper/key"):
    probe("reading what the policy hides", "hidden_" + name.replace("/", "_"), "mount", lambda: open(name).read())
probe("reading what the policy hides", "hidden_moved", "mount", lambda: (os.rename("sub/.env", fresh("seen"))))
probe("devices of the machine", "device_kmsg", "mount landlock", lambda: os.open("/dev/kmsg", os.O_RDONLY), "root")
