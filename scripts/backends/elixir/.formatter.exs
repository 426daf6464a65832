[line_length: 120, inputs: ["*.{ex,exs}", "test/*.exs"]]
