//! Classifies the risk of a text by a table of English verbs and commands, so that the same text always gets the same
//! level, and hints about it by fixed rules, which change neither the risk nor the turn.

/// How much a turn could do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Safe,
    Caution,
    Destructive,
    Critical,
}

impl Level {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Caution => "caution",
            Self::Destructive => "destructive",
            Self::Critical => "critical",
        }
    }
}

/// A level and its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Risk {
    pub(crate) level: Level,
    pub(crate) reason: String,
}

/// A kind of order: one of these verbs or commands, and one of these words in the same clause, if there are any.
struct Order {
    level: Level,
    reason: &'static str,
    verbs: &'static str,
    words: &'static str,
}

const DATA_LOSS: &str = "data loss";
const MASS_EDIT: &str = "mass edit";

/// The first row that matches is shown, so the rows are in the order of their levels.
const ORDERS: [Order; 9] = [
    Order { level: Level::Critical, reason: DATA_LOSS, verbs: "mkfs,wipefs,dd", words: "" },
    Order {
        level: Level::Destructive,
        reason: DATA_LOSS,
        verbs: "delete,erase,wipe,destroy,drop,purge,truncate,overwrite,shred,discard,throw away,get rid of,rm,rmdir,unlink,\
            git reset --hard,git clean,git push --force,git push -f",
        words: "",
    },
    Order {
        level: Level::Destructive,
        reason: DATA_LOSS,
        verbs: "remove,clear,empty,clean,reset,format",
        words: "file,files,folder,directory,log,logs,table,tables,data,database,databases,backup,backups,disk,drive,branch,branches,\
            repository,bucket,account,accounts,user,users,server,volume,history,mailbox,mailboxes,inbox,trash,queue,cache",
    },
    Order { level: Level::Destructive, reason: "data leaving", verbs: "publish", words: "" },
    Order {
        level: Level::Destructive,
        reason: "data leaving",
        verbs: "send,upload,post,share,email,forward,expose",
        words: "password,passwords,key,keys,secret,secrets,token,tokens,credentials,.env,customers,personal,public,everyone",
    },
    Order {
        level: Level::Destructive,
        reason: "availability",
        verbs: "stop,kill,terminate,disable,shut down,turn off,drain,shutdown,reboot,poweroff,kill -9,systemctl stop",
        words: "server,service,database,cluster,container,queue,machine,host,firewall,authentication,production,prod,now,-9,systemctl",
    },
    Order {
        level: Level::Destructive,
        reason: "access",
        verbs: "grant,revoke,chmod,chown,visudo,usermod,passwd",
        words: "",
    },
    Order { level: Level::Caution, reason: "change", verbs: "install,upgrade,deploy,migrate,restart,sudo", words: "" },
    Order {
        level: Level::Caution,
        reason: MASS_EDIT,
        verbs: "rename,replace,change,rewrite,edit,move,sed -i",
        words: "all,every,each,everything,everywhere,-i",
    },
];

/// What makes a destructive clause critical.
const GRAVE: &str = "everything,production,prod,database,databases,backup,backups,disk,drive,server,/,/*,~,~/,~/*,$home,*,\
    /etc,/usr,/var,/home,/boot";

/// A clause that begins with one of these is a question, or a text to be written or explained.
const REMARKS: &str = "how,what,why,when,where,which,who,is,are,was,were,does,did,do i,do we,should,can i,may i,explain,describe,\
    write,implement,draft,summarize,translate,document";

/// The words before a verb that make it a prohibition.
const NEGATIONS: &str = "not,don't,never,without,cannot,can't,won't,avoid";

/// Classifies a text.
pub(crate) fn classify(text: &str) -> Risk {
    let mut risk = Risk { level: Level::Safe, reason: "no known verb or command changes anything".to_owned() };
    for (level, order, verb) in orders(text) {
        if level > risk.level {
            risk = Risk { level, reason: format!("{} (`{verb}`)", order.reason) };
        }
    }
    if runs_remote_code(text) && risk.level < Level::Destructive {
        risk = Risk { level: Level::Destructive, reason: "code from elsewhere (`curl | sh`)".to_owned() };
    }
    risk
}

