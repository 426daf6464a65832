import time
for _ in range(6):
    if os.fork() == 0:
        keep = b"x" * 100_000_000
        time.sleep(1); os._exit(0)
statuses = [os.wait()[1] for _ in range(6)]
def had(status, wanted):
    if (status in statuses) != wanted: raise OSError(1, "others")
attempt("some", lambda: had(0, True))
attempt("all", lambda: had(9, False))
