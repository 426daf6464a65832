try: os.chmod("closed", 0o755)
except OSError: pass
attempt("odd", lambda: open(b"\xff\xfe/.token").read())
attempt("closed", lambda: open("closed/.token").read())
attempt("control", lambda: open("probe.py").read())
