//! The target of a call that waited, as it is now.

use std::sync::Arc;

use super::lookup::{LookupKey, UnseenServers};
use super::{ServerHost, resource};
use crate::relay::{CallTarget, TargetCatalog, TargetDescription};
use colibri_protocol::{Code, Failure, Feature};
use colibri_text::brief;

impl TargetCatalog for ServerHost {
    fn present(self: Arc<Self>, target: &CallTarget) -> Result<Option<Arc<CallTarget>>, Failure> {
        let TargetDescription {
            server: id,
            feature,
            operation: own,
            ..
        } = target.description();
        let (servers, table) = (self.servers(), self.table());
        let Some(server) = servers.get(&**id) else {
            return Ok(None);
        };
        let is_method = target.description().own_name.is_none();
        let present = match feature {
            _ if is_method => {
                let method = table.method(own);
                let method = method.filter(|method| method.server.spec.id == *id);
                method.map(|method| method.target())
            }
            // Its entry changed meanwhile: what is there now is not known yet.
            _ if !server.offer.is_in_table() => {
                let wanted = LookupKey::Own(*feature, id.clone(), own.to_string());
                let place = UnseenServers::At(server.clone(), own.to_string());
                Some(self.discovery_target(wanted, place))
            }
            Feature::Tool | Feature::Prompt => {
                let item = table.by_own_name(*feature, id, own);
                item.map(|item| item.target().clone())
            }
            Feature::Resource | Feature::Template | Feature::Skill => {
                Some(resource::target(&self, server, *feature, own))
            }
        };
        present.map(Some).ok_or_else(|| {
            let name = brief(own, 100);
            let message = format!("{id} no longer has {name}: it had it when the call came");
            Failure::new(Code::NotOffered, message).of_server(&**id)
        })
    }
}
