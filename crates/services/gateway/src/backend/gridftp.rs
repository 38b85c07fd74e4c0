//! GridFTP: Debian's Globus server, with anonymous clients or with certificates.
//!
//! The control connection comes through the virtual address. Data connections go to the address that the server names:
//! its own, past the director; or, where clients do not reach that, the virtual one, and then all connections of a
//! client have to go to one server.

use super::{Backend, Rendered, RenderedFile, Site, no_cluster};
use crate::error::GatewayError;
use sheaf_serve::{Affinity, HealthKind, ServiceConfig};
use std::fmt::Write as _;
use std::net::IpAddr;

pub(super) const BACKEND: Backend = Backend {
    name: "gridftp",
    summary: "GridFTP: the Globus server of Debian",
    port: 2811,
    further_ports: "data.ports, for data connections",
    packages: &["globus-gridftp-server-progs", "globus-gass-copy-progs"],
    load: "none but its log of transfers (log_transfer)",
    data: "on connections of their own, to the server's own address and past the director; with affinity = \"client\" \
           to the virtual address",
    probe: || HealthKind::Gridftp,
    check,
    render,
};

fn check(service: &ServiceConfig) -> Result<(), GatewayError> {
    no_cluster(service)?;
    if service.affinity == Affinity::Client && service.data.ports.is_none() {
        return Err(GatewayError::Unfit {
            service: service.name.clone(),
            key: "data.ports",
            found: "none".to_owned(),
            expected: "first and last port of data connections, which affinity = \"client\" directs",
        });
    }
    Ok(())
}

/// Returns the address that data connections go to.
fn data_address(site: &Site<'_>) -> Option<IpAddr> {
    let own = site.server.addresses.first();
    let is_virtual = site.service.affinity == Affinity::Client && site.is_direct_return;
    let address = if is_virtual {
        site.service.addresses.first()
    } else {
        own
    };
    address.copied()
}

fn render(site: &Site<'_>) -> Rendered {
    let mut rendered = site.rendered(BACKEND.name);
    let data = &site.service.data;
    let path = site.path("gridftp.conf");
    let mut text = site.head("GridFTP");
    let access = if data.write { "RW" } else { "R" };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "port {}\n\
         restrict_paths {access}{}\n\
         home_dir {}\n\
         pidfile {}\n\
         log_level ERROR,WARN\n\
         log_single {}\n",
        site.port(),
        data.folder,
        data.folder,
        site.state("gridftp.pid"),
        site.state("gridftp.log"),
    );
    let _ = match &data.certificates {
        None => write!(
            text,
            "allow_anonymous 1\nanonymous_user {}\nanonymous_names_allowed *\n",
            data.user
        ),
        Some(folder) => write!(
            text,
            "$X509_CERT_DIR {folder}/certificates\n\
             $X509_USER_CERT {folder}/hostcert.pem\n\
             $X509_USER_KEY {folder}/hostkey.pem\n\
             $GRIDMAP {folder}/grid-mapfile\n"
        ),
    };
    if let Some(address) = data_address(site) {
        let _ = writeln!(text, "data_interface {address}");
    }
    if let Some([first, last]) = data.ports {
        let _ = writeln!(text, "port_range {first},{last}");
        // Where the server connects to the client, answers to the virtual address have to find it as well.
        let _ = writeln!(text, "$GLOBUS_TCP_SOURCE_RANGE {first},{last}");
    }
    rendered.files = vec![RenderedFile {
        path: path.clone(),
        text,
    }];
    rendered.commands = vec![format!("globus-gridftp-server -s -c {path}")];
    rendered.prepare = vec![format!("install -d {}", site.state)];
    // Without a port, clients take ftp: to be 21, and gsiftp: 2811.
    let is_secured = data.certificates.is_some();
    let at = site.authority(if is_secured { BACKEND.port } else { 21 });
    let folder = data.folder.trim_end_matches('/');
    let scheme = if is_secured { "gsiftp" } else { "ftp" };
    rendered.clients = vec![
        format!("globus-url-copy {scheme}://{at}{folder}/FILE file:///tmp/FILE"),
        format!("gfal-copy {scheme}://{at}{folder}/FILE file:///tmp/FILE"),
    ];
    if is_secured {
        rendered.notes.push(
            "the certificate of every server carries the name of the virtual address, which clients compare".to_owned(),
        );
    }
    let ports = data.ports.map_or("any port".to_owned(), |[first, last]| {
        format!("ports {first} to {last}")
    });
    let way = match data_address(site) {
        Some(address) => format!("clients reach {ports} at {address}"),
        None => format!("clients reach {ports} of the server"),
    };
    rendered.notes.push(way);
    rendered
}
