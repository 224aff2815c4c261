//! Tokens and registrations, kept in the state directory: `oauth/`, 0700, a file each, 0600.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use colibri_files::replace_file;
use colibri_text::hex;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::grant::{ClientProof, IssuedTokens, Party};
use colibri_policy::file;

/// The most bytes of one file.
const MAX_FILE: usize = 256 * 1024;

/// The owner of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenOwner {
    /// One user's.
    User(u32),
    /// Everybody's, since the entry says so.
    Everybody,
}

/// Tokens with all that they belong to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    /// Their issuer.
    pub(super) issuer: String,
    /// The resource that they are for.
    pub(super) resource: String,
    /// The address that issues the next ones.
    pub(super) token_endpoint: String,
    /// The address at which they are revoked.
    #[serde(default)]
    pub(super) revocation_endpoint: Option<String>,
    /// To which client they were issued.
    pub(super) client: Registration,
    /// The requested scopes, so that the next login requests no fewer.
    pub(super) scopes: Vec<String>,
    #[serde(serialize_with = "exposed")]
    pub(super) access_token: SecretString,
    #[serde(serialize_with = "exposed_too")]
    pub(super) refresh_token: Option<SecretString>,
    /// Seconds since the epoch.
    pub(super) expires: Option<u64>,
    /// The person's identity, for an identity provider to exchange.
    #[serde(serialize_with = "exposed_too")]
    pub(super) identity: Option<SecretString>,
}

impl StoredLogin {
    /// Takes newer tokens over. What did not come stays (RFC 6749 §6).
    pub(super) fn renew(&mut self, tokens: IssuedTokens) {
        self.access_token = tokens.access;
        self.refresh_token = tokens.refresh.or(self.refresh_token.take());
        self.expires = tokens.expires;
    }
}

/// A client as an issuer registered it, or as an entry names it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Registration {
    pub(super) client_id: String,
    #[serde(serialize_with = "exposed_too", default)]
    pub(super) client_secret: Option<SecretString>,
    /// `none`, `client_secret_basic`, `client_secret_post`, `private_key_jwt`.
    pub(super) method: String,
    /// Seconds since the epoch; `None`: for good.
    #[serde(default)]
    pub(super) expires: Option<u64>,
    /// True if the entry names it: its secrets are read from there each time, and not kept here.
    #[serde(default)]
    pub(super) is_named: bool,
}

impl Registration {
    /// As what it shows itself. `key` is what the entry names for `private_key_jwt`.
    pub(super) fn party(&self, key: Option<SecretString>) -> Party {
        let secret = self.client_secret.clone();
        let proof = match (self.method.as_str(), secret) {
            ("client_secret_basic", Some(secret)) => ClientProof::Basic(secret),
            ("client_secret_post", Some(secret)) => ClientProof::Post(secret),
            ("private_key_jwt", _) => key.map_or(ClientProof::None, ClientProof::Signature),
            _ => ClientProof::None,
        };
        Party {
            id: self.client_id.clone(),
            proof,
        }
    }
}

fn exposed<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

fn exposed_too<S: Serializer>(
    secret: &Option<SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match secret {
        Some(secret) => serializer.serialize_some(secret.expose_secret()),
        None => serializer.serialize_none(),
    }
}

/// The stored tokens.
#[derive(Debug)]
pub struct TokenStore {
    directory: PathBuf,
    /// Locked while a file is replaced: two logins may register at one issuer at the same time.
    writing: Mutex<()>,
}

impl TokenStore {
    /// The store below a state directory.
    pub fn below(state_dir: &Path) -> TokenStore {
        TokenStore {
            directory: state_dir.join("oauth"),
            writing: Mutex::new(()),
        }
    }

    /// The tokens of this owner for a server.
    ///
    /// # Errors
    /// The file is none that can be used.
    pub(super) fn login(
        &self,
        server: &str,
        owner: TokenOwner,
    ) -> anyhow::Result<Option<StoredLogin>> {
        read(&self.login_file(server, owner))
    }

    /// # Errors
    /// What the system says.
    pub(super) fn keep_login(
        &self,
        server: &str,
        owner: TokenOwner,
        login: &StoredLogin,
    ) -> anyhow::Result<()> {
        self.write(&self.login_file(server, owner), login)
    }

    /// Forgets the tokens of this owner for a server. Whether there were any.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn forget_login(&self, server: &str, owner: TokenOwner) -> anyhow::Result<bool> {
        forget(&self.login_file(server, owner))
    }

    /// The registration of this client at an issuer, for this redirect address.
    ///
    /// # Errors
    /// The file is none that can be used.
    pub(super) fn registration(
        &self,
        issuer: &str,
        redirect: &str,
    ) -> anyhow::Result<Option<Registration>> {
        read(&self.registration_file(issuer, redirect))
    }

    /// # Errors
    /// What the system says.
    pub(super) fn keep_registration(
        &self,
        issuer: &str,
        redirect: &str,
        registration: &Registration,
    ) -> anyhow::Result<()> {
        self.write(&self.registration_file(issuer, redirect), registration)
    }

    /// # Errors
    /// What the system says.
    pub(super) fn forget_registration(&self, issuer: &str, redirect: &str) -> anyhow::Result<bool> {
        forget(&self.registration_file(issuer, redirect))
    }

    fn login_file(&self, server: &str, owner: TokenOwner) -> PathBuf {
        let owner = match owner {
            TokenOwner::User(uid) => uid.to_string(),
            TokenOwner::Everybody => "everybody".to_owned(),
        };
        self.directory.join(format!("login.{server}.{owner}.json"))
    }

    fn registration_file(&self, issuer: &str, redirect: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{issuer}\n{redirect}"));
        self.directory.join(format!("client.{}.json", hex(&digest)))
    }

    fn write(&self, path: &Path, what: &impl Serialize) -> anyhow::Result<()> {
        let failed = |error: io::Error| anyhow!("cannot write {}: {error}", path.display());
        let text = serde_json::to_vec_pretty(what).map_err(|error| failed(error.into()))?;
        let text = Zeroizing::new(text);
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let _writing = self.writing.lock();
        replace_file(path, &text, 0o600).map_err(failed)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    let Some(file) = file::read(path, MAX_FILE, false)? else {
        return Ok(None);
    };
    let content = Zeroizing::new(file.content);
    let parsed = serde_json::from_slice(&content);
    // What serde has against it could quote a token.
    parsed.map(Some).map_err(|error| {
        let (path, line) = (path.display(), error.line());
        anyhow!("{path}:{line}: not as it was written: remove it, and log in again")
    })
}

fn forget(path: &Path) -> anyhow::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(anyhow!("cannot remove {}: {error}", path.display())),
    }
}
