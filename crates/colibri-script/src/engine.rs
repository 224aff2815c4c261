//! One script from its order to its end: the interpreter, its globals, its calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use colibri_api::json_depth;
use colibri_api::script::{
    OWN_TOOLS, ScriptCall, ScriptDone, ScriptFailure, ScriptLimit, ScriptLimits, ScriptMessage,
    ScriptOrder, ScriptReply,
};
use colibri_files::{LineRead, read_line};
use rquickjs::context::intrinsic::{
    Eval, Json, MapSet, Promise as Promises, Proxy, RegExp, RegExpCompiler, TypedArrays, WeakRef,
};
use rquickjs::module::Evaluated;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Exception, Function, Module, Runtime, Value};
use serde_json::value::RawValue;

use crate::place::{SCRIPT, first_place, typescript};
use crate::sys;

/// The most bytes of a message of the daemon: the longest that `limits.message_bytes` allows (1 GiB),
/// with what surrounds it.
const MAX_INPUT_LINE: usize = (1 << 30) + (1 << 20);
/// The globals of every script.
const PRELUDE: &str = include_str!("prelude.js");
/// The text around a script that returns instead of exporting; the script's first line stays the
/// first.
const BEFORE: &str = "export default await (async () => {";
const AFTER: &str = "\n})();";
/// The most bytes of an error's message.
const MAX_MESSAGE: usize = 4096;

/// Everything of JavaScript but clocks.
type Language = (
    Eval,
    RegExpCompiler,
    RegExp,
    Json,
    Proxy,
    MapSet,
    TypedArrays,
    Promises,
    WeakRef,
);

/// Reads an order from standard input, runs it, and writes what became of it.
#[must_use]
pub fn serve() -> ExitCode {
    let (input, output) = (io::stdin().lock(), io::stdout().lock());
    match serve_pipes(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon is gone, or is none: there is nobody to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve_pipes(mut input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    let order: ScriptOrder =
        serde_json::from_slice(&read_message(&mut input)?).context("the order")?;
    let run = Rc::new(ScriptRun::new(order.limits));
    let end = run.execute(&order, &mut input, &mut output)?;
    write_message(&mut output, &end)
}

/// Reads one message of the daemon.
fn read_message(input: &mut impl BufRead) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    match read_line(input, MAX_INPUT_LINE, &mut line)? {
        LineRead::Line => Ok(line),
        LineRead::TooLong { length, .. } => bail!("a message of {length} bytes is too long"),
        LineRead::Unterminated | LineRead::End => bail!("the daemon is gone"),
    }
}

fn write_message(output: &mut impl Write, message: &ScriptMessage) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()?;
    Ok(())
}

/// The state of a script that runs.
struct ScriptRun {
    limits: ScriptLimits,
    began: Instant,
    /// The limit that it reached: the interpreter is interrupted.
    reached: Cell<Option<ScriptLimit>>,
    /// What it wants to send next.
    outgoing: RefCell<VecDeque<ScriptMessage>>,
    calls: Cell<u32>,
    /// Bytes of calls that wait to be sent.
    waiting: Cell<u64>,
    printed: Cell<u64>,
}

impl ScriptRun {
    fn new(limits: ScriptLimits) -> ScriptRun {
        ScriptRun {
            limits,
            began: Instant::now(),
            reached: Cell::default(),
            outgoing: RefCell::default(),
            calls: Cell::default(),
            waiting: Cell::default(),
            printed: Cell::default(),
        }
    }

