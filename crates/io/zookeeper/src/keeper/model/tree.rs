//! Tree of the model: requests are carried out on its nodes, and watches fire.

use super::{Node, World, parent};
use crate::keeper::{Answer, KeeperError, KeeperEvent, Kind, Request, Step};

impl World {
    /// Carries out a request that was made in the session `made_in`.
    pub(super) fn perform(
        &mut self,
        id: usize,
        made_in: i64,
        request: Request,
        may_watch: bool,
    ) -> Result<Answer, KeeperError> {
        let session = self.clients[id].session;
        if session == 0 || session != made_in {
            return Err(KeeperError::Expired);
        }
        match request {
            Request::Create { path, data, kind } => {
                let path = self.create(session, &path, &data, kind)?;
                self.fire(&path, true);
                Ok(Answer::Created { path })
            }
            Request::Get { path, watch } => {
                let node = self.nodes.get(&path).cloned().ok_or(KeeperError::NoNode)?;
                if watch && may_watch {
                    self.clients[id].data_watches.insert(path);
                }
                Ok(Answer::Data {
                    data: node.data,
                    version: node.version,
                    owner: node.owner,
                })
            }
            Request::Exists { path, watch } => {
                let is_there = self.nodes.contains_key(&path);
                if watch && may_watch {
                    self.clients[id].data_watches.insert(path);
                }
                Ok(Answer::Exists(is_there))
            }
            Request::List { path, watch } => {
                if !self.nodes.contains_key(&path) {
                    return Err(KeeperError::NoNode);
                }
                let names = self.children(&path);
                if watch && may_watch {
                    self.clients[id].child_watches.insert(path);
                }
                Ok(Answer::Children(names))
            }
            Request::Set {
                path,
                data,
                version,
            } => {
                self.check(&path, version)?;
                let node = self.nodes.get_mut(&path).ok_or(KeeperError::NoNode)?;
                node.data = data;
                node.version += 1;
                let version = node.version;
                self.fire(&path, false);
                Ok(Answer::Version(version))
            }
            Request::Delete { path, version } => {
                self.delete(&path, version)?;
                self.fire(&path, true);
                Ok(Answer::Done)
            }
            Request::Multi(steps) => self.multi(session, steps),
        }
    }

    /// Carries out all steps or none: done steps are undone from behind if a later one fails.
    fn multi(&mut self, session: i64, steps: Vec<Step>) -> Result<Answer, KeeperError> {
        let mut undo = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let done = match step {
                Step::Check { path, version } => self.check(&path, version),
                Step::Create { path, data, kind } => {
                    let made = self.create(session, &path, &data, kind);
                    made.map(|path| undo.push((path, None)))
                }
                Step::Delete { path, version } => self
                    .delete(&path, version)
                    .map(|node| undo.push((path, Some(node)))),
            };
            if let Err(error) = done {
                for (path, node) in undo.into_iter().rev() {
                    match node {
                        Some(node) => self.nodes.insert(path, node),
                        None => self.nodes.remove(&path),
                    };
                }
                return Err(KeeperError::Step(index, Box::new(error)));
            }
        }
        for (path, _) in undo {
            self.fire(&path, true);
        }
        Ok(Answer::Done)
    }

    fn check(&self, path: &str, version: Option<i32>) -> Result<(), KeeperError> {
        let node = self.nodes.get(path).ok_or(KeeperError::NoNode)?;
        match version {
            Some(version) if version != node.version => Err(KeeperError::BadVersion),
            _ => Ok(()),
        }
    }

    pub(super) fn children(&self, path: &str) -> Vec<String> {
        let prefix = if path == "/" {
            "/".to_owned()
        } else {
            format!("{path}/")
        };
        let below = self.nodes.range(prefix.clone()..).map(|(path, _)| path);
        let below = below.take_while(|path| path.starts_with(&prefix));
        let names = below.map(|path| &path[prefix.len()..]);
        names
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn create(
        &mut self,
        session: i64,
        path: &str,
        data: &[u8],
        kind: Kind,
    ) -> Result<String, KeeperError> {
        let above = self
            .nodes
            .get_mut(parent(path))
            .ok_or(KeeperError::NoNode)?;
        let path = match kind {
            Kind::EphemeralSequential => format!("{path}{:010}", above.sequence),
            Kind::Persistent | Kind::Shared | Kind::Ephemeral => path.to_owned(),
        };
        above.sequence += 1;
        if self.nodes.contains_key(&path) {
            return Err(KeeperError::NodeExists);
        }
        let node = Node {
            data: data.to_vec(),
            owner: match kind {
                Kind::Persistent | Kind::Shared => 0,
                Kind::Ephemeral | Kind::EphemeralSequential => session,
            },
            ..Node::default()
        };
        self.nodes.insert(path.clone(), node);
        Ok(path)
    }

    pub(super) fn delete(&mut self, path: &str, version: Option<i32>) -> Result<Node, KeeperError> {
        self.check(path, version)?;
        if !self.children(path).is_empty() {
            return Err(KeeperError::NotEmpty);
        }
        self.nodes.remove(path).ok_or(KeeperError::NoNode)
    }

    /// Notifies the watches of a node, and if it came or went those of the children of the one above.
    pub(super) fn fire(&mut self, path: &str, is_list_changed: bool) {
        for id in 0..self.clients.len() {
            let client = &mut self.clients[id];
            let above = parent(path);
            let mut fired = Vec::new();
            if client.data_watches.remove(path) {
                fired.push(path);
            }
            if is_list_changed && client.child_watches.remove(above) {
                fired.push(above);
            }
            for path in fired {
                let path = path.to_owned();
                if self.clients[id].is_connected && self.reaches(id) {
                    self.notify(id, KeeperEvent::Changed { path });
                } else {
                    self.clients[id].missed.push(path);
                }
            }
        }
    }
}
