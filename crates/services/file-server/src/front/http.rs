//! A server of HTTP or WebDAV as a store: XRootD, EOS, dCache, nginx, or another one of ours.

use super::store::{Ask, Page, Store};
use crate::digest::Stated;
use crate::path::TreePath;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method};
use std::path::PathBuf;

/// Server behind.
#[derive(Debug)]
pub(super) struct Http {
    /// Address without a slash at the end.
    base: String,
    token_file: Option<PathBuf>,
    /// Whether paths there are those of clients.
    is_root: bool,
}

impl Http {
    pub(super) fn new(url: &str, token_file: Option<PathBuf>) -> Result<Self, String> {
        let base = url.trim_end_matches('/').to_owned();
        if base.contains(['?', '#']) {
            return Err(format!("found `{url}`, expected a URL without `?` and `#`"));
        }
        let store = Self {
            is_root: base
                .split_once("://")
                .is_some_and(|(_, rest)| !rest.contains('/')),
            base,
            token_file,
        };
        store.authorization()?;
        Ok(store)
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let refused = |error: &str| format!("cannot use {}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
        let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
        let mut value = value.map_err(|_| refused("found no token, expected one word"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl Store for Http {
    fn ask(&self, method: &Method, path: &TreePath, sent: &Stated) -> Result<Ask, String> {
        let mut headers = HeaderMap::new();
        if let Some(value) = self.authorization()? {
            headers.insert(AUTHORIZATION, value);
        }
        if method == Method::PUT {
            let texts: Vec<String> = sent.texts().into_iter().collect();
            let adler32 = texts.iter().find(|text| text.starts_with("adler32="));
            if let Some(Ok(value)) = adler32.map(|text| HeaderValue::from_str(text)) {
                headers.insert("digest", value);
            }
        } else if method == Method::HEAD {
            // XRootD 5.5 answers a GET of a file that is not there, with this header, with status 500.
            headers.insert("want-digest", HeaderValue::from_static("adler32"));
        }
        Ok(Ask {
            url: format!("{}{}", self.base, path.to_target()),
            headers,
        })
    }

    fn stated(&self, headers: &HeaderMap) -> Stated {
        let text = |name: &str| {
            let value = headers.get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or("")
        };
        Stated::of_answer(text("digest"), text("repr-digest"))
    }

    fn cannot(&self, method: &str) -> Option<&'static str> {
        let has_other_paths = method == "PROPFIND" && !self.is_root;
        has_other_paths.then_some("lists are passed on only of a store whose address has no path")
    }

    fn keeps_halves(&self) -> bool {
        // XRootD does, ours does not, and which one it is they do not say.
        true
    }

    fn bytes_max(&self) -> Option<u64> {
        None
    }

    fn list(&self, _: &TreePath, _: Option<&str>) -> Option<Result<Ask, String>> {
        None
    }

    fn read_list(&self, _: &TreePath, _: &str) -> Result<Page, String> {
        Err("a store of HTTP answers PROPFIND itself".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_address_below_that_of_the_store() {
        let ask = |base: &str, target: &str| {
            let store = Http::new(base, None).unwrap();
            let path = TreePath::of_target(target).unwrap();
            let ask = store.ask(&Method::GET, &path, &Stated::default());
            (ask.unwrap().url, store.cannot("PROPFIND").is_some())
        };
        let root = ask("https://eos.example.org:8443/", "/a%20b/c%3F");
        assert_eq!(
            root,
            ("https://eos.example.org:8443/a%20b/c%3F".to_owned(), false)
        );
        let below = ask("http://127.0.0.1:1094/data/", "/a");
        assert_eq!(below, ("http://127.0.0.1:1094/data/a".to_owned(), true));
        assert!(Http::new("http://h/?a", None).is_err());
        let error = Http::new("http://h/", Some("/no/such/token".into())).unwrap_err();
        assert!(error.contains("/no/such/token"), "{error}");
    }
}
