//! How a call ends.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use colibri_peer::{Outbox, SharedBytes};
use colibri_protocol::{AnswerBody as OwnAnswer, Code, Failure, RpcError, Version};
use colibri_store::cost_ledger::ListedToolCost;
use colibri_text::brief;
use colibri_trail::ContentDigest;
use colibri_wire::Edits;

/// The end of a call.
pub enum CallOutcome {
    /// With an answer of our own.
    Own {
        /// The answer.
        answer: OwnAnswer,
        /// True if it is a tool's result that says `isError`.
        failed: bool,
    },
    /// With a result of our own that many get.
    Page(Arc<SharedPage>),
    /// With something that stands against it.
    Failed(Failure),
    /// With something that stood against it before it was sent.
    Refused(Failure),
    /// With a server's answer.
    Relayed(ServerAnswer),
    /// By its client, who wants no answer any more.
    Cancelled,
}

/// The answer to who calls by `colibri_call_tool` what is not there, or what policy denies: nobody
/// is told which.
pub fn no_such_tool(name: &str) -> Failure {
    Failure::new(
        Code::NoSuchTool,
        format!("there is no tool \"{}\"", brief(name, 40)),
    )
    .advising("find a tool with colibri_find_tools")
}

impl CallOutcome {
    /// A result of our own that did what was asked.
    pub fn result(result: Vec<u8>) -> CallOutcome {
        CallOutcome::Own {
            answer: OwnAnswer::Result(result),
            failed: false,
        }
    }

    /// A JSON-RPC error of our own.
    pub fn error(error: RpcError) -> CallOutcome {
        CallOutcome::Own {
            answer: OwnAnswer::Error(error),
            failed: true,
        }
    }
}

/// A result that many get: made, hashed and held once.
pub struct SharedPage {
    pub(super) result: SharedBytes,
    digest: ContentDigest,
    listed: Arc<[ListedToolCost]>,
}

impl SharedPage {
    /// A result whose bytes come out of the budget, for the client of this queue. `None`: there is
    /// no room.
    pub fn new(result: Vec<u8>, whom: &Outbox) -> Option<SharedPage> {
        let digest = ContentDigest::of(&result);
        let result = whom.share(result)?;
        let listed = Arc::default();
        Some(SharedPage {
            result,
            digest,
            listed,
        })
    }

    /// The same as a list of these tools.
    pub fn listing(self, tools: Vec<ListedToolCost>) -> SharedPage {
        let listed = tools.into();
        SharedPage { listed, ..self }
    }

    /// The tools that it lists.
    pub fn listed(&self) -> &Arc<[ListedToolCost]> {
        &self.listed
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.result.bytes().len()
    }

    /// The recorded digest.
    pub fn digest(&self) -> ContentDigest {
        self.digest
    }
}

/// A server's answer.
pub struct ServerAnswer {
    /// The message as it came.
    pub frame: Bytes,
    /// The place of its id.
    pub id: Range<usize>,
    /// The place of its `result`, or of its `error`.
    pub outcome: Result<Range<usize>, Range<usize>>,
    /// True if the result says of itself that it is an error.
    pub says_error: bool,
    /// The edits that it needs whoever gets it: what no server has to say goes, and tasks get our
    /// ids.
    pub edits: Option<Box<Edits>>,
    /// The version that the server speaks.
    pub version: Version,
    /// True if it is no result yet, but asks for something or names a task: it is not kept.
    pub is_interim: bool,
}
