//! The key `oauth` of an entry: the way in which its server's tokens are obtained.

use colibri_registry::EntryValue;

/// The key `oauth` of an entry. All of it may be left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OauthSettings {
    /// The grant.
    pub grant: Grant,
    /// The only issuer that is accepted. Where `client_id` stands, it must stand too: an id is that
    /// issuer's.
    pub issuer: Option<String>,
    /// A client that the issuer knows already.
    pub client_id: Option<String>,
    /// Its password.
    pub client_secret: Option<EntryValue>,
    /// Its private key, PKCS #8 in PEM: P-256 or RSA.
    pub private_key: Option<EntryValue>,
    /// The `https` address of a document that describes us, which is our id wherever such documents
    /// are known.
    pub client_metadata_url: Option<String>,
    /// The scopes to request, in place of those that the server names.
    pub scopes: Option<Vec<String>>,
    /// The port of `http://127.0.0.1:PORT/callback`, to which a person's browser is sent back.
    pub redirect_port: u16,
    /// The identity provider that vouches for people in place of their own consent
    /// (enterprise-managed authorization).
    pub identity_provider: Option<IdentityProvider>,
    /// `true`: one login, an operator's, serves everybody.
    pub shared: bool,
}

/// The port of the redirect address where an entry names none.
pub const REDIRECT_PORT: u16 = 7374;

/// The grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// A person logs in.
    #[default]
    Person,
    /// The daemon itself is the client (`client_credentials`).
    Machine,
}

/// An identity provider that issues ID-JAGs.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityProvider {
    /// Its issuer.
    pub issuer: String,
    /// As which client it knows us.
    pub client_id: String,
    /// The password of that client, if it has one.
    pub client_secret: Option<EntryValue>,
}
