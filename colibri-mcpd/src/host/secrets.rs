//! TEMP
use secrecy::SecretString;
#[derive(Default)]
pub struct Secrets {}
impl Secrets {
    pub fn get(&self, _n: &str) -> Option<&SecretString> {
        None
    }
    pub fn redact(&self, t: &str) -> String {
        t.to_owned()
    }
}
