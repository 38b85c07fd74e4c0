//! Certificates of GridFTP for a test.

use sheaf_serve::DataConfig;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// Makes in `folder` an authority, certificates of `address` and of a user, and the account of that user.
#[track_caller]
pub(super) fn make(folder: &Path, address: IpAddr) {
    std::fs::create_dir_all(folder.join("certificates")).expect("made");
    let script = "set -e
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj '/O=Test/CN=CA' -days 2
        hash=$(openssl x509 -in ca.pem -noout -hash)
        cp ca.pem certificates/$hash.0
        printf \"access_id_CA X509 '/O=Test/CN=CA'\\npos_rights globus CA:sign\\n\" > certificates/$hash.signing_policy
        printf \"cond_subjects globus '\\\"/O=Test/*\\\"'\\n\" >> certificates/$hash.signing_policy
        for name in host user; do
            openssl req -newkey rsa:2048 -nodes -keyout ${name}key.pem -out $name.csr -subj /O=Test/CN=$name
            echo subjectAltName=DNS:$name,IP:$1 > $name.ext
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial \\
                -out ${name}cert.pem -days 2 -extfile $name.ext
            chmod 600 ${name}key.pem
        done
        echo '\"/O=Test/CN=user\" '$2 > grid-mapfile";
    let account = DataConfig::default().user;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", &address.to_string(), &account]);
    let output = command.current_dir(folder).output().expect("sh runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl: {told}");
}
