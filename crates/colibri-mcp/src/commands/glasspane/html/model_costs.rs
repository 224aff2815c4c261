//! The tokens and the money of models in a period: of all, by agent, by client, by task and by
//! model.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::names::{Name, NameTable};
use super::table::PageTable;
use crate::prices::{PriceList, PricedSum};
use colibri_api::CostSum;
use colibri_trail::RecordFields;

/// The event by which the contract of a tool says that a call of it asked a model.
const MODEL_CALL: &str = "model_call";
/// The most agents, clients and models that are counted apart, of each; the others are counted
/// together.
const MAX_NAMES: usize = 100;
/// The most tasks, the newest.
const MAX_TASKS: usize = 300;
/// The name of those beyond the bound.
const OTHERS: &str = "all others";

/// Tokens of models, and their money.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelCost {
    tokens: CostSum,
    money: PricedSum,
}

/// The owner of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) enum CostOwner<'a> {
    /// An agent.
    Agent(&'a str),
    /// A client, by its name for itself; empty: it gave none.
    Client(&'a str),
}

/// What a model's answer cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelCharge<'a> {
    /// The model's name; `None`: it is not known.
    pub model: Option<&'a str>,
    pub tokens: &'a CostSum,
    pub task: Option<u64>,
}

/// A call of a tool that asked a model, as the tool's contract has it recorded.
#[derive(Debug)]
pub(super) struct ModelCall<'a> {
    /// The number of the call's record.
    pub call: u64,
    model: Option<&'a str>,
    tokens: CostSum,
}

/// Counts by name.
#[derive(Debug, Default)]
struct NamedCosts(BTreeMap<String, ModelCost>);

/// The costs of a period.
#[derive(Debug, Default)]
pub(super) struct ModelCosts {
    prices: Option<Arc<PriceList>>,
    all: ModelCost,
    agents: NamedCosts,
    clients: NamedCosts,
    models: NamedCosts,
    tasks: BTreeMap<u64, ModelCost>,
}

/// A cost on the page.
#[derive(Debug, Serialize)]
pub(super) struct DrawnCost {
    requests: u64,
    /// Tokens that were read, but for those of the provider's cache.
    input: u64,
    /// Those from that cache, and those that went into it.
    cached: u64,
    stored: u64,
    output: u64,
    /// As people read it; a plus sign says that there are tokens without a price besides. `None`:
    /// none has one.
    money: Option<String>,
    /// Tokens without a price.
    unpriced: u64,
}

/// The costs of a period on the page, the highest first.
#[derive(Debug, Serialize)]
pub(super) struct ModelCostTable {
    /// The prices' currency and day. `None`: there are no prices.
    prices: Option<(String, String)>,
    all: DrawnCost,
    agents: Vec<(Name, DrawnCost)>,
    clients: Vec<(Name, DrawnCost)>,
    models: Vec<(Name, DrawnCost)>,
    tasks: Vec<(u64, DrawnCost)>,
}

impl ModelCall<'_> {
    /// Reads an event. `None`: it is another.
    pub(super) fn of(fields: &RecordFields) -> Option<ModelCall<'_>> {
        if fields.event != MODEL_CALL {
            return None;
        }
        let number = |key: &str| fields.details.get(key).and_then(|value| value.as_u64());
        let tokens = |key| number(key).unwrap_or_default();
        Some(ModelCall {
            call: number("call")?,
            model: fields.details.get("model").and_then(|model| model.as_str()),
            tokens: CostSum {
                model_requests: 1,
                tokens_in: tokens("tokens_in"),
                tokens_out: tokens("tokens_out"),
                tokens_cached: tokens("tokens_cached"),
                tokens_cache_write: tokens("tokens_cache_write"),
                ..CostSum::default()
            },
        })
    }

    /// Its cost, for this task.
    pub(super) fn charge(&self, task: Option<u64>) -> ModelCharge<'_> {
        ModelCharge {
            model: self.model,
            tokens: &self.tokens,
            task,
        }
    }
}

impl ModelCosts {
    pub(super) fn new(prices: Option<Arc<PriceList>>) -> ModelCosts {
        ModelCosts {
            prices,
            ..ModelCosts::default()
        }
    }

