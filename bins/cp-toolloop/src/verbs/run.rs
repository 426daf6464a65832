//! The default verb: a run for each text, prompt or row.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::context::given::text_of;
use cp_common::context::options::{StreamOptions, TextOrFile};
use cp_common::output::Severity;
use cp_common::program::{Class, Input, VerbDoc, require_text};
use cp_common::stream::earlier::hold_stdout;
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::Prompt;
use cp_common::wire::record::{self, Kind};
use cp_common::{Context, Error, Result, clock};
use cp_ledger::sessions::Session;
use cp_servers::is_name;

use super::options::{ModelOptions, ToolOptions};
use super::rows::{EarlierRun, Rows, of_row};
use crate::engine::Engine;
use crate::engine::print::{Event, play};
use crate::parts::part::Part;
use crate::parts::{Approver, Parts};
use crate::state::plan::{self, Limits, Plan, RunFiles, name_of};
use crate::state::run::Run;
use crate::state::step::Step;
use crate::state::step_log;
use crate::state::tally::Total;
use crate::tools::tool::Tool;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["delta", "tool_call", "tool_result", "item", "summary"],
    examples: &["cp-toolloop --backend stub -- 'How full is the disk?'"],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &[
        "run_start",
        "run_resumed",
        "message",
        "tool_call",
        "tool_result",
        "approval.asked",
        "approval.granted",
        "approval.denied",
        "approval.spent",
        "run_paused",
        "run_end",
    ],
    ..VerbDoc::new("", Class::Governed, "message")
};

/// Let a model use tools until it is done
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    model: ModelOptions,
    /// The system text, or @FILE
    #[arg(short, long, value_name = "TEXT|@FILE", allow_hyphen_values = true, help_heading = "Model and backend")]
    system: Option<TextOrFile>,
    #[command(flatten)]
    limits: Limits,
    /// The budget file that this run shares with other processes, see cp-llm(1)
    #[arg(long, value_name = "FILE", help_heading = "Limits", hide_short_help = true)]
    budget_file: Option<PathBuf>,
    /// The most rows that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=32), conflicts_with_all = ["name", "replay"], help_heading = "Many rows", hide_short_help = true)]
    jobs: u8,
    /// The output of an earlier run over the same rows: answered rows are skipped, and unfinished runs are resumed
    #[arg(long = "skip-done", value_name = "OUT", conflicts_with_all = ["name", "replay"], help_heading = "Many rows", hide_short_help = true)]
    resume: Option<PathBuf>,
    /// The program that approves or denies calls that require approval, by its exit status
    #[arg(long, value_name = "PROGRAM", help_heading = "Approval and failure")]
    approver: Option<String>,
    /// Record the run in this file
    #[arg(long, value_name = "FILE", conflicts_with = "replay", help_heading = "Recordings", hide_short_help = true)]
    record: Option<PathBuf>,
    /// Replay a recording, without a model, tools or a network
    #[arg(long, value_name = "FILE|RUN", help_heading = "Recordings", hide_short_help = true)]
    replay: Option<String>,
    /// The name of the run for resume, show and cancel
    #[arg(long, value_name = "NAME", value_parser = name, help_heading = "Recordings", hide_short_help = true)]
    name: Option<String>,
    #[command(flatten)]
    stream_options: StreamOptions,
    /// What to do; - adds standard input
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = Source::from_operands(&args.text)?;
    // A missing session is an error before the run starts.
    context.session().map(|named| Session::find(&named, &context.home)).transpose()?;
    if let Some(recording) = &args.replay {
        return replayed(recording, &source, context);
    }
    let system = args.system.as_ref().map(TextOrFile::text).transpose()?;
    let earlier = args.resume.as_deref().map(|file| EarlierRun::read(file, context)).transpose()?;
    // The lock on the output prevents another process from resuming it.
    if source == Source::Input && earlier.is_none() {
        hold_stdout();
    }
    let in_parallel = source == Source::Input && (args.jobs > 1 || earlier.is_some());
    let rows = || Rows::new(args.jobs.into(), args.record.is_some(), args.stream_options);
    let rows = in_parallel.then(rows).transpose()?;
    let mut runs = Runs { args, system, ready: None, earlier, rows, total: Total::default() };
    let outcome = filter::run(&mut runs, source, args.stream_options, context);
    if let (Err(error), Some(rows)) = (&outcome, &mut runs.rows) {
        rows.remaining(error, &mut runs.total, context);
    }
    runs.total.close(context);
    outcome
}

/// Replays a recording. A text must be the prompt of the recording.
fn replayed(recording: &str, source: &Source, context: &mut Context) -> Result<()> {
    let mut path = PathBuf::from(recording);
    if !path.is_file() {
        path = RunFiles::find(recording, context)?.recording();
        if !path.exists() {
            return Err(Error::not_found(format!("the run `{recording}` was not recorded"))
                .hint("a run that is started with --record can be replayed"));
        }
    }
    let steps = step_log::recorded(&path, &context.home)?;
    let Some(Step::Plan(plan, _)) = steps.first().cloned() else {
        return Err(Error::validation("not the recording of a run").with("recording", recording));
    };
    if let Source::Argument(text) = source
        && plan.prompt.messages.last().is_none_or(|turn| turn.content.text() != *text)
    {
        return Err(Error::validation("the recording is of another prompt").with("recording", recording));
    }
    context.out.streaming()?;
    let message = format!("this is the recording {recording}: no model was asked, and no tool ran");
    context.out.notice("replayed", Severity::Info, message);
    Event::start(&plan, &RunFiles::of(&plan.run, context)?.ledger).show(context)?;
    let (mut total, played) = (Total::default(), play(steps, 0, context)?);
    total.add(&plan.run, &played.tally);
    total.close(context);
    if played.answer.is_none() {
        return Err(Error::not_found("the recording ends before the answer").hint("the recorded run did not end"));
    }
    context.out.item_succeeded();
    Ok(())
}

