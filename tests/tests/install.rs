//! `scripts/install` and `scripts/release`: the installed files, and the artefacts of a release.

use std::time::Duration;

use cp_ledger::proof::note::{Note, Verifier};
use cp_testkit::{Outcome, PROGRAMS, Place, Program, counterpart, program, repository, required};

/// A script with `$S`, the scripts, `$B`, the programs as they were built, `$P`, a prefix, and a `PATH` without any of
/// them.
fn script(place: &Place, text: &str) -> Program {
    let command = place.program("sh").args(["-ec", text]).env("B", program("cp-log").parent().unwrap());
    command.env("P", place.root.join("usr")).env("S", repository().join("scripts"))
}

fn sh(place: &Place, text: &str) -> Outcome {
    script(place, text).run()
}

/// The same with the tools of the person who makes a release, in two hours at most.
fn maker(place: &Place, text: &str) -> Outcome {
    let [home, path] = ["HOME", "PATH"].map(|name| std::env::var_os(name).unwrap());
    script(place, text).env("HOME", home).env("PATH", path).limit(Duration::from_hours(2)).run()
}

/// Puts scripts into `built` that run the programs: to pack those themselves takes long.
fn built(place: &Place) {
    for name in PROGRAMS.into_iter().chain(["cp-ask"]) {
        place.work.executable(format!("built/{name}"), format!("#!/bin/sh\nexec {} \"$@\"\n", program(name).display()));
    }
}

fn release(place: &Place, directory: &str, options: &str) -> Outcome {
    maker(place, &format!("\"$S/release\" {directory} --key key --build-dir built {options}"))
}

