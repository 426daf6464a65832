//! `sed`: an editor whose scripts can run commands and write files.

use crate::arguments::Arguments;

/// Why this `sed` may not run, if it may not. What cannot be read is not trusted.
pub(super) fn objection(arguments: &Arguments<'_>) -> Option<String> {
    if !arguments.is_sed() {
        return None;
    }
    if arguments.has_option(&["-f", "--file"]) {
        return Some("`sed`: a script in a file cannot be checked".to_owned());
    }
    let mut scripts: Vec<&str> = arguments.values_of(&["-e", "--expression"]).collect();
    if scripts.is_empty() {
        scripts.extend(arguments.operands().next().map(|operand| operand.word));
    }
    // Pieces given one by one are one script to sed, so a command may begin in one and end in the next.
    let script = scripts.join("\n");
    Script { rest: &script }.objection()
}

struct Script<'a> {
    rest: &'a str,
}

impl Script<'_> {
    fn objection(&mut self) -> Option<String> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\n', ';', '{', '}']);
            if self.rest.is_empty() {
                return None;
            }
            if let Err(reason) = self.command() {
                return Some(format!("`sed`: {reason}"));
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// One command with its addresses.
    fn command(&mut self) -> Result<(), &'static str> {
        const UNREADABLE: &str = "a script that cannot be parsed is not run";
        loop {
            let Some(c) = self.next() else { return Ok(()) };
            match c {
                '0'..='9' | '$' | ',' | '!' | ' ' | '\t' | '~' | '+' => {}
                '/' => self.until('/').ok_or(UNREADABLE)?,
                '\\' => {
                    let delimiter = self.next().ok_or(UNREADABLE)?;
                    self.until(delimiter).ok_or(UNREADABLE)?;
                    // The modifiers of an address.
                    self.rest = self.rest.trim_start_matches(['I', 'M']);
                }
                'e' => return Err("`e` runs a command"),
                'w' | 'W' => return Err("`w` writes a file of any name"),
                'r' | 'R' => return Err("`r` reads a file of any name"),
                's' => return self.substitute().ok_or(UNREADABLE)?,
                'y' => {
                    let delimiter = self.next().ok_or(UNREADABLE)?;
                    return self.until(delimiter).and_then(|()| self.until(delimiter)).ok_or(UNREADABLE);
                }
                'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'l' | 'n' | 'N' | 'p' | 'P' | 'q' | 'Q' | 'x' | 'z' | '=' | 'F'
                | '{' | '}' => return Ok(()),
                // Text and labels run to the end of the line; `}` and `;` belong to them or not, by version.
                'a' | 'i' | 'c' | 'b' | 't' | 'T' | ':' | '#' => {
                    let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
                    if line.ends_with('\\') || line.contains([';', '}']) {
                        return Err(UNREADABLE);
                    }
                    self.rest = rest;
                    return Ok(());
                }
                _ => return Err(UNREADABLE),
            }
        }
    }

    /// Skips to behind the next delimiter that is not quoted by a backslash or inside brackets.
    fn until(&mut self, delimiter: char) -> Option<()> {
        while let Some(c) = self.next() {
            if c == '\\' {
                self.next()?;
            } else if c == delimiter {
                return Some(());
            }
        }
        None
    }

    /// `s/a/b/flags`: none if it cannot be read.
    fn substitute(&mut self) -> Option<Result<(), &'static str>> {
        let delimiter = self.next()?;
        self.until(delimiter)?;
        self.until(delimiter)?;
        while let Some(c) = self.rest.chars().next() {
            match c {
                'e' => return Some(Err("the flag `e` runs a command")),
                'w' => return Some(Err("the flag `w` writes a file of any name")),
                'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9' => self.rest = &self.rest[1..],
                _ => break,
            }
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::objection;
    use crate::arguments::Arguments;

    fn objects(line: &str) -> bool {
        objection(&Arguments::read(&cp_common::words::split(line).unwrap().argv)).is_some()
    }

    #[test]
    fn what_runs_or_writes_is_found_and_plain_editing_is_not() {
        for line in [
            "sed e",
            "sed '1e id'",
            "sed 's/x/id/e'",
            "sed 's,x,id,ge'",
            "sed -n '/a/w out'",
            "sed 's/a/b/w out'",
            "sed -e p -e 'e id'",
            "sed -f script",
            "sed --expr='1e id'",
            "sed '1~2e id'",
            "sed 'p;e id'",
            "sed '/[/]/e id'",
            "sed 'r /etc/passwd'",
            "sed 'y/a/b/;e id'",
            "sed -ne 'e id' x",
            "sed 's/[/]x/e'",
            "sed -iep '1e id' x",
            "sed --l 5 '1e id' x",
            "sed --e='1e id' x",
            "sed -l5 '1e id' x",
            "sed -nf x",
        ] {
            assert!(objects(line), "{line}");
        }
        for line in [
            "sed -n 1,5p x",
            "sed 's/hello/eww/g' x",
            "sed -i 's,a,b,' x",
            "sed '/^e/d' x",
            "sed -e 's/a/b/' -e '$d' x",
            "sed 'y/abc/xyz/' e",
            "sed '2q' w",
            "sed '/a/,/b/p' e",
            "sed 's/a\\/e/w/' x",
        ] {
            assert!(!objects(line), "{line}");
        }
    }
}
