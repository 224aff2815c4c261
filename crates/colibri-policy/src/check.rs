//! The checks of a call's arguments: the tool's own schema, and the operator's contract.

use std::sync::Arc;

use super::contract::Contract;
use super::schema::{Fit, Schema, SchemaError};
use super::strict_json::Exact;
use colibri_protocol::{Code, Failure};
use colibri_trail::Validation;
use colibri_wire::Json;

/// The schemas that the arguments of a server's tools have to fit: `validate` of its entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SchemaCheck {
    /// The tools' own and the contract. Without a contract, a string may spell the number or
    /// boolean that is wanted.
    #[default]
    All,
    /// The same, exactly.
    Strict,
    /// The contract's; the tools' own are left to the server.
    Contract,
}

/// The checks of one tool of one server, compiled at its first call.
#[derive(Debug)]
pub struct ToolCheck {
    server: Box<str>,
    tool: Box<str>,
    schema: Result<Schema, SchemaError>,
    /// Strings may spell values.
    is_lenient: bool,
    contract: Option<Arc<Contract>>,
}

impl ToolCheck {
    /// Compiles the checks of a tool from its definition as the server wrote it. May take
    /// milliseconds.
    pub fn new(
        server: &str,
        tool: &str,
        definition: &[u8],
        mode: SchemaCheck,
        contract: Option<Arc<Contract>>,
    ) -> ToolCheck {
        // Two schemas in one definition: which of them the server means is not known.
        let mut schemas = Json::part(definition, 0..definition.len())
            .into_iter()
            .flat_map(|definition| definition.members())
            .filter(|member| member.key.is_string("inputSchema"));
        let schema = match (schemas.next(), schemas.next()) {
            _ if mode == SchemaCheck::Contract => {
                Err(SchemaError("the entry says validate: contract".to_owned()))
            }
            (Some(schema), None) => Schema::compile(schema.value.text().as_bytes()),
            (None, _) => Err(SchemaError("the definition has no inputSchema".to_owned())),
            _ => Err(SchemaError(
                "the definition has two inputSchemas".to_owned(),
            )),
        };
        ToolCheck {
            server: server.into(),
            tool: tool.into(),
            schema,
            // What a contract says of an argument has to hold of what the server makes of it.
            is_lenient: mode == SchemaCheck::All && contract.is_none(),
            contract,
        }
    }

    /// The reason for which the tool's own schema is not applied, for status and log.
    pub fn unchecked(&self) -> Option<&SchemaError> {
        self.schema.as_ref().err()
    }