    /// Counts an answer, of its lane as well.
    pub(super) fn charge(
        &mut self,
        owner: CostOwner<'_>,
        lane: &mut ModelCost,
        charge: &ModelCharge<'_>,
    ) {
        let model = charge.model.unwrap_or_default();
        let price = self
            .prices
            .as_ref()
            .and_then(|prices| prices.price(model, charge.tokens));
        let named = match owner {
            CostOwner::Agent(name) => self.agents.of(name),
            CostOwner::Client(name) => self.clients.of(name),
        };
        let task = charge.task.map(|task| self.tasks.entry(task).or_default());
        for cost in [lane, &mut self.all, named, self.models.of(model)]
            .into_iter()
            .chain(task)
        {
            cost.tokens.add(charge.tokens);
            cost.money.add(price, charge.tokens);
        }
        if self.tasks.len() > MAX_TASKS {
            self.tasks.pop_first();
        }
    }

    /// The page's part.
    pub(super) fn table(&self, names: &mut NameTable) -> ModelCostTable {
        let mut by = |costs: &NamedCosts| {
            let mut costs: Vec<_> = costs.0.iter().collect();
            costs.sort_by_key(|(_, cost)| {
                std::cmp::Reverse((cost.money.amount, cost.tokens.tokens_in))
            });
            let drawn = costs
                .into_iter()
                .map(|(name, cost)| (names.place(name), cost.drawn()));
            drawn.collect::<Vec<_>>()
        };
        ModelCostTable {
            prices: (self.prices.as_ref())
                .map(|prices| (prices.currency.clone(), prices.date.to_string())),
            all: self.all.drawn(),
            agents: by(&self.agents),
            clients: by(&self.clients),
            models: by(&self.models),
            tasks: self
                .tasks
                .iter()
                .rev()
                .map(|(id, cost)| (*id, cost.drawn()))
                .collect(),
        }
    }
}

impl NamedCosts {
    fn of(&mut self, name: &str) -> &mut ModelCost {
        let name = match self.0.contains_key(name) || self.0.len() < MAX_NAMES {
            true => name,
            false => OTHERS,
        };
        self.0.entry(name.to_owned()).or_default()
    }
}

impl ModelCost {
    /// This as the page has it.
    pub(super) fn drawn(&self) -> DrawnCost {
        DrawnCost {
            requests: self.tokens.model_requests,
            input: self.tokens.tokens_fresh(),
            cached: self.tokens.tokens_cached,
            stored: self.tokens.tokens_cache_write,
            output: self.tokens.tokens_out,
            money: self.money.is_priced.then(|| self.money.to_string()),
            unpriced: self.money.unpriced,
        }
    }

    /// The same, unless no model was asked.
    pub(super) fn drawn_if_any(&self) -> Option<DrawnCost> {
        (self.tokens.model_requests > 0).then(|| self.drawn())
    }
}

impl ModelCostTable {
    /// Its table without JavaScript.
    pub(super) fn table(&self, names: &[String]) -> PageTable {
        let row = |(kind, who, cost): (&str, String, &DrawnCost)| {
            let numbers = [
                cost.requests,
                cost.input,
                cost.cached,
                cost.stored,
                cost.output,
            ];
            let money = match (&cost.money, &self.prices) {
                (Some(money), Some((currency, _))) => format!("{money} {currency}"),
                _ => "-".to_owned(),
            };
            let words = [
                vec![kind.to_owned(), who],
                numbers.map(|number| number.to_string()).to_vec(),
            ];
            [words.concat(), vec![money]].concat()
        };
        let named = |kind: &'static str, costs: &[(Name, DrawnCost)]| {
            let rows = costs
                .iter()
                .map(|(name, cost)| row((kind, names[*name].clone(), cost)));
            rows.collect::<Vec<_>>()
        };
        let tasks = self
            .tasks
            .iter()
            .map(|(id, cost)| row(("task", format!("#{id}"), cost)));
        let all = (self.all.requests > 0).then(|| row(("all", String::new(), &self.all)));
        let headings = &[
            "By",
            "Name",
            "Requests",
            "Input",
            "Cached",
            "Into the cache",
            "Output",
            "Money",
        ];
        let rows = named("agent", &self.agents)
            .into_iter()
            .chain(named("client", &self.clients))
            .chain(named("model", &self.models))
            .chain(tasks);
        PageTable::of("Cost of models", headings, all.into_iter().chain(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: &str = r#"{ "currency": "EUR", "date": "2026-11-01", "models": [
        { "model": "m-*", "input": 4, "cached_input": 1, "cache_write": 8, "output": 20 } ] }"#;

    fn tokens(input: u64, cached: u64, stored: u64, output: u64) -> CostSum {
        CostSum {
            model_requests: 1,
            tokens_in: input + cached + stored,
            tokens_cached: cached,
            tokens_cache_write: stored,
            tokens_out: output,
            ..CostSum::default()
        }
    }