/// Turns each prompt into a run.
struct Runs<'a> {
    args: &'a Args,
    system: Option<String>,
    /// Created with the first prompt, because an empty input starts nothing.
    ready: Option<(Plan, Option<Part>)>,
    /// The earlier output.
    earlier: Option<EarlierRun>,
    /// The parallel runs.
    rows: Option<Rows>,
    total: Total,
}

impl Filter for Runs<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let is_row = matches!(body, Body::Row(_));
        let mut prompt = match body {
            Body::Text(text) => Prompt::of_text(text_of(text)?),
            Body::Record(record) => record.read::<Prompt>()?.checked()?,
            Body::Row(row) => record::read::<Prompt>(row)?.checked()?,
        };
        if let Some(system) = &self.system {
            prompt.system = Some(system.clone());
        }
        context.out.streaming()?;
        let (common, servers) = match &mut self.ready {
            Some(ready) => ready,
            none => none.insert(prepare(self.args, context).map_err(Error::fatal)?),
        };
        if let Some(name) = &self.args.name {
            RunFiles::check_free(name, context)?;
        }
        let place = context.out.place;
        prompt.tools = common.tools.iter().map(Tool::spec).collect();
        let mut plan = Plan { run: plan::new_id()?, started: clock::now(), prompt, ..common.clone() };
        // The first run uses them.
        let servers = servers.take();
        let Some(index) = place.index else { return start(plan, servers, &mut self.total, context) };
        let files = RunFiles::of(&plan.run, context)?;
        // The recording is kept until the answer has been printed.
        plan.record.get_or_insert_with(|| files.recording());
        let Some(rows) = &mut self.rows else {
            let outcome = start(plan, servers, &mut self.total, context);
            if outcome.is_ok() && self.args.record.is_none() {
                let _ = std::fs::remove_file(files.recording());
            }
            return outcome.map_err(|error| if is_row { of_row(error) } else { error });
        };
        let earlier = match &self.earlier {
            Some(earlier) => earlier.at(index, &plan.request())?,
            None => None,
        };
        if earlier.is_some_and(|earlier| earlier.is_answered) {
            context.out.item_skipped();
            return Ok(());
        }
        while !rows.jobs.has_room() && rows.next(true, &mut self.total, context)? {}
        rows.give(&plan, earlier.map(|earlier| earlier.run.as_str()), context)
    }

    fn wakes(&self) -> Result<Option<OwnedFd>> {
        self.rows.as_ref().map(|rows| rows.jobs.wakes()).transpose()
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        self.print(false, context)
    }

    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
        self.print(true, context)
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        self.print(true, context)
    }
}

impl Runs<'_> {
    fn print(&mut self, waits: bool, context: &mut Context) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        while rows.next(waits, &mut self.total, context)? {}
        Ok(())
    }
}

/// The plan of the runs of a command, without an id, a start and a prompt, and the servers that have listed their tools.
fn prepare(args: &Args, context: &Context) -> Result<(Plan, Option<Part>)> {
    let model = args.model.command(context)?;
    if args.budget_file.is_some() && model.asking().is_none_or(|program| name_of(program) != "cp-llm") {
        return Err(Error::usage("--budget-file needs cp-llm to ask the model").hint("remove --llm or --tool-backend"));
    }
    let limit = args.limits.deadline.map(Duration::from_secs_f64);
    let (catalogue, servers) = args.tools.resolve(limit, context)?;
    catalogue.check_allowed()?;
    catalogue.report(context);
    let (base, root) = (context.base()?, context.root()?);
    // The state of a run is JSON.
    require_text([Some(&*base), root.as_deref()].into_iter().flatten())?;
    let plan = Plan {
        run: String::new(),
        name: args.name.clone(),
        started: String::new(),
        base,
        root,
        prompt: Prompt::default(),
        tools: catalogue.tools,
        directories: catalogue.directories,
        mcp: args.tools.mcp.clone(),
        model,
        limits: args.limits.or(Limits::DEFAULT),
        approver: args.approver.clone(),
        read_only: args.tools.read_only,
        record: args.record.as_ref().map(|file| written(file, context)).transpose()?,
        budget_file: args.budget_file.as_ref().map(|file| written(file, context)).transpose()?,
    };
    Ok((plan, Some(servers)))
}

fn name(text: &str) -> std::result::Result<String, String> {
    if is_name(text) && !text.starts_with("RUN-") {
        return Ok(text.to_owned());
    }
    Err("must be 1 to 64 letters, digits, _ and -, and cannot begin with RUN-".to_owned())
}

/// The absolute path of a file that the run will write.
fn written(file: &Path, context: &Context) -> Result<PathBuf> {
    require_text([file])?;
    cp_policy::check_writable(&context.home, file)?;
    Ok(std::path::absolute(file)?)
}

fn start(plan: Plan, servers: Option<Part>, total: &mut Total, context: &mut Context) -> Result<()> {
    let approver = Approver::new(plan.approver.as_deref(), context)?;
    // A missing program is an error before the run is stored.
    let parts = Parts::new(&plan, &plan.limits, approver, servers);
    let run = Run::begin(plan, context)?;
    Event::start(&run.plan, run.ledger()).show(context)?;
    Engine::new(run, parts).drive(total, context)
}