#[test]
fn what_is_installed_works_and_goes_without_a_trace() {
    cp_testkit::needs!("curl", "mandoc");
    let place = Place::new();
    let ran = sh(
        &place,
        r#""$S/install" --prefix "$P" --build-dir "$B" | sed "s:$P:P:g; s/ [0-9.]* / V /"
        ! find "$P" -lname '/*' | grep . && find "$P" -xtype l
        (cd "$P/lib/cp-tools/current" && sha256sum --quiet --check SHA256SUMS && find . -type f | wc -l && wc -l <SHA256SUMS)
        PATH=$P/bin:$PATH
        cp-ask --backend stub hi
        . cp.sh && config_init && cp_agent
        cp-ask completions fish | cut -d ' ' -f 1-5
        mman -M "$P/share/man" cp-llm | sed -n 1p | tr -s ' ' && mman -M "$P/share/man" cp-loop-bash | sed -n 1p | tr -s ' '
        bash -c '. "$P/share/bash-completion/completions/cp-log" && complete -p cp-log'
        head -n 1 "$P/share/zsh/site-functions/_cp-ask"
        cd / && PATH=/usr/bin:/bin && "$P/bin/cp-toolloop" --tool-backend bash --backend stub --format text -- hi 2>&1 | head -n 1
        PATH=$P/bin:$PATH && "$S/install" --prefix "$P" --build-dir "$B" | wc -l
        cd "$P/lib/cp-tools/current/share/doc/cp-tools" && grep -o '](\(docs\|[A-Z]\)[^)]*)\|docs/[a-zA-Z./0-9:-]*' README.md | tr -d '()]' | sed 's/\.$//' | sort -u |
            while read -r name; do test -e "$name" || echo "missing: $name"; done
        for recipe in recipes/*; do bash -n "$recipe" && grep -v -m 1 '^#!/bin/' "$recipe" | grep '^> ' || :; done
        ls recipes | wc -l && grep -c '^[$] cat > .* chmod +x' "$S/../man/cp-cookbook.7""#,
    );
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let [installed, path, files, listed, said @ ..] = &lines[..] else { panic!("{}{}", ran.stdout, ran.stderr) };
    assert_eq!((*installed, *path), ("cp-tools V is installed in P", "Add to your profile: PATH=P/bin:$PATH"));
    assert_eq!(files.parse::<u32>().unwrap(), listed.parse::<u32>().unwrap() + 1, "all but the list are listed");
    let expected = [
        "stub response 1",
        "default",
        "complete --keep-order --exclusive --command cp-ask",
        "CP-LLM(1) General Commands Manual CP-LLM(1)",
        "CP-TOOLLOOP(1) General Commands Manual CP-TOOLLOOP(1)",
    ];
    assert_eq!(said[..5], expected, "{}", ran.stderr);
    assert!(
        said[5].ends_with(" cp-log")
            && said[6] == "#compdef cp-ask"
            && said[7].ends_with("the loop bash cannot ask the backend stub"),
        "{said:?}"
    );
    assert_eq!(said[8], "1", "nothing to add where it is on PATH");
    let [_, .., recipes, of_page] = said else { panic!("{said:?}") };
    assert!(said.len() == 11 && recipes == of_page, "each script of cp-cookbook(7) is a file: {said:?}");

    place.root.write("usr/bin/mine", "");
    let root = place.root.join("usr").display().to_string();
    let hook = format!("{{\n\"command\": \"{root}/bin/cp-exec hook claude\"\n}}\n");
    for (file, line) in [
        (".claude/settings.json", format!("{root}/bin/cp-exec hook remove claude")),
        (".codex/hooks.json", format!("{root}/bin/cp-exec hook remove codex")),
        (".claude.json", "take line 2 ".to_owned()),
    ] {
        place.work.write(format!("person/{file}"), &hook);
        for more in ["", "--dry-run"] {
            let ran = sh(&place, &format!(r#"HOME=$PWD/person; "$S/install" --uninstall --prefix "$P" {more}"#));
            assert!(ran.status == 6 && ran.stderr.contains(&format!("{file}: {line}")), "{}", ran.stderr);
        }
        // The control: a program of another prefix.
        place.work.write(format!("person/{file}"), hook.replace(&root, "/opt/other"));
    }
    let ran = sh(
        &place,
        r#"HOME=$PWD/person; unset CP_HOME; mkdir -p person/.config/cp person/.local/state/cp
        "$S/install" --uninstall --prefix "$P" --dry-run | tail -n 4; "$S/install" --uninstall --prefix "$P"
        "$S/install" --uninstall --prefix "$P"; find "$P"; ls person/.config"#,
    );
    let home = place.work.join("person").display().to_string();
    let stay = format!(
        "Your settings, ledgers and sessions stay. To remove them:\n    rm -r {home}/.config/cp\n    rm -r {home}/.local/state/cp\n"
    );
    let expected = format!(
        "remove {root}/lib/cp-tools\n{stay}removed cp-tools from {root}\n{stay}nothing is installed in {root}\n{root}\n{root}/bin\n{root}/bin/mine\ncp\n"
    );
    assert_eq!(ran.stdout, expected, "{}", ran.stderr);
}

#[test]
fn install_without_current_rust_names_version() {
    let place = Place::new();
    let rust = |cargo: &str| {
        place.work.executable("bin/cargo", format!("#!/bin/sh\n{cargo}\n"));
        let ran = sh(
            &place,
            r#"PATH=$PWD/bin:$PATH; "$S/install" --prefix "$P" || echo $?; ls -A "$P" 2>/dev/null || echo none"#,
        );
        (ran.stdout, ran.stderr)
    };
    for (cargo, found) in [("exit 127", "none"), ("echo cargo 1.60.0", "only 1.60.0")] {
        let (stdout, stderr) = rust(cargo);
        let expected = format!("building from source needs Rust 1.95, and {found} is on PATH");
        assert!(stdout == "4\nnone\n" && stderr.contains(&expected), "{stdout}{stderr}");
    }
    // A newer one is asked to build.
    let (_, stderr) = rust("case $1 in --version) echo cargo 1.100.0 ;; *) echo \"$@\" >&2; exit 9 ;; esac");
    assert!(stderr.starts_with("build --profile quick --locked --workspace --bins"), "{stderr}");
}

#[test]
fn what_is_in_the_way_is_named_before_anything_is_changed() {
    let place = Place::new();
    built(&place);
    let ran = sh(
        &place,
        r#"mkdir -p "$P/bin" "$P/share/man" && echo mine >"$P/bin/cp-log" && ln -s nowhere "$P/bin/cp.sh" && ln -s /tmp "$P/share/man/man7"
        before=$(find "$P"); code=0; "$S/install" --prefix "$P" --build-dir built 2>&1 || code=$?; echo "$code"
        [ "$before" = "$(find "$P")" ] && mv "$P/bin/cp-log" "$P/mine" && rm "$P/bin/cp.sh" "$P/share/man/man7"
        "$S/install" --prefix "$P" --build-dir built --dry-run | wc -l; ls "$P"
        "$S/install" --prefix "$P" --build-dir built >/dev/null
        rm "$P/bin/cp-llm" && ln -s /bin/true "$P/bin/cp-llm" && "$S/install" --uninstall --prefix "$P" >/dev/null; find "$P" -type l -o -type f"#,
    );
    let root = place.root.join("usr").display().to_string();
    let (refused, after) =
        ran.stdout.replace(&root, "P").split_once("\n4\n").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("exit 4");
    let named: Vec<&str> = refused.lines().skip(1).map(str::trim).collect();
    assert_eq!(named, ["P/share/man/man7", "P/bin/cp-log", "P/bin/cp.sh"], "{refused}");
    let after: Vec<&str> = after.lines().collect();
    assert!(after[0].parse::<u32>().unwrap() > 60, "{after:?}");
    assert_eq!(after[1..], ["bin", "mine", "share", "P/mine", "P/bin/cp-llm"], "{}", ran.stderr);
}

#[test]
fn another_version_takes_its_place_at_once() {
    let place = Place::new();
    built(&place);
    let ran = sh(
        &place,
        r#""$S/install" --prefix "$P" --build-dir built >/dev/null && cp -r "$P/lib/cp-tools/current/" new
        cd new && rm share/man/man7/cp.sh.7 && printf '#!/bin/sh\necho cp-log 9.0.0\n' >bin/cp-log
        ! "$S/install" --prefix "$P" --from . >/dev/null 2>&1
        find bin share install -type f | xargs sha256sum >SHA256SUMS && "$S/install" --prefix "$P" --from . >/dev/null
        cd "$P" && lib/cp-tools/current/bin/cp-log && readlink lib/cp-tools/current && ls -A lib/cp-tools/previous/ lib/cp-tools | sort && find bin share -xtype l
        test ! -L share/man/man7/cp.sh.7 && test -e share/man/man7/cp-tools.7"#,
    );
    let current = format!("{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(ran.stdout.lines().take(2).collect::<Vec<_>>(), ["cp-log 9.0.0", "9.0.0"], "{}", ran.stderr);
    assert!(ran.status == 0 && ran.stdout.contains(&current) && !ran.stdout.contains(".update"), "{}", ran.stdout);
}

/// Makes three trees that install over each other: the installed one, another version with another program, and another
/// build of the first.
fn trees(place: &Place) {
    built(place);
    let made = sh(
        place,
        r#""$S/install" --prefix "$P" --build-dir built >/dev/null && for tree in 1 2 3; do cp -r "$P/lib/cp-tools/current/" $tree; done
        list() { (cd $1 && find bin share install -type f | xargs sha256sum >SHA256SUMS); }
        printf '#!/bin/sh\necho cp-log 9.0.0\n' >2/bin/cp-log && cp 2/bin/cp-log 2/bin/cp-more && list 2
        echo >>3/share/doc/cp-tools/README.md && list 3"#,
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
}

/// A check that the active version is complete, that its links work, and that it runs; the end that a later
/// installation tidies.
const COMPLETE: &str = r#"complete() { (cd "$P/lib/cp-tools/current" && sha256sum --quiet --check SHA256SUMS && for file in bin/*; do test -x "$P/$file"; done && "$P/bin/cp-log" --version); }
tidy() { "$S/install" --prefix "$P" --from 1 >/dev/null && ls -A "$P/lib/cp-tools" | grep -v '^[0-9]' && find "$P" -xtype l; }
"#;

#[test]
fn killed_install_leaves_complete_version() {
    let place = Place::new();
    trees(&place);
    // Each program that changes files kills the installer before its call number $AT.
    for name in ["cp", "ln", "mkdir", "mv", "rm", "rmdir", "sync"] {
        let shim = format!(
            "#!/bin/sh\nn=$(($(cat \"$COUNT\") + 1)); echo $n >\"$COUNT\"\nif [ $n = $AT ]; then kill -s $SIGNAL $PPID; fi\nexec $(PATH=/usr/bin:/bin command -v {name}) \"$@\"\n"
        );
        place.work.executable(format!("shims/{name}"), shim);
    }
    let ran = sh(
        &place,
        &format!(
            r#"{COMPLETE}
            export COUNT=$PWD/count AT SIGNAL
            for to in 2 3 1 3; do
                for AT in $(seq 60); do
                    case $((AT % 2)) in 0) SIGNAL=TERM ;; *) SIGNAL=KILL ;; esac
                    echo 0 >count; code=0
                    PATH=$PWD/shims:$PATH "$S/install" --prefix "$P" --from $to >/dev/null 2>&1 || code=$?
                    complete
                    if [ "$code" = 0 ] && [ "$(cat count)" -lt "$AT" ]; then echo "to $to"; break; fi
                    echo killed
                done
            done
            tidy"#
        ),
    );
    assert!(ran.status == 0 && ran.stderr.is_empty(), "{}{}", ran.stdout, ran.stderr);
    let killed = ran.stdout.lines().filter(|line| *line == "killed").count();
    let finished = ran.stdout.lines().filter(|line| line.starts_with("to ")).count();
    assert!(killed > 30 && finished == 4, "{killed} killed: {}", ran.stdout);
    assert!(ran.stdout.ends_with("current\nprevious\n"), "{}", ran.stdout);
}

#[test]
fn a_release_is_signed_the_same_each_time_and_can_be_installed() {
    cp_testkit::needs!("cargo-deb", "openssl", "python3");
    let place = Place::new();
    built(&place);
    place.sh("cp-log keygen --signer cp-tools/test key").success();
    let ran = release(&place, "one", "--grade security");
    assert!(ran.status == 0, "{}", ran.stderr);
    release(&place, "two", "--grade security").success();
    assert_eq!(sh(&place, "diff -r one two && cat one/latest").stdout, concat!(env!("CARGO_PKG_VERSION"), "\n"));
    assert!(release(&place, "one", "").stderr.contains("a release never changes"));

    let version = env!("CARGO_PKG_VERSION");
    let read = |name: &str| place.work.read(format!("one/v{version}/{name}"));
    let note = Note::parse(&read("SHA256SUMS.note")).expect("a signed note");
    let key = Verifier::from_text(&place.work.read("key.pub")).unwrap();
    assert_eq!(note.is_signed_by(&key), Some(true));
    assert_eq!(note.text, format!("cp-tools/release\n{version}\nsecurity\n{}", read("SHA256SUMS")));
    let changes = read("CHANGELOG.md");
    assert!(changes.contains(&format!("\n## [{version}] - 20")) && !changes.contains("[Unreleased]"), "{changes}");
    let list: serde_json::Value = serde_json::from_str(&read(&format!("cp-tools-{version}.cdx.json"))).unwrap();
    let names: Vec<_> = list["components"].as_array().unwrap().iter().map(|component| &component["name"]).collect();
    assert!(names.contains(&&"serde".into()) && !names.contains(&&"proptest".into()), "{names:?}");

    let ran = sh(
        &place,
        r#"cd one/v*/ && sha256sum --quiet --check SHA256SUMS && tar -xzf *.tar.gz -C ../.. && cd ../../cp-tools-*/
        ./install --prefix "$P" >/dev/null && "$P/bin/cp-ask" --backend stub hi
        cmp install "$S/install" && ./install --uninstall --prefix "$P" >/dev/null && ls -A "$P/.." | grep -c usr || echo gone
        echo >>share/cp-tools/skill/SKILL.md && ./install --prefix "$P" 2>&1 | tail -n 1"#,
    );
    assert!(ran.stdout.starts_with("stub response 1\n"), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.trim_end().ends_with("is not a whole tree of cp-tools"), "{}", ran.stdout);
    wheel_runs(&place);
    package_is_purged(&place);
}

