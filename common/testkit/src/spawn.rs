//! The start of a child process.

use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

/// Retries while the file is busy, because a child forked by another test may briefly hold a new file open until it
/// executes.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    static SIGNALS: Once = Once::new();
    SIGNALS.call_once(handle_ignored_signals);
    for _ in 0..100 {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    command.spawn()
}

/// Handles, by doing nothing, each signal that this process ignores. Children inherit an ignored signal, such as SIGHUP
/// of `nohup`, but have the default instead of a handler.
fn handle_ignored_signals() {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel lists the ignored signals");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap_or_default().trim(), 16).expect("a mask of signals");
    for signal in (1..32).filter(|signal| ignored >> (signal - 1) & 1 == 1) {
        if !signal_hook::consts::FORBIDDEN.contains(&signal) {
            signal_hook::flag::register(signal, Arc::default()).expect("a signal can be handled");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Place;

    /// Run by the test below with signals ignored.
    #[test]
    fn child_ignores_no_signal() {
        if std::env::var_os("TESTKIT_IGNORES_SIGNALS").is_some() {
            // Those from 32 up are of the C library.
            let script = "test $((0x$(sed -n 's/^SigIgn:.//p' /proc/self/status) & 0x7fffffff)) = 0";
            Place::new().program("sh").args(["-c", script]).run().success();
        }
    }

    #[test]
    fn child_has_default_signals_whatever_test_ignores() {
        let place = Place::new();
        let test = place.program(std::env::current_exe().unwrap()).env("TESTKIT_IGNORES_SIGNALS", "1");
        let test = test.args(["--exact", "spawn::tests::child_ignores_no_signal"]);
        test.under("env", ["--ignore-signal=HUP,INT,QUIT,PIPE,TERM,CHLD,XFSZ"]).run().success();
    }
}
