# What leads out of the sandbox, or to the kernel: one call each, with its control outside.
NAMESPACES = [("mount", 0x20000), ("cgroup", 0x2000000), ("uts", 0x4000000), ("ipc", 0x8000000),
              ("user", 0x10000000), ("pid", 0x20000000), ("network", 0x40000000), ("time", 0x80)]
GROUP = "making and joining namespaces"
BOTH = "seccomp capabilities"

def cloned(flags):
    pid = call(56, flags | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)

def cloned3(flags):
    fields = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, 17)
    pid = call(435, fields, 88)
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)

for name, flag in NAMESPACES:
    layers, needs = ("seccomp", "") if name == "user" else (BOTH, "root")
    probe(GROUP, "unshare_" + name, layers, lambda: call(272, flag), needs)
    probe(GROUP, "clone_" + name, layers, lambda: cloned(flag), needs) if name != "time" else None
probe(GROUP, "clone3_user", "seccomp", lambda: cloned3(0x10000000))
probe(GROUP, "unshare_user_and_mount", "seccomp", lambda: call(272, 0x10020000))
probe(GROUP, "setns", "seccomp", lambda: reaches(308, os.open("/dev/null", os.O_RDONLY), 0))
probe(GROUP, "setns_of_another", "seccomp pid capabilities", lambda: call(308, os.open("/proc/%d/ns/uts" % V["pid"], os.O_RDONLY), 0), "root")

GROUP = "changing the view of the file system"
def place():
    name = fresh("place"); os.mkdir(name); return name.encode()

def mounted(kind):
    name = place(); call(165, b"none", name, kind, 0, None); call(166, name, 2)

def bound():
    name = place(); call(165, b"/usr", name, None, 0x1000, None); call(166, name, 2)

def opened_tree():
    call(428, -100, b"/", 1)

for name, f in [
    ("mount", lambda: mounted(b"tmpfs")),
    ("mount_proc", lambda: mounted(b"proc")),
    ("bind", bound),
    ("remount", lambda: reaches(165, None, place(), None, 0x1020, None)),
    ("chroot", lambda: call(161, place())),
    ("open_tree", opened_tree),
    ("fsopen", lambda: call(430, b"tmpfs", 0)),
]: probe(GROUP, "view_" + name, BOTH, f, "root")
# Of these the kernel looks at the arguments first, and at who asks later.
LOOKED_AT = ("umount", "fsconfig", "open_by_handle")
for name, number, arguments in [
    ("umount", 166, (b"/nothing-there", 0)), ("pivot_root", 155, (b"/nothing-there", b"/nothing-there")),
    ("move_mount", 429, (-1, b"", -1, b"", 0x44)), ("fsconfig", 431, (-1, 6, 0, 0, 0)), ("fsmount", 432, (-1, 0, 0)),
    ("fspick", 433, (-100, b"/nothing-there", 0)), ("mount_setattr", 442, (-100, b"/nothing-there", 0, bytes(32), 32)),
    ("open_by_handle", 304, (-1, struct.pack("Ii", 8, 1) + bytes(8), 0)),
]: probe(GROUP, "view_" + name, "seccomp" if name in LOOKED_AT else BOTH, lambda: reaches(number, *arguments), "root")

GROUP = "other processes"
P = V["pid"]
def iovec(address, length): return (ctypes.c_uint64 * 2)(address, length)

def read_memory():
    here = ctypes.create_string_buffer(10)
    call(310, P, iovec(ctypes.addressof(here), 10), 1, iovec(V["address"], 10), 1, 0)
    same(here.raw, b"the secret")

def written_memory():
    here = ctypes.create_string_buffer(b"the secret")
    call(311, P, iovec(ctypes.addressof(here), 10), 1, iovec(V["address"], 10), 1, 0)

def attached():
    call(101, 16, P, 0, 0); os.waitpid(P, 0x40000000); call(101, 17, P, 0, 0); os.kill(P, signal.SIGCONT)

def seized():
    call(101, 0x4206, P, 0, 0)

def through_mem():
    fd = os.open("/proc/%d/mem" % P, os.O_RDONLY); same(os.pread(fd, 10, V["address"]), b"the secret")

