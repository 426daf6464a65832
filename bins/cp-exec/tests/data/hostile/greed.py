import os, sys
change = sys.argv[1:]
def tried(f):
    try: return f()
    except OSError: return None
def act():
    what, one, other = change
    if what.startswith("link"): tried(lambda: os.rmdir(one))
    if what == "mkdir": os.mkdir(one)
    if what == "rename": os.rename(one, other)
    if what == "link": os.symlink(os.path.abspath(other), one)
    if what == "link_out": os.symlink("OUTSIDE", one)
    if what == "link_up": os.symlink("../outside", one)
    if what == "link_home": os.symlink("CPHOME", one)
    if what == "hard": os.link(one + "/file", other + "/hard")
    if what == "close": os.chmod(one, 0o311)
    if what == "open": os.chmod(one, 0o755)
    if what == "fifo": os.mkfifo(one + "/fifo")
    if what == "fifo_for_directory": os.rmdir(one); os.mkfifo(one)
    if what == "replace": os.rename(one, other + "-old"); os.symlink("OUTSIDE", one)
    if what == "remove": os.system("rm -rf " + one)
    if what == "socket":
        import socket; socket.socket(socket.AF_UNIX).bind(one + "/socket")
tried(act)
seen, next = set(), ["."]
while next:
    at = next.pop()
    key = tried(lambda: (os.stat(at).st_dev, os.stat(at).st_ino))
    if key is None or key in seen or len(seen) > 400: continue
    seen.add(key)
    tried(lambda: open(at + "/planted", "w").write("planted"))
    for name in tried(lambda: os.listdir(at)) or []:
        path = at + "/" + name
        if os.path.isdir(path): next.append(path)
        elif os.path.isfile(path):
            text = tried(lambda: open(path, errors="replace").read())
            if text and "the-" + "secret" in text: print("READ", path)
            if "probe" not in path: tried(lambda: open(path, "a").write("changed"))
