//! The secrets of a served page, and the check of each request before anything else is done with
//! it.

use hyper::header::{CONTENT_TYPE, COOKIE, HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::failure::CommandError;
use colibri_text::hex;

/// The name of the cookie.
const COOKIE_NAME: &str = "colibri_page";
/// The header for the value that stands in the page.
const PAGE_HEADER: &str = "x-colibri-page";

/// The secrets of one run. None of them is in an argument list, and none is shown.
pub(super) struct PageGate {
    /// `127.0.0.1` and the port, as `Host` has it.
    host: String,
    /// The folder of all paths.
    folder: String,
    /// What opens the page once. `None`: it did.
    token: Mutex<Option<String>>,
    cookie: String,
    page_secret: String,
}

/// A request that passed the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRequest {
    /// It brought the token, which is of no more use.
    Enter,
    /// The page.
    Page,
    /// The stream of news. The numbers of the parts that the page has.
    Events([u64; 2]),
    /// An answer to a waiting call.
    Decide,
}

impl PageGate {
    /// Secrets for a page at this port.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn new(port: u16) -> Result<PageGate, CommandError> {
        Ok(PageGate {
            host: format!("127.0.0.1:{port}"),
            folder: random::<16>()?,
            token: Mutex::new(Some(random::<32>()?)),
            cookie: random::<32>()?,
            page_secret: random::<32>()?,
        })
    }

    /// `127.0.0.1` and the port.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The value that stands in the page and beside each answer.
    pub(super) fn page_secret(&self) -> &str {
        &self.page_secret
    }

    /// The path of the page.
    pub(super) fn path(&self) -> String {
        format!("/{}/", self.folder)
    }

    /// The address that opens the page once.
    pub(super) fn entrance(&self) -> Option<String> {
        let token = self.token.lock();
        let token = token.as_ref()?;
        Some(format!(
            "http://{}/{}/enter?{token}",
            self.host, self.folder
        ))
    }

    /// The cookie for who brought the token. Cookies know no ports, so that its path is what keeps
    /// it from other servers.
    pub(super) fn set_cookie(&self) -> String {
        let (cookie, folder) = (&self.cookie, &self.folder);
        format!("{COOKIE_NAME}={cookie}; Path=/{folder}/; HttpOnly; SameSite=Strict")
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The status of a refusal, which has no content.
    pub(super) fn check(&self, request: &Parts) -> Result<PageRequest, StatusCode> {
        // A name that was bound to this address is no address.
        if one(request, HOST) != Some(&self.host) || request.uri.authority().is_some() {
            return Err(StatusCode::FORBIDDEN);
        }
        let path = request
            .uri
            .path()
            .strip_prefix('/')
            .and_then(|path| path.split_once('/'));
        let Some((_, place)) = path.filter(|(folder, _)| is_same(folder, &self.folder)) else {
            return Err(StatusCode::NOT_FOUND);
        };
        if (&request.method, place) == (&Method::GET, "enter") {
            let given = request.uri.query().unwrap_or_default();
            let mut token = self.token.lock();
            return match token.take_if(|token| is_same(given, token)) {
                Some(_) => Ok(PageRequest::Enter),
                None => Err(StatusCode::FORBIDDEN),
            };
        }
        if !self.has_cookie(request) {
            return Err(StatusCode::FORBIDDEN);
        }
        match (&request.method, place) {
            (&Method::GET, "") => Ok(PageRequest::Page),
            (&Method::GET, "events") => {
                let query = request.uri.query().unwrap_or_default();
                let (record, present) = query.split_once('-').unwrap_or_default();
                Ok(PageRequest::Events(
                    [record, present].map(|number| number.parse().unwrap_or_default()),
                ))
            }
            (&Method::POST, "decide") => self.check_answer(request),
            (_, "" | "events" | "decide" | "enter") => Err(StatusCode::METHOD_NOT_ALLOWED),
            _ => Err(StatusCode::NOT_FOUND),
        }
    }

    fn check_answer(&self, request: &Parts) -> Result<PageRequest, StatusCode> {
        let origin = format!("http://{}", self.host);
        let secret = one(request, HeaderName::from_static(PAGE_HEADER)).unwrap_or_default();
        if one(request, ORIGIN) != Some(&origin) || !is_same(secret, &self.page_secret) {
            return Err(StatusCode::FORBIDDEN);
        }
        match one(request, CONTENT_TYPE) {
            Some("application/json") => Ok(PageRequest::Decide),
            _ => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        }
    }

    fn has_cookie(&self, request: &Parts) -> bool {
        let headers = request.headers.get_all(COOKIE).iter();
        let cookies = headers
            .filter_map(|header| header.to_str().ok())
            .flat_map(|header| header.split(';'));
        let named =
            cookies.filter_map(|cookie| cookie.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
        // Another server of this address may have set one of the same name.
        named.take(16).any(|cookie| is_same(cookie, &self.cookie))
    }
}

/// The header's value, if there is one alone.
fn one(request: &Parts, name: HeaderName) -> Option<&str> {
    let mut values = request.headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// True if both are the same. The time that this takes says nothing about where they differ.
fn is_same(given: &str, wanted: &str) -> bool {
    Sha256::digest(given) == Sha256::digest(wanted)
}

fn random<const BYTES: usize>() -> Result<String, CommandError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        CommandError::Machine(format!("the system has no random bytes: {error}"))
    })?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_token_opens_once_and_the_cookie_from_then_on() {
        let gate = PageGate::new(4000).unwrap();
        let host = ("host", "127.0.0.1:4000");
        let entrance = gate.entrance().unwrap();
        let enter = entrance.strip_prefix("http://127.0.0.1:4000").unwrap();
        let page = gate.path();
        assert_eq!(page.len(), 34, "128 bits");
        let get = |uri: &str, headers: &[(&str, &str)]| gate.check(&request("GET", uri, headers));
        let forbidden = Err(StatusCode::FORBIDDEN);
        assert_eq!(get(&page, &[host]), forbidden);
        assert_eq!(
            get(&format!("{page}enter?{}", "0".repeat(64)), &[host]),
            forbidden
        );
        assert_eq!(get(&format!("{page}enter"), &[host]), forbidden);
        // A name that was bound to the address, another port, two of them, none: the token stays
        // good.
        for hosts in [
            &["evil.example:4000"][..],
            &["127.0.0.1:4001"],
            &["localhost:4000"],
            &["127.0.0.1"],
            &[],
            &["127.0.0.1:4000", "127.0.0.1:4000"],
        ] {
            let hosts: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            assert_eq!(get(enter, &hosts), forbidden, "{hosts:?}");
        }
        assert_eq!(get(&entrance, &[host]), forbidden, "as a proxy is asked");
        assert_eq!(get(enter, &[host]), Ok(PageRequest::Enter));
        assert_eq!((get(enter, &[host]), gate.entrance()), (forbidden, None));

        let set = gate.set_cookie();
        assert!(
            set.contains(&format!("; Path={page}; HttpOnly; SameSite=Strict")),
            "{set}"
        );
        let cookie = set.split(';').next().unwrap();
        let of_another_run = PageGate::new(4000).unwrap().set_cookie();
        let (other, many) = (
            of_another_run.split(';').next().unwrap(),
            format!("a=b; colibri_page=x; {cookie}"),
        );
        assert_eq!(get(&page, &[host, ("cookie", other)]), forbidden);
        for cookies in [cookie, &many] {
            assert_eq!(
                get(&page, &[host, ("cookie", cookies)]),
                Ok(PageRequest::Page)
            );
        }
        let events = get(&format!("{page}events?3-7"), &[host, ("cookie", cookie)]);
        assert_eq!(events, Ok(PageRequest::Events([3, 7])));
        for nowhere in [
            "/",
            "/x",
            "/x/",
            "//",
            &page[..33],
            &format!("{page}../"),
            &format!("{page}favicon.ico"),
        ] {
            assert_eq!(
                get(nowhere, &[host, ("cookie", cookie)]),
                Err(StatusCode::NOT_FOUND),
                "{nowhere}"
            );
        }
    }

    #[test]
    fn an_answer_needs_origin_and_the_value_of_the_page() {
        let gate = PageGate::new(4000).unwrap();
        let (host, page, secret) = (
            ("host", "127.0.0.1:4000"),
            gate.path(),
            gate.page_secret().to_owned(),
        );
        let cookie = gate.set_cookie();
        let cookie = ("cookie", cookie.split(';').next().unwrap());
        let (json, origin) = (
            ("content-type", "application/json"),
            ("origin", "http://127.0.0.1:4000"),
        );
        let secret = ("x-colibri-page", &*secret);
        let post = |headers: &[(&str, &str)]| {
            gate.check(&request("POST", &format!("{page}decide"), headers))
        };
        assert_eq!(
            post(&[host, cookie, json, origin, secret]),
            Ok(PageRequest::Decide)
        );
        for missing in [
            &[host, json, origin, secret][..],
            &[host, cookie, json, secret],
            &[host, cookie, json, origin],
            &[host, cookie, json, ("origin", "null"), secret],
            &[
                host,
                cookie,
                json,
                ("origin", "http://localhost:4000"),
                secret,
            ],
            &[
                host,
                cookie,
                json,
                ("origin", "http://127.0.0.1:4001"),
                secret,
            ],
            &[host, cookie, json, origin, origin, secret],
            &[host, cookie, json, origin, ("x-colibri-page", cookie.1)],
        ] {
            assert_eq!(post(missing), Err(StatusCode::FORBIDDEN), "{missing:?}");
        }
        let plain = ("content-type", "text/plain");
        assert_eq!(
            post(&[host, cookie, plain, origin, secret]),
            Err(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        );
        let get = gate.check(&request(
            "GET",
            &format!("{page}decide"),
            &[host, cookie, json, origin, secret],
        ));
        assert_eq!(get, Err(StatusCode::METHOD_NOT_ALLOWED));
    }
}
