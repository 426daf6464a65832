//! Calls of tools: which are made, which wait for a person, and which are refused.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use cp_common::program::approval::{answered, command_line, find, new as waiting, pause, take};
use cp_common::wire::{Action, Approval, AskedBy, Binds, Level, Receipt, Scope, Shown};
use cp_common::{Code, Context, Error, Result, keys};
use cp_ledger::format::approval::Said as Happened;
use cp_mcp_wire::Party;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::clean::Members;
use super::pins::{self, Pins};
use super::tools::{Listed, Listing, Pages, Standing};
use super::{Gate, Own, Server};
use crate::inbox::Post;

/// A call that was made.
pub(super) struct Made {
    pub(super) call: Call,
    /// Its entry on the ledger.
    pub(super) receipt: Receipt,
    pub(super) began: Instant,
}

/// A call as the client makes it.
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Box<RawValue>,
    /// What the server gave it to go on with.
    state: Option<Box<RawValue>>,
}

impl Call {
    pub(super) fn of(params: Option<&RawValue>) -> Result<Self> {
        let invalid = |e: serde_json::Error| Error::validation(format!("the call is not valid: {e}"));
        let mut members: Members = serde_json::from_str(params.unwrap_or(RawValue::NULL).get()).map_err(invalid)?;
        let tool = members.remove("name").unwrap_or_else(|| RawValue::NULL.to_owned());
        let tool = serde_json::from_str(tool.get()).map_err(invalid)?;
        let arguments = members.remove("arguments").filter(|arguments| arguments.get() != "null");
        // Some servers read names in any case.
        if let Some(other) = members.keys().find(|key| ["NAME", "ARGUMENTS"].contains(&key.to_uppercase().as_str())) {
            return Err(Error::validation(format!("the call has the member {other} beside the one it stands for")));
        }
        let arguments = arguments.map_or_else(|| RawValue::from_string("{}".to_owned()), Ok).map_err(invalid)?;
        Ok(Self { tool, arguments, state: members.remove("requestState") })
    }
}

