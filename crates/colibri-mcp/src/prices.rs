//! Prices of models, as the operator writes them in `prices.json`: prices.json(5). Money is
//! arithmetic on tokens that the daemon counted; nothing is guessed.

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

use colibri_api::{CostDay, CostSum};
use colibri_json::{Document, DocumentError, MAX_BYTES, ValueCursor};
use colibri_text::Pattern;
use colibri_trail::open_regular;

/// The most decimals of a price.
const DECIMALS: usize = 6;
/// The most digits of a price before its point.
const DIGITS: usize = 9;
/// The parts of a currency's unit in which amounts are counted: a token costs a millionth of a
/// price, which is counted in millionths.
const UNIT: u128 = 1_000_000_000_000;
/// The decimals of a shown amount, and the parts of the unit that the last of them is.
const SHOWN: (usize, u128) = (4, UNIT / 10_000);

/// The reason for which there are no prices.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PricesError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        error: io::Error,
    },
    /// A file that somebody names is not there.
    #[error("{file}: there is no such file")]
    Missing {
        /// The file.
        file: String,
    },
    /// The file is not as prices.json(5) says.
    #[error(transparent)]
    Content(#[from] DocumentError),
}

/// What models cost.
#[derive(Debug)]
pub(crate) struct PriceList {
    /// The currency's name.
    pub currency: String,
    /// The day from which the prices are.
    pub date: CostDay,
    models: Vec<ModelPrices>,
}

/// The prices of models whose names fit a pattern, each in millionths of the currency's unit for a
/// million tokens.
#[derive(Debug)]
struct ModelPrices {
    model: Pattern,
    input: u64,
    cached_input: Option<u64>,
    cache_write: Option<u64>,
    output: u64,
}

/// An amount of money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(u128);

/// Money of several requests, and the tokens that have no price.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PricedSum {
    pub amount: Amount,
    /// True if any tokens have a price.
    pub is_priced: bool,
    /// Tokens in and out of models without a price.
    pub unpriced: u64,
}

impl PriceList {
    /// Reads a file. `None`: it is not there.
    ///
    /// # Errors
    /// It cannot be read, or says something else than prices.
    pub(crate) fn read(path: &Path) -> Result<Option<PriceList>, PricesError> {
        let file = path.display().to_string();
        let mut text = Vec::new();
        let read = open_regular(path)
            .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text));
        match read {
            Ok(_) => Ok(Some(PriceList::parse(&text, &file)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PricesError::Read { file, error }),
        }
    }

    fn parse(text: &[u8], file: &str) -> Result<PriceList, DocumentError> {
        let document = Document::parse(text, file)?;
        let object = document
            .root()
            .object(&["about", "currency", "date", "models"])?;
        object.read("about", |about| about.string().map(drop))?;
        let currency = object.need("currency")?;
        let name = currency.text()?;
        if !(1..=8).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(currency.error("must be one to eight letters, such as \"USD\""));
        }
        let date = object.need("date")?;
        let day = date.text()?.parse::<CostDay>();
        Ok(PriceList {
            currency: name.to_owned(),
            date: day.map_err(|why| date.error(why.to_string()))?,
            models: (object
                .need("models")?
                .array()?
                .iter()
                .map(ModelPrices::parse))
            .collect::<Result<_, _>>()?,
        })
    }

    /// The price of a model's tokens. `None`: the list does not say.
    pub(crate) fn price(&self, model: &str, cost: &CostSum) -> Option<Amount> {
        let prices = self
            .models
            .iter()
            .find(|prices| prices.model.matches(model))?;
        let parts = [
            (cost.tokens_fresh(), Some(prices.input)),
            (cost.tokens_cached, prices.cached_input),
            (cost.tokens_cache_write, prices.cache_write),
            (cost.tokens_out, Some(prices.output)),
        ];
        let parts = parts.into_iter().filter(|(tokens, _)| *tokens > 0);
        let amounts = parts.map(|(tokens, price)| Some(u128::from(tokens) * u128::from(price?)));
        amounts.sum::<Option<u128>>().map(Amount)
    }
}

impl ModelPrices {
    fn parse(entry: &ValueCursor<'_>) -> Result<ModelPrices, DocumentError> {
        let object = entry.object(&["model", "input", "cached_input", "cache_write", "output"])?;
        let model = object.need("model")?;
        let pattern = model.text()?;
        if pattern.is_empty() {
            return Err(model.error("must name a model; * stands for any run of characters"));
        }
        Ok(ModelPrices {
            model: Pattern::new(pattern),
            input: parse_price(object.need("input")?)?,
            cached_input: object.read("cached_input", parse_price)?,
            cache_write: object.read("cache_write", parse_price)?,
            output: parse_price(object.need("output")?)?,
        })
    }
}

