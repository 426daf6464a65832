# Nothing outside is changed, by whatever way to it.
FILE, GROUP, FILES = OUT + "/file", "writing files outside", "mount landlock"

def write(path, flags=os.O_WRONLY):
    fd = os.open(path, flags, 0o644); os.write(fd, b"changed"); os.close(fd)

def through_link(to):
    name = fresh("to"); os.symlink(to, name); write(name, os.O_WRONLY | os.O_CREAT)

def temporary():
    fd = os.open(OUT, os.O_TMPFILE | os.O_RDWR, 0o600)
    call(265, -100, b"/proc/self/fd/%d" % fd, -100, fresh_out().encode(), 0x400)

def given(f):
    name = fresh(); open(name, "w").close(); f(name, fresh_out())

def taken(f):
    name = fresh_out(); open(name, "w").close(); f(name, fresh())

def bound():
    socket.socket(socket.AF_UNIX).bind(fresh_out())

def exchanged():
    name = fresh(); open(name, "w").close(); call(316, -100, name.encode(), -100, FILE.encode(), 2)

def mapped():
    with open(FILE, "r+b") as f: mmap.mmap(f.fileno(), 4)[0] = 65

for name, f in [
    ("mapped", mapped),
    ("create", lambda: write(fresh_out(), os.O_WRONLY | os.O_CREAT)),
    ("overwrite", lambda: write(FILE)),
    ("append", lambda: write(FILE, os.O_WRONLY | os.O_APPEND)),
    ("truncate_on_open", lambda: os.open(FILE, os.O_RDONLY | os.O_TRUNC)),
    ("truncate", lambda: os.truncate(FILE, 1)),
    ("own_root", lambda: write("/proc/self/root" + FILE)),
    ("own_directory", lambda: write("/proc/self/cwd/../outside/file")),
    ("dots", lambda: write("../outside/file")),
    ("link", lambda: through_link(FILE)),
    ("link_to_nothing", lambda: through_link(fresh_out())),
    ("relative_link", lambda: through_link("../outside/file")),
    ("temporary_file", temporary),
    ("make_directory", lambda: os.mkdir(fresh_out())),
    ("make_fifo", lambda: os.mkfifo(fresh_out())),
    ("make_link", lambda: os.symlink("x", fresh_out())),
    ("make_socket", bound),
    ("rename_out", lambda: given(os.rename)),
    ("hard_link_out", lambda: given(os.link)),
    ("rename_in", lambda: taken(os.rename)),
    ("hard_link_in", lambda: os.link(FILE, fresh())),
    ("exchange", exchanged),
    ("another_program", lambda: subprocess.check_call(["cp", "/etc/hostname", fresh_out()], stderr=-3)),
    ("ledger", lambda: write(V["cp_home"] + "/ledger/cp-exec.jsonl", os.O_WRONLY | os.O_APPEND)),
    ("policy", lambda: write(V["cp_home"] + "/config/policy.toml", os.O_WRONLY | os.O_APPEND)),
    ("key", lambda: write(V["cp_home"] + "/keys/planted", os.O_WRONLY | os.O_CREAT)),
    ("state", lambda: write(V["cp_home"] + "/state/planted", os.O_WRONLY | os.O_CREAT)),
    ("home", lambda: write(V["home"] + "/.bashrc", os.O_WRONLY | os.O_CREAT)),
]: probe(GROUP, "write_" + name, FILES, f)

probe(GROUP, "write_remove_file", FILES, lambda: os.unlink(OUT + "/spare"))
probe(GROUP, "write_remove_directory", FILES, lambda: os.rmdir(OUT + "/empty"))
for name, f in [
    ("mode", lambda: os.chmod(FILE, 0o600)),
    ("mode_by_path_descriptor", lambda: os.chmod("/proc/self/fd/%d" % os.open(FILE, os.O_PATH), 0o600)),
    ("times", lambda: os.utime(FILE, (0, 0))),
    ("owner", lambda: os.chown(FILE, os.getuid(), os.getgid())),
    ("attribute", lambda: os.setxattr(FILE, "user.x", b"x")),
    ("mode_of_directory", lambda: os.chmod(OUT, 0o755)),
]: probe("changing what files outside are", "attribute_" + name, "mount", f)

# The system and the kernel's own settings: as root, each is written with what it has.
def again(path):
    with open(path) as f: value = f.read()
    with open(path, "w") as f: f.write(value)

def passing(directory):
    name = directory + "/made-" + ME; os.mkdir(name); os.rmdir(name)

for name, f in [
    ("usr", lambda: passing("/usr")),
    ("etc", lambda: passing("/etc")),
    ("times", lambda: os.utime("/usr/lib/os-release")),
    ("library", lambda: passing("/usr/lib")),
]: probe("writing the system", "system_" + name, "mount landlock" if name != "times" else "mount", f, "root")
for name in ("core_pattern", "modprobe", "hotplug", "poweroff_cmd", "randomize_va_space", "sysrq", "pid_max", "hostname"):
    if os.path.exists("/proc/sys/kernel/" + name):
        probe("settings of the kernel", "setting_" + name, "mount landlock", lambda: again("/proc/sys/kernel/" + name), "root")
for name in ("fs/protected_hardlinks", "fs/suid_dumpable", "vm/overcommit_memory", "net/ipv4/ip_forward"):
    if os.path.exists("/proc/sys/" + name):
        probe("settings of the kernel", "setting_" + name.replace("/", "_"), "mount landlock", lambda: again("/proc/sys/" + name), "root")
probe("settings of the kernel", "setting_oom", "mount landlock capabilities", lambda: again("/proc/%d/oom_score_adj" % V["pid"]))
if V["cgroup"]:
    probe("settings of the kernel", "setting_cgroup", "mount landlock", lambda: passing(V["cgroup"]), "root")
