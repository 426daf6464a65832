//! Tool calls: which pass, which wait for approval, and which are refused.

use std::collections::HashSet;

use cp_common::output::printable_line;
use cp_common::program::approval::{find, new as new_approval, pause, take};
use cp_common::program::grant::policy_hash;
use cp_common::wire::{Action, Binds, Level, Scope, Shown};
use cp_common::{Code, Context, Error, Result, keys};
use cp_ledger::format::approval::Said as ApprovalEvent;
use cp_mcp_wire::{Annotations, is_tool_name};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Gate;
use super::message::{members_of, raw};
use super::tools::{LONGEST, ListedTool, Listing, PAGES, Pins, keep_pins, load_pins};
use crate::record::Started;

/// A call as the client sends it.
#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Option<Box<RawValue>>,
}

impl Call {
    fn of(params: Option<&RawValue>) -> Result<Self> {
        // Some servers ignore the case of names.
        let is_other = |key: &&String| {
            !["name", "arguments"].contains(&key.as_str()) && ["NAME", "ARGUMENTS"].contains(&&*key.to_uppercase())
        };
        if let Some(other) = members_of(params).keys().find(is_other) {
            return Err(Error::validation(format!(
                "the call has the member {other}, which differs only in case from a member of the protocol"
            )));
        }
        let call = serde_json::from_str(params.unwrap_or(RawValue::NULL).get());
        call.map_err(|e| Error::validation(format!("the call is not valid: {e}")))
    }
}

impl Gate {
    /// Requests the tools of the server, with the `_meta` of the client's request.
    pub(crate) fn list(&mut self, params: Option<&RawValue>, context: &mut Context) -> Result<()> {
        let mut members = members_of(params);
        members.retain(|name, _| name == "_meta");
        let (mut listing, mut bytes) = (Listing::default(), 0);
        for _ in 0..PAGES {
            let page = self.ask("tools/list", &raw(&members)?, None, context)?;
            let Some(cursor) = listing.add(&page)? else { return self.accept_listing(listing, context) };
            bytes += page.get().len();
            if bytes > LONGEST {
                break;
            }
            members.insert("cursor".to_owned(), raw(&cursor)?);
        }
        Err(Error::new(Code::Server, "the server's list of tools does not end"))
    }

    /// Decides about a call, and records it before it is sent, or its refusal.
    pub(crate) fn begin(&mut self, params: Option<&RawValue>, context: &mut Context) -> Result<Started> {
        if self.listing.is_none() {
            self.list(params, context)?;
        }
        let call = Call::of(params)?;
        let decided = self.decide(&call, context);
        let call_id = self.journal.call.clone();
        let entry = self.journal.entry(if decided.is_ok() { "mcp.call" } else { "mcp.refused" });
        let entry = entry.data(&json!({ "server": self.name, "client": self.client, "tool": call.name }));
        let entry = call.arguments.iter().fold(entry, |entry, arguments| entry.with("arguments", arguments));
        let entry = call_id.iter().fold(entry, |entry, id| entry.with("call_id", id));
        match decided {
            Ok(()) => {
                let started = self.journal.start(entry, &call.name, call_id)?;
                self.journal.sync()?;
                Ok(started)
            }
            // The call is made again after the approval.
            Err(error) if call_id.is_some() && error.code() == Code::HumanRequired => Err(error),
            Err(error) => {
                let (code, details) = (error.code().row().name, error.details());
                let refused = json!({ "code": code, "rule": details.get("rule"), "why": error.message() });
                self.journal.append(entry.with("refused", &refused)).and(Err(error))
            }
        }
    }

    /// Compares a complete list with the pinned tools, or pins all of them if the server has no pins yet. Of two tools
    /// with one name the first counts, because a client must not see one and call the other.
    fn accept_listing(&mut self, mut listing: Listing, context: &Context) -> Result<()> {
        let mut names = HashSet::new();
        listing.tools.retain(|tool| names.insert(tool.name.clone()));
        for tool in listing.tools.extract_if(.., |tool| !is_tool_name(&tool.name)) {
            let reason = "its name has characters other than letters, digits, `_`, `.` and `-`";
            listing.left_out.push((printable_line(&tool.name), reason.to_owned()));
        }
        let loaded = load_pins(&self.name, &context.home)?;
        let (is_first, mut pins) = (loaded.is_none(), loaded.unwrap_or_default());
        if is_first {
            let seen = listing.tools.iter().map(|tool| (tool.name.clone(), tool.hash.clone()));
            self.pin(&mut pins, seen.collect(), context)?;
        }
        listing.tools.retain(|tool| self.table.allows(&tool.name));
        for tool in &mut listing.tools {
            match self.check_pin(tool, &mut pins, context) {
                Err(error) if error.code() == Code::HumanRequired => {
                    let (why, hint) = (error.message(), error.hint_text().unwrap_or_default());
                    let reason = format!("{why}: {hint}; another server needs another name, --server NAME");
                    listing.left_out.push((tool.name.clone(), reason));
                }
                checked => checked?,
            }
        }
        for (name, reason) in &listing.left_out {
            let warning = format!("the tool `{name}` of the server {} is left out: {reason}", self.name);
            if self.warned.insert(warning.clone()) {
                self.warn(&warning, context);
            }
        }
        self.listing = Some(listing);
        Ok(())
    }

