//! Everything that can be wrong with the files of a node: each is an error that names file, subject and date.

use sheaf_auth::{
    Authority, CertFiles, Certificate, Credentials, IdentityError, Moment, Tls, Validity,
};
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

const NODE: EpnId = EpnId(3);

/// A folder with a CA of farm "north" and the files of epn:3.
struct Scene {
    folder: TempDir,
    authority: Authority,
    files: CertFiles,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("north", Validity::of_days(100)).unwrap();
        authority.save(folder.path(), false).unwrap();
        let files = CertFiles::in_directory(folder.path(), NODE.into());
        let scene = Self {
            folder,
            authority,
            files,
        };
        scene.issue(NODE.into(), Validity::of_days(10));
        scene
    }

    /// Puts a certificate for `node` where that of epn:3 belongs.
    fn issue(&self, node: NodeId, validity: Validity) {
        let pem = self.authority.issue(node, validity).unwrap();
        pem.save(&self.files, true).unwrap();
    }

    fn load(&self) -> Result<Credentials, IdentityError> {
        Credentials::load(&self.files, NODE.into(), Moment::now())
    }

    #[track_caller]
    fn check_refused(&self, expected: &[&str]) {
        let error = self.load().expect_err("a doubt").to_string();
        for words in expected {
            assert!(error.contains(words), "{words:?} is not in: {error}");
        }
    }
}

#[test]
fn what_was_issued_is_accepted_and_tells_who_it_is() {
    let scene = Scene::new();
    let found = scene.load().unwrap();
    assert_eq!(found.identity().to_string(), "sheaf://north/epn/3");
    let certificate = Certificate::load(&scene.files.certificate).unwrap();
    assert_eq!(certificate.subject, "O=north, CN=epn:3");
    assert_eq!(certificate.issuer, "O=north, CN=Sheaf CA of north");
    assert_eq!(certificate.names, ["sheaf://north/epn/3"]);
    assert_eq!(certificate.fingerprint.len(), 32 * 3 - 1);
    assert!(!certificate.is_authority);
    let tls = Tls::new(&found).unwrap();
    assert_eq!(tls.identity(), found.identity());
    for (path, mode) in [(&scene.files.key, 0o600), (&scene.files.certificate, 0o644)] {
        let found = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{}", path.display());
    }
}

#[test]
fn a_ca_survives_its_files() {
    let scene = Scene::new();
    let again = Authority::load(scene.folder.path()).unwrap();
    assert_eq!(again.farm(), "north");
    assert_eq!(
        again.certificate().fingerprint,
        scene.authority.certificate().fingerprint
    );
    let pem = again.issue(NODE.into(), Validity::of_days(1)).unwrap();
    pem.save(&scene.files, true).unwrap();
    scene.load().unwrap();
}

#[test]
fn a_certificate_outlives_its_ca_in_no_case() {
    let scene = Scene::new();
    scene.issue(NODE.into(), Validity::of_days(10_000));
    let found = scene.load().unwrap();
    let end = scene.authority.certificate().validity.not_after;
    assert_eq!(found.certificate().validity.not_after, end);
}

#[test]
fn nothing_is_overwritten_unless_asked() {
    let scene = Scene::new();
    let refused = scene
        .authority
        .save(scene.folder.path(), false)
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("ca.pem is there already; --force"),
        "{refused}"
    );
    let pem = scene
        .authority
        .issue(NODE.into(), Validity::of_days(1))
        .unwrap();
    let refused = pem.save(&scene.files, false).unwrap_err();
    assert!(
        refused.to_string().contains("epn-3.pem is there already"),
        "{refused}"
    );
    scene.load().unwrap();
}

#[test]
fn a_missing_file_is_named() {
    for name in ["ca.pem", "epn-3.pem", "epn-3.key"] {
        let scene = Scene::new();
        fs::remove_file(scene.folder.path().join(name)).unwrap();
        scene.check_refused(&["cannot read the ", name, "No such file"]);
    }
}

#[test]
fn what_is_no_pem_is_named() {
    for (name, what) in [
        ("ca.pem", "is no CA certificate"),
        ("epn-3.pem", "is no certificate"),
        ("epn-3.key", "is no private key"),
    ] {
        for bytes in [
            &b"hello"[..],
            b"",
            &[0xff; 100],
            b"-----BEGIN CERTIFICATE-----\n",
        ] {
            let scene = Scene::new();
            // The permissions stay.
            fs::write(scene.folder.path().join(name), bytes).unwrap();
            scene.check_refused(&[name, what, "found no PEM block"]);
        }
    }
}

#[test]
fn a_damaged_certificate_is_named() {
    let scene = Scene::new();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&scene.files.certificate, pem).unwrap();
    scene.check_refused(&["epn-3.pem is damaged"]);
}

