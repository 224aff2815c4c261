//! The body of a request, read strictly: whatever another reader could read otherwise, and whatever has the provider do
//! more than answer, is refused.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

use colibri_json::{Fault, Kind, Reader};
use colibri_text::brief;
use hyper::StatusCode;

use super::api::{Asks, fits};
use super::grammar::{Grammar, Rule, grammar};
use super::refusal::Refusal;
use crate::registry::{ModelAllow, ModelApi};

/// How deep a body may be nested.
const MAX_DEPTH: usize = 128;
/// The most values and keys of a body.
const MAX_VALUES: usize = 500_000;

/// What a body says, as far as the relay has to know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The most tokens of an answer; of requests for later their sum.
    pub maximum: Option<u64>,
    /// How many answers are asked for.
    pub copies: u64,
    /// What is put into the body, and where: the bytes of this range are replaced.
    pub splices: Vec<(Range<usize>, &'static str)>,
}

/// Reads a body for this interface and judges it.
///
/// # Errors
/// Why it is refused, and where.
pub(super) fn judge(api: ModelApi, asks: Asks, allow: &[ModelAllow], body: &[u8]) -> Result<Facts, Refusal> {
    let bad = |why: &str| Refusal::new(StatusCode::BAD_REQUEST, why);
    let text = std::str::from_utf8(body).map_err(|_| bad("the body is not UTF-8"))?;
    let mut judge = Judge {
        reader: Reader::new(text, MAX_DEPTH, "nested deeper than 128 levels"),
        grammar: grammar(api),
        allow,
        asks,
        path: Vec::new(),
        values: 0,
        facts: Facts {
            copies: 1,
            ..Facts::default()
        },
        top: Top::default(),
    };
    let read = judge.body().and_then(|()| Ok(judge.reader.end()?));
    match read {
        Ok(()) => {
            let (top, mut facts) = (judge.top, judge.facts);
            if asks == Asks::Generate {
                top.splice(api, allow, &mut facts.splices)?;
            }
            Ok(facts)
        }
        Err(Stopped::Fault(fault)) => Err(bad(&format!("{}: {}", judge.place(), fault.why))),
        Err(Stopped::Refused(status, why)) => Err(Refusal::new(status, format!("{}: {why}", judge.place()))),
    }
}

/// Why a body is not read on.
enum Stopped {
    Fault(Fault),
    Refused(StatusCode, Cow<'static, str>),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Stopped {
        Stopped::Fault(fault)
    }
}

fn refused<T>(why: impl Into<Cow<'static, str>>) -> Result<T, Stopped> {
    Err(Stopped::Refused(StatusCode::FORBIDDEN, why.into()))
}

fn wrong<T>(why: impl Into<Cow<'static, str>>) -> Result<T, Stopped> {
    Err(Stopped::Refused(StatusCode::BAD_REQUEST, why.into()))
}

