//! A registry that takes images from those who know its password. Tokens are handed out for the password.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// `me:secret`.
const PASSWORD: &str = "Basic bWU6c2VjcmV0";
const TOKEN: &str = "Bearer sesame";

#[derive(Default)]
struct Stored {
    blobs: HashMap<String, Vec<u8>>,
    /// The digests of manifests by repository and tag.
    manifests: HashMap<String, String>,
}

pub(super) struct Registry {
    pub address: String,
    stored: Arc<Mutex<Stored>>,
}

impl Registry {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stored = Arc::new(Mutex::new(Stored::default()));
        let (kept, own) = (Arc::clone(&stored), address.clone());
        // The threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, own) = (Arc::clone(&kept), own.clone());
                std::thread::spawn(move || serve(&stream, &own, &kept));
            }
        });
        Self { address, stored }
    }

    /// The digest of a manifest, whose blobs must be there.
    pub(super) fn manifest(&self, repository: &str, tag: &str) -> Option<String> {
        let stored = self.stored.lock().unwrap();
        assert_eq!(stored.blobs.len(), 2, "the layer and the configuration");
        stored.manifests.get(&format!("{repository}/manifests/{tag}")).cloned()
    }
}

fn serve(stream: &TcpStream, own: &str, stored: &Mutex<Stored>) {
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
        let (status, headers, text) = answer(method, path, &header("authorization"), body, own, stored);
        let length = text.len();
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{text}").unwrap();
    }
}

fn answer(
    method: &str,
    path: &str,
    authorization: &str,
    body: Vec<u8>,
    own: &str,
    stored: &Mutex<Stored>,
) -> (&'static str, String, String) {
    let none = String::new;
    if path.starts_with("/token?service=test&scope=repository:team/app:push,pull") {
        if authorization == PASSWORD {
            return ("200 OK", none(), r#"{"token": "sesame"}"#.to_owned());
        }
        return ("401 Unauthorized", none(), r#"{"errors": [{"message": "who are you?"}]}"#.to_owned());
    }
    if authorization != TOKEN {
        let challenge = format!(
            "www-authenticate: Bearer realm=\"http://{own}/token\",service=\"test\",scope=\"repository:team/app:push,pull\"\r\n"
        );
        return ("401 Unauthorized", challenge, none());
    }
    let mut stored = stored.lock().unwrap();
    let rest = path.strip_prefix("/v2/").unwrap_or_default();
    match method {
        "HEAD" if stored.blobs.contains_key(rest.rsplit('/').next().unwrap()) => ("200 OK", none(), none()),
        "HEAD" => ("404 Not Found", none(), none()),
        "POST" => ("202 Accepted", format!("location: http://{own}/v2/team/app/blobs/uploads/7?state=x\r\n"), none()),
        "PUT" if rest.contains("/uploads/") => {
            let digest = rest.split_once("digest=").unwrap().1;
            assert_eq!(digest, sha256(&body), "the digest is that of the content");
            stored.blobs.insert(digest.to_owned(), body);
            ("201 Created", none(), none())
        }
        _ => {
            stored.manifests.insert(rest.to_owned(), sha256(&body));
            ("201 Created", none(), none())
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