    /// Records these tools, and keeps them with the other pins.
    fn pin(&mut self, pins: &mut Pins, seen: Pins, context: &Context) -> Result<()> {
        self.journal.note("mcp.pinned", &json!({ "server": self.name, "tools": seen }))?;
        self.journal.sync()?;
        pins.extend(seen);
        keep_pins(&self.name, pins, &context.home)
    }

    /// Refuses a tool that differs from its pin, until a person has approved its whole description.
    fn check_pin(&mut self, tool: &mut ListedTool, pins: &mut Pins, context: &Context) -> Result<()> {
        let before = pins.get(&tool.name);
        if before != Some(&tool.hash) {
            let what = if before.is_some() { "has changed" } else { "is new" };
            let shown = Shown {
                tool: Some(format!("{}: {}", self.name, tool.name)),
                diff: Some(format!("{:#}", tool.said)),
                risk: "high".to_owned(),
                rule: "mcp.pinned".to_owned(),
                why: format!("the tool {} of the server {} {what}", tool.name, self.name),
                ..Shown::default()
            };
            let request = json!([self.name, tool.name, before, tool.hash]).to_string();
            let binds = Binds { request: keys::hash(request.as_bytes()), ..Binds::default() };
            self.need_grant(Level::Owner, shown, binds, context)?;
            self.pin(pins, Pins::from([(tool.name.clone(), tool.hash.clone())]), context)?;
        }
        tool.is_pinned = true;
        Ok(())
    }

    /// Decides about a call. The error is the reason of a refusal.
    fn decide(&mut self, call: &Call, context: &Context) -> Result<()> {
        let forbidden = |why: String, rule: &str| Error::new(Code::Forbidden, why).with("rule", rule);
        let name = &self.name;
        if !self.table.allows(&call.name) {
            let why = format!("the policy does not allow the tool {} of the server {name}", call.name);
            return Err(
                forbidden(why, "mcp.tools").hint(format!("tools in [mcp.{name}] of the policy lists those that may"))
            );
        }
        let mut listing = self.listing.take().unwrap_or_default();
        let Some(tool) = listing.tools.iter_mut().find(|tool| tool.name == call.name) else {
            // The tool may be new: the next call requests the list again.
            let why = format!("the server {name} does not list a tool {}", call.name);
            return Err(forbidden(why, "mcp.unknown").hint("call a tool of tools/list"));
        };
        let decided = self.decide_about(tool, call, context);
        self.listing = Some(listing);
        decided
    }

    fn decide_about(&mut self, tool: &mut ListedTool, call: &Call, context: &Context) -> Result<()> {
        if !tool.is_pinned {
            // The change may have been approved since.
            self.check_pin(tool, &mut load_pins(&self.name, &context.home)?.unwrap_or_default(), context)?;
        }
        let Some((rule, why)) = self.approval_rule(&tool.name, tool.annotations) else { return Ok(()) };
        let arguments = call.arguments.as_ref().map_or("{}", |arguments| arguments.get());
        let shown = Shown {
            tool: Some(format!("{}: {}", self.name, tool.name)),
            input: serde_json::from_str(arguments).ok(),
            cwd: context.base().ok().map(|base| base.display().to_string()),
            risk: "medium".to_owned(),
            rule: rule.to_owned(),
            why,
            ..Shown::default()
        };
        let request = json!([self.name, call.name, arguments, rule]).to_string();
        let binds = Binds {
            request: keys::hash(request.as_bytes()),
            program: self.server.as_ref().map(|server| keys::hash(server.description.to_string().as_bytes())),
            policy: policy_hash(&context.home)?,
        };
        self.need_grant(Level::Agent, shown, binds, context)
    }

    /// The rule by which each call of a tool requires approval here, and the reason. One of our own bridges asks
    /// itself.
    pub(crate) fn approval_rule(&self, tool: &str, annotations: Annotations) -> Option<(&'static str, String)> {
        let rule = self.launcher.approval_rule(&self.name, &self.table, tool, annotations.is_destructive());
        rule.filter(|_| !self.is_before_bridge)
    }

    /// Spends the grant of an approval. Without one, the approval is asked for by the error.
    fn need_grant(&mut self, level: Level, shown: Shown, binds: Binds, context: &Context) -> Result<()> {
        // Only a run keeps a decision for all of it.
        let scopes: &[Scope] = if self.journal.call.is_some() { &[Scope::Once, Scope::Run] } else { &[Scope::Once] };
        let approval = new_approval(self.journal.asked_by(), Action::Server, level, scopes, shown, binds)?;
        if let Some(spent) = take(&context.home, &approval)? {
            return self.journal.approval(ApprovalEvent::Spent(&spent.grant), &approval).map(drop);
        }
        if find(&context.home, &approval.id).is_err() {
            self.journal.approval(ApprovalEvent::Asked, &approval)?;
        }
        Err(pause(&context.home, &approval)?)
    }
}
