//! Detects orders in a text and their class of risk, by the verb, object and target of each clause. Questions, reports, prohibitions, and
//! texts to be written or explained are not orders.

use std::fmt::Write as _;

use crate::interactive::assessment::lexicon::{Class, IDIOM, Language, Level, Mark, Table};
use crate::interactive::assessment::lexicon::{End, Token};

/// The kind of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Without a known verb.
    Idle,
    Order,
    /// An order without risk; other verbs in the clause belong to it.
    Harmless,
    /// A question, a report or a prohibition.
    Remark,
}

/// A detected order.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) level: Level,
    pub(crate) reason: String,
    pub(crate) is_mass_edit: bool,
}

/// A text as it is understood in one language.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The number of known words.
    pub(crate) known: usize,
    pub(crate) found: Vec<Found>,
    /// The clauses: number of the sentence, offset and kind.
    acts: Vec<(usize, usize, Act)>,
}

struct Reader<'a> {
    table: &'a Table,
    language: &'a Language,
    /// True if the sentence ends with a question mark.
    asked: bool,
    /// In a language with the verb last: true if the sentence contains a word for a request, or for a question.
    requests: bool,
    inquires: bool,
    before: Before,
    reading: Reading,
}

/// The context of earlier clauses.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "marks that do not depend on each other")]
struct Before {
    questioned: bool,
    /// The last clause was a question, or compared two things, so a clause with "and" belongs to it.
    pair: bool,
    /// The last clause was only a wish, such as "I want that".
    wish: bool,
    /// The clause describes a text to be written, such as "a script that …".
    subordinate: bool,
    /// This or an earlier clause names an outside target.
    outside: bool,
}

/// The sentences of a text.
fn sentences<'t, 'a>(tokens: &'t [Token<'a>]) -> impl Iterator<Item = &'t [Token<'a>]> {
    tokens.chunk_by(|token, _| token.end < End::Sentence)
}