/// A virtual environment of the wheel runs the programs without jq and without a compiler.
fn wheel_runs(place: &Place) {
    let has_pip = maker(place, "python3 -c 'import ensurepip'").status == 0;
    if !required("the module ensurepip of Python", has_pip) {
        return;
    }
    let installed = maker(place, "python3 -m venv venv && venv/bin/pip install --quiet --no-index one/v*/*.whl");
    assert_eq!(installed.status, 0, "{}", installed.stderr);
    place.work.write(
        "rows.py",
        r#"
import itertools
from cp_filters import Error, ask, run

def message(text): return {"messages": [{"role": "user", "content": text}]}
stub = ["cp-llm", "--backend", "stub", "--rows"]
print([record["data"]["content"] for record in run(stub, [message("hi")])], ask("x" * 300000, backend="stub"))
endless = run(stub, (message(str(number)) for number in itertools.count()))
print([record["data"]["index"] for record in itertools.islice(endless, 3)])
endless.close()
print([record.get("error", {}).get("code") for record in run(stub, [message("hi"), {"none": 1}, message("hi")])])
def cut():
    yield message("hi")
    raise KeyError("mine")
for call in (lambda: ask("hi"), lambda: list(run(["cp-log", "--nonsense"])), lambda: list(run(stub, cut())), lambda: list(run(["cp-llm", "--backend", "nonsense", "hi"]))):
    try:
        print(call())
    except Error as error:
        print(error.code, error.retryable, error.status)
    except KeyError as error:
        print(error)
"#,
    );
    // No program of the system is found but those of the virtual environment.
    let ran = sh(
        place,
        r#"env -i HOME="$HOME" PATH=/nowhere venv/bin/python rows.py && venv/bin/cp-log --version | cut -d' ' -f1"#,
    );
    let expected = "['stub response 1'] stub response 1\n[0, 1, 2]\n[None, 'E_VALIDATION', None]\n\
        E_CONFIG False 4\nE_USAGE False 2\n'mine'\nE_CONFIG False 4\ncp-log\n";
    assert_eq!(ran.stdout, expected, "{}", ran.stderr);
}

