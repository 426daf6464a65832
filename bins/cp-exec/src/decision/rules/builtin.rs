//! The built-in rules: arguments by which a harmless command runs something else, or destroys.
//!
//! Each carries command lines it is about and such that it is not; a test and `cp-exec policy test` check them all.

use cp_common::words;

use super::finding::{Finding, Risk};
use crate::arguments::{Arguments, Item};
use crate::glob::name_matches;
use crate::policy::Verdict::{self, Confirm, Deny};

/// What a rule looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// The command itself.
    Command,
    /// One of these options.
    Options(&'static [&'static str]),
    /// One of these options before the first operand.
    Before(&'static [&'static str]),
    /// One of these as the first operand.
    First(&'static [&'static str]),
    /// One of these as the first operand, and one of these options.
    FirstWith(&'static [&'static str], &'static [&'static str]),
    /// These as the first two operands.
    Two(&'static str, &'static [&'static str]),
    /// A first operand that is none of these.
    Unknown(&'static [&'static str]),
    /// An operand, or the value of an option, of one of these forms.
    Words(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltIn {
    /// Its name on the record.
    pub id: &'static str,
    /// The commands it is about; `*` stands for any run of characters.
    pub commands: &'static [&'static str],
    pub test: Test,
    pub verdict: Verdict,
    pub reason: &'static str,
    /// Command lines it is about.
    pub examples: &'static [&'static str],
    /// Command lines it is not about.
    pub counterexamples: &'static [&'static str],
}

impl BuiltIn {
    fn names(&self, name: &str) -> bool {
        self.commands.iter().any(|command| name_matches(command, name))
    }

    fn is_about(&self, arguments: &Arguments<'_>) -> bool {
        if !self.names(arguments.name()) {
            return false;
        }
        let mut operands = arguments.operands();
        let mut next_is_in = |words: &[&str]| operands.next().is_some_and(|word| words.contains(&word));
        match self.test {
            Test::Command => true,
            Test::Options(options) => arguments.has_option(options),
            Test::Before(options) => arguments.has_option_before_operands(options),
            Test::First(words) => next_is_in(words),
            Test::FirstWith(words, options) => next_is_in(words) && arguments.has_option(options),
            Test::Two(first, second) => next_is_in(&[first]) && next_is_in(second),
            Test::Unknown(known) => operands.next().is_some_and(|first| !known.contains(&first)),
            Test::Words(forms) => arguments.items().iter().any(|item| {
                let word = match item {
                    Item::Option(_, value) => *value,
                    Item::Operand(word, _) => Some(*word),
                };
                word.is_some_and(|word| forms.iter().any(|form| name_matches(form, word)))
            }),
        }
    }

    /// An example that this is not about, or a counterexample that it is about.
    fn wrong_example(&self) -> Option<&'static str> {
        let about = |line: &str| words::split(line).is_ok_and(|words| self.is_about(&Arguments::read(&words.argv)));
        let missed = self.examples.iter().find(|line| !about(line));
        missed.or_else(|| self.counterexamples.iter().find(|line| about(line))).copied()
    }
}

/// What the table says of a command.
pub(super) fn in_table(arguments: &Arguments<'_>) -> Finding {
    let hits = RULES.iter().filter(|rule| rule.is_about(arguments)).map(|rule| Finding {
        verdict: rule.verdict,
        rule: rule.id.to_owned(),
        reason: format!("`{}`: {}", arguments.name(), rule.reason),
        risk: Risk::High,
    });
    hits.fold(Finding::allowed(Risk::Low), Finding::or)
}

/// Whether the arguments of a command matter to any built-in rule.
pub(super) fn has_rules(arguments: &Arguments<'_>) -> bool {
    arguments.sed().is_some()
        || arguments.interpreter().is_some()
        || RULES.iter().any(|rule| rule.names(arguments.name()))
}

