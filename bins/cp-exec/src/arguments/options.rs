//! Reading a command's arguments as its own parser would: bundled letters, attached values, abbreviations, `--`.

/// How a command's options read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syntax {
    /// Letters that take a value.
    pub takes: &'static str,
    /// Long options that take a value in the next word.
    pub takes_long: &'static [&'static str],
    /// Options end at the first operand: what follows belongs to another program.
    pub stops: bool,
    /// One dash and several letters are one option.
    pub long_dash: bool,
}

/// The syntax of most programs.
pub(crate) const PLAIN: Syntax = Syntax { takes: "", takes_long: &[], stops: false, long_dash: false };

/// One argument, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// `--name`, `--name=value`, a letter of `-abc`, or `-name` where that is one option.
    Option(Name<'a>, Option<&'a str>),
    /// Anything else, and its place in the words.
    Operand(&'a str, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    Letter(char),
    /// A word with its dashes.
    Word(&'a str),
}

impl Name<'_> {
    /// Whether this is the option that a rule names. An abbreviation is every option it could stand for.
    pub(crate) fn is(&self, option: &str) -> bool {
        match self {
            Self::Letter(letter) => {
                option.len() == 1 + letter.len_utf8() && option.starts_with('-') && option.ends_with(*letter)
            }
            Self::Word(word) if word.starts_with("--") => {
                option == *word || (word.len() > 3 && option.starts_with(word))
            }
            Self::Word(word) => option == *word,
        }
    }
}

/// Reads the arguments after the command's name.
pub(crate) fn read<'a>(argv: &'a [String], syntax: &Syntax) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let (mut at, mut ended) = (1, false);
    while at < argv.len() {
        let word = argv[at].as_str();
        if ended || word == "-" || !word.starts_with('-') {
            items.push(Item::Operand(word, at));
            ended |= syntax.stops;
        } else if word == "--" {
            ended = true;
        } else if word.starts_with("--") || syntax.long_dash {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let takes = syntax.takes_long.iter().any(|option| Name::Word(name).is(option));
            let value = match value {
                None if takes => {
                    at += 1;
                    argv.get(at).map(String::as_str)
                }
                value => value,
            };
            items.push(Item::Option(Name::Word(name), value));
        } else {
            at += letters(word, argv, at, syntax, &mut items);
        }
        at += 1;
    }
    items
}

/// Reads `-abc`, and says how many words beyond it were its value.
fn letters<'a>(word: &'a str, argv: &'a [String], at: usize, syntax: &Syntax, items: &mut Vec<Item<'a>>) -> usize {
    for (place, letter) in word.char_indices().skip(1) {
        if !syntax.takes.contains(letter) {
            items.push(Item::Option(Name::Letter(letter), None));
            continue;
        }
        let attached = &word[place + letter.len_utf8()..];
        if attached.is_empty() {
            items.push(Item::Option(Name::Letter(letter), argv.get(at + 1).map(String::as_str)));
            return 1;
        }
        items.push(Item::Option(Name::Letter(letter), Some(attached)));
        return 0;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn shown(text: &str, syntax: &Syntax) -> String {
        let argv = argv(text);
        let show = |item: &Item<'_>| match item {
            Item::Option(Name::Letter(letter), value) => format!("-{letter}={}", value.unwrap_or("")),
            Item::Option(Name::Word(word), value) => format!("{word}={}", value.unwrap_or("")),
            Item::Operand(word, _) => (*word).to_owned(),
        };
        read(&argv, syntax).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn letters_are_unbundled_and_values_found() {
        let syntax = Syntax { takes: "f", takes_long: &["--file"], ..PLAIN };
        assert_eq!(shown("tar -xvfa b", &syntax), "-x= -v= -f=a b");
        assert_eq!(shown("tar -xf a b", &syntax), "-x= -f=a b");
        assert_eq!(shown("tar --file a --file=b -- -x", &syntax), "--file=a --file=b -x");
    }

    #[test]
    fn options_end_where_another_program_begins() {
        let syntax = Syntax { stops: true, ..PLAIN };
        assert_eq!(shown("env -i python -c x", &syntax), "-i= python -c x");
        assert_eq!(shown("find . -exec id", &Syntax { long_dash: true, ..PLAIN }), ". -exec= id");
    }

    #[test]
    fn an_abbreviation_is_every_option_it_could_stand_for() {
        assert!(Name::Word("--upload-pa").is("--upload-pack"));
        assert!(Name::Word("--up").is("--upload-pack"));
        assert!(!Name::Word("--upload-packs").is("--upload-pack"));
        assert!(!Name::Word("--u").is("--upload-pack"));
        assert!(Name::Letter('c').is("-c") && !Name::Letter('c').is("-d"));
    }
}
