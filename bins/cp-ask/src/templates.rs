//! Templates of `config/templates/`: texts that begin a question. A template with `{{` or `{%` is rendered by
//! `cp-compose`.

use std::path::{Path, PathBuf};

use cp_common::context::given::{self, text_of};
use cp_common::coprocess::command_words;
use cp_common::home::{Home, create_whole, is_id, write_whole};
use cp_common::spelling::nearest;
use cp_common::wire::quoted;
use cp_common::{Error, Result};

use crate::arguments::{OF_REQUEST, Question, request_of};

/// The templates that `init` creates.
const STARTERS: [(&str, &str); 3] = [
    ("review.md", include_str!("../templates/review.md")),
    ("commit.md", include_str!("../templates/commit.md")),
    ("translate.md", include_str!("../templates/translate.md")),
];

/// The longest template, in bytes.
const LONGEST: u64 = 4 << 20;

/// A template: options of the request in a comment at its start, and a text.
pub(crate) struct Template {
    pub(crate) file: PathBuf,
    whole: String,
}

/// The beginning and the end of the comment with the options.
const OPTIONS: (&str, &str) = ("{# cp-ask", "-#}");

impl Template {
    /// Finds a template by its name, or reads the file at a path.
    pub(crate) fn find(name: &str, home: &Home) -> Result<Self> {
        if name.contains('/') {
            return Self::read(Path::new(name));
        }
        let known = list(home);
        if let Some(file) = known.iter().find(|file| name_of(file) == name || file.ends_with(name)) {
            return Self::read(file);
        }
        let error = Error::not_found(format!("no template `{name}`"));
        let names: Vec<String> = known.iter().map(|file| name_of(file)).collect();
        Err(match nearest(name, names.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("`cp-ask init` writes some to {}", directory(home).display())),
        })
    }

    fn read(file: &Path) -> Result<Self> {
        let text = text_of(&given::bytes(file, LONGEST)?).map_err(|e| e.in_file(file))?.to_owned();
        Ok(Self { file: file.to_owned(), whole: text })
    }

    /// Splits the template into the words of its options and its text.
    fn parts(&self) -> (&str, &str) {
        let options = self.whole.strip_prefix(OPTIONS.0).and_then(|rest| rest.split_once(OPTIONS.1));
        options.map_or(("", self.whole.as_str()), |(options, text)| (options, text.trim_start()))
    }

    /// Returns the words of the options, of which the first is the name of this program.
    pub(crate) fn words(&self) -> Result<Vec<String>> {
        command_words(&format!("cp-ask {}", self.parts().0)).map_err(|e| e.in_file(&self.file))
    }

    /// Returns the text that precedes the question; `None` if `cp-compose` renders the template, which knows its
    /// variables. Fails if the template has no place for a text that is given.
    pub(crate) fn instruction(&self, has_text: bool, has_variables: bool) -> Result<Option<&str>> {
        let tags = ["{{", "{%"].into_iter().flat_map(|open| self.parts().1.split(open).skip(1));
        let tags: Vec<&str> = tags.filter_map(|tag| tag.split('}').next()).collect();
        match tags.as_slice() {
            [] if !has_variables => Ok(Some(self.parts().1.trim_end())),
            [_, ..] if has_text && !tags.iter().any(|tag| tag.contains("text")) => {
                let error = Error::usage("the template does not use the text").in_file(&self.file);
                Err(error.hint("add {{ text }} to the template"))
            }
            _ => Ok(None),
        }
    }
}

/// Writes the options and the text of a question as a template. Returns what to print.
pub(crate) fn save(name: &str, question: &Question, home: &Home) -> Result<String> {
    if !is_id(name) {
        return Err(
            Error::usage(format!("`{name}` cannot be the name of a template")).hint("use letters, digits, _ and -")
        );
    }
    let options: String = question.passed(OF_REQUEST).map(|word| format!(" {}", quoted(&word))).collect();
    if options.contains(OPTIONS.1) {
        return Err(Error::usage(format!("an option of a template cannot contain {}", OPTIONS.1)));
    }
    let text = question.text.join(" ");
    let head = if options.is_empty() { String::new() } else { format!("{}{options} {}\n", OPTIONS.0, OPTIONS.1) };
    let file = directory(home).join(format!("{name}.md"));
    let template = Template { file, whole: format!("{head}{text}\n") };
    request_of(&template.words()?)?;
    write_whole(&template.file, template.whole.as_bytes())?;
    Ok(format!("cp-ask -t {name} uses {}\n", template.file.display()))
}

/// Creates the starter templates that do not exist.
pub(crate) fn create_starters(home: &Home) -> Result<()> {
    STARTERS.iter().try_for_each(|(name, text)| create_whole(&directory(home).join(name), text.as_bytes()).map(drop))
}

/// Lists the templates, each with its first line; or returns the text of one.
pub(crate) fn show(name: Option<&str>, home: &Home) -> Result<String> {
    if let Some(name) = name {
        return Ok(Template::find(name, home)?.whole);
    }
    let line_of = |file: PathBuf| -> Result<String> {
        let text = Template::read(&file)?.whole;
        Ok(format!("{:<16}{}\n", name_of(&file), text.lines().next().unwrap_or_default()))
    };
    let lines = list(home).into_iter().map(line_of).collect::<Result<String>>()?;
    if lines.is_empty() {
        return Err(Error::not_found("no templates yet").hint("`cp-ask init` writes some"));
    }
    Ok(lines)
}

fn directory(home: &Home) -> PathBuf {
    home.path("config/templates")
}

fn name_of(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn list(home: &Home) -> Vec<PathBuf> {
    let entries = directory(home).read_dir().into_iter().flatten();
    let is_shown = |file: &PathBuf| file.is_file() && !name_of(file).starts_with('.');
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_shown).collect();
    files.sort();
    files
}
