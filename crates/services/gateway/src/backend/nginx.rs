//! nginx: static files, with ranges, and PUT by its WebDAV module.

use super::{Backend, Rendered, RenderedFile, Site, check_plain};
use sheaf_serve::HealthKind;
use std::fmt::Write as _;
use std::net::SocketAddr;

pub(super) const BACKEND: Backend = Backend {
    name: "nginx",
    summary: "static files over HTTP with ranges, and PUT",
    port: 80,
    further_ports: "none",
    packages: &["nginx-light", "curl"],
    load: "connections that are active, reading, writing: /status on the server itself",
    data: "on the connection of the request: direct return fits",
    probe: || HealthKind::http("/healthz"),
    check: check_plain,
    render,
};

fn render(site: &Site<'_>) -> Rendered {
    let mut rendered = site.rendered(BACKEND.name);
    let path = site.path("nginx.conf");
    rendered.files = vec![RenderedFile {
        path: path.clone(),
        text: text(site),
    }];
    rendered.commands = vec![format!("nginx -e stderr -c {path}")];
    rendered.prepare = vec![format!("install -d {}", site.state)];
    let at = site.authority(80);
    rendered.clients = vec![
        format!("curl -O http://{at}/FILE"),
        format!("curl -r 0-99 http://{at}/FILE"),
    ];
    if site.service.data.write {
        rendered
            .clients
            .push(format!("curl -T FILE http://{at}/FILE"));
    }
    rendered
}

fn text(site: &Site<'_>) -> String {
    let data = &site.service.data;
    let mut text = site.head("nginx");
    let pid = site.state("nginx.pid");
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "user {} {};\n\
         worker_processes auto;\n\
         worker_rlimit_nofile 20000;\n\
         daemon off;\n\
         pid {pid};\n\
         error_log stderr warn;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n  \
           sendfile on;\n  \
           tcp_nopush on;\n  \
           access_log off;\n  \
           server_tokens off;\n  \
           default_type application/octet-stream;\n  \
           reset_timedout_connection on;\n",
        data.user, data.group
    );
    for kind in ["fastcgi", "proxy", "scgi", "uwsgi"] {
        let _ = writeln!(text, "  {kind}_temp_path {};", site.state(kind));
    }
    let uploads = match data.write {
        // On the disk of the files, so that an upload gets its name in one step.
        true => format!("{}/.uploads", data.folder.trim_end_matches('/')),
        false => site.state("uploads"),
    };
    let _ = writeln!(text, "  client_body_temp_path {uploads};\n  server {{");
    // Each address by itself, as the machine may have others with other services.
    for address in site.addresses() {
        let listen = SocketAddr::new(address, site.port());
        let _ = writeln!(text, "    listen {listen};");
    }
    let _ = write!(
        text,
        "    root {};\n    \
           add_header X-Served-By {} always;\n    \
           location = /healthz {{ return 200 \"ok\\n\"; }}\n    \
           location = /status {{ stub_status; allow 127.0.0.0/8; allow ::1; {}deny all; }}\n    \
           location ~ /\\. {{ return 404; }}\n",
        data.folder,
        site.server.name,
        site.server
            .addresses
            .iter()
            .map(|address| format!("allow {address}; "))
            .collect::<String>(),
    );
    if data.write {
        text.push_str(
            "    location / {\n      \
                   dav_methods PUT DELETE MKCOL MOVE;\n      \
                   dav_access user:rw group:r all:r;\n      \
                   create_full_put_path on;\n      \
                   client_max_body_size 0;\n    \
                 }\n",
        );
    }
    text.push_str("  }\n}\n");
    text
}