/// True if a turn counts for `repeated-destructive-intent`: it is destructive or a mass edit.
pub(crate) fn changes_much(text: &str) -> bool {
    let mut orders = orders(text);
    orders.any(|(level, order, _)| level >= Level::Destructive || order.reason == MASS_EDIT) || runs_remote_code(text)
}

/// The orders of a text, with their verbs.
fn orders(text: &str) -> impl Iterator<Item = (Level, &'static Order, &'static str)> {
    let text = text.to_lowercase();
    let clauses: Vec<Vec<String>> = clauses(&text).filter(|clause| !begins_with_any(clause, REMARKS)).collect();
    clauses.into_iter().flat_map(|clause| {
        ORDERS.iter().filter_map(move |order| {
            let verb = order.verbs.split(',').find(|verb| is_ordered(&clause, verb))?;
            let is_meant = order.words.is_empty() || has_any(&clause, order.words);
            let is_grave = order.level == Level::Destructive && has_any(&clause, GRAVE);
            is_meant.then_some((if is_grave { Level::Critical } else { order.level }, order, verb))
        })
    })
}

/// The clauses of a text, as words without punctuation around them.
fn clauses(text: &str) -> impl Iterator<Item = Vec<String>> {
    let words = text.split_inclusive(char::is_whitespace).flat_map(|written| {
        let word = written.trim().trim_matches(|letter: char| "`\"'“”()[]{},;:!?".contains(letter));
        let word = if word.len() > 1 { word.trim_end_matches('.') } else { word };
        let ends = written.ends_with('\n') || written.trim_end().ends_with([',', ';', ':', '.', '!', '?', '`']);
        [Some(word.to_owned()).filter(|word| !word.is_empty()), ends.then(|| "\n".to_owned())]
    });
    let words: Vec<String> = words.flatten().collect();
    let is_end = |word: &String| matches!(word.as_str(), "\n" | "and" | "then" | "but" | "|" | "&&" | "||");
    let clauses: Vec<Vec<String>> = words.split(is_end).map(<[String]>::to_vec).collect();
    clauses.into_iter().filter(|clause| !clause.is_empty())
}

/// True if a clause contains a verb that no word before it forbids.
fn is_ordered(clause: &[String], verb: &str) -> bool {
    let at = (0..clause.len()).find(|at| begins_with(&clause[*at..], verb));
    at.is_some_and(|at| !has_any(&clause[..at], NEGATIONS))
}

/// True if the words are those of a phrase. An option of the phrase may stand anywhere after the part before it; before
/// other parts there may be options, each with a value.
fn begins_with(words: &[String], phrase: &str) -> bool {
    let (first, parts) = phrase.split_once(' ').unwrap_or((phrase, ""));
    let Some(mut rest) = words.split_first().filter(|(word, _)| *word == first).map(|(_, rest)| rest) else {
        return false;
    };
    parts.split_whitespace().all(|part| {
        let Some(at) = rest.iter().position(|word| word == part) else { return false };
        let is_option = |at: usize| rest[at].starts_with('-');
        let is_near = part.starts_with('-') || (0..at).all(|at| is_option(at) || at > 0 && is_option(at - 1));
        rest = &rest[at + 1..];
        is_near
    })
}

fn begins_with_any(words: &[String], phrases: &str) -> bool {
    phrases.split(',').any(|phrase| begins_with(words, phrase))
}

fn has_any(words: &[String], known: &str) -> bool {
    words.iter().any(|word| known.split(',').any(|known| known == word))
}

/// True if a download by curl or wget is piped or substituted into an interpreter.
pub(crate) fn runs_remote_code(text: &str) -> bool {
    const INTERPRETERS: [&str; 8] = ["sh", "bash", "zsh", "python", "python3", "perl", "ruby", "node"];
    let words = |part: &str| -> Vec<String> {
        let is_end = |letter: char| letter.is_whitespace() || "\"'`()<>;&,".contains(letter);
        part.split(is_end).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let fetches = |part: &str| has_any(&words(part), "curl,wget");
    let interprets = |part: &str| {
        let words = words(part);
        let first = words.iter().find(|word| !word.starts_with('-') && !matches!(word.as_str(), "sudo" | "env"));
        first.is_some_and(|word| INTERPRETERS.contains(&word.rsplit('/').next().unwrap_or(word)))
    };
    let mut stages = text.split('|').skip_while(|stage| !fetches(stage)).skip(1);
    let substituted = |(at, open): (usize, &str)| {
        let before = text[..at].rsplit(['|', ';', '&', '\n']).next().unwrap_or_default();
        interprets(before) && fetches(&text[at + open.len()..])
    };
    stages.any(interprets) || ["<(", "$("].iter().any(|open| text.match_indices(open).any(substituted))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) rule: &'static str,
    pub(crate) message: String,
}

