//! What the API accepts as names and labels: the rules of `apimachinery/pkg/util/validation`.

/// Bytes of the part of a qualified name after the slash, and of a label's value.
pub(crate) const NAME: usize = 63;
/// Bytes of the part of a qualified name before the slash.
const PREFIX: usize = 253;

/// As `IsQualifiedName`: a name, perhaps with a domain and a slash before it. Keys of labels are such names.
pub(crate) fn is_qualified(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    is_name(name) && prefix.is_none_or(|prefix| prefix.len() <= PREFIX && is_subdomain(prefix))
}

/// As `IsValidLabelValue`.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// As `IsDNS1123Subdomain`, but for the length: what most objects are called.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.split('.').all(|part| has_edges(part, plain) && part.bytes().all(|byte| plain(byte) || byte == b'-'))
}

fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= NAME && name.bytes().all(inner) && has_edges(name, |byte| byte.is_ascii_alphanumeric())
}

fn has_edges(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    let edges = [text.as_bytes().first(), text.as_bytes().last()];
    edges.into_iter().all(|edge| edge.copied().is_some_and(&allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels_are_qualified_names() {
        let long = "n".repeat(64);
        for name in ["app", "App_1.x-y", "example.com/app", "a", &long[1..]] {
            assert!(is_qualified(name), "{name}");
        }
        for name in ["", "-a", "a-", "a/b/c", "/a", "a/", "Example.com/a", "a b", "ä", &long] {
            assert!(!is_qualified(name), "{name}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_x") && !is_label_value("a/b") && !is_label_value(&long));
    }
}
