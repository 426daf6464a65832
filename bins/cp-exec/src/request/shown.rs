//! A plan written out again as a command line.

use cp_common::wire::quoted;

use crate::lowering::steps::{Action, Join, Part, Piece, Redirect, Step, Target, Word};

/// The steps as one line that a shell would read the same way.
pub(crate) fn line_of(steps: &[Step]) -> String {
    steps.iter().map(step).collect()
}

fn step(step: &Step) -> String {
    let join = match step.join {
        Join::Start => "",
        Join::And => " && ",
        Join::Or => " || ",
        Join::Then => "; ",
    };
    let action = match &step.action {
        Action::Pipeline(parts) => parts.iter().map(part).collect::<Vec<_>>().join(" | "),
        Action::Cd(directory) => format!("cd {}", word(directory)),
        Action::Group(steps) => format!("({})", line_of(steps)),
        Action::Block(steps) => format!("{{ {}; }}", line_of(steps)),
        Action::Exit(status) => format!("exit {}", word(status)),
    };
    format!("{join}{}{action}", if step.negated { "! " } else { "" })
}

/// One command with its variables, whose values are not shown, and its redirections.
fn part(part: &Part) -> String {
    let variables = part.env.keys().map(|name| format!("{name}=…"));
    let nothing = part.argv.is_empty().then(|| ":".to_owned());
    let words = part.argv.iter().map(word);
    variables.chain(nothing).chain(words).chain(part.redirects.iter().map(redirect)).collect::<Vec<_>>().join(" ")
}

fn redirect(Redirect { fd, target }: &Redirect) -> String {
    let output = if *fd == 1 { String::new() } else { fd.to_string() };
    match target {
        Target::Read { path } => format!("<{}", word(path)),
        Target::Write { path } => format!("{output}>{}", word(path)),
        Target::Append { path } => format!("{output}>>{}", word(path)),
        Target::Dup { to } => format!("{output}>&{to}"),
        // A shell ends the text with a new line itself.
        Target::Text { text: Word::Text(text) } => format!("<<<{}", quoted(text.strip_suffix('\n').unwrap_or(text))),
        Target::Text { text } => format!("<<<{}", word(text)),
    }
}

fn word(word: &Word) -> String {
    match word {
        Word::Text(text) => quoted(text),
        Word::Pieces(pieces) => pieces.iter().map(piece).collect(),
    }
}

fn piece(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => quoted(text),
        Piece::Glob(pattern) => pattern.clone(),
        Piece::Status => "$?".to_owned(),
    }
}