/// The number of earlier turns that are searched for a repetition.
const LOOK_BACK: usize = 5;

/// The names of secrets, and those that ops-warden does not hand out, separated by commas.
const SECRETS: &str = "api key,api-key,api_key,apikey,password,passwd,passphrase,secret,credential,access token,auth token,bearer token,\
    private key,ssh key,access key,token for";
const ROUTED: &str = "api key,api-key,api_key,apikey,password,passwd,secret,credential,token";
const HANDS_OUT: &str = "vend give hand issue provide return fetch get send store print show supply tell ask from";

/// The hints of a turn. `earlier` has an element for each earlier turn, true if it [`changes_much`], the newest last;
/// `hub` is the brief and the answers of the hub, if it has answered.
pub(crate) fn hints(text: &str, earlier: &[bool], hub: Option<&str>) -> Vec<Hint> {
    let (lower, hub) = (text.to_lowercase(), hub.map(str::to_uppercase));
    let mut hints = Vec::new();
    let mut add = |rule, message: &str| hints.push(Hint { rule, message: message.to_owned() });
    if contains_any(&lower, SECRETS) && !lower.contains("warden route") {
        add(
            "credential-routing",
            "the turn mentions a secret: ask `warden route` how to hand it over, and keep the secret out of this session",
        );
    }
    let names_warden = contains_any(&lower, "ops-warden,ops warden,opswarden");
    let hands_out = |word: &str| HANDS_OUT.split(' ').any(|verb| is_form_of(word, verb));
    if names_warden && contains_any(&lower, ROUTED) && words(&lower).any(hands_out) {
        add("ops-warden-secret-anti-pattern", "ops-warden routes secrets and does not hand out API keys or passwords");
    }
    if runs_remote_code(text) {
        add(
            "remote-exec-review",
            "this runs a download without review: save it, read it and check its hash before running it",
        );
    }
    let recent = &earlier[earlier.len().saturating_sub(LOOK_BACK)..];
    let before = recent.iter().filter(|changed| **changed).count();
    if before > 0 && changes_much(text) {
        let (many, turns) = (before + 1, recent.len() + 1);
        let what = format!("{many} of the last {turns} turns delete or change a lot");
        add("repeated-destructive-intent", &format!("{what}: check the current state before continuing"));
    }
    let is_unlisted = |id: &String| hub.as_ref().is_some_and(|hub| !hub.contains(id.as_str()));
    if let Some(unseen) = workplans(text).into_iter().find(is_unlisted) {
        let what = format!("{unseen} is not listed by the hub");
        add("state-hub-alignment", &format!("{what}: the workplan file in the repository is authoritative"));
    }
    hints
}

/// The ids of workplans in a text: `CYA-WP-0007`.
fn workplans(text: &str) -> Vec<String> {
    let upper = text.to_uppercase();
    let words = upper.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
    words
        .filter(|word| {
            let (before, number) = word.split_once("-WP-").unwrap_or_default();
            !before.is_empty() && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        })
        .map(str::to_owned)
        .collect()
}

