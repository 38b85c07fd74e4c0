//! XRootD: root:// and HTTP on one port, alone or as a cluster behind redirectors.
//!
//! Alone, every server has all files, and a client stays at the virtual address. In a cluster each server of the
//! service runs a redirector at the port of the service, and a data server at another port; the redirectors know which
//! data server has a file and send clients there, straight.

use super::{Backend, Rendered, RenderedFile, Site, no_certificates, no_ports};
use sheaf_serve::{HealthKind, ServerConfig};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Port at which redirectors take data servers in.
const CMS_PORT: u16 = 1213;
/// Seconds for which a redirector that begins has clients wait for data servers to log in.
const STARTUP_S: u32 = 5;

pub(super) const BACKEND: Backend = Backend {
    name: "xrootd",
    summary: "XRootD: root:// and HTTP, alone or as a cluster with cmsd",
    port: 1094,
    further_ports: "none alone; in a cluster data.cluster_port, and 1213 between the servers",
    packages: &[
        "xrootd-server",
        "xrootd-client",
        "davix",
        "gfal2-util-scripts",
    ],
    load: "bytes and transfers by xrd.report; a cluster chooses by load itself (cms.sched)",
    data: "on the connection of the login: direct return fits; in a cluster the redirector sends clients straight to \
           the server's own address",
    probe: || HealthKind::Xrootd,
    check: |service| {
        no_certificates(service)?;
        no_ports(service)
    },
    render,
};

fn render(site: &Site<'_>) -> Rendered {
    let mut rendered = site.rendered(BACKEND.name);
    let port = site.port();
    match site.service.data.cluster_port {
        None => add(site, &mut rendered, Role::Alone, port),
        Some(cluster_port) => {
            add(site, &mut rendered, Role::Redirector, port);
            add(site, &mut rendered, Role::Data, cluster_port);
            rendered.notes.push(format!(
                "names of the servers are not looked up (xrd.network nodnr): clients reach port {cluster_port} at the \
                 servers' own addresses"
            ));
        }
    }
    let (at, web) = (site.authority(0), site.authority(80));
    rendered.clients = vec![
        format!("xrdcp root://{at}//FILE ."),
        format!("davix-get http://{web}/FILE FILE"),
        format!("gfal-copy root://{at}//FILE file:///tmp/FILE"),
    ];
    rendered
}

/// Returns the lines with the redirectors: every server of the service.
fn managers(site: &Site<'_>) -> String {
    let line = |server: &ServerConfig| {
        let own = server.addresses.first()?;
        Some(format!(
            "all.manager all {}\n",
            SocketAddr::new(*own, CMS_PORT)
        ))
    };
    let all = &site.service.servers;
    // A server that is none of the file has been added to a director that runs: the redirectors are those of the file.
    all.iter().filter_map(line).collect()
}

/// Part that a pair of `xrootd` and `cmsd` has in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Server of files without a cluster, and without `cmsd`.
    Alone,
    Redirector,
    Data,
}

/// Adds a server of files or a redirector.
fn add(site: &Site<'_>, rendered: &mut Rendered, role: Role, port: u16) {
    let data = &site.service.data;
    let name = match role {
        Role::Alone => "xrootd",
        Role::Redirector => "redirector",
        Role::Data => "data",
    };
    let (path, state) = (site.path(&format!("{name}.cfg")), site.state(name));
    let access = if data.write { "r/w" } else { "notwritable" };
    let mut text = site.head("XRootD");
    match role {
        Role::Alone => {}
        Role::Redirector => text += &format!("all.role manager\n{}", managers(site)),
        Role::Data => text += &format!("all.role server\n{}", managers(site)),
    }
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "all.export / {access}\n\
         all.adminpath {state}\n\
         all.pidpath {state}\n\
         xrd.network nodnr\n"
    );
    match role {
        // Data servers find their redirectors within this time; requests wait for it.
        Role::Redirector => text += &format!("cms.delay startup {STARTUP_S}\n"),
        Role::Alone | Role::Data => {
            let _ = writeln!(text, "oss.localroot {}\nxrootd.chksum adler32", data.folder);
        }
    }
    // Both programs of a cluster read the file.
    let _ = writeln!(
        text,
        "if exec xrootd\nxrd.port {port}\nxrd.protocol http:{port} libXrdHttp.so\nfi"
    );
    if role == Role::Redirector {
        let _ = writeln!(text, "if exec cmsd\nxrd.port {CMS_PORT}\nfi");
    }
    rendered.files.push(RenderedFile {
        path: path.clone(),
        text,
    });
    rendered.prepare.push(format!(
        "install -d -o {} -g {} {state}",
        data.user, data.group
    ));
    let programs: &[&str] = match role {
        Role::Alone => &["xrootd"],
        Role::Redirector | Role::Data => &["xrootd", "cmsd"],
    };
    for program in programs {
        // The name keeps the states of several on one machine apart.
        rendered.commands.push(format!(
            "{program} -R {} -n {}-{name} -c {path}",
            data.user, site.server.name
        ));
    }
}
