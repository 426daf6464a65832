//! Lines made at random, near the border of what is understood.

/// A source of numbers that a seed repeats.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 33) % most as u64).unwrap()
    }

    fn chance(&mut self, of_a_hundred: usize) -> bool {
        self.below(100) < of_a_hundred
    }

    pub(super) fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// The commands that answer, each with the status of its place here.
pub(super) const COMMANDS: [&str; 7] = ["ok", "no", "two", "echo", "printf", "test", "grep"];

const PIECES: [&str; 86] = [
    "a",
    "b1",
    "x",
    "-",
    "--",
    "-n",
    "=",
    ":",
    "+",
    ",",
    ".",
    "..",
    "%",
    "^",
    "@",
    "é",
    "日",
    "!",
    "#",
    "'x y'",
    "\"x y\"",
    "''",
    "\"\"",
    "'$A'",
    "\"$A\"",
    "$A",
    "${A}",
    "\"${A}c\"",
    "$HOME",
    "$PWD",
    "\"$PWD\"",
    "$?",
    "\"$?\"",
    "${?}",
    "\\$",
    "\\ ",
    "\\*",
    "\\\\",
    "\\\n",
    "\\'",
    "\\\"",
    "\"\\$\\\"\\`\\\\\\a\\\n\"",
    "'a\nb'",
    "\"a\nb\"",
    "$'a\\tb\\n'",
    "$'\\x41\\u00e9\\101\\'\\\\'",
    "*",
    "?",
    "[",
    "]",
    "[a-c]",
    "[!a]",
    "[^f]",
    "[]a]",
    "[[:alpha:]]",
    "*.txt",
    "f?",
    "*.py",
    ".*",
    "d*",
    "*/",
    "*/*.py",
    "d?/x*",
    "**",
    "{",
    "}",
    "{a,b}",
    "{a,}",
    "{,}",
    "{a}",
    "{}",
    "{1..3}",
    "{3..1}",
    "{a..c}",
    "{x,{y,z}}",
    "~",
    "~/",
    "~/x",
    "a=",
    "A=",
    "x:~",
    "\"$\"",
    "{*.txt,f*}",
    "\"{a,b}\"",
    "\\{a,b}",
    "'*'",
];

/// Pieces that seldom make a line that is understood.
const ODD: [&str; 21] = [
    "$B",
    "${",
    "$",
    "~x",
    "a=~",
    "{a,b",
    "{01..3}",
    "{a..}",
    "[a",
    "a]",
    "]",
    "\"${B}\"",
    "{a,b}$A{1,2}",
    "{a}{b,c}",
    "$$",
    "`x`",
    "$(x)",
    "[[.a.]]",
    "\0",
    "\"$(cat <<'X'\na 'b\" $(c)\n\nX\n)\"",
    "\"a$(cat <<'E'\nE\n )b\"",
];

const TARGETS: [&str; 12] =
    ["f1", "f2", "f3", "\"f1\"", "f\\2", "d1/f1", "$PWD/f1", "/dev/null", "/dev/null", "'f3'", "f\"2\"", "./f2"];

const DELIMITERS: [&str; 6] = ["EOF", "'EOF'", "\"E\"OF", "\\E", "-EOF", "- 'E'"];

const BODIES: [&str; 14] = [
    "text",
    "\ttabs",
    "$A and $HOME",
    "\\$A \\\\ \\x \"q\"",
    "cont\\\ninued",
    "'single'",
    "a `b`",
    "$?",
    "",
    "  EOF",
    "x\\",
    "x\\\\",
    "*{a,b}~",
    "EOF2",
];

/// A line, with the texts that its here-documents still need.
struct Made<'d> {
    dice: &'d mut Dice,
    text: String,
    pending: Vec<String>,
}

/// A line of the grammar that is understood, with a little that is not.
pub(super) fn line(dice: &mut Dice) -> String {
    let mut made = Made { dice, text: String::new(), pending: Vec::new() };
    made.list(0);
    made.newline();
    let mut text = made.text;
    if !dice.chance(30) {
        text.truncate(text.trim_end_matches('\n').len());
    }
    if dice.chance(12) { mutated(dice, &text) } else { text }
}

/// A line with something put in, taken out or repeated.
pub(super) fn mutated(dice: &mut Dice, text: &str) -> String {
    const INSERTED: [&str; 40] = [
        "'", "\"", "\\", "$", "`", ";", "&", "|", "<", ">", "(", ")", "\n", "\\\n", "#", "~", "=", "*", "?", "[", "]",
        "{", "}", " ", "\t", "!", "&&", "||", "2>&1", ">", ">>", "|&", "A=1 ", "$A", "$?", "{a,b}", ";;", "&>", "2",
        " # ",
    ];
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let at = places[dice.below(places.len())];
    let to = places[dice.below(places.len())];
    let (at, to) = (at.min(to), at.max(to));
    match dice.below(4) {
        0 | 1 => format!("{}{}{}", &text[..at], dice.of(&INSERTED), &text[at..]),
        2 if to - at < 8 => format!("{}{}", &text[..at], &text[to..]),
        _ => format!("{}{}{}", &text[..to], &text[at..to], &text[to..]),
    }
}