/// The first rule that is wrong about one of its own command lines, with that line.
pub(crate) fn wrong_example() -> Option<(&'static str, &'static str)> {
    RULES.iter().find_map(|rule| Some((rule.id, rule.wrong_example()?)))
}

const fn rule(
    id: &'static str,
    commands: &'static [&'static str],
    test: Test,
    verdict: Verdict,
    reason: &'static str,
    examples: &'static [&'static str],
    counterexamples: &'static [&'static str],
) -> BuiltIn {
    BuiltIn { id, commands, test, verdict, reason, examples, counterexamples }
}

/// What git itself knows. Anything else is an alias from a configuration, or another program.
const GIT: [&str; 92] = [
    "add",
    "am",
    "annotate",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "check-ref-format",
    "checkout",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "column",
    "commit",
    "commit-graph",
    "commit-tree",
    "config",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "difftool",
    "fetch",
    "fetch-pack",
    "filter-branch",
    "fmt-merge-msg",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "grep",
    "hash-object",
    "help",
    "index-pack",
    "init",
    "interpret-trailers",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "maintenance",
    "merge",
    "merge-base",
    "merge-file",
    "merge-tree",
    "mergetool",
    "mktag",
    "mktree",
    "mv",
    "name-rev",
    "notes",
    "pack-objects",
    "pack-refs",
    "prune",
    "pull",
    "push",
    "range-diff",
    "read-tree",
    "rebase",
    "reflog",
    "remote",
    "repack",
    "replace",
    "rerere",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "sparse-checkout",
    "stash",
    "status",
    "submodule",
    "switch",
    "tag",
    "update-index",
    "version",
    "worktree",
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "rbash", "mksh"];
const COMPILERS: &[&str] = &["gcc", "g++", "cc", "c++", "clang", "clang++", "cpp", "gcc-*", "g++-*", "clang-*"];