/// What stands at the top of the body that the relay adds to.
#[derive(Default)]
struct Top {
    /// Behind the brace that begins the body.
    begins: usize,
    is_empty: bool,
    streams: bool,
    /// Where the value of `store` stands, and whether it is null.
    stores: Option<(Range<usize>, bool)>,
    /// Where `stream_options` stand, and what they say.
    options: Option<(Range<usize>, Options)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Options {
    Null,
    /// Without `include_usage`; whether there is nothing else either.
    Without(bool),
    Usage(bool),
}

impl Top {
    /// Has the provider tell its counts, and keep nothing.
    fn splice(
        self,
        api: ModelApi,
        allow: &[ModelAllow],
        splices: &mut Vec<(Range<usize>, &'static str)>,
    ) -> Result<(), Refusal> {
        let begins = self.begins..self.begins;
        match api {
            // Without a word it keeps them.
            ModelApi::OpenAiResponses if !allow.contains(&ModelAllow::Stored) => match self.stores {
                None if self.is_empty => splices.push((begins, "\"store\":false")),
                None => splices.push((begins, "\"store\":false,")),
                Some((span, true)) => splices.push((span, "false")),
                Some((_, false)) => {}
            },
            ModelApi::OpenAiChat if self.streams => match self.options {
                None if self.is_empty => splices.push((begins, "\"stream_options\":{\"include_usage\":true}")),
                None => splices.push((begins, "\"stream_options\":{\"include_usage\":true},")),
                Some((span, Options::Null)) => splices.push((span, "{\"include_usage\":true}")),
                Some((span, Options::Without(is_empty))) => {
                    let at = span.start + 1;
                    let text = if is_empty {
                        "\"include_usage\":true"
                    } else {
                        "\"include_usage\":true,"
                    };
                    splices.push((at..at, text));
                }
                Some((_, Options::Usage(true))) => {}
                Some((_, Options::Usage(false))) => {
                    return Err(Refusal::new(
                        StatusCode::FORBIDDEN,
                        "stream_options.include_usage: must not be false, since the tokens of this agent are counted",
                    ));
                }
            },
            _ => {}
        }
        Ok(())
    }
}

enum Step<'t> {
    Key(Cow<'t, str>),
    Index(usize),
}

struct Judge<'t> {
    reader: Reader<'t>,
    grammar: &'static Grammar,
    allow: &'t [ModelAllow],
    asks: Asks,
    path: Vec<Step<'t>>,
    values: usize,
    facts: Facts,
    top: Top,
}

impl<'t> Judge<'t> {
    fn body(&mut self) -> Result<(), Stopped> {
        if self.reader.kind()? != Kind::Object {
            return wrong("must be an object");
        }
        self.top.begins = self.reader.at() + 1;
        self.top.is_empty = true;
        self.object(Some(self.grammar.top), true)
    }

    /// Where it stopped.
    fn place(&self) -> String {
        let mut text = String::from("body");
        for step in &self.path {
            match step {
                Step::Key(key) => drop(write!(text, ".{}", brief(key, 64))),
                Step::Index(index) => drop(write!(text, "[{index}]")),
            }
        }
        text
    }

    fn count(&mut self) -> Result<(), Stopped> {
        self.values += 1;
        match self.values > MAX_VALUES {
            true => wrong(format!("over {MAX_VALUES} values and keys")),
            false => Ok(()),
        }
    }

    fn has_one_of(&self, needed: &[ModelAllow]) -> bool {
        needed.iter().any(|needed| self.allow.contains(needed))
    }

    /// A value that the provider reads.
    fn value(&mut self, rule: Option<Rule>) -> Result<(), Stopped> {
        self.count()?;
        let kind = self.reader.kind()?;
        match rule {
            Some(Rule::Opaque) => return self.opaque(kind),
            Some(Rule::Needs(needed)) if !self.has_one_of(needed) => return self.nothing(kind, needed),
            Some(Rule::Type) if kind != Kind::String => return wrong("must be text"),
            Some(Rule::Maximum) => return self.maximum(kind),
            Some(Rule::Copies) => {
                let copies = self.number(kind)?.unwrap_or(1);
                self.facts.copies = self.facts.copies.max(copies);
                return Ok(());
            }
            _ => {}
        }
        match kind {
            Kind::Null => self.reader.null()?,
            Kind::Bool => drop(self.reader.boolean()?),
            Kind::Number => drop(self.reader.number()?),
            Kind::String => match rule {
                Some(Rule::DataUrl | Rule::Inline | Rule::ModelName | Rule::Type) => {
                    let text = self.reader.string()?;
                    return self.text(&text, rule);
                }
                _ => self.reader.pass_string()?,
            },
            Kind::Array => {
                self.reader.enter()?;
                let mut index = 0;
                while self.reader.element(index == 0)? {
                    self.path.push(Step::Index(index));
                    self.value(rule)?;
                    self.path.pop();
                    index += 1;
                }
            }
            Kind::Object => {
                let only = match rule {
                    Some(Rule::Only(keys)) => Some(keys),
                    _ => None,
                };
                self.object(only, false)?;
            }
        }
        Ok(())
    }