impl Made<'_> {
    fn list(&mut self, depth: usize) {
        for n in 0..=self.dice.below(3) {
            if n > 0 {
                match self.dice.below(6) {
                    0 | 1 => self.text += self.dice.of(&[" && ", "&&", " && \n", " &&\\\n"]),
                    2 | 3 => self.text += self.dice.of(&[" || ", "||"]),
                    4 => self.text += self.dice.of(&["; ", ";"]),
                    _ => self.newline(),
                }
            }
            if self.dice.chance(8) {
                self.text += self.dice.of(&["! ", "time "]);
            }
            match self.dice.below(if depth < 2 { 14 } else { 12 }) {
                12 => {
                    self.text += self.dice.of(&["(", "( "]);
                    self.list(depth + 1);
                    self.text += self.dice.of(&[")", " )"]);
                }
                13 => {
                    self.text += "{ ";
                    self.list(depth + 1);
                    self.text += "; }";
                }
                0 => {
                    self.text += self.dice.of(&[
                        "cd d1", "cd d2", "cd ..", "cd none", "cd d1/", "cd ./d2", "cd -- d1", "cd lnk", "cd", "cd d*1",
                    ]);
                }
                1 => self.assign(),
                2 if self.dice.chance(40) => {
                    self.text += self.dice.of(&["exit", "exit 3", "exit $?", ":", "pwd", ": > f1", "> f2"]);
                }
                _ => {
                    self.simple();
                    while self.dice.chance(14) {
                        self.text += self.dice.of(&[" | ", "|", " |& ", " | \\\n"]);
                        self.simple();
                    }
                }
            }
            if self.dice.chance(5) {
                self.text += " # a comment 'x";
                self.newline();
            }
        }
    }

    fn assign(&mut self) {
        self.text += self.dice.of(&[
            "A=1",
            "A=",
            "B='x y'",
            "A=$B",
            "export A=1",
            "export A=~/x B=2",
            "A=~:~/y",
            "export B",
            "A=a*b B={c,d}",
            "export A=\"$HOME\"",
        ]);
    }

    fn simple(&mut self) {
        if self.dice.chance(10) {
            self.text += self.dice.of(&["A=1 ", "B=x\\ y ", "A=~/z ", "A=1 B=2 ", "B=*{a,b} "]);
        }
        if self.dice.chance(4) {
            self.redirect();
        }
        self.text += self.dice.of(&COMMANDS);
        for _ in 0..self.dice.below(4) {
            self.text += self.dice.of(&[" ", " ", " ", "\t", "  ", " \\\n"]);
            if self.dice.chance(12) {
                self.redirect();
                continue;
            }
            for _ in 0..=self.dice.below(3) {
                let pieces: &[&str] = if self.dice.chance(3) { &ODD } else { &PIECES };
                self.text += self.dice.of(pieces);
            }
        }
        if self.dice.chance(20) {
            self.text += " ";
            self.redirect();
        }
    }

    fn redirect(&mut self) {
        match self.dice.below(12) {
            0 => {
                let word = self.dice.of(&DELIMITERS);
                self.text += "<<";
                self.text += word;
                let end = word.replace(['\'', '"', '\\', '-', ' '], "");
                let mut body = String::new();
                for _ in 0..self.dice.below(3) {
                    body += self.dice.of(&BODIES);
                    body.push('\n');
                }
                if word.starts_with('-') && self.dice.chance(50) {
                    body.push('\t');
                }
                self.pending.push(body + &end);
            }
            1 => {
                self.text += "<<<";
                self.text += self.dice.of(&["", " "]);
                for _ in 0..=self.dice.below(2) {
                    self.text += self.dice.of(&PIECES);
                }
            }
            2 | 3 => self.text += self.dice.of(&["2>&1", ">&2", "1>&2", "2>&2", ">& 2", "2>&1", ">&\\1"]),
            4 => self.target(&["<", "< ", "0<"]),
            5 => self.target(&["&>", "&>>", ">&", "&> "]),
            6 if self.dice.chance(20) => {
                self.text += self.dice.of(&["2>&-", "3>&1", "<&0", "3>f1", "<>f1", "{x}>f1", ">*.txt"]);
            }
            _ => self.target(&[">", "> ", ">>", "2>", "2>>", "1>", ">|", "\\\n>"]),
        }
        self.text += " ";
    }

    fn target(&mut self, operators: &[&str]) {
        self.text += self.dice.of(operators);
        self.text += self.dice.of(&TARGETS);
    }

    fn newline(&mut self) {
        self.text.push('\n');
        for body in self.pending.drain(..) {
            self.text += &body;
            self.text.push('\n');
        }
    }
}
