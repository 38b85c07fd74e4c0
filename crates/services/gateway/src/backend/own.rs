//! Sheaf's own file server.

use super::{Backend, Rendered, Site, check_plain};
use sheaf_serve::HealthKind;
use std::net::IpAddr;

pub(super) const BACKEND: Backend = Backend {
    name: "own",
    summary: "sheaf files serve: HTTP, WebDAV, checksums of the writer, tokens",
    port: 80,
    further_ports: "none",
    packages: &["curl"],
    load: "bytes, transfers, connections: /metrics.json with --status",
    data: "on the connection of the request: direct return fits",
    probe: || HealthKind::Tcp,
    check: check_plain,
    render,
};

fn render(site: &Site<'_>) -> Rendered {
    let has_v6 = site.addresses().iter().any(IpAddr::is_ipv6);
    // One listener takes clients at the virtual address, and checks at the server's own.
    let any = if has_v6 { "[::]" } else { "0.0.0.0" };
    let data = &site.service.data;
    let write = if data.write { " --write" } else { "" };
    let mut rendered = site.rendered(BACKEND.name);
    rendered.commands = vec![format!(
        "sheaf files serve {} --listen {any}:{} --name {} --insecure{write}",
        data.folder,
        site.port(),
        site.server.name,
    )];
    let at = site.authority(80);
    rendered.clients = vec![format!("curl -O http://{at}/FILE")];
    if data.write {
        rendered
            .clients
            .push(format!("curl -T FILE http://{at}/FILE"));
    }
    rendered.notes.push(
        "--insecure serves without TLS; with --tls-cert and --tls-key the certificate carries the name of the service"
            .to_owned(),
    );
    rendered.notes.push(
        "the check makes a connection; health = { kind = { http = { path = \"/FILE\" } } } reads a file".to_owned(),
    );
    rendered
}