#[test]
fn a_key_that_others_can_read_is_named_with_its_mode() {
    let scene = Scene::new();
    fs::set_permissions(&scene.files.key, Permissions::from_mode(0o644)).unwrap();
    scene.check_refused(&["epn-3.key can be read by others: found mode 0644, expected 0600"]);
}

#[test]
fn a_certificate_of_another_ca_is_named_with_both_subjects() {
    let scene = Scene::new();
    // Of the same name, so that only the signature tells.
    let other = Authority::new("north", Validity::of_days(10)).unwrap();
    let pem = other.issue(NODE.into(), Validity::of_days(10)).unwrap();
    pem.save(&scene.files, true).unwrap();
    let expected = [
        "epn-3.pem (O=north, CN=epn:3) was not signed by ",
        "ca.pem (O=north, CN=Sheaf CA of north)",
    ];
    scene.check_refused(&expected);
}

#[test]
fn dates_are_named() {
    let now = Moment::now();
    let scene = Scene::new();
    let (not_before, not_after) = (now.plus_days(-9), now.plus_days(-2));
    scene.issue(
        NODE.into(),
        Validity {
            not_before,
            not_after,
        },
    );
    let expected = format!("epn-3.pem (O=north, CN=epn:3) expired at {not_after}");
    scene.check_refused(&[&expected]);

    let (not_before, not_after) = (now.plus_days(2), now.plus_days(9));
    scene.issue(
        NODE.into(),
        Validity {
            not_before,
            not_after,
        },
    );
    let expected = format!("epn-3.pem (O=north, CN=epn:3) is valid from {not_before} on");
    scene.check_refused(&[&expected]);
}

#[test]
fn an_expired_ca_is_named() {
    let mut scene = Scene::new();
    let now = Moment::now();
    let (not_before, not_after) = (now.plus_days(-9), now.plus_days(-2));
    scene.authority = Authority::new(
        "north",
        Validity {
            not_before,
            not_after,
        },
    )
    .unwrap();
    scene.authority.save(scene.folder.path(), true).unwrap();
    scene.issue(NODE.into(), Validity::of_days(1));
    let expected = format!("ca.pem (O=north, CN=Sheaf CA of north) expired at {not_after}");
    scene.check_refused(&[&expected]);
    let error = Authority::load(scene.folder.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn a_certificate_of_another_node_is_named() {
    for (node, name) in [
        (NodeId::from(FlpId(3)), "sheaf://north/flp/3"),
        (EpnId(4).into(), "sheaf://north/epn/4"),
        (
            NodeId {
                role: Role::Operator,
                index: 3,
            },
            "sheaf://north/operator/3",
        ),
    ] {
        let scene = Scene::new();
        scene.issue(node, Validity::of_days(1));
        let expected = format!("is for {name}, expected epn:3");
        scene.check_refused(&["epn-3.pem", &expected]);
    }
}

#[test]
fn a_key_of_another_certificate_is_named() {
    let scene = Scene::new();
    let key = fs::read_to_string(&scene.files.key).unwrap();
    scene.issue(NODE.into(), Validity::of_days(1));
    fs::write(&scene.files.key, key).unwrap();
    scene.check_refused(&["epn-3.key is not that of certificate ", "epn-3.pem"]);
}

#[test]
fn a_certificate_that_names_no_node_is_named() {
    let scene = Scene::new();
    fs::copy(scene.folder.path().join("ca.pem"), &scene.files.certificate).unwrap();
    scene.check_refused(&["epn-3.pem (O=north, CN=Sheaf CA of north)"]);
}

#[test]
fn a_certificate_of_a_node_is_no_ca() {
    let scene = Scene::new();
    let files = CertFiles {
        ca: scene.files.certificate.clone(),
        ..scene.files.clone()
    };
    let refused = Credentials::load(&files, NODE.into(), Moment::now()).unwrap_err();
    assert!(
        refused.to_string().contains("is no CA certificate"),
        "{refused}"
    );
}

#[test]
fn secrets_are_not_printed() {
    let scene = Scene::new();
    let key = fs::read_to_string(&scene.files.key).unwrap();
    let secret = key.lines().nth(1).unwrap();
    let pem = scene
        .authority
        .issue(NODE.into(), Validity::of_days(1))
        .unwrap();
    for text in [
        format!("{:?}", scene.load().unwrap()),
        format!("{:?}", scene.authority),
        format!("{pem:?}"),
        format!("{:?}", Tls::new(&scene.load().unwrap()).unwrap()),
    ] {
        assert!(
            !text.contains(secret) && !text.contains("PRIVATE"),
            "{text}"
        );
    }
}

#[test]
fn a_farm_with_a_bad_name_is_refused() {
    let refused = Authority::new("North Farm", Validity::of_days(1)).unwrap_err();
    assert!(
        refused.to_string().contains("found farm \"North Farm\""),
        "{refused}"
    );
    assert!(Authority::load(Path::new("/nowhere")).is_err());
}
