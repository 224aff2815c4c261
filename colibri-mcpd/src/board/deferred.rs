//! Deferred calls: each becomes a task of the person behind the caller.

use colibri_api::{NewTask, TaskStatus};
use colibri_text::brief;

use super::change_order::ChangeKey;
use super::orders::{Board, BoardActor};
use crate::relay::{Client, DeferredCall, Defers};
use colibri_store::{DEFERRED, PRIORITY_DEFAULT};

/// The most characters of a tool's name.
const MAX_NAME: usize = 200;
/// The most open tasks of one person that calls left, so that one that calls on and on does not
/// bury the others, and how many there may be for a call through an agent socket to add one: the
/// rest is the person's own.
const MAX_OPEN: i64 = 32;
const MAX_OPEN_AT_DOORS: i64 = 16;

impl Defers for Board {
    /// The gate for writing does not count: what becomes a task, and what it says, the operator's
    /// contract says and no caller, and they are few.
    fn defer(&self, client: &Client, call: &DeferredCall<'_>) -> anyhow::Result<u64> {
        let door = client.door.as_deref();
        let who = BoardActor {
            uid: client.caller.uid,
            agent: door.map(|door| (&*door.agent, &*door.session)),
            operator: false,
            groups: None,
        };
        let new = NewTask {
            title: call.left.title.clone(),
            description: described(call),
            source: format!("{DEFERRED}{}", call.server),
            status: TaskStatus::Queued,
            required_capabilities: call.left.capabilities.clone(),
            priority: PRIORITY_DEFAULT,
            created_by: who.uid,
            share: None,
            limits: client
                .flow()
                .map(|flow| flow.inherited())
                .unwrap_or_default(),
        };
        let most = if door.is_some() {
            MAX_OPEN_AT_DOORS
        } else {
            MAX_OPEN
        };
        // The same call may be left twice at once.
        let _key = self.order.take(ChangeKey::Creator(who.uid));
        let task = self.change(who.by(), |tell| {
            self.store.add_deferred(new, most, self.now(), tell)
        });
        Ok(task?.id)
    }

    fn has_claimed(&self, uid: u32, task: u64) -> bool {
        self.claimed().is_of(uid, task)
    }
}

/// Describes the call for the person who will do it: the reader of the board may not be the caller.
fn described(call: &DeferredCall<'_>) -> String {
    let tool = brief(call.tool, MAX_NAME);
    let mut text = format!(
        "A call of {tool} of the server {} ended with {}.\n",
        call.server, call.code
    );
    match call.call {
        0 => text.push_str("It is not recorded: there is no trail.\n"),
        number => text.push_str(&format!("It is record {number} of the trail.\n")),
    }
    for (name, value) in &call.left.fields {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text
}
