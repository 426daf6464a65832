//! The messages of the domain name system that a stub resolver sends, and their answers. Any bytes may arrive.

use std::net::Ipv4Addr;

/// The longest question that is read. A question over UDP has at most 512 bytes, unless it is padded.
pub(crate) const LONGEST: usize = 1232;

/// The seconds for which a program may keep an answer.
const LIFETIME: u8 = 60;

const HEADER: usize = 12;
const TYPE_A: u8 = 1;
const CLASS_INTERNET: u8 = 1;

/// The codes of answers without an address: the resolver cannot answer now, and the name does not exist.
pub(crate) const FAILURE: u8 = 2;
pub(crate) const NO_NAME: u8 = 3;

/// A question about one name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    message: &'a [u8],
    /// The offset of the end of the question.
    end: usize,
    /// The name in lower case, without the final dot. Bytes other than printable ASCII are escaped as in `\007`.
    pub name: String,
    /// True if the question is about IPv4 addresses.
    wants_ipv4: bool,
}

/// Parses a message. A message that is not a valid question has the error that answers it, or no answer.
pub(crate) fn parse(message: &[u8]) -> Result<Question<'_>, Option<Vec<u8>>> {
    let Some(header) = message.get(..HEADER).filter(|header| header[2] & 0x80 == 0) else { return Err(None) };
    let refuse = |code: u8| Err(Some(head(message, code, 0, 0)));
    let asked = read_name(message).filter(|_| header[4..6] == [0, 1]);
    match asked.and_then(|(name, at)| Some((name, at + 4, message.get(at..at + 4)?))) {
        _ if header[2] & 0x78 != 0 => refuse(4),
        None => refuse(1),
        Some((name, end, [a, b, 0, CLASS_INTERNET])) => {
            Ok(Question { message, end, name, wants_ipv4: [*a, *b] == [0, TYPE_A] })
        }
        Some(_) => refuse(4),
    }
}

/// Reads the name of the question, and returns the offset of its end. A question contains no compressed names.
fn read_name(message: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), HEADER);
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || at + length - HEADER > 254 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for byte in message.get(at..at + length)? {
            match byte {
                b'.' | b'\\' | 0..=0x20 | 0x7f.. => name.extend([format!("\\{byte:03}")]),
                byte => name.push(char::from(byte.to_ascii_lowercase())),
            }
        }
        at += length;
    }
}

impl Question<'_> {
    /// Encodes the answer: the address of the name, which other types of questions do not get, or the code of a failure.
    pub(crate) fn encode(&self, answer: Result<Ipv4Addr, u8>) -> Vec<u8> {
        let address = answer.ok().filter(|_| self.wants_ipv4);
        let mut reply = head(self.message, answer.err().unwrap_or(0), 1, u8::from(address.is_some()));
        reply.extend(&self.message[HEADER..self.end]);
        if let Some(address) = address {
            // A pointer to the name of the question comes first.
            reply.extend([0xc0, 12, 0, TYPE_A, 0, CLASS_INTERNET, 0, 0, 0, LIFETIME, 0, 4]);
            reply.extend(address.octets());
        }
        reply
    }
}

/// The header of a reply: it is authoritative, and recursion is available.
fn head(message: &[u8], code: u8, questions: u8, answers: u8) -> Vec<u8> {
    let flags = [0x84 | message[2] & 0x79, 0x80 | code];
    [&message[..2], &flags, &[0, questions, 0, answers, 0, 0, 0, 0]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    #[test]
    fn question_is_answered_with_its_own_case_and_number() {
        let message = question("PyPI.org", 1);
        let question = parse(&message).unwrap();
        assert_eq!((question.name.as_str(), question.wants_ipv4), ("pypi.org", true));
        let reply = question.encode(Ok(Ipv4Addr::new(127, 64, 0, 1)));
        assert_eq!(reply[..8], [0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 1]);
        assert_eq!(reply[12..message.len()], message[12..]);
        assert_eq!(reply[message.len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 64, 0, 1]);
    }

    #[test]
    fn other_types_and_unknown_names_have_no_records() {
        let message = question("pypi.org", 28);
        let question = parse(&message).unwrap();
        assert!(!question.wants_ipv4);
        for (answer, code) in [(Ok(Ipv4Addr::LOCALHOST), 0), (Err(NO_NAME), 3), (Err(FAILURE), 2)] {
            let reply = question.encode(answer);
            assert_eq!((reply[3] & 15, reply[7], reply.len()), (code, 0, message.len()));
        }
    }

    #[test]
    fn invalid_message_is_answered_with_error_or_not_at_all() {
        let mut reply = question("a.b", 1);
        reply[2] |= 0x80;
        assert_eq!(parse(&reply), Err(None), "two resolvers would answer each other forever");
        assert_eq!(parse(b"short"), Err(None));
        let code = |message: &[u8]| parse(message).unwrap_err().unwrap()[3] & 15;
        let changed = |at: usize, byte: u8| {
            let mut message = question("a.b", 1);
            message[at] = byte;
            code(&message)
        };
        assert_eq!((changed(2, 0x28), changed(5, 2), changed(12, 0xc0), changed(20, 3)), (4, 1, 1, 4));
        assert_eq!(code(&question("a.b", 1)[..19]), 1, "the end is missing");
        assert_eq!(code(&question(&vec!["x".repeat(60); 5].join("."), 1)), 1, "the name is too long");
    }

    #[test]
    fn name_with_special_bytes_is_escaped() {
        let mut message = question("a-b.org", 1);
        message[14] = b'.';
        assert_eq!(parse(&message).unwrap().name, "a\\046b.org");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let reply = match parse(&bytes) {
                Ok(question) => Some(question.encode(Ok(Ipv4Addr::LOCALHOST))),
                Err(reply) => reply,
            };
            if let Some(reply) = reply {
                prop_assert_eq!(&reply[..2], &bytes[..2]);
                prop_assert!(reply[2] & 0x80 != 0 && reply.len() <= bytes.len() + 16);
            }
        }

        #[test]
        fn changed_question_is_answered_without_panic(
            labels in prop::collection::vec("[a-zA-Z0-9_-]{1,63}", 1..5),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            end in any::<prop::sample::Index>(),
        ) {
            let mut message = question(&labels.join("."), 1);
            for (at, byte) in &changes {
                let at = at.index(message.len());
                message[at] = *byte;
            }
            if let Ok(question) = parse(&message) {
                prop_assert!(question.name.is_ascii());
                let reply = question.encode(Err(NO_NAME));
                prop_assert_eq!(&reply[12..], &message[12..question.end]);
            }
            let _ = parse(&message[..end.index(message.len())]);
        }

        #[test]
        fn name_of_question_is_read_back(labels in prop::collection::vec("[a-z0-9_-]{1,40}", 1..6)) {
            let name = labels.join(".");
            prop_assert_eq!(parse(&question(&name, 1)).unwrap().name, name);
        }
    }
}
