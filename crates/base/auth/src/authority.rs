//! The private CA of a farm: it signs the certificate of every node.

use crate::certificate::Certificate;
use crate::error::IdentityError;
use crate::files::{self, CertFiles};
use crate::moment::{Moment, Validity};
use crate::name::{Identity, check_farm};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use ring::rand::SecureRandom as _;
use sheaf_protocol::NodeId;
use std::fmt;
use std::path::{Path, PathBuf};

/// A certificate and its private key, as the text of PEM files.
#[derive(Clone)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// The private key. A secret.
    pub key: String,
}

/// A CA with its private key.
pub struct Authority {
    farm: String,
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    pem: Pem,
}

impl Authority {
    /// Creates a new CA for the farm `farm`, in memory.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Name`] if that is no name of a farm.
    pub fn new(farm: &str, validity: Validity) -> Result<Self, IdentityError> {
        check_farm(farm)?;
        let mut params = params(format!("Sheaf CA of {farm}"), farm, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = Pem {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        };
        Self::from_pem(
            pem,
            &PathBuf::from(CertFiles::CA_CERTIFICATE),
            Path::new(CertFiles::CA_KEY),
        )
    }

    /// Returns the CA in `directory`, as [`save`](Self::save) left it.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if it is not there, is damaged, has expired, or its key is open to others.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let (path, key_path) = paths(directory);
        let pem = Pem {
            certificate: files::read(&path, "CA certificate")?,
            key: files::read_key(&key_path)?,
        };
        let authority = Self::from_pem(pem, &path, &key_path)?;
        authority.certificate.check_validity(Moment::now())?;
        Ok(authority)
    }

    fn from_pem(pem: Pem, path: &Path, key_path: &Path) -> Result<Self, IdentityError> {
        let certificate = Certificate::from_pem(&pem.certificate, path, "CA certificate")?;
        let subject = certificate.subject.clone();
        let farm = farm_of(&certificate).filter(|_| certificate.is_authority);
        let farm = farm.ok_or_else(|| IdentityError::NotAuthority {
            path: path.to_owned(),
            subject: subject.clone(),
        })?;
        let key = KeyPair::from_pem(&pem.key).map_err(|error| IdentityError::NotPem {
            what: "private key",
            path: key_path.to_owned(),
            detail: error.to_string(),
        })?;
        if !holds_key(&certificate, &key) {
            return Err(IdentityError::WrongKey {
                key: key_path.to_owned(),
                certificate: path.to_owned(),
                subject,
            });
        }
        let issuer = Issuer::from_ca_cert_der(&certificate.der, key)?;
        Ok(Self {
            farm,
            certificate,
            issuer,
            pem,
        })
    }

    /// Writes `ca.pem` and `ca.key` (mode 0600) into `directory`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Exists`] if there is a CA and `force` is not set; [`IdentityError::Unwritable`].
    pub fn save(&self, directory: &Path, force: bool) -> Result<(), IdentityError> {
        files::make_directory(directory)?;
        let (path, key_path) = paths(directory);
        if !force {
            files::check_absent(&[&path, &key_path])?;
        }
        files::write(&key_path, &self.pem.key, 0o600)?;
        files::write(&path, &self.pem.certificate, 0o644)
    }

    /// Returns the farm that it signs for.
    #[must_use]
    pub fn farm(&self) -> &str {
        &self.farm
    }

    /// Returns the own certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the own certificate as PEM, for the `ca.pem` of every node.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.pem.certificate
    }

    /// Returns a key and a certificate for `node`. It holds no longer than that of the CA.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Making`] if the library that writes certificates cannot go on.
    pub fn issue(&self, node: NodeId, validity: Validity) -> Result<Pem, IdentityError> {
        let validity = Validity {
            not_after: validity.not_after.min(self.certificate.validity.not_after),
            ..validity
        };
        let identity = Identity::new(&self.farm, node)?;
        let name = SanType::URI(identity.to_string().try_into()?);
        self.sign(node.to_string(), vec![name], validity)
    }

    /// Returns a key and a certificate for a server that clients know by `hosts`: names and addresses. It names no
    /// node, so that nodes refuse its owner.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Making`] if one of `hosts` is no name, or the library that writes certificates cannot go on.
    pub fn issue_host(&self, hosts: &[&str], validity: Validity) -> Result<Pem, IdentityError> {
        let validity = Validity {
            not_after: validity.not_after.min(self.certificate.validity.not_after),
            ..validity
        };
        let names = hosts.iter().map(|host| match host.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName((*host).try_into()?)),
        });
        let names: Vec<SanType> = names.collect::<Result<_, IdentityError>>()?;
        let common = hosts.first().copied().unwrap_or_default().to_owned();
        self.sign(common, names, validity)
    }

    fn sign(
        &self,
        common: String,
        names: Vec<SanType>,
        validity: Validity,
    ) -> Result<Pem, IdentityError> {
        let mut params = params(common, &self.farm, validity)?;
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Every node opens connections, and most take some: one certificate serves both ends.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pem {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Pem {
    /// Writes certificate and key (mode 0600) where `files` says.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Exists`] if one is there and `force` is not set; [`IdentityError::Unwritable`].
    pub fn save(&self, files: &CertFiles, force: bool) -> Result<(), IdentityError> {
        if !force {
            files::check_absent(&[&files.certificate, &files.key])?;
        }
        files::write(&files.key, &self.key, 0o600)?;
        files::write(&files.certificate, &self.certificate, 0o644)
    }
}

impl fmt::Debug for Pem {
    /// Formats everything but the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Authority {
    /// Formats everything but the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("farm", &self.farm)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

fn paths(directory: &Path) -> (PathBuf, PathBuf) {
    (
        directory.join(CertFiles::CA_CERTIFICATE),
        directory.join(CertFiles::CA_KEY),
    )
}

fn params(
    common_name: String,
    farm: &str,
    validity: Validity,
) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, farm);
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    params.not_before = validity.not_before.date();
    params.not_after = validity.not_after.date();
    // 127 random bits: no serial number is guessed or given twice (RFC 5280, section 4.1.2.2).
    let mut serial = [0; 16];
    ring::rand::SystemRandom::new()
        .fill(&mut serial)
        .map_err(|_| rcgen::Error::RingUnspecified)?;
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

/// Returns the farm that a CA certificate is for: its organisation.
fn farm_of(certificate: &Certificate) -> Option<String> {
    let mut parts = certificate.subject.split(", ");
    let farm = parts.find_map(|part| part.strip_prefix("O="))?;
    check_farm(farm).ok()?;
    Some(farm.to_owned())
}

fn holds_key(certificate: &Certificate, key: &KeyPair) -> bool {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    X509Certificate::from_der(&certificate.der).is_ok_and(|(_, found)| {
        found.public_key().subject_public_key.data.as_ref() == key.public_key_raw()
    })
}
