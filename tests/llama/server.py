"""Serves a model file with llama.cpp on a free port of loopback, and prints the port. Ends with its standard input."""

import pathlib
import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {"small"}
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0
parameters.n_ctx = 2048
parameters.n_parallel = 2
# Threads of a busy machine wait for each other; one that waits for none gives the same answer each time, too.
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
parameters.sampling.temp = 0
# The template of the model has no place for tools.
parameters.chat_template = pathlib.Path(__file__).with_name("tools.jinja").read_text()
server = xllamacpp.Server(parameters)
print(server.listening_address.rsplit(":", 1)[1], flush=True)
sys.stdin.read()
