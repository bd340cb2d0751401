//! A registry that takes and gives images, to everybody or for a password.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use windlass_server::pki::Authority;

/// `me:secret`.
const PASSWORD: &str = "Basic bWU6c2VjcmV0";
const TOKEN: &str = "Bearer sesame";

/// What the registry asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// A token, which the password gives.
    Token,
    /// A token, which everybody gets.
    Anonymous,
    /// The password itself.
    Password,
}

#[derive(Default)]
struct Stored {
    blobs: HashMap<String, Vec<u8>>,
    /// The digests of manifests by repository and tag.
    manifests: HashMap<String, String>,
    /// Manifests by their digests.
    contents: HashMap<String, Vec<u8>>,
    /// How often it was asked for something of another registry, and which.
    asked_for: HashMap<String, usize>,
}

pub(crate) struct Registry {
    pub address: String,
    stored: Arc<Mutex<Stored>>,
}

impl Registry {
    pub(crate) fn start(access: Access) -> Self {
        Self::start_with(access, None)
    }

    /// A registry that is spoken to with TLS, with a certificate of the authority.
    pub(crate) fn start_tls(access: Access, authority: &Authority) -> Self {
        let identity = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        Self::start_with(access, Some(Arc::new(authority.server_config(&identity).unwrap())))
    }

    fn start_with(access: Access, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stored = Arc::new(Mutex::new(Stored::default()));
        let own = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
        let kept = Arc::clone(&stored);
        // The threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, own, tls) = (Arc::clone(&kept), own.clone(), tls.clone());
                std::thread::spawn(move || match tls {
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        serve(StreamOwned::new(connection, stream), &own, access, &kept);
                    }
                    None => serve(stream, &own, access, &kept),
                });
            }
        });
        Self { address, stored }
    }

    /// The digest of a manifest, whose blobs must be there.
    pub(crate) fn manifest(&self, repository: &str, tag: &str) -> Option<String> {
        let stored = self.stored.lock().unwrap();
        assert_eq!(stored.blobs.len(), 2, "the layer and the configuration");
        stored.manifests.get(&format!("{repository}/manifests/{tag}")).cloned()
    }

    /// How often it was asked as the mirror of another registry.
    pub(super) fn asked_for(&self, registry: &str) -> usize {
        self.stored.lock().unwrap().asked_for.get(registry).copied().unwrap_or_default()
    }

    /// Adds a manifest under a tag, and returns its digest.
    pub(crate) fn add_manifest(&self, tag: &str, content: &[u8]) -> String {
        let digest = sha256(content);
        let mut stored = self.stored.lock().unwrap();
        stored.manifests.insert(format!("team/app/manifests/{tag}"), digest.clone());
        stored.contents.insert(digest.clone(), content.to_vec());
        digest
    }

    /// The manifest with a digest.
    pub(crate) fn content(&self, digest: &str) -> Vec<u8> {
        self.stored.lock().unwrap().contents[digest].clone()
    }

    /// Has the registry give something else for a blob.
    pub(crate) fn spoil(&self, digest: &str, content: &[u8]) {
        self.stored.lock().unwrap().blobs.insert(digest.to_owned(), content.to_vec());
    }
}

fn serve(stream: impl Read + Write, own: &str, access: Access, stored: &Mutex<Stored>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let found =
                lines.iter().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        let mut request = lines[0].split(' ');
        let (method, path) = (request.next().unwrap(), request.next().unwrap());
        let (status, headers, content) = answer(method, path, &header("authorization"), body, (own, access), stored);
        let length = content.len();
        let stream = reader.get_mut();
        write!(stream, "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n").unwrap();
        // A client that has seen enough goes away.
        let _ = stream.write_all(&content);
        let _ = stream.flush();
    }
}

fn answer(
    method: &str,
    path: &str,
    authorization: &str,
    body: Vec<u8>,
    (own, access): (&str, Access),
    stored: &Mutex<Stored>,
) -> (&'static str, String, Vec<u8>) {
    let none = String::new;
    if path.starts_with("/token?service=test&scope=repository:team/app:push,pull") {
        if authorization == PASSWORD || access == Access::Anonymous {
            return ("200 OK", none(), br#"{"token": "sesame"}"#.to_vec());
        }
        return ("401 Unauthorized", none(), br#"{"errors": [{"message": "who are you?"}]}"#.to_vec());
    }
    let mut stored = stored.lock().unwrap();
    // Where the registry sends those who want a blob: credentials are not for others.
    if let Some(digest) = path.strip_prefix("/elsewhere/").and_then(|rest| rest.strip_suffix("?signed=yes")) {
        assert_eq!(authorization, "", "the credentials went elsewhere");
        return match stored.blobs.get(digest) {
            Some(blob) => ("200 OK", none(), blob.clone()),
            None => ("404 Not Found", none(), Vec::new()),
        };
    }
    if authorization != if access == Access::Password { PASSWORD } else { TOKEN } {
        let challenge = if access == Access::Password {
            "www-authenticate: Basic realm=\"test\"\r\n".to_owned()
        } else {
            format!(
                "www-authenticate: Bearer realm=\"{own}/token\",service=\"test\",scope=\"repository:team/app:push,pull\"\r\n"
            )
        };
        return ("401 Unauthorized", challenge, Vec::new());
    }
    let (path, registry) = path.split_once("?ns=").map_or((path, None), |(path, registry)| (path, Some(registry)));
    if let Some(registry) = registry {
        *stored.asked_for.entry(registry.to_owned()).or_default() += 1;
    }
    let rest = path.strip_prefix("/v2/").unwrap_or_default();
    let name = rest.rsplit('/').next().unwrap();
    match method {
        "HEAD" if stored.blobs.contains_key(name) => ("200 OK", none(), Vec::new()),
        "HEAD" => ("404 Not Found", none(), Vec::new()),
        "GET" if rest.contains("/manifests/") => {
            let digest = stored.manifests.get(rest).map_or(name, String::as_str);
            match stored.contents.get(digest) {
                Some(content) => ("200 OK", none(), content.clone()),
                None => ("404 Not Found", none(), br#"{"errors": [{"message": "manifest unknown"}]}"#.to_vec()),
            }
        }
        "GET" => {
            let location = format!("location: {own}/elsewhere/{name}?signed=yes\r\n");
            ("307 Temporary Redirect", location, Vec::new())
        }
        "POST" => ("202 Accepted", format!("location: {own}/v2/team/app/blobs/uploads/7?state=x\r\n"), Vec::new()),
        "PUT" if rest.contains("/uploads/") => {
            let digest = rest.split_once("digest=").unwrap().1;
            assert_eq!(digest, sha256(&body), "the digest is that of the content");
            stored.blobs.insert(digest.to_owned(), body);
            ("201 Created", none(), Vec::new())
        }
        _ => {
            let digest = sha256(&body);
            stored.manifests.insert(rest.to_owned(), digest.clone());
            stored.contents.insert(digest, body);
            ("201 Created", none(), Vec::new())
        }
    }
}

/// By the system's own program.
fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    format!("sha256:{}", String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap())
}
