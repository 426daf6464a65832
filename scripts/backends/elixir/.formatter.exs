[line_length: 120]
