//! `colibri/costs`: operators are told what everybody cost, anybody else what they cost themselves.

use colibri_api::{Costs, CostsBy, CostsRequest};

use super::method::{DaemonMethod, MethodCall};
use crate::daemon::Daemon;
use crate::relay::CallOutcome;
use colibri_protocol::{Code, Failure, RpcError};
use colibri_store::CostQuery;

/// The most rows of an answer.
const MAX_ROWS: usize = 5000;

/// The file of prices beside the registry.
const PRICES: &str = "prices.json";

/// `colibri/costs`.
pub(super) struct ShowCosts;

impl DaemonMethod for ShowCosts {
    const NAME: &'static str = "colibri/costs";
    const IS_LOOK: bool = true;
    const STRICT: bool = true;
    type Parameters = CostsRequest;

    fn check(asked: &CostsRequest) -> Result<(), RpcError> {
        if asked.unused && !asked.by.is_empty() && !asked.by.contains(&CostsBy::Tool) {
            return Err(RpcError::invalid_params(
                "params: what is unused are tools, so that by must have \"tool\"",
            ));
        }
        Ok(())
    }

    fn start(asked: CostsRequest, request: MethodCall) {
        tokio::spawn(async move {
            let client = request.call.client.clone();
            let uid = client.caller.uid;
            // Adding up 400 days takes a while: the threads that wait for the disk are there for
            // others too.
            let slot = request.daemon.sums.of(uid, None).await;
            if client.is_cancelled(&request.call.id) {
                return request.finish(CallOutcome::Cancelled);
            }
            request.finish_blocking(move |daemon, call| {
                let everybody = daemon.chain.rules.rights(&call.client).operator;
                let told = tell(daemon, (!everybody).then_some(uid), asked);
                drop(slot);
                match told {
                    Ok(costs) => CallOutcome::result(costs),
                    Err(why) => {
                        CallOutcome::Failed(Failure::new(Code::Internal, format!("{why:#}")))
                    }
                }
            });
        });
    }
}

fn tell(daemon: &Daemon, uid: Option<u32>, asked: CostsRequest) -> anyhow::Result<Vec<u8>> {
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
    let told = daemon.store.ledger(&query)?;
    let prices = daemon.config.registry.with_file_name(PRICES);
    let costs = Costs {
        everybody: uid.is_none(),
        since: told.since,
        by,
        rows: told.rows,
        left_out: told.left_out,
        sum: told.sum,
        unwritten: unwritten.map(|error| error.to_string()),
        prices: Some(prices.to_string_lossy().into_owned()),
    };
    serde_json::to_vec(&costs).map_err(anyhow::Error::from)
}
