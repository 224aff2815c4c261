//! TEMP
use std::collections::HashMap;
pub struct Offer<'a> {
    pub server: &'a str,
    pub prefix: bool,
    pub tools: Vec<&'a str>,
}
pub struct Exposed {
    pub name: String,
    pub changed: bool,
}
#[derive(Default)]
pub struct Names {
    m: HashMap<(String, String), Exposed>,
}
impl Names {
    pub fn build<'a>(o: impl Iterator<Item = Offer<'a>>) -> Names {
        let mut n = Names::default();
        for o in o {
            for t in o.tools {
                let name = if o.prefix {
                    format!("{}__{}", o.server, t)
                } else {
                    t.to_owned()
                };
                n.m.insert((o.server.to_owned(), t.to_owned()), Exposed { name, changed: false });
            }
        }
        n
    }
    pub fn collisions(&self) -> &[String] {
        &[]
    }
    pub fn exposed(&self, s: &str, t: &str) -> Option<&Exposed> {
        self.m.get(&(s.to_owned(), t.to_owned()))
    }
}