    /// An object whose keys the provider reads.
    fn object(&mut self, only: Option<&'static str>, is_top: bool) -> Result<(), Stopped> {
        let mut seen = HashSet::new();
        let mut first = true;
        self.reader.enter()?;
        while let Some((_, key)) = self.reader.key(first)? {
            first = false;
            self.count()?;
            let name = plain(&key);
            self.path.push(Step::Key(key));
            if is_top {
                self.top.is_empty = false;
            }
            if let Some(only) = only
                && !only.split(' ').any(|known| known == name)
            {
                return refused("this relay does not know the key, and so does not pass it");
            }
            let rules = self.grammar.keys.iter();
            let rule = rules.clone().find(|(key, _)| *key == name).map(|(_, rule)| *rule);
            self.reader.colon()?;
            match (is_top, &*name) {
                (true, "stream") => {
                    self.top.streams = self.reader.kind()? == Kind::Bool && self.reader.clone().boolean()?;
                    self.value(rule)?;
                }
                (true, "store") => {
                    let is_null = self.reader.kind()? == Kind::Null;
                    let start = self.reader.at();
                    self.value(rule)?;
                    self.top.stores = Some((start..self.reader.at(), is_null));
                }
                (true, "streamoptions") => self.options()?,
                // What is asked for later holds whole requests.
                (false, "params") if self.asks == Asks::Batch => self.object_of(self.grammar.top)?,
                _ => self.value(rule)?,
            }
            if !seen.insert(name) {
                return wrong("this key stands twice in its object, or so that another reader takes it for the same");
            }
            self.path.pop();
        }
        Ok(())
    }

    fn object_of(&mut self, only: &'static str) -> Result<(), Stopped> {
        match self.reader.kind()? {
            Kind::Object => self.object(Some(only), false),
            _ => wrong("must be an object"),
        }
    }

    /// What stands in `stream_options`.
    fn options(&mut self) -> Result<(), Stopped> {
        self.count()?;
        let kind = self.reader.kind()?;
        let start = self.reader.at();
        let mut found = Options::Null;
        match kind {
            Kind::Null => self.reader.null()?,
            Kind::Object => {
                // Read twice: here for what it says, then as everything is.
                let mut peek = self.reader.clone();
                self.object(None, false)?;
                found = usage_of(&mut peek)?;
            }
            _ => return wrong("must be an object"),
        }
        self.top.options = Some((start..self.reader.at(), found));
        Ok(())
    }

    fn text(&self, text: &str, rule: Option<Rule>) -> Result<(), Stopped> {
        match rule {
            Some(Rule::Type) => self.kind_of(text),
            Some(Rule::DataUrl) if !is_data(text) => self.address(),
            Some(Rule::Inline) if !is_data(text) && text.contains(':') => self.address(),
            Some(Rule::ModelName) if text.contains(":online") || text.contains("-search-") => {
                match self.has_one_of(&[ModelAllow::WebSearch]) {
                    true => Ok(()),
                    false => refused(needs(&[ModelAllow::WebSearch], "this model searches the web by itself")),
                }
            }
            _ => Ok(()),
        }
    }

    fn address(&self) -> Result<(), Stopped> {
        match self.has_one_of(&[ModelAllow::Urls]) {
            true => Ok(()),
            false => refused(needs(
                &[ModelAllow::Urls],
                "it is an address, which the provider would fetch; send the data themselves",
            )),
        }
    }

    fn kind_of(&self, text: &str) -> Result<(), Stopped> {
        let needed = self.grammar.kinds_if.iter().find(|(kind, _)| fits(kind, text));
        match needed {
            Some((_, needed)) if self.allow.contains(needed) => Ok(()),
            Some((_, needed)) => {
                let what = format!("{} is the provider's to run or to look up", brief(text, 64));
                refused(needs(&[*needed], &what))
            }
            None if self.grammar.kinds.is_empty() => Ok(()),
            None if self.grammar.kinds.split(' ').any(|kind| fits(kind, text)) => Ok(()),
            None => refused(format!(
                "this relay does not know {}, and so does not pass it",
                brief(text, 64)
            )),
        }
    }

