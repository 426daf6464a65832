def read():
    os.chdir("p")
    for _ in range(20): os.chdir("x" * 240)
    return open(".token").read()
attempt("control", lambda: open("probe.py").read())
attempt("deep", read)
