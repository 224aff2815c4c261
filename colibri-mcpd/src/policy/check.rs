//! What the arguments of a call have to pass: the tool's own schema, and the operator's contract.

use std::sync::Arc;

use super::contract::Contract;
use super::schema::{Fit, Schema, SchemaError};
use super::strict_json::Exact;
use colibri_protocol::{Code, Failure};
use colibri_wire::Json;

/// The checks of one tool of one server, compiled when its definition is learned.
#[derive(Debug)]
pub struct ToolCheck {
    server: Box<str>,
    tool: Box<str>,
    schema: Result<Schema, SchemaError>,
    contract: Option<Arc<Contract>>,
}

impl ToolCheck {
    /// Compiles the checks of a tool from its definition as the server wrote it. May take milliseconds.
    /// Without `schema` the tool's own is left to the server.
    pub fn new(
        server: &str,
        tool: &str,
        definition: &[u8],
        schema: bool,
        contract: Option<Arc<Contract>>,
    ) -> ToolCheck {
        // Two schemas in one definition: which of them the server means is not known.
        let mut schemas = Json::part(definition, 0..definition.len())
            .into_iter()
            .flat_map(|definition| definition.members())
            .filter(|member| member.key.is_string("inputSchema"));
        let schema = match (schemas.next(), schemas.next()) {
            _ if !schema => Err(SchemaError("the entry says validate: contract".to_owned())),
            (Some(schema), None) => Schema::compile(schema.value.text().as_bytes()),
            (None, _) => Err(SchemaError("the definition has no inputSchema".to_owned())),
            _ => Err(SchemaError("the definition has two inputSchemas".to_owned())),
        };
        ToolCheck {
            server: server.into(),
            tool: tool.into(),
            schema,
            contract,
        }
    }

    /// Why the tool's own schema is not applied, for status and log.
    pub fn unchecked(&self) -> Option<&SchemaError> {
        self.schema.as_ref().err()
    }

    /// Checks the arguments of a call, which are JSON text that was validated. `Ok(true)`: they fit the schema;
    /// `Ok(false)`: there was no way to tell (recorded as `validated: false`), and no contract that would refuse them
    /// for it.
    ///
    /// # Errors
    /// [`Code::ContractDenied`] and [`Code::SchemaInvalid`], naming the place in the arguments.
    pub fn check(&self, arguments: &[u8]) -> Result<bool, Failure> {
        if self.contract.is_none() && self.schema.is_err() {
            return Ok(false);
        }
        if let (None, Ok(schema)) = (&self.contract, &self.schema)
            && schema.surely_fits(arguments)
        {
            return Ok(true);
        }
        let read = Exact::read(arguments);
        if let Some(contract) = &self.contract {
            contract.check(&self.server, &self.tool, read.as_ref())?;
        }
        let (Ok(schema), Ok(exact)) = (&self.schema, &read) else {
            return Ok(false);
        };
        match schema.check(exact) {
            Fit::Fits => Ok(true),
            Fit::TooCostly => Ok(false),
            Fit::Unfit(why) => {
                let message = format!("the arguments do not fit the tool's inputSchema: {why}");
                Err(Failure::new(Code::SchemaInvalid, message).of_server(&*self.server))
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
        let text = br#"{"tools":{"t":{"reason":"a is small","when":{"properties":{"a":{"maximum":9}}}}}}"#;
        Some(Arc::new(Contract::parse(text, "c.json").unwrap()))
    }

    #[test]
    fn an_entry_may_leave_the_schema_to_the_server() {
        let check = ToolCheck::new("s", "t", DEFINITION, false, None);
        assert_eq!(check.check(br#"{"a":"x"}"#), Ok(false));
        let check = ToolCheck::new("s", "t", DEFINITION, false, contract());
        assert_eq!(check.check(b"{}"), Ok(false));
        assert_eq!(check.check(br#"{"a":10}"#).unwrap_err().code, Code::ContractDenied);
    }

    #[test]
    fn without_a_contract_the_schema_decides_where_it_can() {
        let check = ToolCheck::new("s", "t", DEFINITION, true, None);
        assert_eq!(check.unchecked(), None);
        assert_eq!(check.check(br#"{"a":1}"#), Ok(true));
        let failure = check.check(b"{}").unwrap_err();
        assert_eq!(
            (failure.code, failure.server.as_deref()),
            (Code::SchemaInvalid, Some("s"))
        );
        assert_eq!(check.check(br#"{"a":1,"a":"x"}"#), Ok(false));
        assert_eq!(check.check(br#"{"a":123456789012345678901234567890}"#), Ok(false));
        for broken in [
            &br#"{"name":"t"}"#[..],
            br#"{"inputSchema":{"$ref":"http://x/"}}"#,
            br#"{"inputSchema":{},"inputSchema":{"not":{}}}"#,
            br#"{"inputSchema":null}"#,
            b"",
        ] {
            let check = ToolCheck::new("s", "t", broken, true, None);
            assert!(check.unchecked().is_some());
            assert_eq!(check.check(b"{}"), Ok(false));
        }
    }

    #[test]
    fn with_a_contract_what_cannot_be_read_is_refused() {
        let check = ToolCheck::new("s", "t", DEFINITION, true, contract());
        assert_eq!(check.check(br#"{"a":9}"#), Ok(true));
        for (bad, code) in [
            (&br#"{"a":10}"#[..], Code::ContractDenied),
            (br#"{"a":1,"a":2}"#, Code::ContractDenied),
            (br#"{"a":1,"b":2}"#, Code::ContractDenied),
            (b"{}", Code::SchemaInvalid),
            (br#"{"a":1.5}"#, Code::SchemaInvalid),
        ] {
            assert_eq!(check.check(bad).unwrap_err().code, code);
        }
        let broken = ToolCheck::new("s", "t", br#"{"name":"t"}"#, true, contract());
        assert_eq!(broken.check(br#"{"a":9}"#), Ok(false));
        assert!(broken.check(br#"{"a":10}"#).is_err());
    }
}