    /// Something that is not allowed and therefore must not be there: null, false, nothing.
    fn nothing(&mut self, kind: Kind, needed: &[ModelAllow]) -> Result<(), Stopped> {
        let is_nothing = match kind {
            Kind::Null => self.reader.null().map(|()| true)?,
            Kind::Bool => !self.reader.boolean()?,
            Kind::String => self.reader.string()?.is_empty(),
            Kind::Array => {
                self.reader.enter()?;
                !self.reader.element(true)?
            }
            Kind::Object | Kind::Number => false,
        };
        match is_nothing {
            true => Ok(()),
            false => refused(needs(
                needed,
                "it has the provider run, fetch, look up or keep something",
            )),
        }
    }

    fn maximum(&mut self, kind: Kind) -> Result<(), Stopped> {
        let Some(number) = self.number(kind)? else {
            return Ok(());
        };
        let before = self.facts.maximum;
        self.facts.maximum = Some(match self.asks {
            Asks::Batch => before.unwrap_or(0).saturating_add(number),
            _ => before.unwrap_or(0).max(number),
        });
        Ok(())
    }

    fn number(&mut self, kind: Kind) -> Result<Option<u64>, Stopped> {
        match kind {
            Kind::Null => Ok(self.reader.null().map(|()| None)?),
            Kind::Number => match self.reader.number()?.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => wrong("must be a whole number in digits alone"),
            },
            _ => wrong("must be a whole number"),
        }
    }

    /// A value that is none of the provider's business: JSON, in which no key stands twice.
    fn opaque(&mut self, kind: Kind) -> Result<(), Stopped> {
        match kind {
            Kind::Null => self.reader.null()?,
            Kind::Bool => drop(self.reader.boolean()?),
            Kind::Number => drop(self.reader.number()?),
            Kind::String => self.reader.pass_string()?,
            Kind::Array => {
                self.reader.enter()?;
                let mut index = 0;
                while self.reader.element(index == 0)? {
                    self.path.push(Step::Index(index));
                    self.value(Some(Rule::Opaque))?;
                    self.path.pop();
                    index += 1;
                }
            }
            Kind::Object => {
                let mut seen = HashSet::new();
                self.reader.enter()?;
                while let Some((_, key)) = self.reader.key(seen.is_empty())? {
                    self.count()?;
                    self.path.push(Step::Key(key.clone()));
                    if !seen.insert(key) {
                        return wrong("this key stands twice in its object");
                    }
                    self.reader.colon()?;
                    self.value(Some(Rule::Opaque))?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }
}

/// What an object that begins here says of `include_usage`.
fn usage_of(reader: &mut Reader<'_>) -> Result<Options, Stopped> {
    let mut first = true;
    reader.enter()?;
    while let Some((_, key)) = reader.key(first)? {
        first = false;
        reader.colon()?;
        let kind = reader.kind()?;
        if plain(&key) == "includeusage" {
            return match kind {
                Kind::Bool => Ok(Options::Usage(reader.boolean()?)),
                _ => wrong("include_usage must be true or false"),
            };
        }
        match kind {
            Kind::Null => reader.null()?,
            Kind::Bool => drop(reader.boolean()?),
            Kind::Number => drop(reader.number()?),
            Kind::String => reader.pass_string()?,
            Kind::Array | Kind::Object => return wrong("holds a list or an object, which it has no use for"),
        }
    }
    Ok(Options::Without(first))
}

fn needs(needed: &[ModelAllow], why: &str) -> String {
    let names: Vec<&str> = needed.iter().map(|allow| allow.name()).collect();
    format!(
        "{why}; the agent's entry does not allow it (\"allow\" of its \"model\": {})",
        names.join(" or ")
    )
}

fn is_data(text: &str) -> bool {
    text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"))
}

/// A key as the loosest reader takes it: some do not regard case, Protocol Buffers' takes `a_b` for `aB`.
fn plain(key: &str) -> Cow<'static, str> {
    let folded = match key.is_ascii() {
        true => key.to_ascii_lowercase(),
        false => colibri_wire::keys::fold(key),
    };
    Cow::Owned(folded.replace(['_', '\0'], ""))
}
