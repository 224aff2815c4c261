//! A fact: a name, a check and the remedy if it does not hold; a check looks, and changes nothing.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::connection::DaemonAddress;
use colibri_api::paths::{self, Private, SERVICE};
use colibri_api::{HELPER, PrivMode};
use colibri_jail_helper::POLICY;

/// The examined paths: those of the service, or of a user's own daemon; tests have their own.
#[derive(Debug, Clone)]
pub(super) struct ExaminedHost {
    /// There is no service: what is examined belongs to one user, and these are that user's paths.
    pub private: Option<Private>,
    /// The helper.
    pub helper: PathBuf,
    /// The registry of the daemon.
    pub registry: PathBuf,
    /// The helper's policy; its secrets lie beside it.
    pub policy: PathBuf,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The daemon's state directory; `None`: the daemon that was named does not say where it is.
    pub state_dir: Option<PathBuf>,
    /// The way to root that is checked.
    pub priv_mode: PrivMode,
    /// True if facts that only root can see are checked.
    pub as_root: bool,
}

impl ExaminedHost {
    /// This machine.
    pub(super) fn here(
        place: &DaemonAddress,
        state_dir: Option<PathBuf>,
        priv_mode: PrivMode,
        as_root: bool,
    ) -> ExaminedHost {
        let private = (place.private && !as_root).then(paths::private);
        ExaminedHost {
            helper: HELPER.into(),
            registry: match &private {
                Some(own) => own.registry.clone(),
                None => SERVICE.registry(),
            },
            policy: POLICY.into(),
            private,
            socket: place.socket.clone(),
            state_dir,
            priv_mode,
            as_root,
        }
    }

    /// The daemon's state directory, where it is known.
    pub(super) fn state_dir(&self) -> Result<&Path, Amiss> {
        let why = "the daemon that was named does not say where its state is: --state-dir names it";
        self.state_dir
            .as_deref()
            .ok_or_else(|| Amiss::Skipped(why.to_owned()))
    }

    /// The paths of a user's own daemon.
    pub(super) fn own(&self) -> Result<&Private, Amiss> {
        let skipped = || Amiss::Skipped("there is a service".to_owned());
        self.private.as_ref().ok_or_else(skipped)
    }
}

/// The outcome of a check: the fact holds, or the fault.
pub(super) type CheckOutcome = Result<String, Amiss>;

/// The reason for which a fact is not reported to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Amiss {
    /// It does not, and jailed servers do not run, or not safely.
    Bad(String),
    /// It does not, which limits something but stops nothing.
    Note(String),
    /// It was not looked at; the text says why.
    Skipped(String),
}

impl From<anyhow::Error> for Amiss {
    fn from(error: anyhow::Error) -> Amiss {
        Amiss::Bad(format!("{error:#}"))
    }
}

/// The users who can see a fact, and the systems that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Everybody, on every system.
    Everywhere,
    /// Everybody, where there is a helper: off FreeBSD its development sandbox alone needs one.
    Helper,
    /// Root, where there is a helper.
    HelperRoot,
    /// Everybody, on FreeBSD.
    FreeBsd,
    /// Root, on every system.
    Root,
    /// Root, on FreeBSD.
    FreeBsdRoot,
}

pub(super) struct DoctorCheck {
    pub name: &'static str,
    pub sight: Sight,
    pub check: fn(&ExaminedHost) -> CheckOutcome,
    pub remedy: &'static str,
}

/// A fact as it was found.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct CheckedFact {
    /// The fact.
    pub fact: &'static str,
    /// `good`, `bad`, `note` or `skipped`.
    pub outcome: &'static str,
    /// The definitions that were seen.
    pub seen: String,
    /// The remedy; only where the fact does not hold.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

/// Checks one fact.
pub(super) fn found(fact: &DoctorCheck, host: &ExaminedHost) -> CheckedFact {
    let freebsd = cfg!(target_os = "freebsd");
    let outcome = match fact.sight {
        Sight::FreeBsd | Sight::FreeBsdRoot if !freebsd => Err(Amiss::Skipped("FreeBSD only".to_owned())),
        Sight::Helper | Sight::HelperRoot if !freebsd && !host.helper.exists() => Err(Amiss::Skipped(
            "there is no helper, which off FreeBSD its development sandbox alone needs: servers run on the host"
                .to_owned(),
        )),
        Sight::Root | Sight::HelperRoot | Sight::FreeBsdRoot if !host.as_root => Err(Amiss::Skipped(
            "only root can see this: colibri-mcp doctor --root".to_owned(),
        )),
        _ => (fact.check)(host),
    };
    let (word, seen, remedy) = match outcome {
        Ok(seen) => ("good", seen, None),
        Err(Amiss::Bad(seen)) => ("bad", seen, Some(fact.remedy)),
        Err(Amiss::Note(seen)) => ("note", seen, Some(fact.remedy)),
        Err(Amiss::Skipped(why)) => ("skipped", why, None),
    };
    CheckedFact {
        fact: fact.name,
        outcome: word,
        seen,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(sight: Sight, check: fn(&ExaminedHost) -> CheckOutcome) -> DoctorCheck {
        DoctorCheck {
            name: "the moon is up",
            sight,
            check,
            remedy: "wait",
        }
    }

    fn host(as_root: bool) -> ExaminedHost {
        ExaminedHost::here(
            &PathBuf::from("/s").into(),
            Some("/d".into()),
            PrivMode::Helper,
            as_root,
        )
    }

    #[test]
    fn a_fact_that_does_not_hold_comes_with_its_remedy() {
        let bad = found(
            &fact(Sight::Everywhere, |_| Err(Amiss::Bad("clouds".into()))),
            &host(false),
        );
        assert_eq!(
            (bad.outcome, bad.seen.as_str(), bad.remedy),
            ("bad", "clouds", Some("wait"))
        );
        let good = found(
            &fact(Sight::Everywhere, |_| Ok("it is".into())),
            &host(false),
        );
        assert_eq!((good.outcome, good.remedy), ("good", None));
    }

    #[test]
    fn what_cannot_be_seen_is_not_checked() {
        let never = |_: &ExaminedHost| -> CheckOutcome { panic!("checked") };
        let root = found(&fact(Sight::Root, never), &host(false));
        assert!(
            root.outcome == "skipped" && root.seen.contains("--root"),
            "{root:?}"
        );
        if !cfg!(target_os = "freebsd") {
            for sight in [Sight::FreeBsd, Sight::FreeBsdRoot] {
                assert_eq!(found(&fact(sight, never), &host(true)).seen, "FreeBSD only");
            }
        }
    }
}
