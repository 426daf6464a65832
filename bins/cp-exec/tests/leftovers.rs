//! A command leaves no file that grants rights to another user, and the strict profile executes one program.

use cp_testkit::required;

use crate::attempts::{inside, refused_only_inside};
use crate::exec::{Exec, POLICY, Who, everyone, policy_with};

/// What a change of a mode leaves: for each call and mode, the mode of a file and of a directory.
const MODES: &str = include_str!("data/python/modes.py");

#[test]
fn set_id_bits_of_files_are_dropped_and_directories_keep_their_group() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    for who in everyone() {
        let exec = Exec::new(who);
        let said = |output: &str| -> Vec<Vec<String>> {
            let words = |line: &str| line.split(' ').map(str::to_owned).collect();
            output.lines().map(words).collect()
        };
        let (_, result) = inside(&exec, MODES);
        let found = said(result["stdout"].as_str().unwrap());
        let control =
            said(&exec.outside(&format!("cd {} && python3 probe.py outside", exec.work.display())).run().stdout);
        assert_eq!((found.len(), control.len()), (106, 105), "{result}");
        let refused = if who == Who::Me { "EROFS" } else { "EPERM" };
        assert_eq!(found[105], ["of_another", "error", "-", refused], "{who:?}");
        for (inside, outside) in found.iter().zip(&control) {
            let [way, kind, bits, mode] = &**inside else { panic!("{inside:?}") };
            let octal = |text: &str| u32::from_str_radix(text, 8).unwrap();
            let expected = match kind.as_str() {
                "file" => format!("{:o}", octal(bits) & 0o1777),
                "directory" => format!("{:o}", octal(bits) & 0o3777),
                _ => outside[3].clone(),
            };
            assert_eq!((mode, &inside[..3]), (&expected, &outside[..3]), "{who:?} {way} {kind} {bits}");
            let is_whole = ["file", "directory"].contains(&kind.as_str());
            assert!(!is_whole || outside[3] == *bits, "{who:?} {outside:?}: the control");
        }
        let line = "mkdir d && chmod g+s d && test -g d && git init -q --shared e && test -g e/.git && \
                    install -m 2755 -d i && test -g i && install -m 4755 /bin/true t && test $(stat -c %a t) = 755 && \
                    mkdir a && tar -cf t.tar --mode=4755 t && tar -xpf t.tar -C a && test $(stat -c %a a/t) = 755";
        let exec = Exec::with_policy(who, &POLICY.replace("[\"sh\"", "[\"install\", \"tar\", \"sh\""));
        let (answer, status) = exec.ask(&["-c", line]);
        assert_eq!(status, 0, "{who:?} {answer}");
        let outside = format!("cd {} && rm -rf t && install -m 4755 /bin/true t && test -u t", exec.work.display());
        exec.outside(&outside).run().success();
    }
}

#[test]
fn strict_profile_allows_one_execution() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    let script = include_str!("data/python/strict.py");
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy_with("profile = \"strict\""));
        refused_only_inside(&exec, &["control"], script);
        // The same process twice is one step.
        let again =
            "try: os.execv(os.readlink('/proc/self/exe'), ['python3', 'again'])\nexcept PermissionError: pass\n";
        let (_, result) = inside(&exec, &again.repeat(2));
        assert!(result["stderr"].as_str().unwrap().contains("`strict` executes one program"), "{result}");
        let steps = exec.entries("exec.step");
        let denied = |step: &&serde_json::Value| {
            assert_eq!(
                (&step["data"]["decision"], &step["data"]["rule"]),
                (&"deny".into(), &"strict".into()),
                "{step}"
            );
            step["data"]["argv_as_asked"][1] == "again"
        };
        assert_eq!(steps.iter().filter(denied).count(), 1, "{steps:?}");
    }
}
