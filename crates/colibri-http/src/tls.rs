//! TLS: the trusted certificate authorities.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::error::HttpError;
use colibri_text::brief;

/// The places of the trusted authorities on usual systems: FreeBSD's base (certctl(8)) and its
/// package, Debian, Fedora, Alpine. The first existing file is used. The environment is ignored.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/usr/local/etc/ssl/cert.pem",
];

/// The system's authorities, read once: after a change the program has to be restarted.
static ROOTS: OnceLock<RootCertStore> = OnceLock::new();

/// The TLS settings with these authorities and the system's.
///
/// # Errors
/// The file cannot be read or holds no certificate; or there is no authority at all.
pub(super) fn config(own: Option<&Path>) -> Result<Arc<ClientConfig>, HttpError> {
    let mut roots = ROOTS.get_or_init(system).clone();
    if let Some(own) = own {
        let cannot = |why: String| {
            HttpError::Settings(format!(
                "cannot use the authorities of {}: {why}",
                own.display()
            ))
        };
        let pem = std::fs::read(own).map_err(|error| cannot(error.to_string()))?;
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| cannot(error.to_string()))?;
            roots
                .add(certificate)
                .map_err(|error| cannot(error.to_string()))?;
            count += 1;
        }
        if count == 0 {
            return Err(cannot("no certificate in PEM is in it".to_owned()));
        }
    }
    if roots.is_empty() {
        let files = SYSTEM.join(", ");
        return Err(HttpError::Settings(format!(
            "this system has no certificate authorities (none of {files}): install them, or name a file in \"ca\""
        )));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::Settings(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The fault of the certificate, if it ended the handshake.
pub(super) fn disbelieved(error: &std::io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => Some(
            "no authority that is believed here signed it; name its authority's file in \"ca\" if it is meant"
                .to_owned(),
        ),
        rustls::Error::InvalidCertificate(why) => Some(brief(&why.to_string(), 300)),
        _ => None,
    }
}

/// The cause of a handshake that failed for another reason.
pub(super) fn told(error: &std::io::Error) -> String {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => {
            "what it answers is no TLS: it may be meant to be http".to_owned()
        }
        _ => format!("TLS: {error}"),
    }
}

fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = SYSTEM.iter().find_map(|path| std::fs::read(path).ok()) {
        // A certificate that cannot be parsed is skipped; the others are still trusted.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
    }
    roots
}