/// Analyses a text in one language.
pub(crate) fn read(tokens: &[Token<'_>], language: &Language, table: &Table) -> Reading {
    let mut reading = Reading::default();
    for (number, sentence) in sentences(tokens).enumerate() {
        let says = |sense: &str| language.is_verb_last && language.marks(sentence).iter().any(|mark| mark.is(sense));
        let mut reader = Reader {
            table,
            language,
            asked: sentence.last().is_some_and(|token| token.end == End::Question),
            requests: says("request"),
            inquires: says("ask"),
            before: Before::default(),
            reading,
        };
        // "and" and "then" begin a clause.
        let joined = |next: &Token<'_>| !next.quoted && language.joins(&next.text);
        // In "drop it: the orders table" the second clause names the object.
        let appose = |token: &Token<'_>, next: &Token<'_>| {
            language.has_sense(&token.text, "it") && language.has_sense(&next.text, "det")
        };
        let clauses =
            sentence.chunk_by(|token, next| (token.end < End::Clause || appose(token, next)) && !joined(next));
        for (at, clause) in clauses.enumerate() {
            let act = reader.clause(clause, at == 0);
            reader.reading.acts.push((number, clause[0].at, act));
        }
        reading = reader.reading;
    }
    reading
}

impl Reading {
    /// True if a command line at this offset is to be run, and not only mentioned.
    pub(crate) fn means_command(&self, at: usize, tokens: &[Token<'_>], table: &Table) -> bool {
        let Some(&(number, _, act)) = self.acts.iter().rev().find(|(_, start, _)| *start <= at) else { return true };
        let has = |wanted: Act| self.acts.iter().any(|(other, _, act)| *other == number && *act == wanted);
        let sentence = sentences(tokens).nth(number).unwrap_or_default();
        let is_line = sentence.first().is_some_and(|first| !first.quoted && table.is_program(&first.text));
        let is_bare = is_line || sentence.iter().all(|token| token.quoted);
        match act {
            Act::Order => true,
            Act::Idle | Act::Harmless if has(Act::Remark) => false,
            Act::Idle | Act::Harmless if is_bare => {
                // The sentences around it decide, such as "what does this do?" above or below.
                let mut others = self.acts.iter().filter(|(other, _, act)| *other != number && *act != Act::Idle);
                let after = others.clone().find(|(other, ..)| *other > number);
                let around = others.rfind(|(other, ..)| *other < number).or(after);
                !around.is_some_and(|(.., act)| *act == Act::Remark || (*act == Act::Harmless && !is_line))
            }
            Act::Idle => !has(Act::Harmless),
            Act::Harmless | Act::Remark => false,
        }
    }
}

impl<'a> Reader<'a> {
    /// Analyses a clause, and records its orders.
    fn clause(&mut self, clause: &[Token<'_>], first: bool) -> Act {
        let marks = self.language.marks(clause);
        self.reading.known += marks.iter().map(|mark| mark.known).sum::<usize>();
        let has = |sense: &str| marks.iter().any(|mark| mark.is(sense) && !clause[mark.start].quoted);
        let begins = |sense: &str| marks.first().is_some_and(|mark| mark.start <= 1 && mark.is(sense));
        if has("then") {
            self.before.subordinate = false;
        }
        let wished = std::mem::take(&mut self.before.wish);
        self.before.outside |= has("at-outside");
        let requested = has("request") || wished || self.requests;
        let is_verb = |mark: &&Mark<'_>| {
            let after_article = marks.iter().any(|it| it.end == mark.start && it.is("det"));
            let wanted = |sense: &&str| sense.starts_with("do-") || (requested && sense.starts_with("done-"));
            mark.senses.iter().any(wanted) && !clause[mark.start].quoted && !after_article
        };
        let verb = if self.language.is_verb_last { marks.iter().rfind(is_verb) } else { marks.iter().find(is_verb) };
        // In "make sure nobody can log in" and "merge it without the review" the second phrase is the order, and in "the backup can go" the
        // word before it is a noun.
        let verb = verb.map(|verb| {
            let is_harmless = ["do-other", "do-explain"].iter().any(|sense| verb.is(sense));
            let yields = |idiom: &Mark<'_>| {
                verb.is("request") || !is_harmless || (verb.start > 0 && idiom.is("request") && idiom.is("do-remove"))
            };
            let is_idiom = |mark: &Mark<'_>| self.table.is_idiom(mark) || (mark.is("request") && mark.is("do-remove"));
            marks.iter().find(|mark| is_verb(mark) && is_idiom(mark) && yields(mark)).unwrap_or(verb)
        });
        let until =
            verb.map_or(clause.len(), |verb| if self.language.is_verb_last { clause.len() } else { verb.start });
        let asks = |mark: &Mark<'_>| mark.is("ask") && mark.start < until && !clause[mark.start].quoted;
        let mut question = (marks.iter().any(asks) || self.inquires) && !self.requests;
        // "the difference between delete and drop" and "how do I find and delete" are one question.
        question |= self.before.pair && begins("and");
        self.before.pair = has("both") || question;
        if self.asked && !requested {
            question |= self.before.questioned || verb.is_some_and(|verb| verb.start > 0 || self.language.is_verb_last);
        }
        self.before.questioned |= question;
        if question || has("told") || begins("sub") || (!first && !wished && begins("rel")) {
            return Act::Remark;
        }
        let Some(verb) = verb else {
            self.before.wish = requested;
            return Act::Idle;
        };
        if verb.is("do-explain") || self.is_negated(&marks, verb, clause.len()) {
            return Act::Remark;
        }
        let harmless = verb.is("do-other");
        let was_subordinate = self.before.subordinate;
        self.before.subordinate |= harmless && opens_subordinate(&marks, verb);
        if harmless || was_subordinate {
            return Act::Harmless;
        }
        if !requested && begins("det") && marks[0].start == 0 {
            return Act::Remark;
        }
        self.weigh(clause, &marks, verb);
        // In "add `rm -rf target` to the Makefile" the command is only text.
        let handles = ["do-grant", "do-send", "do-change", "do-edit"].iter().any(|sense| verb.is(sense));
        if handles && !verb.is("do-delete") && !verb.is("do-remove") { Act::Harmless } else { Act::Order }
    }

    /// True for "do not delete" and "delete nothing". In some languages the negation is at the end, or is an ending of the verb.
    fn is_negated(&self, marks: &[Mark<'_>], verb: &Mark<'_>, length: usize) -> bool {
        marks.iter().filter(|mark| mark.is("not")).any(|mark| {
            let before = !self.language.is_verb_last && mark.start < verb.start && mark.start + 3 >= verb.start;
            before
                || mark.start == verb.start + 1
                || mark.start == verb.end
                || (mark.end == length && !self.language.is_verb_last)
        })
    }

    /// Finds the class of an order.
    fn weigh(&mut self, clause: &[Token<'_>], marks: &[Mark<'_>], verb: &Mark<'_>) {
        let things = if self.table.is_idiom(verb) { vec![None] } else { self.things(clause, marks, verb) };
        // Edits of code are ignored, unless they concern systems in use.
        let in_use = ["of-machine", "of-store", "of-account", "at-production", "at-outside"];
        let serious = |mark: &Mark<'_>| in_use.iter().any(|sense| mark.is(sense));
        if marks.iter().any(|mark| mark.is("context")) && !marks.iter().any(serious) {
            return;
        }
        let place = marks.iter().find(|mark| mark.senses.iter().any(|sense| sense.starts_with("at-")));
        let production = marks.iter().any(|mark| mark.is("at-production"));
        let best = things.iter().find_map(|thing| Some((self.class(marks, verb, *thing)?, thing)));
        let Some((class, thing)) = best else { return };
        let level = if production && class.level == Level::Destructive { Level::Critical } else { class.level };
        let written = |mark: &Mark<'_>| {
            let words: Vec<&str> = clause[mark.start..mark.end].iter().map(|token| host(token.written)).collect();
            let is_apart = words.len() > mark.own.max(1);
            if is_apart { format!("{} … {}", words[0], words[words.len() - 1]) } else { words.join(" ") }
        };
        let mut parts = format!("verb `{}`", written(verb));
        if let Some(thing) = thing {
            let _ = write!(parts, ", object `{}`", written(thing));
        }
        if let Some(place) = place {
            let _ = write!(parts, ", target `{}`", written(place));
        }
        let reason = format!("{} ({parts}): {}", class.name, class.why);
        self.reading.found.push(Found { level, reason, is_mass_edit: class.name == "mass edit" });
    }

    /// The matching class with the highest level. `thing` is `None` for an unknown object.
    fn class(&self, marks: &[Mark<'_>], verb: &Mark<'_>, thing: Option<&Mark<'_>>) -> Option<&'a Class> {
        // The prefix of a sense is ignored: "do-delete" and "done-delete" both mean delete.
        let is_any = |mark: &Mark<'_>, names: &str| {
            let bare = mark.senses.iter().map(|sense| sense.split_once('-').map_or(*sense, |(_, name)| name));
            bare.into_iter().any(|sense| names.split(' ').any(|name| name == sense))
        };
        let fits = |class: &&Class| {
            let things = match (thing, class.thing.as_str()) {
                (_, "*" | IDIOM) => true,
                (None, names) => names.is_empty(),
                (Some(thing), names) => is_any(thing, names),
            };
            let with = class.with.is_empty()
                || (class.with == "outside" && self.before.outside)
                || marks.iter().any(|mark| is_any(mark, &class.with));
            things && with && is_any(verb, &class.verb)
        };
        // The first of equal classes.
        self.table.class.iter().filter(fits).rev().max_by_key(|class| class.level)
    }

    /// The objects of the verb, the most likely first: the last word of a phrase without a preposition, or otherwise with one. Objects
    /// after code are ignored.
    fn things<'m>(&self, clause: &[Token<'_>], marks: &'m [Mark<'m>], verb: &Mark<'_>) -> Vec<Option<&'m Mark<'m>>> {
        let is_thing = |mark: &&Mark<'_>| {
            // Quoted words are not objects, except for names of files.
            let is_word = clause[mark.start].quoted && mark.known > 0;
            !is_word && !mark.is("of-anyone") && mark.senses.iter().any(|sense| sense.starts_with("of-"))
        };
        // Words after "when" or "before" are not objects.
        let after = marks.iter().filter(|mark| mark.start > verb.start).take_while(|mark| !mark.is("sub"));
        let after: Vec<&Mark<'_>> = after.collect();
        let before: Vec<&Mark<'_>> = marks.iter().filter(|mark| mark.start < verb.start).collect();
        let is_verb_last = self.language.is_verb_last;
        let from: Vec<&Mark<'_>> = match is_verb_last {
            true => before.into_iter().rev().collect(),
            false if after.iter().any(is_thing) => after,
            false => before,
        };
        let (mut phrases, mut direct, mut count) = (Vec::new(), true, 0);
        for mark in from {
            if is_thing(&mark) {
                phrases.push((direct, count, mark));
            } else if mark.is("prep") || mark.is("object") {
                direct = mark.is("object");
                count += 1;
            }
        }
        // The last word counts in "log file"; with the verb last, the word nearest to the verb comes first.
        if !is_verb_last {
            phrases.reverse();
        }
        phrases.sort_by_key(|(direct, count, thing)| (thing.is("of-everything"), !direct, *count));
        let is_direct = phrases.first().is_some_and(|(direct, ..)| *direct);
        let is_delicate = |thing: &Mark<'_>| thing.is("of-secret") || thing.is("of-personal");
        let counts = |(direct, _, thing): &(bool, usize, &Mark<'_>)| *direct || !is_direct || is_delicate(thing);
        let phrases = phrases.into_iter().filter(counts).map(|(_, _, thing)| thing);
        let phrases: Vec<&Mark<'_>> = phrases.collect();
        if phrases.is_empty() {
            return vec![None];
        }
        // A "role column" is a column.
        let after = phrases.iter().position(|thing| thing.is("of-data")).map_or(phrases.len(), |index| index + 1);
        phrases[..after].iter().take_while(|thing| !thing.is("of-code")).map(|thing| Some(*thing)).collect()
    }
}

/// The host of a URL, because the rest may contain a secret.
fn host(word: &str) -> &str {
    let Some((_, address)) = word.split_once("://") else { return word };
    let address = address.split(['/', '?', '#']).next().unwrap_or_default();
    address.rsplit('@').next().unwrap_or_default()
}

/// True for "write a script that …" and "write a script to find …".
fn opens_subordinate(marks: &[Mark<'_>], verb: &Mark<'_>) -> bool {
    let is_verb = |mark: &Mark<'_>| mark.senses.iter().any(|sense| sense.starts_with("do-"));
    marks.iter().filter(|mark| mark.start > verb.start).any(|mark| {
        let infinitive = mark.is("to") && marks.iter().any(|next| next.start == mark.end && is_verb(next));
        mark.is("rel") || mark.is("sub") || infinitive
    })
}