/// The package of Debian is installed and purged.
fn package_is_purged(place: &Place) {
    let ran = sh(
        place,
        r#"export PATH="$PATH:/usr/sbin:/sbin" && mkdir -p "$P/var/lib/dpkg/info" "$P/var/lib/dpkg/updates" && : >"$P/var/lib/dpkg/status"
        dpkg() { command dpkg --root="$P" --force-not-root --force-depends --log=/dev/null "$@" >/dev/null 2>&1; }
        dpkg --install one/v*/*.deb && "$P/usr/bin/cp-ask" --backend stub hi && mman -M "$P/usr/share/man" cp-tools | sed -n 1p | tr -s ' '
        ls "$P/usr/share/doc/cp-tools"; dpkg --purge cp-tools && find "$P" -path '*cp-*' && ls "$P"
        if [ -n "${CP_LONG+set}" ]; then lintian --fail-on warning one/v*/*.deb; fi"#,
    );
    let expected = "stub response 1\nCP-TOOLS(7) Miscellaneous Information Manual CP-TOOLS(7)\n\
        ARCHITECTURE.md\nREADME.md\nSECURITY.md\nchangelog.Debian.gz\nchangelog.gz\ncopyright\ndocs\nrecipes\nvar\n";
    assert_eq!(ran.stdout, expected, "{}", ran.stderr);
}

