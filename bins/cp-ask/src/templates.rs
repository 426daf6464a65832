//! Templates of `config/templates/`: texts that begin a question, which `cp-compose` renders, after options of the
//! request.

use std::path::{Path, PathBuf};

use cp_common::context::given::{self, text_of};
use cp_common::coprocess::command_words;
use cp_common::home::{Home, create_whole, is_id, resolved, write_whole};
use cp_common::wire::quoted;
use cp_common::{Error, Result};

use crate::arguments::{Question, REQUEST};

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
        let names: Vec<String> = known.iter().map(|file| name_of(file)).collect();
        let otherwise = format!("`cp-ask init` writes some to {}", directory(home).display());
        let error = Error::not_found(format!("no template `{name}`"));
        Err(error.nearest(name, names.iter().map(String::as_str), &otherwise))
    }

    fn read(file: &Path) -> Result<Self> {
        let text = text_of(&given::bytes(file, LONGEST)?).map_err(|e| e.in_file(file))?.to_owned();
        Ok(Self { file: file.to_owned(), whole: text })
    }

    /// Returns the words of the options in the comment at its start. The first is the name of this program.
    pub(crate) fn words(&self) -> Result<Vec<String>> {
        let options = self.whole.strip_prefix(OPTIONS.0).and_then(|rest| rest.split_once(OPTIONS.1));
        let line = format!("cp-ask {}", options.map_or("", |(options, _)| options));
        command_words(&line).map_err(|e| e.in_file(&self.file))
    }
}

/// Writes the options and the text of a question as a template. Returns what to print.
pub(crate) fn save(name: &str, question: &Question, home: &Home) -> Result<String> {
    if !is_id(name) {
        return Err(Error::usage(format!("'{name}' is not a valid template name: use letters, digits, _ and -")));
    }
    let options = question
        .passed(&REQUEST.map(|row| row.0).join(" "))
        .fold(String::new(), |line, word| line + " " + &quoted(&word));
    if options.contains(OPTIONS.1) {
        return Err(Error::usage(format!("an option of a template cannot contain {}", OPTIONS.1)));
    }
    let text = Some(question.text.join(" ")).filter(|text| !text.is_empty()).unwrap_or("{{ text }}".to_owned());
    let head = if options.is_empty() { String::new() } else { format!("{}{options} {}\n", OPTIONS.0, OPTIONS.1) };
    let file = directory(home).join(format!("{name}.md"));
    write_whole(&resolved(&file), format!("{head}{text}\n").as_bytes())?;
    Ok(format!("cp-ask -t {name} uses {}\n", file.display()))
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
