TOKEN = "not for the shell"