#[test]
fn a_build_in_another_directory_gives_the_same_bytes() {
    if !cp_testkit::is_long() {
        return;
    }
    let place = Place::new();
    place.sh("cp-log keygen key").success();
    let ran = maker(
        &place,
        r#"for copy in a bb; do
            git clone --quiet "$S/.." "$copy"
            CARGO_TARGET_DIR="$PWD/$copy-target" "$copy/scripts/release" "to-$copy" --key key && rm -r "$copy-target"
        done
        diff -r to-a to-bb && echo same"#,
    );
    assert!(ran.stdout.ends_with("same\n"), "{}{}", ran.stdout, ran.stderr);
    let (Some(_), Some(_)) = (counterpart("busybox"), counterpart("bwrap")) else { return };
    assert_eq!(in_bare_root(&place, "to-a"), "no jq\nstub response 1\nstub response 1\nhere\n");
}

/// The output of the first commands after an installation of the archive, in a root that has only busybox.
fn in_bare_root(place: &Place, releases: &str) -> String {
    place.work.write(
        "root/first",
        r"set -e; /bin/busybox --install -s /bin; export HOME=/root PATH=/usr/local/bin:/bin
        command -v jq || echo no jq; cd /tmp; tar -xzf /archive; cp-tools-*/install >/dev/null
        cp-llm --backend stub --format text hi; cp-ask --backend stub hi
        mkdir /here; cd /here; touch here; cp-exec policy init >/dev/null; cp-exec --format raw -- ls",
    );
    let ran = maker(
        place,
        &format!(
            r#"cd root && mkdir -p bin proc dev tmp root usr && cp {releases}/v*/*.tar.gz archive && busybox=$(command -v busybox) && cp "$busybox" bin
            for library in $(ldd "$busybox" 2>/dev/null | grep -o '/lib[^ ]*'); do mkdir -p ".${{library%/*}}" && cp "$library" ".$library"; done
            env -i "$(command -v bwrap)" --unshare-all --cap-add ALL --bind . / --proc /proc --dev /dev /bin/busybox sh /first"#,
            releases = format_args!("../{releases}"),
        ),
    );
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    ran.stdout
}
