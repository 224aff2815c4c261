//! `colibri/login`, `colibri/login-finish`, `colibri/logout`: whoever may use a server may have a
//! login there.

use std::sync::Arc;

use anyhow::anyhow;
use colibri_api::{
    LoggedIn, LoggedOut, LoginFinishRequest, LoginStartRequest, LoginStep, LogoutRequest,
};
use serde::Serialize;
use tracing::info;

use super::method::{DaemonMethod, MethodCall};
use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome, Client};
use crate::servers::HostedServer;
use colibri_outbound::oauth::{OauthAccount, TokenOwner};
use colibri_protocol::{Failure, RpcError};
use colibri_text::brief;

/// `colibri/login`: a login at a server begins.
pub(super) struct StartLogin;

impl DaemonMethod for StartLogin {
    const NAME: &'static str = "colibri/login";
    type Parameters = LoginStartRequest;

    fn start(asked: LoginStartRequest, request: MethodCall) {
        tokio::spawn(async move {
            let done = start(&request.daemon, &request.call, asked).await;
            finish_request(request, done);
        });
    }
}

/// `colibri/login-finish`: the address to which the issuer led.
pub(super) struct FinishLogin;

impl DaemonMethod for FinishLogin {
    const NAME: &'static str = "colibri/login-finish";
    type Parameters = LoginFinishRequest;

    fn start(asked: LoginFinishRequest, request: MethodCall) {
        tokio::spawn(async move {
            let done = finish(&request.daemon, &request.call, &asked.address).await;
            finish_request(request, done);
        });
    }
}

/// `colibri/logout`: a login is given up.
pub(super) struct LogoutMethod;

impl DaemonMethod for LogoutMethod {
    const NAME: &'static str = "colibri/logout";
    type Parameters = LogoutRequest;

    fn start(asked: LogoutRequest, request: MethodCall) {
        tokio::spawn(async move {
            let done = out(&request.daemon, &request.call, &asked.server).await;
            finish_request(request, done);
        });
    }
}

/// The reason for which a request fails.
enum LoginRefusal {
    /// It is not for this caller.
    Policy(Failure),
    /// It cannot be done.
    Told(String),
}

impl From<anyhow::Error> for LoginRefusal {
    fn from(error: anyhow::Error) -> LoginRefusal {
        LoginRefusal::Told(format!("{error:#}"))
    }
}

/// Ends a request with its answer.
fn finish_request(request: MethodCall, done: Result<impl Serialize, LoginRefusal>) {
    let unwritten = |error| LoginRefusal::Told(format!("the answer cannot be written: {error}"));
    let outcome = match done.and_then(|done| serde_json::to_vec(&done).map_err(unwritten)) {
        Ok(result) => CallOutcome::result(result),
        Err(LoginRefusal::Policy(failure)) => CallOutcome::Failed(failure),
        // An issuer may repeat what it was shown, which is not always the caller's.
        Err(LoginRefusal::Told(why)) => CallOutcome::error(RpcError::invalid_params(
            request.daemon.host.redactor().redact(&why).into_owned(),
        )),
    };
    request.finish(outcome);
}

/// The account of a caller at a server. One that serves everybody is the operators'.
fn account(
    daemon: &Daemon,
    client: &Client,
    id: &str,
) -> Result<(Arc<HostedServer>, Arc<OauthAccount>), LoginRefusal> {
    let servers = daemon.host.servers();
    let rights = daemon.chain.rules.rights(client);
    let Some(server) = servers.get(id).filter(|_| rights.sees_any(id)) else {
        let id = brief(id, 64);
        return Err(anyhow!(
            "there is no server \"{id}\": colibri-mcp status shows those there are"
        )
        .into());
    };
    let Some(account) = server.account(client.caller.uid) else {
        return Err(anyhow!(
            "{id} is no server to log in to: it has a command, or headers with Authorization"
        )
        .into());
    };
    if account.owner() == TokenOwner::Everybody {
        rights.check_operator().map_err(LoginRefusal::Policy)?;
    }
    Ok((server.clone(), account))
}

async fn start(
    daemon: &Daemon,
    call: &Call,
    asked: LoginStartRequest,
) -> Result<LoginStep, LoginRefusal> {
    let (server, account) = account(daemon, &call.client, &asked.server)?;
    if let Some(token) = asked.id_token {
        let done = account.vouch(token.into()).await?;
        server.reset();
        return Ok(LoginStep::Done(logged_in(call, done)));
    }
    let started = daemon
        .logins
        .start(call.client.caller.uid, &account, &asked.scopes)
        .await?;
    Ok(LoginStep::Consent {
        url: started.url,
        redirect: started.redirect,
        issuer: started.issuer,
        scopes: started.scopes,
    })
}

async fn finish(daemon: &Daemon, call: &Call, address: &str) -> Result<LoggedIn, LoginRefusal> {
    let done = daemon
        .logins
        .finish(call.client.caller.uid, address)
        .await?;
    if let Some(server) = daemon.host.servers().get(&done.server) {
        // What failed for want of a login is tried again.
        server.reset();
    }
    Ok(logged_in(call, done))
}

fn logged_in(call: &Call, done: colibri_outbound::oauth::CompletedLogin) -> LoggedIn {
    info!(
        server = done.server,
        uid = call.client.caller.uid,
        issuer = done.issuer,
        "logged in"
    );
    LoggedIn {
        server: done.server,
        issuer: done.issuer,
        scopes: done.scopes,
    }
}

async fn out(daemon: &Daemon, call: &Call, id: &str) -> Result<LoggedOut, LoginRefusal> {
    let (server, account) = account(daemon, &call.client, id)?;
    let revoked = account.log_out().await?;
    server.log_out(account.owner());
    info!(server = id, uid = call.client.caller.uid, "logged out");
    Ok(LoggedOut {
        server: id.to_owned(),
        was_logged_in: revoked.is_some(),
        is_revoked: revoked == Some(true),
    })
}