    fn costs(prices: &str) -> ModelCosts {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("prices.json");
        std::fs::write(&file, prices).unwrap();
        ModelCosts::new(PriceList::read(&file).unwrap().map(Arc::new))
    }

    #[test]
    fn money_is_of_tokens_with_a_price_and_cached_ones_have_their_own() {
        let mut costs = costs(PRICES);
        let (mut coder, mut client) = (ModelCost::default(), ModelCost::default());
        let tokens = tokens(1000, 2000, 500, 100);
        let charge = |model, task| ModelCharge {
            model,
            tokens: &tokens,
            task,
        };
        costs.charge(
            CostOwner::Agent("coder"),
            &mut coder,
            &charge(Some("m-1"), Some(7)),
        );
        costs.charge(
            CostOwner::Agent("coder"),
            &mut coder,
            &charge(Some("x"), Some(7)),
        );
        costs.charge(CostOwner::Client(""), &mut client, &charge(None, None));
        let mut names = NameTable::default();
        let table = costs.table(&mut names);
        let names = names.into_names();
        // 1000 * 4 + 2000 * 1 + 500 * 8 + 100 * 20 millionths.
        let money = |cost: &DrawnCost| (cost.requests, cost.money.clone(), cost.unpriced);
        let priced = Some("0.0120+".to_owned());
        assert_eq!(money(&table.all), (3, priced.clone(), 7200));
        assert_eq!(money(&table.agents[0].1), (2, priced.clone(), 3600));
        assert_eq!(money(&table.clients[0].1), (1, None, 3600));
        assert_eq!(
            (table.tasks[0].0, money(&table.tasks[0].1)),
            (7, (2, priced.clone(), 3600))
        );
        assert_eq!(money(&coder.drawn()), (2, priced, 3600));
        assert_eq!(names[table.models[0].0], "m-1", "the highest first");
        assert_eq!(table.models[0].1.money.as_deref(), Some("0.0120"));
        let all = &table.all;
        assert_eq!(
            [all.input, all.cached, all.stored, all.output],
            [3000, 6000, 1500, 300]
        );
        let rows = table.table(&names).rows;
        assert_eq!(
            rows[1],
            [
                "agent",
                "coder",
                "2",
                "2000",
                "4000",
                "1000",
                "200",
                "0.0120+ EUR"
            ]
        );
        assert!(ModelCost::default().drawn_if_any().is_none());
    }

    #[test]
    fn a_tool_that_asked_a_model_is_read_as_its_contract_recorded_it() {
        let fields = |event: &str, call: u64| RecordFields {
            event: event.to_owned(),
            details: serde_json::from_value(
                serde_json::json!({ "call": call, "model": "m-1", "tokens_in": 9,
                "tokens_out": 2, "tokens_cached": 4, "stop_reason": "stop" }),
            )
            .unwrap(),
            ..RecordFields::default()
        };
        let recorded = fields("model_call", 7);
        let called = ModelCall::of(&recorded).unwrap();
        let charge = called.charge(Some(3));
        let tokens = [
            charge.tokens.tokens_fresh(),
            charge.tokens.tokens_cached,
            charge.tokens.tokens_out,
        ];
        assert_eq!(
            (called.call, charge.model, charge.task, tokens),
            (7, Some("m-1"), Some(3), [5, 4, 2])
        );
        assert!(ModelCall::of(&fields("task", 7)).is_none());
    }

    #[test]
    fn names_and_tasks_are_bounded() {
        let mut costs = ModelCosts::new(None);
        let tokens = tokens(1, 0, 0, 1);
        for n in 0..500 {
            let (name, mut lane) = (format!("n{n}"), ModelCost::default());
            let charge = ModelCharge {
                model: Some(&name),
                tokens: &tokens,
                task: Some(n),
            };
            costs.charge(CostOwner::Agent(&name), &mut lane, &charge);
        }
        let table = costs.table(&mut NameTable::default());
        assert_eq!(
            (table.agents.len(), table.models.len()),
            (MAX_NAMES + 1, MAX_NAMES + 1)
        );
        assert_eq!((table.tasks.len(), table.tasks[0].0), (MAX_TASKS, 499));
        assert_eq!(
            (
                table.all.requests,
                table.all.money.as_ref(),
                table.all.unpriced
            ),
            (500, None, 1000)
        );
    }
}
