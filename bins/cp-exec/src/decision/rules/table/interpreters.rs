//! Shells and interpreters that are given code instead of a script.

use super::{BuiltIn, Test, rule};
use crate::policy::Verdict::{Confirm, Deny};

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "rbash", "mksh"];

#[rustfmt::skip]
pub(super) const RULES: &[BuiltIn] = &[
    rule("shell.inline", SHELLS, Test::Before(&["-c", "-s", "-i", "-l", "--rcfile", "--init-file", "--login", "-C", "--command", "--init-command"]), Deny,
        "a shell runs any text it is given", &["sh -c id", "bash -lc id", "bash --rcfile x", "bash --init-f x", "sh -ec id", "bash -O extglob -c id", "bash +O extglob -c id"], &["sh build.sh", "bash -e build.sh -c x"]),
    rule("python.inline", &["python", "python2", "python3", "python3.*", "pypy", "pypy3", "ipython"], Test::Before(&["-c", "-i"]), Deny,
        "runs the code it is given", &["python3 -c 'import os'", "python3 -Ic x", "python3.11 -cx", "python3 -W ignore -c x y.py"], &["python3 -m pytest -c x", "python3 build.py -c x"]),
    rule("perl.inline", &["perl", "perl5*"], Test::Before(&["-e", "-E", "-M", "-m", "-I", "-d", "-x", "-S"]), Deny,
        "runs the code it is given", &["perl -e 'system q(id)'", "perl -ne x", "perl -MPOSIX x.pl"], &["perl build.pl -e x"]),
    rule("ruby.inline", &["ruby", "irb"], Test::Before(&["-e", "-r", "-I", "-x", "-S", "-C", "-X"]), Deny,
        "runs the code it is given", &["ruby -e x", "ruby -ne x", "ruby -r./x y.rb"], &["ruby build.rb"]),
    rule("node.inline", &["node", "nodejs", "deno", "bun"],
        Test::Before(&["-e", "--eval", "-p", "--print", "-r", "--require", "--import", "--loader", "--experimental-loader", "-i", "--interactive", "--env-file", "--env-file-if-exists", "--inspect", "--inspect-brk", "--inspect-wait", "--test-reporter", "--snapshot-blob", "--build-snapshot", "--build-snapshot-config", "--openssl-config", "--experimental-policy", "--run"]), Deny,
        "runs the code it is given", &["node -e x", "node -pe x", "node --eval=x", "node --ev x", "node -r ./x y.js", "node --import=x y", "node -C x -e y", "node --conditions x --eval y"], &["node build.js -e x"]),
    rule("deno.eval", &["deno", "bun"], Test::First(&["eval", "repl"]), Deny, "runs the code it is given", &["deno eval x"], &["deno test"]),
    rule("php.inline", &["php", "php8*", "php7*"], Test::Before(&["-r", "-B", "-R", "-E", "-F", "-d", "-a", "-c", "-S", "-z", "--run", "--process-begin", "--process-code", "--process-end", "--process-file", "--define", "--interactive", "--php-ini", "--server", "--zend-extension"]), Deny,
        "runs the code it is given", &["php -r x", "php -d a=b x.php", "php --run x", "php -n -r x"], &["php x.php"]),
    rule("lua.inline", &["lua", "lua5*", "luajit"], Test::Before(&["-e", "-l", "-i"]), Deny, "runs the code it is given", &["lua -e x"], &["lua x.lua"]),
    rule("other.inline", &["tclsh", "expect", "guile", "R", "Rscript", "julia", "swipl", "ghci", "osascript", "jshell", "scala", "clojure", "erl", "elixir", "iex"],
        Test::Before(&["-e", "--eval", "-c", "-E", "--expr", "--print", "-p", "-g", "--execute"]), Deny,
        "runs the code it is given", &["Rscript -e x", "julia -e x", "elixir -e x"], &["Rscript x.R"]),
    rule("awk.run", &["awk", "gawk", "mawk", "nawk", "original-awk"], Test::Words(&["*system*", "*getline*", "*|*", "*@load*", "*@include*", "*/inet*", "*@*(*"]), Deny,
        "the program runs or reads something else", &["awk 'BEGIN{system(\"id\")}'", "awk '{getline x; print x}' a", "awk '{print | \"sh\"}' a"], &["awk '{print $1}' a"]),
    rule("awk.options", &["awk", "gawk", "mawk", "nawk"], Test::Options(&["-f", "--file", "-l", "--load", "-i", "--include", "-E", "--exec", "-D", "--debug", "-W"]), Deny,
        "loads code from elsewhere", &["gawk -l x '{}'", "gawk --load=x '{}'", "awk -f x a", "mawk -Wexec x", "mawk --exec x"], &["awk -F: '{print $1}' a"]),
    rule("python.module", &["python", "python2", "python3", "python3.*", "pypy", "pypy3", "ipython"],
        Test::Value(&["-m"], &["pdb", "code", "codeop", "timeit", "cProfile", "profile", "trace", "runpy", "bdb", "doctest", "asyncio", "sqlite3", "idlelib*", "IPython*", "ptpython*", "bpython*",
            "xonsh*", "debugpy*", "ipdb*", "pudb*", "pyinstrument*", "kernprof", "line_profiler", "memory_profiler", "scalene*", "viztracer*"]), Deny,
        "this module runs the code or the script it is given", &["python3 -m pdb x", "python3 -mpdb x", "python3 -m timeit x", "python3 -um code"], &["python3 -m pytest", "python3 -m venv x"]),
    rule("awk.write", &["awk", "gawk", "mawk", "nawk", "original-awk"], Test::Words(&["*print*>*"]), Confirm,
        "the program writes files of any name", &["awk '{print > \"x\"}' a"], &["awk '$1 > 2 {print}' a"]),
];
