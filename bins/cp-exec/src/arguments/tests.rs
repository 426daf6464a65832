use super::*;

fn read<T>(text: &str, ask: impl Fn(&Arguments<'_>) -> T) -> T {
    let argv = cp_common::words::split(text).unwrap().argv;
    ask(&Arguments::read(&argv))
}

fn inner(text: &str) -> String {
    read(text, |arguments| match arguments.wrapper().map(|wrapper| wrapper.inner()) {
        Some(Inner::Words(words)) => words.join(" "),
        Some(Inner::Again(words)) => inner(&words.join(" ")),
        Some(other) => format!("{other:?}"),
        None => "not a wrapper".to_owned(),
    })
}

fn shown(text: &str) -> String {
    read(text, |arguments| {
        let show = |item: &Item<'_>| match item {
            Item::Option(Name::Letter(letter), value) => format!("-{letter}={}", value.unwrap_or("")),
            Item::Option(Name::Long { name, .. }, value) => format!("--{name}={}", value.unwrap_or("")),
            Item::Operand(operand) => operand.word.to_owned(),
        };
        arguments.items().iter().map(show).collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn wrappers_are_stripped_to_what_they_run() {
    for (line, runs) in [
        ("env -i git status", "git status"),
        ("env - git status", "git status"),
        ("env -u A git status", "git status"),
        ("env --u echo touch x", "touch x"),
        ("env --s='touch x'", "touch x"),
        ("env -vS 'touch x' y", "touch x y"),
        ("env -S '-i touch' x", "touch x"),
        ("env -S 'touch \"x\"'", "Built"),
        ("env -C sub touch x", "Built"),
        ("env --argv0=rm busybox x", "Built"),
        ("env A=b touch x", "Variables"),
        ("env", "Nothing"),
        ("nice", "Nothing"),
        ("nice -n 5 timeout 3 git log", "timeout 3 git log"),
        ("nice -5 git log", "git log"),
        ("nice --5 git log", "git log"),
        ("nice --adj 5 git log", "git log"),
        ("timeout -k 1 3 git log", "git log"),
        ("timeout 3", "Nothing"),
        ("xargs -n1 -I {} git show {}", "git show {}"),
        ("xargs -e touch", "touch"),
        ("xargs -l touch x", "touch x"),
        ("xargs -i touch x", "touch x"),
        ("xargs --replace touch x", "touch x"),
        ("xargs --process-slot-var A touch x", "touch x"),
        ("xargs -E end touch", "touch"),
        ("xargs -I ou touch x", "FromInput"),
        ("xargs -i {} x", "FromInput"),
        ("busybox rm x", "rm x"),
        ("flock x git log", "git log"),
        ("flock --wait 5 x touch y", "touch y"),
        ("flock -c id x", "Built"),
        ("flock x -c id", "Built"),
        ("'time' --o x touch y", "touch y"),
        ("setsid -w touch x", "touch x"),
        ("stdbuf -oL -e 0 touch x", "touch x"),
        ("taskset -c 0 touch x", "touch x"),
        ("taskset -p 1", "Nothing"),
        ("chrt -o 0 touch x", "touch x"),
        ("chrt -i touch x", "touch x"),
        ("ionice -c 3 touch x", "touch x"),
        ("ionice -c3 -p 1", "Nothing"),
        ("watch -x touch x", "touch x"),
        ("watch touch x", "Built"),
        ("git log", "not a wrapper"),
    ] {
        assert_eq!(inner(line), runs, "{line}");
    }
}

#[test]
fn what_a_table_does_not_have_cannot_be_read() {
    let unknown = |line: &str| read(line, |arguments| arguments.unknown().map(str::to_owned));
    assert_eq!(unknown("env --evil touch x").as_deref(), Some("--evil"));
    assert_eq!(unknown("env -q touch x").as_deref(), Some("-q"));
    assert_eq!(unknown("git --evil x push").as_deref(), Some("--evil"));
    assert_eq!(unknown("node --evil x y").as_deref(), Some("--evil"));
    assert_eq!(unknown("env touch --evil"), None);
    assert_eq!(unknown("git push --evil"), None);
}

#[test]
fn letters_are_unbundled_and_values_found() {
    assert_eq!(shown("tar -xvfa b"), "-x= -v= -f=a b");
    assert_eq!(shown("tar cIf program a b"), "-c= -I=program -f=a b");
    assert_eq!(shown("tar --file a --file=b -- -x"), "--file=a --file=b -x");
    assert_eq!(shown("sed -iep 1d"), "-i=ep 1d");
    assert_eq!(shown("sed --l 5 p x"), "--l=5 p x");
    assert_eq!(shown("perl -lne x"), "-l= -n= -e=x");
    assert_eq!(shown("python3 -W ignore -c x -e"), "-W=ignore -c=x -e");
    assert_eq!(shown("bash -O extglob -c x"), "-O=extglob -c= x");
    assert_eq!(shown("bash +O extglob -c x"), "-O=extglob -c= x");
    assert_eq!(shown("find . -exec id"), ". --exec= id");
    assert_eq!(shown("git -C sub push -o a b"), "-C=sub push -o=a b");
    assert_eq!(shown("cargo +stable publish"), "-+=+stable publish");
    assert_eq!(shown("npm --otp 1 publish"), "--otp=1 publish");
    assert_eq!(shown("npm --otp --call x"), "--otp= --call=x");
}

#[test]
fn an_abbreviation_is_every_option_it_could_stand_for_and_a_whole_name_only_itself() {
    let has = |line: &str, option: &str| read(line, |arguments| arguments.has_option(&[option]));
    assert!(has("git fetch --upload-pa x", "--upload-pack"));
    assert!(has("git fetch --u x", "--upload-pack"));
    assert!(!has("git fetch --upload-packs x", "--upload-pack"));
    assert!(!has("git fetch --update-head-ok", "--upload-pack"));
    assert!(has("node --experimental_loader x y", "--experimental-loader"));
    assert!(has("go build --exec x", "-exec") && has("go build -exec x", "-exec"));
    assert!(has("sort -uo x y", "-o") && !has("sort -k o", "-o"));
}

#[test]
fn the_command_of_a_program_is_found_behind_its_options() {
    let is = |line: &str, command: &str| read(line, |arguments| arguments.is_command(&[command]));
    for line in [
        "npm publish",
        "npm publis",
        "npm --otp 1 publish",
        "npm --loglevel silent publish",
        "npm -w a publish",
        "npm --unheard-of 1 publish",
        "npm --force true publish",
        "npm -- publish",
        "pnpm --unheard-of 1 publish",
        "cargo +stable publish",
        "cargo -Z a publish",
        "cargo -C x publish",
        "kubectl -n x publish",
    ] {
        assert!(is(line, "publish"), "{line}");
    }
    assert!(is("npm exe -c x", "exec") && is("npm x y", "exec") && is("npm distTag", "dist-tag"));
    assert!(is("cargo r", "run") && is("git --git-dir x push", "push"));
    assert!(!is("npm run publish", "publish") && !is("cargo run publish", "publish") && !is("npm test", "publish"));
}