/// Every built-in rule.
#[rustfmt::skip]
pub(crate) const RULES: [BuiltIn; 78] = [
    // git
    rule("git.config", &["git"], Test::Before(&["-c", "--config-env", "--exec-path", "--super-prefix"]), Deny,
        "a configuration given as an option can name any program",
        &["git -c alias.x=!id x", "git -ccore.pager=id log", "git --config-env=a=B log", "git --exec-path=/tmp log"], &["git log", "git commit -c HEAD", "git switch -c new"]),
    rule("git.alias", &["git"], Test::Unknown(&GIT), Deny,
        "not a command of git: an alias from the repository, or another program",
        &["git x", "git my-alias --help"], &["git status", "git"]),
    rule("git.remote_program", &["git"], Test::Options(&["--upload-pack", "--receive-pack"]), Deny,
        "names the program that runs at the other end, which may be this one",
        &["git fetch --upload-pack=id .", "git ls-remote --upload-pa id .", "git push --receive-pack=id ."], &["git fetch origin"]),
    rule("git.clone_options", &["git"], Test::FirstWith(&["clone", "init"], &["-u", "-c", "--config", "--template"]), Deny,
        "a configuration, hooks or a program come with the new repository",
        &["git clone -c core.fsmonitor=id a b", "git clone --template=/tmp/t a", "git clone -u id a b", "git init --template=x"], &["git clone a b", "git init"]),
    rule("git.transport", &["git"], Test::Words(&["ext::*", "fd::*", "*ext::*"]), Deny,
        "this transport is a command line",
        &["git clone 'ext::sh -c id' x", "git fetch ext::id"], &["git clone https://example.com/a b"]),
    rule("git.exec", &["git"], Test::FirstWith(&["rebase", "archive", "push", "ls-remote", "fetch", "pull", "am", "send-email", "submodule"], &["--exec", "-x"]), Deny,
        "runs what it is given",
        &["git rebase --exec id main", "git rebase -x id main", "git archive --exec=id HEAD"], &["git rebase main"]),
    rule("git.pager", &["git"], Test::FirstWith(&["grep"], &["-O", "--open-files-in-pager"]), Deny,
        "opens the files in a program", &["git grep -Oid x", "git grep --open-files-in-pager=id x"], &["git grep x"]),
    rule("git.external_diff", &["git"], Test::Options(&["--ext-diff", "--textconv"]), Deny,
        "runs the programs that the repository's attributes name", &["git diff --ext-diff", "git log -p --ext-diff"], &["git diff"]),
    rule("git.output", &["git"], Test::Options(&["--output", "--output-directory"]), Deny,
        "writes a file of any name", &["git diff --output=.git/hooks/x", "git format-patch --output-directory=/tmp HEAD~1"], &["git log --oneline"]),
    rule("git.tools", &["git"], Test::First(&["difftool", "mergetool", "filter-branch"]), Deny,
        "runs programs that a configuration or an argument names", &["git difftool", "git mergetool", "git filter-branch --tree-filter id"], &["git diff"]),
    rule("git.bisect_run", &["git"], Test::Two("bisect", &["run"]), Deny,
        "runs what it is given", &["git bisect run id"], &["git bisect start"]),
    rule("git.foreach", &["git"], Test::Two("submodule", &["foreach"]), Deny,
        "runs what it is given", &["git submodule foreach id"], &["git submodule status"]),
    rule("git.force_push", &["git"], Test::FirstWith(&["push"], &["-f", "--force", "--force-with-lease", "--delete", "-d", "--mirror", "--prune"]), Confirm,
        "overwrites or deletes what others see", &["git push --force", "git push -f origin x", "git push -vf", "git push --delete origin x"], &["git push origin main"]),
    rule("git.force_refspec", &["git"], Test::Words(&["+*:*", "+refs/*"]), Confirm,
        "a `+` before a reference forces it", &["git push origin +main:main", "git fetch origin +refs/heads/a"], &["git push origin main:main"]),
    rule("git.reset", &["git"], Test::FirstWith(&["reset"], &["--hard", "--merge", "--keep"]), Confirm,
        "discards changes that exist nowhere else", &["git reset --hard", "git reset --har HEAD~1"], &["git reset --soft HEAD~1", "git reset"]),
    rule("git.clean", &["git"], Test::FirstWith(&["clean"], &["-f", "--force"]), Confirm,
        "deletes files that git does not know", &["git clean -fdx", "git clean -xdf"], &["git clean -n"]),
    rule("git.delete_branch", &["git"], Test::FirstWith(&["branch", "tag"], &["-D", "-d", "--delete"]), Confirm,
        "deletes a branch or a tag", &["git branch -D x", "git tag -d v1"], &["git branch x"]),
    rule("git.stash", &["git"], Test::Two("stash", &["drop", "clear"]), Confirm,
        "deletes stashed changes", &["git stash drop", "git stash clear"], &["git stash list"]),
    rule("git.reflog", &["git"], Test::Two("reflog", &["expire", "delete"]), Confirm,
        "deletes what is needed to undo", &["git reflog expire --expire=now --all"], &["git reflog"]),
    rule("git.discard", &["git"], Test::First(&["restore"]), Confirm,
        "discards changes that exist nowhere else", &["git restore ."], &["git status"]),
    // Files
    rule("find.exec", &["find"], Test::Options(&["-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"]), Deny,
        "runs a program, or writes a file, for each it finds", &["find . -exec id {} +", "find . -okdir id", "find . -fprint x"], &["find . -name x"]),
    rule("find.delete", &["find"], Test::Options(&["-delete"]), Confirm,
        "deletes what it finds", &["find . -name x -delete"], &["find . -name x"]),
    rule("tar.program", &["tar", "gtar", "bsdtar"],
        Test::Options(&["--checkpoint-action", "-I", "--use-compress-program", "--to-command", "-F", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"]), Deny,
        "runs a program while it reads or writes the archive",
        &["tar cf a --checkpoint=1 --checkpoint-action=exec=id b", "tar -cIid -f a b", "tar xf a --to-command=id", "tar --use-compress-prog=id -xf a"], &["tar -czf a.tgz b", "tar xf a"]),
    rule("tar.remote", &["tar", "gtar"], Test::Words(&["*@*:*"]), Deny,
        "an archive on another machine is reached through a program", &["tar xf me@host:a.tar"], &["tar xf a.tar"]),
    rule("sort.program", &["sort"], Test::Options(&["--compress-program", "-o", "--output"]), Deny,
        "runs a program for its temporary files, or writes a file of any name", &["sort --compress-program=id a", "sort -o b a", "sort --compress-prog id a"], &["sort -u a"]),
    rule("split.filter", &["split"], Test::Options(&["--filter"]), Deny,
        "runs a shell for each piece", &["split --filter=id a"], &["split -l 10 a"]),
    rule("zip.program", &["zip"], Test::Options(&["-T", "--test", "--unzip-command"]), Deny,
        "runs a program to test the archive", &["zip -T -TT id a b", "zip a b --unzip-command id", "zip -qT a b"], &["zip a b"]),
    rule("rg.pre", &["rg"], Test::Options(&["--pre", "--pre-glob", "--hostname-bin", "-z", "--search-zip"]), Deny,
        "runs a program for each file", &["rg --pre id x", "rg --pre=id x"], &["rg x", "rg -n x"]),
    rule("fd.exec", &["fd", "fdfind"], Test::Options(&["-x", "-X", "--exec", "--exec-batch"]), Deny,
        "runs a program for each file", &["fd -x id", "fd --exec id"], &["fd x"]),
    rule("destroy", &["rm", "rmdir", "unlink", "shred", "truncate", "dd", "wipefs", "blkdiscard"], Test::Command, Confirm,
        "deletes or overwrites", &["rm x", "dd if=a of=b", "shred x"], &["ls"]),
    rule("make_file_system", &["mkfs", "mkfs.*", "fdisk", "sfdisk", "parted", "mkswap", "cryptsetup"], Test::Command, Deny,
        "changes disks", &["mkfs.ext4 /dev/sda", "fdisk /dev/sda"], &["ls"]),
    rule("permissions", &["chmod", "chown", "chgrp", "setfacl"], Test::Options(&["-R", "--recursive"]), Confirm,
        "changes permissions of everything below", &["chmod -R 777 .", "chown -vR me ."], &["chmod 644 a"]),
    rule("rsync.program", &["rsync"], Test::Options(&["-e", "--rsh", "--rsync-path", "--daemon"]), Deny,
        "names a program to reach the other side", &["rsync -e id a b:c", "rsync -ave id a b:c", "rsync --rsync-path=id a b"], &["rsync -a a b"]),
    rule("rsync.delete", &["rsync"], Test::Options(&["--delete", "--delete-before", "--delete-after", "--delete-excluded", "--remove-source-files"]), Confirm,
        "deletes what the source does not have", &["rsync -a --delete a b"], &["rsync -a a b"]),
    // Other machines
    rule("ssh.options", &["ssh", "scp", "sftp"], Test::Options(&["-o", "-F", "-S", "-D", "-J", "-W"]), Deny,
        "an option can name a program, a configuration or another way out", &["ssh -o ProxyCommand=id x", "ssh -oProxyCommand=id x", "scp -S id a b:", "ssh -F x y"], &["scp a b:"]),
    rule("ssh.command", &["ssh", "mosh", "telnet", "rlogin"], Test::Command, Confirm,
        "runs commands on another machine, which no policy here covers", &["ssh host rm -rf /", "ssh host"], &["scp a b:"]),
    rule("curl.config", &["curl", "wget"], Test::Options(&["-K", "--config", "--use-askpass", "-e", "--execute", "--use-server-timestamps"]), Deny,
        "reads more options from a file, or runs a program", &["curl -K x", "wget --use-askpass=id x", "wget -e x=y z"], &["curl https://example.com"]),
    rule("netcat", &["nc", "ncat", "netcat", "socat", "cryptcat"], Test::Command, Deny,
        "connects programs and the network in any way", &["nc -e sh host 1", "socat - EXEC:id"], &["curl x"]),
    // Compilers and build tools
    rule("cc.program", COMPILERS, Test::Options(&["-wrapper", "-fplugin", "-specs", "--specs", "-B", "-fuse-ld", "-load"]), Deny,
        "names a program or a plug-in that the compiler runs", &["gcc -wrapper id a.c", "gcc -fplugin=./x.so a.c", "gcc -specs=x a.c"], &["gcc -O2 a.c"]),
    rule("cc.options_file", COMPILERS, Test::Words(&["@*"]), Deny,
        "reads more options from a file", &["gcc @options a.c"], &["gcc a.c"]),
    rule("make.eval", &["make", "gmake"], Test::Options(&["--eval", "-E"]), Deny,
        "runs what it is given", &["make --eval='$(shell id)'", "make --ev x"], &["make all"]),
    rule("make.variables", &["make", "gmake"], Test::Words(&["SHELL=*", "MAKEFLAGS=*", ".SHELLFLAGS=*", "*=*$(shell*"]), Deny,
        "decides what runs the recipes", &["make SHELL=/tmp/x"], &["make CFLAGS=-O2"]),
    rule("cargo.config", &["cargo"], Test::Options(&["--config", "-Z"]), Deny,
        "a configuration can name the compiler, the linker and the runner", &["cargo --config build.rustc='\"id\"' build", "cargo build --conf x"], &["cargo build --release"]),
    rule("cargo.publish", &["cargo"], Test::First(&["publish", "yank", "owner", "login", "logout"]), Confirm,
        "changes what others get", &["cargo publish", "cargo yank x"], &["cargo test"]),
    rule("cargo.install", &["cargo"], Test::First(&["install", "uninstall"]), Confirm,
        "installs programs from elsewhere", &["cargo install x"], &["cargo build"]),
    rule("npm.exec", &["npm", "pnpm", "yarn", "bun"], Test::First(&["exec", "x", "dlx", "explore", "create", "init", "edit"]), Deny,
        "runs any program, also one it fetches first", &["npm exec id", "npm x -- id", "yarn dlx y", "npm explore a -- id"], &["npm run build", "npm test", "npm ci"]),
    rule("npm.shell", &["npm", "pnpm", "yarn"], Test::Options(&["--script-shell", "--node-options", "--shell", "--prefix", "--globalconfig", "--userconfig"]), Deny,
        "decides what runs the scripts", &["npm run build --script-shell=/tmp/x", "npm --node-options=-r/tmp/x test"], &["npm run build"]),
    rule("npm.publish", &["npm", "pnpm", "yarn"], Test::First(&["publish", "unpublish", "deprecate", "dist-tag", "access", "owner", "login", "adduser", "token"]), Confirm,
        "changes what others get", &["npm publish", "npm unpublish x"], &["npm test"]),
    rule("npm.global", &["npm", "pnpm"], Test::Options(&["-g", "--global"]), Confirm,
        "changes the programs of this machine", &["npm install -g x"], &["npm install"]),
    rule("npx", &["npx", "bunx", "pnpx", "uvx", "pipx"], Test::Command, Deny,
        "runs any program, also one it fetches first", &["npx id", "uvx x"], &["npm test"]),
    rule("pip.publish", &["twine", "gem", "docker-compose"], Test::First(&["upload", "push", "up", "down"]), Confirm,
        "changes what others get", &["twine upload x", "gem push x"], &["gem list"]),
    rule("deploy", &["kubectl", "helm", "terraform", "tofu", "pulumi", "ansible-playbook", "fly", "vercel", "netlify", "serverless"],
        Test::First(&["apply", "delete", "destroy", "drain", "upgrade", "uninstall", "install", "rollback", "up", "deploy", "create", "replace", "scale", "rollout", "exec", "import", "taint"]), Confirm,
        "changes what runs on other machines", &["terraform destroy", "kubectl delete pod x", "helm upgrade a b"], &["kubectl get pods", "terraform plan"]),
    rule("ansible", &["ansible", "ansible-playbook"], Test::Command, Confirm,
        "changes other machines", &["ansible-playbook site.yml"], &["kubectl get pods"]),
    rule("cloud", &["aws", "gcloud", "az", "gh", "doctl", "heroku"], Test::Words(&["delete*", "terminate*", "remove*", "rm", "destroy*", "put-*", "purge*", "release", "merge", "deploy"]), Confirm,
        "changes remote resources", &["aws s3 rm s3://x", "gh pr merge 1", "gcloud projects delete x"], &["aws s3 ls", "gh pr list"]),
    // Shells and interpreters
    rule("shell.inline", SHELLS, Test::Before(&["-c", "-s", "-i", "-l", "--rcfile", "--init-file", "--login"]), Deny,
        "a shell runs any text it is given", &["sh -c id", "bash -lc id", "bash --rcfile x", "bash --init-f x", "sh -ec id"], &["sh build.sh"]),
    rule("python.inline", &["python", "python2", "python3", "python3.*", "pypy", "pypy3", "ipython"], Test::Before(&["-c", "-i"]), Deny,
        "runs the code it is given", &["python3 -c 'import os'", "python3 -Ic x", "python3.11 -cx"], &["python3 -m pytest -c x", "python3 build.py -c x"]),
    rule("perl.inline", &["perl", "perl5*"], Test::Before(&["-e", "-E", "-M", "-m", "-I", "-d", "-x"]), Deny,
        "runs the code it is given", &["perl -e 'system q(id)'", "perl -ne x", "perl -MPOSIX x.pl"], &["perl build.pl -e x"]),
    rule("ruby.inline", &["ruby", "irb"], Test::Before(&["-e", "-r", "-I", "-x"]), Deny,
        "runs the code it is given", &["ruby -e x", "ruby -ne x", "ruby -r./x y.rb"], &["ruby build.rb"]),
    rule("node.inline", &["node", "nodejs", "deno", "bun"],
        Test::Before(&["-e", "--eval", "-p", "--print", "-r", "--require", "--import", "--loader", "--experimental-loader", "-i", "--interactive", "--env-file", "--inspect", "--inspect-brk"]), Deny,
        "runs the code it is given", &["node -e x", "node -pe x", "node --eval=x", "node --ev x", "node -r ./x y.js", "node --import=x y"], &["node build.js -e x"]),
    rule("deno.eval", &["deno", "bun"], Test::First(&["eval", "repl"]), Deny, "runs the code it is given", &["deno eval x"], &["deno test"]),
    rule("php.inline", &["php", "php8*", "php7*"], Test::Before(&["-r", "-B", "-R", "-E", "-F", "-d", "-a"]), Deny,
        "runs the code it is given", &["php -r x", "php -d a=b x.php"], &["php x.php"]),
    rule("lua.inline", &["lua", "lua5*", "luajit"], Test::Before(&["-e", "-l", "-i"]), Deny, "runs the code it is given", &["lua -e x"], &["lua x.lua"]),
    rule("other.inline", &["tclsh", "expect", "guile", "R", "Rscript", "julia", "swipl", "ghci", "osascript", "jshell", "scala", "clojure", "erl", "elixir", "iex"],
        Test::Before(&["-e", "--eval", "-c", "-E", "--expr", "--print", "-p", "-g", "--execute"]), Deny,
        "runs the code it is given", &["Rscript -e x", "julia -e x", "elixir -e x"], &["Rscript x.R"]),
    rule("awk.run", &["awk", "gawk", "mawk", "nawk", "original-awk"], Test::Words(&["*system*", "*getline*", "*|*", "*@load*", "*@include*", "*/inet*"]), Deny,
        "the program runs or reads something else", &["awk 'BEGIN{system(\"id\")}'", "awk '{getline x; print x}' a", "awk '{print | \"sh\"}' a"], &["awk '{print $1}' a"]),
    rule("awk.options", &["awk", "gawk", "mawk", "nawk"], Test::Options(&["-f", "--file", "-l", "--load", "-i", "--include", "-E", "--exec", "-D", "--debug"]), Deny,
        "loads code from elsewhere", &["gawk -l x '{}'", "gawk --load=x '{}'", "awk -f x a"], &["awk -F: '{print $1}' a"]),
    // Programs with a way out to a shell
    rule("editor", &["ed", "ex", "vi", "vim", "nvim", "view", "vimdiff", "emacs", "nano", "pico", "joe", "mg", "red"], Test::Command, Deny,
        "an editor waits for input, and can start a shell", &["vim x", "ed x", "nano x"], &["sed -n 1p x"]),
    rule("pager", &["less", "more", "most", "pg"], Test::Command, Deny,
        "a pager can start a shell", &["less x"], &["head x"]),
    rule("man.pager", &["man"], Test::Options(&["-P", "--pager", "-H", "--html", "-p", "--preprocessor", "-C", "--config-file"]), Deny,
        "names a program to show the page", &["man -P id ls", "man --pager=id ls", "man -Hid ls"], &["man ls"]),
    rule("debugger", &["gdb", "lldb", "strace", "ltrace", "perf", "bpftrace", "rr", "valgrind"], Test::Command, Deny,
        "controls another program", &["gdb x", "strace id"], &["ls"]),
    rule("terminal", &["script", "screen", "tmux", "watch", "dtach", "expect", "unbuffer", "parallel", "entr"], Test::Command, Deny,
        "runs what it is given, on a terminal or repeatedly", &["script -c id", "watch id", "parallel id ::: a", "tmux new id"], &["ls"]),
    rule("later", &["crontab", "batch", "atq", "systemd-run", "launchctl", "schtasks"], Test::Command, Deny,
        "runs something later, outside the sandbox", &["crontab x"], &["ls"]),
    rule("database.shell", &["sqlite3"], Test::Words(&["*.shell*", "*.system*", "*load_extension*", "*.load*", "*edit(*"]), Deny,
        "runs a program or loads code", &["sqlite3 a '.shell id'", "sqlite3 a 'select load_extension(1)'"], &["sqlite3 a 'select 1'"]),
    rule("database.drop", &["psql", "mysql", "mariadb", "sqlite3", "mongosh", "redis-cli"], Test::Words(&["*[Dd][Rr][Oo][Pp] *", "*DROP *", "*drop *", "*TRUNCATE*", "*truncate *", "*FLUSHALL*", "*flushall*"]), Confirm,
        "deletes data", &["psql -c 'DROP TABLE x'", "sqlite3 a 'drop table x'", "redis-cli FLUSHALL"], &["psql -c 'select 1'"]),
    rule("psql.shell", &["psql"], Test::Words(&["*\\!*", "*PROGRAM*", "*program '*", "*\\o |*", "*\\g |*"]), Deny,
        "runs a program", &["psql -c '\\! id'", "psql -c \"copy x from PROGRAM 'id'\""], &["psql -c 'select 1'"]),
    rule("openssl.engine", &["openssl"], Test::Options(&["-engine", "-provider-path", "-provider"]), Deny,
        "loads code", &["openssl req -engine ./x.so"], &["openssl version"]),
    rule("loader", &["ld.so", "ld-linux*", "ld-musl*", "ld-*.so*"], Test::Command, Deny,
        "runs any file, also one that is not executable", &["ld-linux-x86-64.so.2 /bin/id", "ld.so x"], &["ld x"]),
    rule("power", &["shutdown", "reboot", "halt", "poweroff", "init", "telinit"], Test::Command, Deny,
        "stops the machine", &["reboot", "shutdown now"], &["ls"]),
    rule("kill_others", &["killall", "pkill", "skill", "fuser"], Test::Command, Confirm,
        "ends processes by name", &["killall x", "pkill -f x"], &["kill 1"]),
];
