//! TEMP
use colibri_jail_helper::registry::*;
use std::collections::BTreeMap;
use std::path::Path;
pub struct Loaded {
    pub registry: Registry,
    pub refused: BTreeMap<String, String>,
    pub notes: Vec<String>,
}
pub fn load(p: &Path, _r: bool) -> Result<Loaded, std::io::Error> {
    let registry = match std::fs::read(p) {
        Ok(b) => Registry::parse(&b, &p.display().to_string()).map_err(|e| std::io::Error::other(e.to_string()))?,
        Err(_) => Registry::default(),
    };
    Ok(Loaded {
        registry,
        refused: BTreeMap::new(),
        notes: vec![],
    })
}
pub fn executable(_e: &Entry) -> String {
    String::new()
}
