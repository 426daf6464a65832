//! The jq language in process, for `query --jq`. Numbers keep the text that they were written with.

use cp_common::{Error, Result};
use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Native, Vars, unwrap_valr};
use jaq_json::write::{Pp, write};
use jaq_json::{Val, read};

type Data = JustLut<Val>;

/// A program that is ready to run.
pub(crate) struct Program {
    filter: jaq_core::compile::Filter<Native<Data>>,
    print: Pp,
}

impl Program {
    /// Compiles a program. A mistake in it is a usage error that says where.
    pub(crate) fn new(text: &str) -> Result<Self> {
        let wrong = |what: String| {
            Error::usage(format!("--jq: {what}"))
                .hint("quote the program for the shell; the language is described in jq(1)")
        };
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let arena = Arena::default();
        let modules = Loader::new(definitions).load(&arena, File { code: text, path: () });
        let modules = modules
            .map_err(|errors| wrong(errors.first().map_or_else(String::new, |(_, error)| description(error))))?;
        let functions = jaq_core::funs::<Data>().chain(jaq_std::funs()).chain(jaq_json::funs());
        let filter = Compiler::default().with_funs(functions).compile(modules).map_err(|errors| {
            let first = errors.first().and_then(|(_, undefined)| undefined.first());
            wrong(first.map_or_else(String::new, |(name, kind)| format!("undefined {} `{name}`", kind.as_str())))
        })?;
        Ok(Self { filter, print: Pp::default() })
    }

    /// Appends the values that the program makes of a line, one a line. Strings are without quotes if `raw`.
    pub(crate) fn run(&self, line: &[u8], raw: bool, out: &mut Vec<u8>) -> Result<()> {
        let input = read::parse_single(line).map_err(|e| Error::validation(format!("not JSON: {e}")))?;
        let context = Ctx::<Data>::new(&self.filter.lut, Vars::new([]));
        for value in self.filter.id.run((context, input)).map(unwrap_valr) {
            let value = value.map_err(|e| Error::validation(format!("--jq: {e}")))?;
            match &value {
                Val::TStr(text) if raw => out.extend_from_slice(text),
                value => write(out, &self.print, 0, value).map_err(|e| Error::io("writing a value", e))?,
            }
            out.push(b'\n');
        }
        Ok(())
    }
}

fn description(error: &load::Error<&str>) -> String {
    match error {
        load::Error::Io(errors) => errors.first().map_or_else(String::new, |(path, e)| format!("{path}: {e}")),
        load::Error::Lex(errors) => errors
            .first()
            .map_or_else(String::new, |(expected, rest)| format!("expected {} at `{rest}`", expected.as_str())),
        load::Error::Parse(errors) => errors
            .first()
            .map_or_else(String::new, |(expected, rest)| format!("expected {} at `{rest}`", expected.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, line: &str) -> String {
        let mut out = Vec::new();
        Program::new(program).unwrap().run(line.as_bytes(), false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_come_out_one_a_line_and_numbers_as_they_were() {
        assert_eq!(run(".a, .b", r#"{"a":"x","b":{"c":[1]}}"#), "\"x\"\n{\"c\":[1]}\n");
        assert_eq!(run(".n", r#"{"n":123456789012345678901234567890}"#), "123456789012345678901234567890\n");
        assert_eq!(run("select(.seq%2==0).m", r#"{"seq":1,"m":2}"#), "");
        assert_eq!(run(r#".m|test("^a+$")"#, r#"{"m":"aaa"}"#), "true\n");
    }

    #[test]
    fn programs_that_are_wrong_say_why() {
        for bad in [".a |", "nothing(.)", "(", "$x", "\"", "{", ".[", "if"] {
            assert_eq!(Program::new(bad).err().map(|e| e.code()), Some(cp_common::Code::Usage), "{bad}");
        }
        let program = Program::new(".a.b").unwrap();
        assert!(program.run(b"{\"a\":1}", false, &mut Vec::new()).is_err());
    }
}
