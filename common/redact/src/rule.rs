//! The rules that are evaluated at an anchor.

use crate::named::{assignment, call, command, phrase, tool};
use crate::secret::Secret;
use crate::shapes::{file, hash, header, key, private, token, url};

/// A rule.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// A key of a provider, by its index in [`key::KEYS`].
    Key(u8),
    /// A name and its value.
    Name,
    PrivateKey,
    Putty,
    Jwt,
    Url,
    Pgpass,
    Bearer,
    Basic,
    Authorization,
    Cookie,
    Telegram,
    Discord,
    Firebase,
    Twilio,
    Azure,
    Mailchimp,
    Terraform,
    Signature,
    /// `-u name:password`.
    User,
    /// A one-letter password option.
    Letter,
    /// `IDENTIFIED BY`.
    Identified,
    /// A program that takes a secret, by its index in [`tool::TOOLS`].
    Tool(u8),
    /// The standard input of a program.
    Stdin,
    /// A call, by its index in [`call::CALLS`].
    Call(u8),
    /// A word for a password, by its index in [`phrase::WORDS`].
    Phrase(u8),
    Crypt,
    FrameworkHash,
    DirectoryHash,
    WindowsHash,
    WebKey,
    AwsTable,
    EncodedBlock,
    Wallet,
    Oracle,
    Asana,
    Mnemonic,
}

impl Rule {
    pub(crate) fn secret(self, text: &[u8], start: usize) -> Option<Secret> {
        match self {
            // If two prefixes begin alike, the anchor of the shorter one may come first.
            Self::Key(at) => key::at(text, start, key::KEYS[usize::from(at)]).and_then(|_| key::any_at(text, start)),
            Self::Name => assignment::at(text, start),
            Self::PrivateKey => private::block(text, start),
            Self::Putty => private::putty(text, start),
            Self::Jwt => token::jwt(text, start),
            Self::Url => url::password(text, start),
            Self::Pgpass => url::pgpass(text, start),
            Self::Bearer => header::bearer(text, start),
            Self::Basic => header::basic(text, start),
            Self::Authorization => header::authorization(text, start),
            Self::Cookie => header::cookie(text, start),
            Self::Telegram => token::telegram(text, start),
            Self::Discord => token::discord(text, start),
            Self::Firebase => token::firebase(text, start),
            Self::Twilio => token::twilio(text, start),
            Self::Azure => token::azure(text, start + 1),
            Self::Mailchimp => token::mailchimp(text, start),
            Self::Terraform => token::terraform(text, start),
            Self::Signature => token::signature(text, start),
            Self::User => command::user(text, start),
            Self::Letter => command::letter(text, start),
            Self::Identified => command::identified(text, start),
            Self::Tool(at) => tool::at(text, start, &tool::TOOLS[usize::from(at)]),
            Self::Stdin => tool::piped_secret(text, start),
            Self::Call(at) => call::at(text, start, call::CALLS[usize::from(at)]),
            Self::Phrase(at) => phrase::at(text, start, phrase::WORDS[usize::from(at)]),
            Self::Crypt => hash::crypt(text, start),
            Self::FrameworkHash => hash::framework(text, start),
            Self::DirectoryHash => hash::directory(text, start),
            Self::WindowsHash => hash::windows(text, start),
            Self::WebKey => file::web_key(text, start),
            Self::AwsTable => file::aws_table(text, start),
            Self::EncodedBlock => file::encoded_block(text, start),
            Self::Wallet => file::wallet(text, start),
            Self::Oracle => url::oracle(text, start),
            Self::Asana => token::asana(text, start),
            Self::Mnemonic => file::mnemonic(text, start),
        }
    }
}
