//! `sheaf files serve`: a folder over HTTP.

use crate::json_file::JsonFlag;
use crate::logging::Usual;
use crate::s3_access::s3_access;
use crate::{duration, fail};
use anyhow::Context as _;
use serde_json::json;
use sheaf_file_server::{
    FileServer, FileServerConfig, FileServerError, Limits, StoreConfig, TlsFiles, TokenConfig,
};
use sheaf_metrics::Registry;
use sheaf_node::shutdown::Shutdown;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// Serve a folder or a store over HTTP, with ranges, checksums and WebDAV.
///
/// Clients read, with --write they upload as well. Nothing outside of the folder is served or changed, and no hidden
/// file, file that is being written, or catalogue. Checksums of a writer's files come from its catalogue. SIGTERM or
/// SIGINT: no new request is taken, running ones end, and so does the server.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf files serve /data
  sheaf files serve /data --listen 0.0.0.0:8443 --tls-cert s3.pem --tls-key s3.key
  sheaf files serve /data --peer https://s1:8443 --peer https://s2:8443 --shipped
  sheaf files serve --store https://eos.example.org:8443 --store-token token --write
  sheaf files serve --store s3://bucket/raw --s3-endpoint https://store.example.org
  sheaf files serve /data --name s3 --write --status 127.0.0.1:9103
  curl -r 0-99 http://127.0.0.1:8080/sheaf.00000042.main.b00000.epn-0.0000.tf")]
pub(crate) struct Args {
    /// Serve the files in this folder.
    #[arg(value_name = "DIR", required_unless_present = "store")]
    folder: Option<PathBuf>,
    /// Serve the files of this store in place of a folder: https://…, http://… or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "URL", conflicts_with_all = ["folder", "no_sync", "third_party", "peer", "shipped"])]
    store: Option<String>,
    /// Send the token in this file to the store, one of https or http; it is read again for each request.
    #[arg(long, value_name = "FILE", requires = "store")]
    store_token: Option<PathBuf>,
    /// Reach the store, one of s3, at this server; without it as AWS_ENDPOINT_URL says, or at AWS.
    #[arg(long, value_name = "URL", requires = "store")]
    s3_endpoint: Option<String>,
    /// Sign requests to s3 for this region; without it as AWS_REGION says, or for us-east-1.
    #[arg(long, value_name = "NAME", requires = "store")]
    s3_region: Option<String>,
    /// Take keys of s3 from this file, in the form of ~/.aws/credentials; else from the environment.
    #[arg(long, value_name = "FILE", requires = "store")]
    s3_credentials: Option<PathBuf>,
    /// Listen here; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Name the server in the header X-Served-By of every answer.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Take uploads, and let clients move, copy and delete files.
    #[arg(long)]
    write: bool,
    /// Answer for an upload when it is in the memory of the system, not when it is on the disk.
    #[arg(long, requires = "write")]
    no_sync: bool,
    /// Serve metrics here, as text for Prometheus and as JSON, in the clear.
    #[arg(long, value_name = "ADDRESS")]
    status: Option<SocketAddr>,
    /// Serve with so many threads; without it, one for each processor.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=256))]
    threads: u16,
    /// Take so many connections at once; further ones get status 503.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max)]
    connections: usize,
    /// Serve with TLS and this chain of certificates, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Use this private key, a PEM file that only its owner may read.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let clients have files copied from other servers and to them.
    #[arg(long)]
    third_party: bool,
    /// Let in only clients with a token of the WLCG profile from this issuer; may be repeated.
    #[arg(long, value_name = "URL")]
    issuer: Vec<String>,
    /// Take tokens for this audience, too, beside those for all servers; may be repeated.
    #[arg(long, value_name = "NAME", requires = "issuer")]
    audience: Vec<String>,
    /// Send clients for files that are not here to this server, if it has them; may be repeated.
    #[arg(long, value_name = "URL")]
    peer: Vec<String>,
    /// Send clients for files that are not here to where the catalogue says that they were shipped.
    #[arg(long)]
    shipped: bool,
    /// Check other servers by the authorities in this PEM file; without it by those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Serve other machines without TLS, which every host on the way could read.
    #[arg(long)]
    insecure: bool,
    /// Wait at most so long for running requests at the end.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
    #[command(flatten)]
    flag: JsonFlag,
}

impl Args {
    /// Returns how much is logged without a flag.
    pub(crate) fn usual(&self) -> Usual {
        Usual::Info
    }

    fn config(&self) -> FileServerConfig {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        FileServerConfig {
            name: self.name.clone(),
            status: self.status,
            is_writable: self.write,
            is_synced: !self.no_sync,
            threads: self.threads.into(),
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            has_third_party: self.third_party,
            ca: self.ca.clone(),
            store: self.store.as_ref().map(|url| self.store_at(url)),
            replicas: self.peer.clone(),
            follows_shipped: self.shipped,
            is_insecure: self.insecure,
            tokens: (!self.issuer.is_empty()).then(|| TokenConfig {
                issuers: self.issuer.clone(),
                audiences: self.audience.clone(),
            }),
            limits: Limits {
                connections_max: self.connections,
                drain_within: self.drain,
                ..Limits::default()
            },
            ..FileServerConfig::new(self.folder.clone().unwrap_or_default(), self.listen)
        }
    }

    fn store_at(&self, url: &str) -> StoreConfig {
        let url = url.to_owned();
        if url.starts_with("s3://") {
            let access = s3_access(&self.s3_endpoint, &self.s3_region, &self.s3_credentials);
            return StoreConfig::S3 { url, access };
        }
        let token_file = self.store_token.clone();
        StoreConfig::Http { url, token_file }
    }

    /// Folder or store that is served.
    fn place(&self) -> String {
        let folder = self
            .folder
            .as_ref()
            .map(|folder| folder.display().to_string());
        folder.or_else(|| self.store.clone()).unwrap_or_default()
    }
}

/// Serves until a signal.
///
/// # Errors
///
/// The reason why the server could not start.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let main = std::thread::current();
    shutdown.set_waker(move || main.unpark());
    let registry = Arc::new(Registry::default());
    let server = FileServer::start(&args.config(), &registry).map_err(|error| match error {
        FileServerError::Thread(_) => error.into(),
        _ => fail::bad_use(error),
    })?;
    let address = server.address();
    info!(%address, place = args.place(), "The file server listens");
    if args.flag.json {
        let status = server.status_address().map(|address| address.to_string());
        let object = json!({ "address": address.to_string(), "status": status });
        writeln!(io::stdout(), "{object}").context("cannot print the address")?;
    }
    while !shutdown.is_requested() {
        std::thread::park();
    }
    info!("No further request is taken; running ones end");
    server.stop();
    info!("The file server has ended");
    Ok(ExitCode::SUCCESS)
}
