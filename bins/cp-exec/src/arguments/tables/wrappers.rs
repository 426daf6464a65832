//! Programs that run another one, whose name and arguments follow their own.

use super::{Before, Family, Role, Wraps};
use crate::arguments::grammar::{Also, Form, Grammar, leading};

const PLAIN: Wraps =
    Wraps { before: Before::Operands(0), rewrites: &[], splits: &[], idle: &[], feeds: false, replaces: &[] };

const fn wrapper(names: &'static [&'static str], letters: &'static str, long: &'static str, wraps: Wraps) -> Family {
    Family { names, grammar: leading(letters, long), role: Role::Wrapper(wraps) }
}

pub(super) const FAMILIES: &[Family] = &[
    wrapper(
        &["env"],
        "a:f:iu:C:S:0v",
        "argv0= block-signal[=] chdir= debug default-signal[=] file= help ignore-environment ignore-signal[=] \
         list-signal-handling null split-string= unset= version",
        Wraps {
            rewrites: &["-C", "--chdir", "-a", "--argv0", "-f", "--file"],
            splits: &["-S", "--split-string"],
            ..PLAIN
        },
    ),
    Family {
        names: &["nice"],
        grammar: Grammar { also: Also::Numbers, ..leading("n:", "adjustment= help version") },
        role: Role::Wrapper(PLAIN),
    },
    wrapper(&["nohup"], "", "help version", PLAIN),
    wrapper(&["setsid"], "cfwhV", "ctty fork help version wait", PLAIN),
    wrapper(&["time"], "af:o:pqvhV", "append format= help output= portability quiet verbose version", PLAIN),
    wrapper(&["stdbuf"], "i:o:e:", "error= help input= output= version", PLAIN),
    wrapper(
        &["timeout"],
        "fk:ps:v",
        "foreground help kill-after= preserve-status signal= verbose version",
        Wraps { before: Before::Operands(1), ..PLAIN },
    ),
    wrapper(
        &["ionice"],
        "c:n:p:P:tu:hV",
        "class= classdata= help ignore pgid= pid= uid= version",
        Wraps { idle: &["-p", "--pid", "-P", "--pgid", "-u", "--uid"], ..PLAIN },
    ),
    wrapper(
        &["taskset"],
        "apchV",
        "all-tasks cpu-list help pid version",
        Wraps { before: Before::Operands(1), idle: &["-p", "--pid"], ..PLAIN },
    ),
    wrapper(
        &["chrt"],
        "abdefimoprRvhVD:P:T:",
        "all-tasks batch deadline ext fifo help idle max other pid reset-on-fork rr sched-deadline= sched-period= \
         sched-runtime= verbose version",
        Wraps { before: Before::Number, idle: &["-p", "--pid", "-m", "--max"], ..PLAIN },
    ),
    wrapper(&["choom"], "n:p:hV", "adjust= help pid= version", Wraps { idle: &["-p", "--pid"], ..PLAIN }),
    wrapper(
        &["flock"],
        "c:eE:FhnosuVw:x",
        "close command= conflict-exit-code= exclusive fcntl help nb no-fork nonblock nonblocking shared timeout= unlock \
         verbose version wait=",
        Wraps { before: Before::Operands(1), rewrites: &["-c", "--command"], ..PLAIN },
    ),
    wrapper(
        &["xargs"],
        "0a:d:E:e::I:i::L:l::n:oP:prs:tx",
        "arg-file= delimiter= eof[=] exit help interactive max-args= max-chars= max-lines[=] max-procs= no-run-if-empty \
         null open-tty process-slot-var= replace[=] show-limits verbose version",
        Wraps { feeds: true, replaces: &["-I", "-i", "--replace"], ..PLAIN },
    ),
    wrapper(
        &["watch"],
        "bcCd::egn:pq:rtwxhv",
        "beep chgexit color differences[=] equexit= errexit exec help interval= no-color no-rerun no-title no-wrap precise \
         version",
        PLAIN,
    ),
    wrapper(
        &["strace"],
        "a:A:b:cCdDe:E:fFhiI:kno:O:p:P:qrs:S:tTu:U:vVwxX:yYzZ",
        "abbrev= argv0= attach= columns= const-print-style= daemonize debug env= fault= follow-forks help inject= \
         output= output-append-mode quiet[=] raw= read= signal= silent[=] string-limit= summary summary-only trace= \
         user= verbose= version write=",
        Wraps { rewrites: &["-u", "--user", "-E", "--env", "--argv0"], idle: &["-p", "--attach"], ..PLAIN },
    ),
    wrapper(&["unbuffer"], "p", "", PLAIN),
    Family {
        names: &["busybox", "toybox"],
        grammar: Grammar { form: Form::OneDash, ..leading("", "help list list-full") },
        role: Role::Wrapper(PLAIN),
    },
];