    /// Checks the arguments of a call, which are JSON text. [`Validation::Unchecked`]: there was no
    /// way to tell, and no contract that would refuse them for it.
    ///
    /// # Errors
    /// [`Code::ContractDenied`] and [`Code::SchemaInvalid`], naming the place in the arguments.
    pub fn check(&self, arguments: &[u8]) -> Result<Validation, Failure> {
        if self.contract.is_none() && self.schema.is_err() {
            return Ok(Validation::Unchecked);
        }
        if let (None, Ok(schema)) = (&self.contract, &self.schema)
            && schema.surely_fits(arguments)
        {
            return Ok(Validation::Exact);
        }
        let read = Exact::read(arguments);
        if let Some(contract) = &self.contract {
            contract.check(&self.server, &self.tool, read.as_ref())?;
        }
        let (Ok(schema), Ok(exact)) = (&self.schema, &read) else {
            return Ok(Validation::Unchecked);
        };
        match schema.check(exact) {
            Fit::Fits => Ok(Validation::Exact),
            Fit::TooCostly => Ok(Validation::Unchecked),
            Fit::Unfit(_) if self.is_lenient && schema.fits_unquoted(exact) => {
                Ok(Validation::Lenient)
            }
            Fit::Unfit(why) => {
                let message = format!("the arguments do not fit the tool's inputSchema: {why}");
                Err(Failure::new(Code::SchemaInvalid, message)
                    .of_server(&*self.server)
                    .by_rule("inputSchema"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &[u8] =
        br#"{"name":"t","inputSchema":{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}}}"#;

    fn contract() -> Option<Arc<Contract>> {
        let text =
            br#"{"tools":{"t":{"reason":"a is small","when":{"properties":{"a":{"maximum":9}}}}}}"#;
        Some(Arc::new(Contract::parse(text, "c.json").unwrap()))
    }

    #[test]
    fn an_entry_may_leave_the_schema_to_the_server() {
        let check = ToolCheck::new("s", "t", DEFINITION, SchemaCheck::Contract, None);
        assert_eq!(check.check(br#"{"a":"x"}"#), Ok(Validation::Unchecked));
        let check = ToolCheck::new("s", "t", DEFINITION, SchemaCheck::Contract, contract());
        assert_eq!(check.check(b"{}"), Ok(Validation::Unchecked));
        assert_eq!(
            check.check(br#"{"a":10}"#).unwrap_err().code,
            Code::ContractDenied
        );
    }

    #[test]
    fn without_a_contract_the_schema_decides_where_it_can() {
        let check = ToolCheck::new("s", "t", DEFINITION, SchemaCheck::All, None);
        assert_eq!(check.unchecked(), None);
        assert_eq!(check.check(br#"{"a":1}"#), Ok(Validation::Exact));
        let failure = check.check(b"{}").unwrap_err();
        assert_eq!(
            (failure.code, failure.server.as_deref()),
            (Code::SchemaInvalid, Some("s"))
        );
        assert_eq!(
            check.check(br#"{"a":1,"a":"x"}"#),
            Ok(Validation::Unchecked)
        );
        assert_eq!(
            check.check(br#"{"a":123456789012345678901234567890}"#),
            Ok(Validation::Unchecked)
        );
        for broken in [
            &br#"{"name":"t"}"#[..],
            br#"{"inputSchema":{"$ref":"http://x/"}}"#,
            br#"{"inputSchema":{},"inputSchema":{"not":{}}}"#,
            br#"{"inputSchema":null}"#,
            b"",
        ] {
            let check = ToolCheck::new("s", "t", broken, SchemaCheck::All, None);
            assert!(check.unchecked().is_some());
            assert_eq!(check.check(b"{}"), Ok(Validation::Unchecked));
        }
    }

    #[test]
    fn a_string_may_spell_a_value_where_no_contract_is_and_the_entry_is_not_strict() {
        let quoted = br#"{"a":"1"}"#;
        let check =
            |mode, contract| ToolCheck::new("s", "t", DEFINITION, mode, contract).check(quoted);
        assert_eq!(check(SchemaCheck::All, None), Ok(Validation::Lenient));
        assert_eq!(
            check(SchemaCheck::Strict, None).unwrap_err().code,
            Code::SchemaInvalid
        );
        assert_eq!(
            check(SchemaCheck::Contract, None),
            Ok(Validation::Unchecked)
        );
        // Without its type in the contract, which the schema checks here.
        assert_eq!(
            check(SchemaCheck::All, contract()).unwrap_err().code,
            Code::SchemaInvalid
        );
        let lenient = ToolCheck::new("s", "t", DEFINITION, SchemaCheck::All, None);
        for wrong in [
            "01",
            "1.0",
            "1e3",
            " 1",
            "+1",
            "true",
            "18446744073709551616",
        ] {
            let failure = lenient
                .check(format!(r#"{{"a":"{wrong}"}}"#).as_bytes())
                .unwrap_err();
            assert_eq!(failure.code, Code::SchemaInvalid, "{wrong}");
        }
        // Large arguments are not read twice.
        let large = format!(r#"{{"a":"1","b":"{}"}}"#, "x".repeat(2 << 20));
        assert!(lenient.check(large.as_bytes()).is_err());
    }

    #[test]
    fn with_a_contract_what_cannot_be_read_is_refused() {
        let check = ToolCheck::new("s", "t", DEFINITION, SchemaCheck::All, contract());
        assert_eq!(check.check(br#"{"a":9}"#), Ok(Validation::Exact));
        for (bad, code) in [
            (&br#"{"a":10}"#[..], Code::ContractDenied),
            (br#"{"a":1,"a":2}"#, Code::ContractDenied),
            (br#"{"a":1,"b":2}"#, Code::ContractDenied),
            (b"{}", Code::SchemaInvalid),
            (br#"{"a":1.5}"#, Code::SchemaInvalid),
        ] {
            assert_eq!(check.check(bad).unwrap_err().code, code);
        }
        let broken = ToolCheck::new("s", "t", br#"{"name":"t"}"#, SchemaCheck::All, contract());
        assert_eq!(broken.check(br#"{"a":9}"#), Ok(Validation::Unchecked));
        assert!(broken.check(br#"{"a":10}"#).is_err());
    }
}
