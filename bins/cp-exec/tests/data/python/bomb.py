import time
def bomb():
    for _ in range(100):
        if os.fork() == 0: time.sleep(60); os._exit(0)
attempt("bomb", bomb)
