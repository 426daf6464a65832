import stat, sys
flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
count = iter(range(1000))
def made(is_directory):
    name = "made-%d-%d" % (os.getpid(), next(count))
    if is_directory: os.mkdir(name)
    else: os.close(os.open(name, flags, 0o644))
    return name
def linked(name):
    os.symlink(name, name + "-link"); return name + "-link"
def program(words):
    subprocess.check_call(words)
def described(name, f):
    fd = os.open(name, os.O_RDONLY)
    try: f(fd)
    finally: os.close(fd)
calls = {
    "chmod": lambda name, bits: call(90, name.encode(), bits),
    "chmod_absolute": lambda name, bits: call(90, os.path.abspath(name).encode(), bits),
    "chmod_link": lambda name, bits: call(90, linked(name).encode(), bits),
    "fchmod": lambda name, bits: described(name, lambda fd: call(91, fd, bits)),
    "descriptor": lambda name, bits: described(name, lambda fd: os.chmod("/proc/self/fd/%d" % fd, bits)),
    "fchmodat": lambda name, bits: described(".", lambda fd: call(268, fd, name.encode(), bits)),
    "fchmodat2": lambda name, bits: call(452, -100, name.encode(), bits, 0),
    "not_followed": lambda name, bits: call(452, -100, name.encode(), bits, 0x100),
    "program": lambda name, bits: program(["chmod", "0%o" % bits, name]),
    "high_half": lambda name, bits: call(90, name.encode(), ctypes.c_uint64((1 << 40) | bits)),
}
for is_directory in (False, True):
    for bits in (0o4755, 0o2755, 0o6711, 0o1755, 0o700):
        for way, f in calls.items():
            name = made(is_directory)
            f(name, bits)
            print(way, "directory" if is_directory else "file", "%o" % bits, "%o" % stat.S_IMODE(os.stat(name).st_mode))
name = made(False)
tries = {
    "missing": lambda: call(90, b"missing", 0o4755),
    "closed": lambda: call(91, 99, 0o4755),
    "link_itself": lambda: call(452, -100, linked(name).encode(), 0o4755, 0x100),
    # Without a flag that makes a file, the mode counts for nothing.
    "opened": lambda: call(2, name.encode(), os.O_RDONLY, 0o6755),
    "address": lambda: call(90, 1, 0o4755),
}
# Outside it would be changed.
if len(sys.argv) == 1: tries["of_another"] = lambda: call(90, b"/usr/bin/env", 0o4755)
for what, f in tries.items():
    try: f(); print(what, "error", "-", "none")
    except OSError as error: print(what, "error", "-", errno.errorcode[error.errno])
