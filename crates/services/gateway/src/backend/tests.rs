//! Configurations of every kind.

use super::*;

fn service(text: &str) -> ServiceConfig {
    let text = format!(
        "name = \"files\"\naddresses = [\"10.80.0.100\"]\nport = 2811\n{text}\n[[server]]\nname = \"s1\"\n\
         addresses = [\"10.80.0.11\"]\nagent = \"10.80.0.11:7401\"\n[[server]]\nname = \"s2\"\n\
         addresses = [\"10.80.0.12\"]\nagent = \"10.80.0.12:7401\"\n"
    );
    toml::from_str(&text).expect("a service")
}

fn rendered(name: &str, text: &str, is_direct_return: bool) -> Rendered {
    let service = service(text);
    let backend = backend(name).expect("a kind");
    backend
        .render(
            &service,
            &service.servers[0],
            is_direct_return,
            &Folders::default(),
        )
        .expect("it fits")
}

#[track_caller]
fn assert_has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn every_kind_is_rendered_and_its_check_is_its_own() {
    let probes: Vec<HealthKind> = backends().iter().map(Backend::probe).collect();
    assert_eq!(probes[2..], [HealthKind::Xrootd, HealthKind::Gridftp]);
    for row in backends() {
        let all = rendered(row.name, "", true);
        assert_eq!((all.backend, all.server.as_str()), (row.name, "s1"));
        assert!(!all.commands.is_empty() && !all.clients.is_empty());
        for client in &all.clients {
            assert!(client.contains("10.80.0.100"), "{client}");
        }
        for file in &all.files {
            assert!(
                file.path.starts_with("/etc/sheaf/files-s1-"),
                "{}",
                file.path
            );
            assert!(
                file.text.starts_with("# Server s1 of service files: "),
                "{}",
                file.text
            );
        }
    }
    let error = backend("apache").expect_err("there is none").to_string();
    assert_eq!(
        error,
        "found backend \"apache\", expected one of own, nginx, xrootd, gridftp"
    );
}

#[test]
fn the_check_of_a_service_is_that_of_its_kind_unless_it_has_another() {
    let kind = |text| health_kind(&service(text));
    assert_eq!(kind(""), HealthKind::Tcp);
    assert_eq!(kind("backend = \"gridftp\""), HealthKind::Gridftp);
    let own = "backend = \"gridftp\"\nhealth = { kind = \"tcp\" }";
    assert_eq!(kind(own), HealthKind::Tcp);
}

#[test]
fn nginx_listens_at_the_virtual_address_where_packets_come_with_it() {
    let of = |text, is_direct| rendered("nginx", text, is_direct).files[0].text.clone();
    let text = of("", true);
    assert_has(
        &text,
        &[
            "listen 10.80.0.100:2811;",
            "listen 10.80.0.11:2811;",
            "root /data;",
        ],
    );
    assert!(!text.contains("dav_methods"), "{text}");
    let text = of("data = { write = true, folder = \"/srv\" }", false);
    assert!(!text.contains("10.80.0.100"), "{text}");
    assert_has(
        &text,
        &["dav_methods PUT", "client_body_temp_path /srv/.uploads;"],
    );
}

#[test]
fn a_cluster_of_xrootd_has_redirectors_at_the_port_of_the_service() {
    let alone = rendered("xrootd", "", true);
    assert_eq!(alone.commands.len(), 1);
    assert_has(
        &alone.files[0].text,
        &["xrd.port 2811", "notwritable", "http:2811"],
    );
    assert!(!alone.files[0].text.contains("all.role"));
    let all = rendered(
        "xrootd",
        "data = { cluster_port = 1095, write = true }",
        true,
    );
    assert_eq!(all.commands.len(), 4);
    let managers = "all.manager all 10.80.0.11:1213\nall.manager all 10.80.0.12:1213\n";
    assert_has(
        &all.files[0].text,
        &[
            "all.role manager",
            managers,
            "xrd.port 2811",
            "r/w",
            "xrd.port 1213",
        ],
    );
    assert_has(
        &all.files[1].text,
        &["all.role server", managers, "xrd.port 1095"],
    );
}

#[test]
fn data_of_gridftp_goes_straight_or_with_the_client() {
    let straight = rendered("gridftp", "data = { ports = [50000, 50100] }", true);
    assert_has(
        &straight.files[0].text,
        &[
            "data_interface 10.80.0.11\n",
            "port_range 50000,50100",
            "restrict_paths R/data\n",
        ],
    );
    let affinity = "affinity = \"client\"\ndata = { ports = [50000, 50100], write = true }";
    let through = rendered("gridftp", affinity, true);
    assert_has(
        &through.files[0].text,
        &["data_interface 10.80.0.100\n", "restrict_paths RW/data\n"],
    );
}

#[test]
fn gridftp_asks_for_certificates_or_for_none() {
    let account = service("").data.user;
    let open = rendered("gridftp", "", true);
    assert_has(
        &open.files[0].text,
        &[&format!("allow_anonymous 1\nanonymous_user {account}\n")],
    );
    assert_has(
        &open.clients[0],
        &["globus-url-copy ftp://10.80.0.100:2811/data/FILE"],
    );
    let data = "data = { certificates = \"/etc/grid-security\" }";
    let secured = rendered("gridftp", data, true);
    let text = &secured.files[0].text;
    assert_has(text, &["$X509_USER_CERT /etc/grid-security/hostcert.pem\n"]);
    assert!(!text.contains("anonymous"), "{text}");
    assert_has(&secured.clients[0], &["gsiftp://10.80.0.100/data/FILE"]);
}

#[test]
fn what_does_not_fit_a_kind_is_refused_by_name() {
    for (name, text, expected) in [
        (
            "nginx",
            "data = { ports = [50000, 50100] }",
            "found data.ports = [50000, 50100]",
        ),
        (
            "own",
            "data = { cluster_port = 1095 }",
            "found data.cluster_port = 1095",
        ),
        (
            "gridftp",
            "affinity = \"client\"",
            "found data.ports = none",
        ),
    ] {
        let error = backend(name).expect("a kind").check(&service(text));
        let error = error.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let service = service("");
    let folders = Folders {
        config: "/etc/my files".into(),
        ..Folders::default()
    };
    let made = backends()[1].render(&service, &service.servers[0], true, &folders);
    let error = made.expect_err("a space").to_string();
    assert!(error.contains("found folder \"/etc/my files\""), "{error}");
}