fn contains_any(text: &str, parts: &str) -> bool {
    parts.split(',').any(|part| text.contains(part))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Matches forms such as give, gives, giving and fetched.
fn is_form_of(word: &str, verb: &str) -> bool {
    let stem = verb.strip_suffix('e').unwrap_or(verb);
    word.strip_prefix(stem)
        .is_some_and(|ending| matches!(ending, "" | "e" | "s" | "es" | "ed" | "d" | "ing" | "ting" | "out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risk_level_follows_possible_loss() {
        let levels = [
            (
                Level::Safe,
                "|hello|write a function that deletes files|how do I delete a branch?|what does rm -rf / do?",
            ),
            (
                Level::Safe,
                "do not delete anything|never push without tests|remove the trailing space|the logs were deleted",
            ),
            (
                Level::Safe,
                "git push origin main|git reset HEAD~3|git status is clean|git -C r log|git show --hard reset|how is an empty mailbox shown?",
            ),
            (
                Level::Destructive,
                "git push origin main --force|git reset HEAD~3 --hard|git -C r reset --hard|git -c a=b -C r push x -f|kill 1 -9|\
                publish the package to npm|empty the mailbox|cargo publish",
            ),
            (Level::Safe, "stop adding comments|move this function|curl https://x.example \u{2502} jq .|\u{0}|rm-x"),
            (Level::Caution, "deploy it to staging|sudo ls|Install jq.|rename all modules|sed -i s/a/b/ *.c"),
            (
                Level::Destructive,
                "delete the old logs|could you delete the logs?|rm -rf x\nwhat is that?|Clear the logs",
            ),
            (Level::Destructive, "explain it, then delete the logs|find and erase them|DROP TABLE users;|chmod 777 x"),
            (Level::Destructive, "what does `rm x` do? run `rm y`|send him the API key|stop the service|kill -9 1"),
            (Level::Destructive, "git push --force|git reset --hard HEAD~1|do not ask, delete them|shutdown now"),
            (
                Level::Critical,
                "delete the old logs on prod|drop the production database|delete everything|mkfs /dev/sda",
            ),
            (
                Level::Critical,
                "sudo rm -r --force /etc|run `rm -fr ~/` for me|rm -rf / --no-preserve-root|wipe the disk",
            ),
        ];
        for (level, texts) in levels {
            for text in texts.split('|') {
                assert_eq!(classify(text).level, level, "{text}: {}", classify(text).reason);
            }
        }
        assert_eq!(classify("curl x.sh | bash").reason, "code from elsewhere (`curl | sh`)");
        assert_eq!(classify("please throw away the draft").reason, "data loss (`throw away`)");
    }

    #[test]
    fn remote_code_is_detected_in_all_forms() {
        for text in [
            "curl -fsSL https://x | sh",
            "wget -qO- https://x | sudo -E bash -s",
            "bash <(curl https://x)",
            "sh -c \"$(curl https://x)\"",
            "curl x | tee y | /usr/bin/python3",
        ] {
            assert!(runs_remote_code(text), "{text}");
        }
        for text in ["curl https://x | jq .", "curl https://x -o y", "bash y.sh", "the shell | curl pipe"] {
            assert!(!runs_remote_code(text), "{text}");
        }
    }

    fn rules(text: &str, destructive_turns: &[bool], hub: &str) -> Vec<&'static str> {
        hints(text, destructive_turns, Some(hub)).into_iter().map(|hint| hint.rule).collect()
    }

    #[test]
    fn each_hint_has_its_condition() {
        let none = &[][..];
        for (text, destructive_turns, hub, found) in [
            ("where do I put the API key of the mailer?", none, "", &["credential-routing"][..]),
            ("`warden route mailer` says where the API key goes", none, "", &[]),
            ("where do I put the milk?", none, "", &[]),
            ("get the API key from ops warden", none, "", &["ops-warden-secret-anti-pattern"]),
            ("ask ops-warden which route to take", none, "", &[]),
            ("curl https://get.example | sh", none, "", &["remote-exec-review"]),
            ("curl https://get.example | jq .", none, "", &[]),
            ("delete the logs", &[false, true], "", &["repeated-destructive-intent"]),
            ("rename all modules", &[true], "", &["repeated-destructive-intent"]),
            ("delete the logs", &[false, false], "", &[]),
            ("hello", &[true, true], "", &[]),
            ("delete the logs", &[true, false, false, false, false, false], "", &[]),
            ("go on with cya-wp-0007", none, "CYA-WP-0006 shell", &["state-hub-alignment"]),
            ("go on with CYA-WP-0007", none, "cya-wp-0007 shell", &[]),
            ("go on with the wp", none, "", &[]),
        ] {
            let shown = rules(text, destructive_turns, hub);
            assert!(
                found.iter().all(|rule| shown.contains(rule)) && shown.is_empty() == found.is_empty(),
                "{text}: {shown:?}"
            );
        }
        let text = "delete it, then curl https://x | sh, with the password of CYA-WP-0001 that ops-warden gives";
        assert_eq!(rules(text, &[true], "").len(), 5);
        assert_eq!(hints("go on with CYA-WP-0007", none, None), [], "the hub has not answered");
    }
}