def taken_descriptor():
    fd = call(438, call(434, P, 0), V["fd"], 0); same(os.pread(fd, 10, 0), b"the secret")

def limits():
    call(302, P, 7, None, ctypes.create_string_buffer(16))

PROC = "/proc/%d" % P
for name, layers, f in [
    ("signal", "pid landlock", lambda: os.kill(P, 0)),
    ("thread_signal", "pid landlock", lambda: call(234, P, P, 0)),
    ("queued_signal", "pid landlock", lambda: call(129, P, 0, ctypes.create_string_buffer(struct.pack("iii", 0, 0, -1) + bytes(116)))),
    ("pidfd", "pid", lambda: call(434, P, 0)),
    ("pidfd_signal", "pid landlock", lambda: call(424, call(434, P, 0), 0, None, 0)),
    ("ptrace_attach", "pid seccomp landlock", attached),
    ("ptrace_seize", "pid seccomp landlock", seized),
    ("read_memory", "pid seccomp landlock", read_memory),
    ("write_memory", "pid seccomp landlock", written_memory),
    ("mem_file", "mount+pid landlock", through_mem),
    ("descriptor", "pid seccomp landlock", taken_descriptor),
    ("compare", "pid seccomp landlock", lambda: call(312, os.getpid(), P, 0, 0, V["fd"])),
    ("limits", "pid", limits),
    ("priority", "pid", lambda: os.setpriority(os.PRIO_PROCESS, P, os.getpriority(os.PRIO_PROCESS, P))),
    ("affinity", "pid", lambda: os.sched_getaffinity(P)),
    ("scheduler", "pid", lambda: os.sched_getscheduler(P)),
    ("session", "pid", lambda: os.getsid(P)),
    ("command_line", "mount+pid", lambda: open(PROC + "/cmdline").read()),
    ("environment", "mount+pid landlock", lambda: open(PROC + "/environ").read()),
    ("maps", "mount+pid landlock", lambda: open(PROC + "/maps").read()),
    ("list", "mount+pid", lambda: os.listdir(PROC + "/fd")),
    ("root", "mount+pid landlock", lambda: open(PROC + "/root" + OUT + "/secret").read()),
    ("directory", "mount+pid landlock", lambda: open(PROC + "/cwd/secret").read()),
    ("open_file", "mount+pid landlock", lambda: open(PROC + "/fd/%d" % V["fd"]).read()),
    ("namespace", "mount+pid landlock", lambda: os.stat(PROC + "/ns/mnt")),
]: probe(GROUP, "process_" + name, layers, f)
# Also a process of its own: what a filter refuses it refuses for all.
def traced_child():
    pid = os.fork()
    if pid == 0:
        try: call(101, 0, 0, 0, 0)
        except OSError as e: os._exit(e.errno)
        os._exit(0)
    code = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    if code: raise OSError(code, "traceme")
def own_memory():
    one, other = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
    call(310, os.getpid(), iovec(ctypes.addressof(one), 8), 1, iovec(ctypes.addressof(other), 8), 1, 0)
probe(GROUP, "process_own_ptrace", "seccomp", traced_child)
probe(GROUP, "process_own_memory", "seccomp", own_memory)
probe(GROUP, "process_madvise", "seccomp", lambda: reaches(440, -1, 0, 0, 20, 0))

GROUP = "objects shared by key or name"
KEY = V["key"]
for name, layers, f in [
    ("memory", "ipc", lambda: call(29, KEY, 4096, 0)),
    ("semaphore", "ipc", lambda: call(64, KEY, 1, 0)),
    ("queue", "ipc", lambda: call(68, KEY, 0)),
    ("memory_file", "mount landlock", lambda: open(V["shm_file"]).read()),
    ("message_queue", "ipc", lambda: call(240, V["tag"].encode(), 2, 0, None)),
]: probe(GROUP, "shared_" + name, layers, f)
probe(GROUP, "shared_host_name", "capabilities", lambda: call(170, socket.gethostname().encode(), len(socket.gethostname())), "root")

