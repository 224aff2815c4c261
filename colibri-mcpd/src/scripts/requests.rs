//! The requests of a script's calls, and the reading of their answers.

use bytes::Bytes;
use colibri_api::script::{OWN_TOOLS, ScriptCall};
use colibri_protocol::Version;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::builtin::EXTERNAL_CALL_TOOL;
use crate::relay::Call;

/// The members that all requests of a script have.
pub(super) struct ScriptCallMeta(serde_json::Map<String, Value>);

impl ScriptCallMeta {
    /// Those for the script of this call: its client's name, its task, its trace.
    pub(super) fn of(call: &Call) -> ScriptCallMeta {
        let (name, version) = match &call.client_info {
            Some(info) => (&*info.name, &*info.version),
            None => ("", ""),
        };
        let mut meta = serde_json::Map::new();
        meta.insert(
            "io.modelcontextprotocol/protocolVersion".into(),
            Version::LATEST.as_str().into(),
        );
        meta.insert(
            "io.modelcontextprotocol/clientInfo".into(),
            json!({ "name": name, "version": version }),
        );
        meta.insert(
            "io.modelcontextprotocol/clientCapabilities".into(),
            json!({}),
        );
        if let Some(task) = call.parts.for_task {
            meta.insert("org.colibri/task".into(), task.into());
        }
        if let Some(trace) = &call.trace {
            meta.insert("traceparent".into(), (*trace.parent).into());
        }
        ScriptCallMeta(meta)
    }

    /// The request for a call.
    pub(super) fn request(&self, call: &ScriptCall) -> Bytes {
        let mut meta = self.0.clone();
        meta.insert("progressToken".into(), call.id.into());
        let (id, meta, arguments) = (call.id, Value::Object(meta), call.arguments.get());
        let (name, arguments) = match call.server == OWN_TOOLS {
            true => (format!("colibri_{}", call.tool), arguments.to_owned()),
            false => {
                let (server, tool) = (Value::from(&*call.server), Value::from(&*call.tool));
                let arguments =
                    format!("{{\"server\":{server},\"tool\":{tool},\"arguments\":{arguments}}}");
                (EXTERNAL_CALL_TOOL.to_owned(), arguments)
            }
        };
        let name = Value::from(name);
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":{name},\
             \"arguments\":{arguments},\"_meta\":{meta}}}}}"
        );
        Bytes::from(request)
    }
}

/// A message on the connection of a script's calls.
#[derive(Debug, Deserialize)]
pub(super) struct CallMessage<'a> {
    /// The request that it answers.
    #[serde(default)]
    pub(super) id: Option<u32>,
    /// The method of a notification.
    #[serde(default)]
    pub(super) method: Option<String>,
    /// The result.
    #[serde(default, borrow)]
    pub(super) result: Option<&'a RawValue>,
    /// The error.
    #[serde(default, borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// The parameters of a notification.
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
}

/// The members of a progress notification that are passed on.
#[derive(Debug, Deserialize)]
pub(super) struct ProgressParams {
    /// The call that makes progress.
    #[serde(rename = "progressToken")]
    pub(super) call: u32,
    /// The message.
    #[serde(default)]
    pub(super) message: Option<String>,
}

impl CallMessage<'_> {
    /// The progress that it reports.
    pub(super) fn progress(&self) -> Option<ProgressParams> {
        let is_progress = self.method.as_deref() == Some("notifications/progress");
        serde_json::from_str(self.params.filter(|_| is_progress)?.get()).ok()
    }

    /// True if it says that the call failed.
    pub(super) fn is_failed(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ResultFlags {
            #[serde(default)]
            is_error: bool,
        }
        let says_error = |result: &RawValue| {
            serde_json::from_str(result.get()).is_ok_and(|flags: ResultFlags| flags.is_error)
        };
        self.error.is_some() || self.result.is_none_or(says_error)
    }
}
