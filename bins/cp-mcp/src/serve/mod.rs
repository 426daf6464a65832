//! Our programs as tools: what each tool takes, which program does it, and what comes back.