/// A decimal number, in millionths.
fn parse_price(value: &ValueCursor<'_>) -> Result<u64, DocumentError> {
    let text = std::str::from_utf8(value.raw()).unwrap_or_default();
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str, most| {
        digits.len() <= most && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let digits = format!("{whole}{decimals:0<DECIMALS$}");
    let price = digits.parse().ok();
    let price = price
        .filter(|_| !whole.is_empty() && is_number(whole, DIGITS) && is_number(decimals, DECIMALS));
    price.ok_or_else(|| {
        let why =
            format!("must be the price of a million tokens: a number such as 1.25, with {DECIMALS} decimals at most");
        value.error(why)
    })
}

impl Amount {
    /// As a number, of six decimals.
    pub(crate) fn to_number(self) -> f64 {
        (self.0 / (UNIT / 1_000_000)) as f64 / 1e6
    }
}

impl PricedSum {
    /// Adds tokens that have this price, or none.
    pub(crate) fn add(&mut self, price: Option<Amount>, cost: &CostSum) {
        match price {
            Some(amount) => {
                self.amount += amount;
                self.is_priced = true;
            }
            None => self.unpriced += cost.tokens_in.saturating_add(cost.tokens_out),
        }
    }
}

/// A `+` says that there are tokens without a price besides.
impl fmt::Display for PricedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.unpriced > 0 { "+" } else { "" };
        match self.is_priced {
            true => write!(f, "{}{more}", self.amount),
            false => f.write_str("-"),
        }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decimals, part) = SHOWN;
        let parts = self.0.saturating_add(part / 2) / part;
        if parts == 0 && self.0 > 0 {
            return write!(f, "<0.{:0>decimals$}", 1);
        }
        let whole = UNIT / part;
        write!(f, "{}.{:0>decimals$}", parts / whole, parts % whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{ "currency": "USD", "date": "2026-11-01", "models": [
        { "model": "big-*", "input": 3, "cached_input": 0.3, "cache_write": 3.75, "output": 15.0 },
        { "model": "*", "input": 0.000001, "output": 0 } ] }"#;

    fn parse(text: &str) -> Result<PriceList, DocumentError> {
        PriceList::parse(text.as_bytes(), "prices.json")
    }

    fn cost(fresh: u64, cached: u64, write: u64, out: u64) -> CostSum {
        CostSum {
            tokens_in: fresh + cached + write,
            tokens_cached: cached,
            tokens_cache_write: write,
            tokens_out: out,
            ..CostSum::default()
        }
    }

    #[test]
    fn cached_tokens_have_prices_of_their_own() {
        let list = parse(LIST).unwrap();
        let shown = |model, cost| list.price(model, &cost).map(|amount| amount.to_string());
        let amount = list
            .price("big-1", &cost(1_000_000, 2_000_000, 100_000, 10_000))
            .unwrap();
        // 3 + 0.6 + 0.375 + 0.15
        assert_eq!(
            (amount.to_string().as_str(), amount.to_number()),
            ("4.1250", 4.125)
        );
        assert_eq!(shown("small", cost(1, 0, 0, 9)).unwrap(), "<0.0001");
        assert_eq!(shown("small", cost(0, 0, 0, 9)).unwrap(), "0.0000");
        let most = list
            .price("big-1", &cost(u64::MAX, 0, 0, u64::MAX))
            .unwrap();
        assert_eq!(most.to_string(), "332041393326771.9291");
    }

    #[test]
    fn nothing_is_guessed() {
        let list = parse(LIST).unwrap();
        assert_eq!(
            list.price("small", &cost(1, 1, 0, 1)),
            None,
            "cached tokens have no price there"
        );
        assert_eq!(list.price("small", &cost(1, 0, 1, 1)), None);
        let none = parse(r#"{"currency":"EUR","date":"2026-11-01","models":[]}"#).unwrap();
        assert_eq!(none.price("big-1", &cost(1, 0, 0, 1)), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_its_value() {
        let with =
            |from: &str, to: &str| parse(&LIST.replacen(from, to, 1)).unwrap_err().to_string();
        for (from, to, expected) in [
            (
                "\"USD\"",
                "\"$\"",
                "prices.json:1:15: currency: must be one to eight letters",
            ),
            (
                "2026-11-01",
                "yesterday",
                "prices.json:1:30: date: a day is written YYYY-MM-DD",
            ),
            (
                "0.3,",
                "-0.3,",
                "prices.json:2:57: models[0].cached_input: must be the price",
            ),
            (
                "0.3,",
                "\"0.3\",",
                "prices.json:2:57: models[0].cached_input: must be the price",
            ),
            (
                "3.75",
                "0.1234567",
                "prices.json:2:77: models[0].cache_write: must be the price",
            ),
            ("3.75", "1e3", "models[0].cache_write: must be the price"),
            (
                "3.75",
                "1000000000",
                "models[0].cache_write: must be the price",
            ),
            ("\"big-*\"", "\"\"", "models[0].model: must name a model"),
            (
                "output",
                "ouput",
                "prices.json:2:83: models[0].ouput: unknown key; did you mean \"output\"?",
            ),
            (
                "\"input\": 0.000001, ",
                "",
                "models[1]: the key \"input\" is missing",
            ),
            ("] }", "]", "prices.json:3:"),
        ] {
            let message = with(from, to);
            assert!(message.contains(expected), "{message}");
            assert!(
                !message.contains("yesterday") && !message.contains("1e3"),
                "{message}"
            );
        }
    }

    #[test]
    fn the_shipped_example_is_read_and_says_that_it_is_made_up() {
        let text = include_str!("../../../etc/prices.json.sample");
        assert!(!parse(text).unwrap().models.is_empty());
        assert!(text.contains("made up"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_there_is_no_error_and_one_that_is_no_file_is() {
        let directory = tempfile::tempdir().unwrap();
        assert!(
            PriceList::read(&directory.path().join("prices.json"))
                .unwrap()
                .is_none()
        );
        let error = PriceList::read(directory.path()).unwrap_err().to_string();
        assert!(
            error.starts_with(&directory.path().display().to_string()),
            "{error}"
        );
    }
}