impl<S: Server, F: FnMut(Post, &Context) -> Result<S>> Gate<'_, S, F> {
    /// Asks the server for its tools. What the client's own request says besides is said with it.
    pub(super) fn list(&mut self, params: Option<&RawValue>) -> Result<()> {
        let mut asked: Members = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        asked.retain(|name, _| name == "_meta");
        self.next_page(asked, Pages::default())
    }

    /// Asks for a page, where that before said how.
    pub(super) fn next_page(&mut self, asked: Members, pages: Pages) -> Result<()> {
        let params = serde_json::value::to_raw_value(&asked).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        self.ask("tools/list", &params, Own::List(asked, pages))
    }

    /// Takes a whole list: what was accepted before is compared, and without that all is kept.
    pub(super) fn listed(&mut self, mut listing: Listing) -> Result<()> {
        if let Some(pins) = pins::load(self.name, self.context)? {
            for tool in &mut listing.tools {
                if pins.get(&tool.name).is_none_or(|pin| pin.hash != tool.pin.hash) {
                    tool.standing = self.changed(tool, &pins)?;
                }
            }
        } else {
            let tools = || listing.tools.iter();
            let hashes: BTreeMap<_, _> = tools().map(|tool| (&tool.name, &tool.pin.hash)).collect();
            self.journal.intend("mcp.pinned", &json!({ "server": self.name, "tools": hashes }))?;
            let pins = tools().map(|tool| (tool.name.clone(), tool.pin.clone())).collect();
            pins::keep(self.name, &pins, self.context)?;
        }
        for tool in listing.tools.iter_mut().filter(|tool| !self.table.allows(&tool.name)) {
            tool.standing = Standing::NotAllowed;
        }
        self.listing = Some(listing);
        Ok(())
    }

    /// What a tool that is not what was kept is: offered once a person has accepted it.
    fn changed(&mut self, tool: &Listed, pins: &Pins) -> Result<Standing> {
        let before = pins.get(&tool.name);
        let (what, diff) = tool.pin.difference(before);
        let why = format!("the tool {} of the server {} {what}", tool.name, self.name);
        let shown = Shown {
            tool: Some(format!("{}: {}", self.name, tool.name)),
            diff: Some(diff),
            risk: "high".to_owned(),
            rule: "mcp.pinned".to_owned(),
            why: why.clone(),
            ..Shown::default()
        };
        let request = json!([self.name, tool.name, before.map(|pin| &pin.hash), tool.pin.hash]).to_string();
        let binds = Binds { request: keys::hash(request.as_bytes()), ..Binds::default() };
        let approval = self.approval(Level::Owner, shown, binds)?;
        if self.is_granted(&approval)? {
            let hashes = BTreeMap::from([(&tool.name, &tool.pin.hash)]);
            self.journal.intend("mcp.pinned", &json!({ "server": self.name, "tools": hashes }))?;
            let mut pins = pins.clone();
            pins.insert(tool.name.clone(), tool.pin.clone());
            pins::keep(self.name, &pins, self.context)?;
            return Ok(Standing::Offered);
        }
        let line = command_line(self.context.home.root(), &approval.resume);
        if self.told.insert(approval.id.clone()) {
            self.context.warn(&format!("{why}; to see and accept it: {line}"));
        }
        Ok(Standing::Changed(why, Box::new(approval)))
    }

    /// Decides about a call: the error is why it is not made.
    pub(super) fn decide(&mut self, call: &Call) -> Result<()> {
        let forbidden = |why: String, rule: &str| Error::new(Code::Forbidden, why).with("rule", rule);
        let name = self.name;
        if !self.table.allows(&call.tool) {
            let why = format!("the policy does not let the tool {} of the server {name} be called", call.tool);
            return Err(
                forbidden(why, "mcp.tools").hint(format!("tools in [mcp.{name}] of the policy lists those that may"))
            );
        }
        let Some(mut listing) = self.listing.take() else { return Err(Error::new(Code::Unknown, "nothing is listed")) };
        let Some(tool) = listing.tools.iter_mut().find(|tool| tool.name == call.tool) else {
            // It may be new: the next call asks for the list again.
            let why = format!("the server {name} does not list a tool {}", call.tool);
            return Err(forbidden(why, "mcp.unknown").hint("call one that tools/list has"));
        };
        let decided = self.decide_about(tool, call);
        self.listing = Some(listing);
        decided
    }

    fn decide_about(&mut self, tool: &mut Listed, call: &Call) -> Result<()> {
        if let Standing::Changed(..) = tool.standing {
            // It may have been accepted since.
            let pins = pins::load(self.name, self.context)?.unwrap_or_default();
            let is_kept = pins.get(&tool.name).is_some_and(|pin| pin.hash == tool.pin.hash);
            tool.standing = if is_kept { Standing::Offered } else { self.changed(tool, &pins)? };
        }
        if let Standing::Changed(why, approval) = &tool.standing {
            let line = command_line(self.context.home.root(), &approval.resume);
            let hint = format!("a person sees and accepts it with `{line}` at a terminal; then repeat the call");
            return Err(Error::new(Code::Conflict, why.clone()).with("rule", "mcp.pinned").hint(hint));
        }
        tool.check(&call.arguments)?;
        let Some((rule, why)) = self.launcher.asks(&self.table, &tool.name, tool.annotations.is_destructive()) else {
            return Ok(());
        };
        if call.state.as_ref().is_some_and(|state| self.states.remove(&going_on(call, state))) {
            return Ok(());
        }
        let shown = Shown {
            tool: Some(format!("{}: {}", self.name, tool.name)),
            input: serde_json::from_str(call.arguments.get()).ok(),
            cwd: self.context.base().ok().map(|base| base.display().to_string()),
            risk: "medium".to_owned(),
            rule: rule.to_owned(),
            why,
            ..Shown::default()
        };
        let request = json!([self.name, call.tool, call.arguments.get(), rule]).to_string();
        let binds = Binds {
            request: keys::hash(request.as_bytes()),
            program: self.server.as_ref().map(|server| keys::hash(server.described().to_string().as_bytes())),
            target: None,
            policy: std::fs::read(self.context.home.policy_file()).ok().map(|text| keys::hash(&text)),
        };
        let approval = self.approval(Level::Agent, shown, binds)?;
        if self.is_granted(&approval)? {
            return Ok(());
        }
        Err(pause(self.context.home.root(), &approval)?)
    }

    /// Records what a call came to.
    pub(super) fn concluded(&mut self, made: Option<&Made>, is_error: bool, result: Option<&RawValue>) -> Result<()> {
        let Some(Made { call, receipt, began }) = made else { return Ok(()) };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let hash = result.map(|result| keys::hash(result.get().as_bytes()));
        let end = json!({ "call": receipt.seq, "tool": call.tool, "is_error": is_error, "sha256": hash, "duration_ms": duration_ms });
        self.journal.note("mcp.result", &end).map(drop)
    }

    fn approval(&self, level: Level, shown: Shown, binds: Binds) -> Result<Approval> {
        let asked_by = AskedBy {
            program: "cp-mcp".to_owned(),
            agent: self.context.agent(None),
            run: self.context.options.run.clone(),
            session: self.context.session(),
            call_id: None,
        };
        waiting(asked_by, Action::Server, level, &[Scope::Once], shown, binds)
    }

    /// Whether a yes to this was given, which is used up now. Else it waits for one.
    fn is_granted(&mut self, approval: &Approval) -> Result<bool> {
        let home = self.context.home.root().to_owned();
        if let Some(spent) = take(&home, approval)? {
            answered(&home, &approval.id)?;
            self.journal.approval(Happened::Spent(&spent.grant), approval)?;
            return Ok(true);
        }
        if find(&home, &approval.id).is_err() {
            self.journal.approval(Happened::Asked, approval)?;
            pause(&home, approval)?;
        }
        Ok(false)
    }
}

/// A call, as the ledger has it before it is made or instead of that.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    pub(super) server: &'a str,
    pub(super) client: &'a Option<Party>,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<Value>,
}

/// Why a call was not made, as the ledger has it.
pub(super) fn refused(error: &Error) -> Value {
    json!({ "code": error.code().row().name, "rule": error.details().get("rule"), "why": error.message() })
}

/// What a result says of itself.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Said {
    pub(super) is_error: bool,
    input_requests: BTreeMap<String, Request>,
    request_state: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Request {
    method: String,
}

impl Said {
    /// What the result of a call says.
    pub(super) fn of(result: &RawValue) -> Self {
        serde_json::from_str(result.get()).unwrap_or_default()
    }

    /// Whether it asks the client for this.
    pub(super) fn asks(&self, method: &str) -> bool {
        self.input_requests.values().any(|request| request.method == method)
    }

    /// The call that goes on with this result: it is the one that was approved.
    pub(super) fn goes_on(&self, call: &Call, states: &mut States) {
        states.extend(self.request_state.as_ref().map(|state| going_on(call, state)));
    }
}

/// The calls that go on with this, by the hash of all that was approved.
pub(super) type States = HashSet<String>;

fn going_on(call: &Call, state: &RawValue) -> String {
    keys::hash(json!([call.tool, call.arguments.get(), state.get()]).to_string().as_bytes())
}