GROUP = "interfaces of the kernel"
attribute = ctypes.create_string_buffer(struct.pack("IIII", 1, 4, 4, 1) + bytes(112))
perf = ctypes.create_string_buffer(struct.pack("IIQQQQQ", 1, 112, 1, 0, 0, 0, 0x60) + bytes(72))
for name, layers, needs, f in [
    ("io_uring", "seccomp", "", lambda: call(425, 1, ctypes.create_string_buffer(120))),
    ("io_uring_enter", "seccomp", "", lambda: reaches(426, -1, 0, 0, 0, 0, 0)),
    ("io_uring_register", "seccomp", "", lambda: reaches(427, -1, 0, 0, 0)),
    ("bpf", BOTH, "root", lambda: call(321, 0, attribute, 72)),
    ("perf", "seccomp", "", lambda: call(298, perf, 0, -1, -1, 0)),
    ("userfaultfd", "seccomp", "", lambda: call(323, 1)),
    ("keyctl", "seccomp", "", lambda: call(250, 0, -3, 1, 0, 0)),
    ("add_key", "seccomp", "", lambda: call(248, b"user", b"hostile", b"x", 1, -2)),
    ("request_key", "seccomp", "", lambda: reaches(249, b"user", b"nothing-there", None, -2)),
    ("personality", "seccomp", "", lambda: call(135, 0x0040000)),
    ("x32", "seccomp", "", lambda: reaches(0x40000000 + 39)),
    ("terminal_input", "seccomp", "", lambda: reaches(16, os.open("/dev/null", os.O_RDWR), 0x5412, b"x")),
    ("terminal_input_high_half", "seccomp", "", lambda: reaches(16, os.open("/dev/null", os.O_RDWR), ctypes.c_uint64(0x100005412), b"x")),
    ("terminal_paste", "seccomp", "", lambda: reaches(16, os.open("/dev/null", os.O_RDWR), 0x541c, b"x")),
    ("log", BOTH, "root", lambda: call(103, 10, None, 0)),
    ("settimeofday", "seccomp", "root", lambda: reaches(164, struct.pack("ll", 0, 10**7), None)),
    ("clock_settime", "seccomp", "root", lambda: reaches(227, 1, struct.pack("ll", 0, 0))),
    ("adjtimex", "seccomp", "", lambda: call(159, ctypes.create_string_buffer(208))),
    ("clock_adjtime", "seccomp", "", lambda: call(305, 0, ctypes.create_string_buffer(208))),
    ("load_module", BOTH, "root", lambda: reaches(313, -1, b"", 0)),
    ("delete_module", BOTH, "root", lambda: reaches(176, b"nothing-there", 0)),
    ("swapon", BOTH, "root", lambda: reaches(167, b"/nothing-there", 0)),
    ("swapoff", BOTH, "root", lambda: reaches(168, b"/nothing-there")),
    ("accounting", BOTH, "root", lambda: reaches(163, b"/nothing-there")),
    ("kexec", BOTH, "root", lambda: reaches(246, 0, 99, None, 0)),
    ("kexec_file", BOTH, "root", lambda: reaches(320, -1, -1, 0, None, 0)),
    ("reboot", BOTH, "root", lambda: reaches(169, 1, 2, 3, None)),
    ("ports", "capabilities", "root", lambda: call(172, 3)),
    ("higher_priority", "capabilities", "root", lambda: os.nice(-5)),
    ("real_time", "capabilities", "root", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
    ("another_user", "capabilities", "root", lambda: os.setuid(4711)),
    ("another_group", "capabilities", "root", lambda: os.setgroups([4711])),
    ("all_files_of_a_mount", "capabilities", "root", lambda: call(300, 0x10, 0)),
]: probe(GROUP, "kernel_" + name, layers, f, needs)

def second_table():
    # getpid by the table of 32-bit programs.
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    same(ctypes.CFUNCTYPE(ctypes.c_int)(address)(), os.getpid())
probe(GROUP, "kernel_32_bit_calls", "seccomp", second_table)

GROUP = "rights gained by executing"
probe(GROUP, "rights_no_new_privs", "no_new_privs", lambda: same(libc.prctl(39, 0, 0, 0, 0), 0))