    /// Runs a script. Nothing of the interpreter is freed: the process ends with it.
    fn execute(
        self: &Rc<Self>,
        order: &ScriptOrder,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> anyhow::Result<ScriptMessage> {
        let runtime = Runtime::new().context("the interpreter")?;
        runtime.set_memory_limit(usize::try_from(self.limits.memory).unwrap_or(usize::MAX));
        runtime.set_max_stack_size(usize::try_from(self.limits.stack).unwrap_or(usize::MAX));
        let run = self.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || run.is_over())));
        let context = Context::custom::<Language>(&runtime).context("the interpreter")?;
        let end = context.with(|ctx| self.run(&ctx, order, input, output));
        std::mem::forget((context, runtime));
        end
    }

    /// True if the script has to end.
    fn is_over(&self) -> bool {
        if self.reached.get().is_none() {
            if self.began.elapsed() >= Duration::from_millis(self.limits.time_ms) {
                self.reached.set(Some(ScriptLimit::Time));
            } else if sys::computed() >= Duration::from_millis(self.limits.cpu_ms) {
                self.reached.set(Some(ScriptLimit::Cpu));
            }
        }
        self.reached.get().is_some()
    }

    fn run(
        self: &Rc<Self>,
        ctx: &Ctx<'_>,
        order: &ScriptOrder,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> anyhow::Result<ScriptMessage> {
        let settle = match self.prepare(ctx, order) {
            Ok(settle) => settle,
            Err(_) => return Ok(ScriptMessage::Failed(self.failure(ctx, 0))),
        };
        let (declared, before) = match declare(ctx, &order.script) {
            Ok(declared) => declared,
            Err(before) => {
                return Ok(ScriptMessage::Failed(self.syntax_error(
                    ctx,
                    &order.script,
                    before,
                )));
            }
        };
        let Ok((module, promise)) = declared.eval() else {
            return Ok(ScriptMessage::Failed(self.failure(ctx, before)));
        };
        let mut in_flight = 0;
        loop {
            while !self.is_over() && ctx.execute_pending_job() {}
            if self.reached.get().is_some() {
                return Ok(ScriptMessage::Failed(self.failure(ctx, before)));
            }
            self.send(&mut in_flight, output)?;
            match promise.state() {
                PromiseState::Resolved => return Ok(self.done(ctx, &module, in_flight)),
                PromiseState::Rejected => {
                    let _ = promise.result::<Value<'_>>();
                    return Ok(ScriptMessage::Failed(self.failure(ctx, before)));
                }
                PromiseState::Pending if in_flight == 0 => {
                    return Ok(ScriptMessage::Failed(ScriptFailure {
                        message: "the script waits for a promise that nothing settles".to_owned(),
                        advice: Some(
                            "await only calls of tools, find, schema and results.read".to_owned(),
                        ),
                        ..ScriptFailure::default()
                    }));
                }
                PromiseState::Pending => {}
            }
            let line = read_message(input)?;
            let reply: ScriptReply = serde_json::from_slice(&line).context("a reply")?;
            let text = String::from_utf8(line).context("a reply")?;
            in_flight -= 1;
            if settle.call::<_, ()>((reply.id, text)).is_err() {
                return Ok(ScriptMessage::Failed(self.failure(ctx, before)));
            }
        }
    }

    /// Makes the globals. Returns the function that takes replies.
    fn prepare<'js>(
        self: &Rc<Self>,
        ctx: &Ctx<'js>,
        order: &ScriptOrder,
    ) -> rquickjs::Result<Function<'js>> {
        let run = self.clone();
        let send = move |ctx: Ctx<'js>, server: String, tool: String, arguments: String| {
            run.call(&ctx, server, tool, arguments)
        };
        let run = self.clone();
        let print = move |text: String| run.print(&text);
        let known = serde_json::to_string(&order.tools).unwrap_or_else(|_| "{}".to_owned());
        let prelude: Function<'js> = ctx.eval(PRELUDE)?;
        prelude.call((
            Function::new(ctx.clone(), send)?,
            Function::new(ctx.clone(), print)?,
            ctx.json_parse(known)?,
            OWN_TOOLS,
        ))
    }

    /// Takes a call of the script; it goes out when nothing more can be done without its answer.
    fn call(
        &self,
        ctx: &Ctx<'_>,
        server: String,
        tool: String,
        arguments: String,
    ) -> rquickjs::Result<u32> {
        let over = |limit: ScriptLimit| {
            self.reached.set(Some(limit));
            Exception::throw_range(
                ctx,
                &format!("limit reached: {}", limit.describe(&self.limits)),
            )
        };
        // One may have a toJSON of the script's making.
        if !arguments.starts_with('{') {
            return Err(Exception::throw_type(
                ctx,
                "the arguments are not written as a JSON object",
            ));
        }
        let length = arguments.len() + server.len() + tool.len();
        if self.calls.get() >= self.limits.calls {
            return Err(over(ScriptLimit::Calls));
        }
        if length as u64 > self.limits.output {
            return Err(over(ScriptLimit::Output));
        }
        if json_depth(arguments.as_bytes()) > self.limits.depth {
            return Err(over(ScriptLimit::Depth));
        }
        self.waiting.set(self.waiting.get() + length as u64);
        if self.waiting.get() > self.limits.memory {
            return Err(over(ScriptLimit::Memory));
        }
        let arguments = RawValue::from_string(arguments)
            .map_err(|_| Exception::throw_type(ctx, "the arguments cannot be written as JSON"))?;
        self.calls.set(self.calls.get() + 1);
        let id = self.calls.get();
        let call = ScriptCall {
            id,
            server,
            tool,
            arguments,
        };
        self.outgoing
            .borrow_mut()
            .push_back(ScriptMessage::Call(call));
        Ok(id)
    }

    /// Prints a line, as long as there is room; the first that has none says so.
    fn print(&self, text: &str) {
        let before = self.printed.get();
        self.printed
            .set(before.saturating_add(text.len() as u64 + 1));
        let text = match (
            before < self.limits.printed,
            self.printed.get() <= self.limits.printed,
        ) {
            (true, true) => text.to_owned(),
            (true, false) => format!(
                "[more than {} KiB are not printed]",
                self.limits.printed >> 10
            ),
            (false, _) => return,
        };
        self.outgoing
            .borrow_mut()
            .push_back(ScriptMessage::Log(text));
    }

    /// Sends what is printed, and calls up to the limit of those in flight.
    fn send(&self, in_flight: &mut u32, output: &mut impl Write) -> anyhow::Result<()> {
        let mut outgoing = self.outgoing.borrow_mut();
        while let Some(next) = outgoing.front() {
            if let ScriptMessage::Call(call) = next {
                if *in_flight >= self.limits.parallel {
                    break;
                }
                *in_flight += 1;
                let length = call.arguments.get().len() + call.server.len() + call.tool.len();
                self.waiting
                    .set(self.waiting.get().saturating_sub(length as u64));
            }
            let next = outgoing.pop_front().context("nothing to send")?;
            write_message(output, &next)?;
        }
        Ok(())
    }

    fn done<'js>(
        &self,
        ctx: &Ctx<'js>,
        module: &Module<'js, Evaluated>,
        in_flight: u32,
    ) -> ScriptMessage {
        let outgoing = self.outgoing.borrow();
        let waiting = outgoing
            .iter()
            .filter(|message| matches!(message, ScriptMessage::Call(_)));
        let unawaited = in_flight + u32::try_from(waiting.count()).unwrap_or(u32::MAX);
        let limit = |limit: ScriptLimit| {
            ScriptMessage::Failed(ScriptFailure {
                message: format!(
                    "the script returns too much: limit {}",
                    limit.describe(&self.limits)
                ),
                limit: Some(limit),
                advice: Some("return less: the values that are needed, a count, a part".to_owned()),
                ..ScriptFailure::default()
            })
        };
        let value = module.get::<_, Value<'_>>("default").or_else(|_| {
            ctx.catch();
            Ok::<_, rquickjs::Error>(Value::new_undefined(ctx.clone()))
        });
        let text = value.and_then(|value| ctx.json_stringify(value));
        let text = match text.and_then(|text| text.map(|text| text.to_string()).transpose()) {
            Ok(text) => text.unwrap_or_else(|| "null".to_owned()),
            Err(_) => return ScriptMessage::Failed(self.failure(ctx, 0)),
        };
        if text.len() as u64 > self.limits.output {
            return limit(ScriptLimit::Output);
        }
        if json_depth(text.as_bytes()) > self.limits.depth {
            return limit(ScriptLimit::Depth);
        }
        match RawValue::from_string(text) {
            Ok(value) => ScriptMessage::Done(ScriptDone { value, unawaited }),
            // A lone surrogate, which JSON can write and the daemon cannot read.
            Err(error) => ScriptMessage::Failed(ScriptFailure {
                message: format!("the returned value cannot be written as JSON: {error}"),
                ..ScriptFailure::default()
            }),
        }
    }

    /// The pending exception. The first line of a script that was wrapped begins `before` columns
    /// later.
    fn failure(&self, ctx: &Ctx<'_>, before: u32) -> ScriptFailure {
        let thrown = ctx.catch();
        let text = |name: &str| {
            let value = thrown.as_object()?.get::<_, Option<String>>(name).ok()??;
            Some(value.chars().take(MAX_MESSAGE).collect::<String>())
        };
        let name = text("name").unwrap_or_else(|| "Error".to_owned());
        let message = match (text("message"), self.reached.get()) {
            (_, Some(limit)) => format!(
                "the script reached the limit {}",
                limit.describe(&self.limits)
            ),
            (Some(message), _) => format!("{name}: {message}"),
            (None, _) => {
                let shown = ctx.json_stringify(thrown.clone()).ok().flatten();
                let shown = shown
                    .and_then(|shown| shown.to_string().ok())
                    .unwrap_or_default();
                ctx.catch();
                format!(
                    "the script threw {}",
                    shown.chars().take(MAX_MESSAGE).collect::<String>()
                )
            }
        };
        let limit = self.reached.get().or_else(|| {
            // The interpreter has no code for these. A script can throw the same words, and
            // deceives itself alone.
            [
                ("out of memory", ScriptLimit::Memory),
                ("string too long", ScriptLimit::Memory),
                ("call stack size exceeded", ScriptLimit::Depth),
                // Of an expression that nests too deep.
                ("SyntaxError: stack overflow", ScriptLimit::Depth),
            ]
            .into_iter()
            .find(|(words, _)| message.contains(words))
            .map(|(_, limit)| limit)
            .or(thrown.is_null().then_some(ScriptLimit::Memory))
        });
        let message = match (limit, self.reached.get()) {
            (Some(limit), None) => format!(
                "the script reached the limit {}: {message}",
                limit.describe(&self.limits)
            ),
            _ => message,
        };
        let place = text("stack").and_then(|stack| first_place(&stack));
        let place = place.map(|(line, column)| {
            (
                line,
                if line == 1 {
                    column.saturating_sub(before)
                } else {
                    column
                },
            )
        });
        let code = text("code").filter(|_| name == "ToolError");
        ScriptFailure {
            message: match (code, text("server"), text("tool")) {
                (Some(code), Some(server), Some(tool)) => {
                    format!("{message} ({code}, from tools.{server}.{tool})")
                }
                _ => message,
            },
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            limit,
            advice: text("advice").filter(|_| name == "ToolError"),
        }
    }

    fn syntax_error(&self, ctx: &Ctx<'_>, script: &str, before: u32) -> ScriptFailure {
        let mut failure = self.failure(ctx, before);
        if let Some((line, words)) = typescript(script) {
            failure.advice = Some(format!(
                "line {line} looks like TypeScript (\"{words}\"): scripts are JavaScript, leave the types out"
            ));
        } else if failure.message.contains("could not load module") {
            failure.advice = Some(
                "a script has no modules to import: call tools with tools.SERVER.TOOL({…})"
                    .to_owned(),
            );
        }
        failure
    }
}

/// Compiles a script: as a module, or as the body of a function where it returns at its top.
/// Returns the columns by which its first line was moved.
///
/// # Errors
/// The exception is pending; its first line was moved by so many columns.
fn declare<'js>(ctx: &Ctx<'js>, script: &str) -> Result<(Module<'js>, u32), u32> {
    let failed = match Module::declare(ctx.clone(), SCRIPT, script) {
        Ok(module) => return Ok((module, 0)),
        Err(_) => ctx.catch(),
    };
    let message = failed
        .as_exception()
        .and_then(Exception::message)
        .unwrap_or_default();
    if !message.contains("return not in a function") {
        ctx.throw(failed);
        return Err(0);
    }
    let before = u32::try_from(BEFORE.len()).unwrap_or_default();
    match Module::declare(ctx.clone(), SCRIPT, format!("{BEFORE}{script}{AFTER}")) {
        Ok(module) => Ok((module, before)),
        Err(_) => Err(before),
    }
}
