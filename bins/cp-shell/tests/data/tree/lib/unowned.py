# nobody installed this
