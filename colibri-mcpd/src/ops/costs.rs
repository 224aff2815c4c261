//! `colibri/costs`: operators are told what everybody cost, anybody else what they cost themselves.

use std::sync::Arc;

use colibri_api::{Costs, CostsBy, CostsRequest};

use super::operator;
use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome, Chain};
use crate::store::CostQuery;
use colibri_protocol::{Code, Failure, RpcError};
use colibri_wire::Json;

/// The most rows of an answer.
const MAX_ROWS: usize = 5000;

/// Reads a request. `None`: it is another method.
///
/// # Errors
/// -32602 for parameters that are not as they must be.
pub(crate) fn read(method: &str, params: Option<Json<'_>>) -> Option<Result<CostsRequest, RpcError>> {
    let strictly = || {
        let asked: CostsRequest = operator::strict(params)?;
        if asked.unused && !asked.by.is_empty() && !asked.by.contains(&CostsBy::Tool) {
            return Err(RpcError::invalid_params(
                "params: what is unused are tools, so that by must have \"tool\"",
            ));
        }
        Ok(asked)
    };
    (method == "colibri/costs").then(strictly)
}

/// Answers a request.
pub(super) fn start(daemon: &Arc<Daemon>, chain: &Arc<Chain>, call: Box<Call>, asked: &CostsRequest) {
    let (asked, daemon, chain) = (asked.clone(), daemon.clone(), chain.clone());
    tokio::spawn(async move {
        let uid = call.client.caller.uid;
        // Adding up 400 days takes a while: the threads that wait for the disk are there for others too.
        let turn = daemon.sums.of(uid, None).await;
        if call.client.is_cancelled(&call.id) {
            return chain.finish(vec![(call, CallOutcome::Cancelled)]);
        }
        let everybody = daemon.chain.rules.rights(&call.client).operator;
        let told = tokio::task::spawn_blocking(move || tell(&daemon, (!everybody).then_some(uid), asked)).await;
        drop(turn);
        let outcome = match told.map_err(|error| error.to_string()).and_then(|told| told) {
            Ok(costs) => CallOutcome::result(costs),
            Err(why) => CallOutcome::Failed(Failure::new(Code::Internal, why)),
        };
        chain.finish(vec![(call, outcome)]);
    });
}

fn tell(daemon: &Daemon, uid: Option<u32>, asked: CostsRequest) -> Result<Vec<u8>, String> {
    let unwritten = daemon.chain.ledger.write(&daemon.store).err();
    let by = if asked.by.is_empty() {
        vec![CostsBy::Tool]
    } else {
        asked.by
    };
    let query = CostQuery {
        since: asked.since.unwrap_or_default(),
        uid,
        by: &by,
        unused: asked.unused,
        limit: MAX_ROWS,
    };
    let told = daemon.store.ledger(&query).map_err(|error| error.to_string())?;
    let costs = Costs {
        everybody: uid.is_none(),
        since: told.since,
        by,
        rows: told.rows,
        left_out: told.left_out,
        sum: told.sum,
        unwritten: unwritten.map(|error| error.to_string()),
    };
    serde_json::to_vec(&costs).map_err(|error| error.to_string())
}
