//! What the shared Secret holds, and what it should hold next: a pure function of what is there
//! and the time, so that all replicas come to the same conclusion and the first writer wins. When a certificate is due, and
//! when its renewal is urgent, is said by `Facts::is_due` and `Facts::is_urgent` in `authority.rs`.
//!
//! An authority is replaced in three steps, of which none breaks a connection:
//!
//! ```text
//!            bundle    serving certificate by
//! steady     A         A
//! announced  B A       A     until the bundle has been injected everywhere, and settled
//! switched   B A       B     until A has expired
//! steady     B         B
//! ```
//!
//! Always: the serving certificate's signer is in the bundle, and no authority leaves the bundle
//! before it has expired.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::authority::{CertificateError, Facts, certify, key_id, make_authority, make_serving, split};

/// Which authority is known to be injected everywhere, and since when.
const PUBLISHED: &str = "webhook.windlass.dev/published";

/// What certificates are to be like.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) names: Vec<String>,
    pub(super) authority_lifetime: Duration,
    pub(super) serving_lifetime: Duration,
    /// How long after the bundle was injected every API server is believed to use it.
    pub(super) settle: Duration,
}

/// What the Secret holds.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Material {
    /// Certificates of authorities, the newest first, as PEM.
    pub(super) bundle: Vec<String>,
    /// The newest authority's key.
    pub(super) authority_key: String,
    pub(super) certificate: String,
    pub(super) key: String,
    /// The key identifier of the authority that was injected everywhere, and when that was seen.
    pub(super) published: Option<(String, Timestamp)>,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("published", &self.published).finish_non_exhaustive()
    }
}

impl Material {
    /// What a Secret holds; missing or damaged parts are empty, and made anew by [`Policy::next`].
    pub(super) fn read(secret: &Secret) -> Self {
        let text = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()).unwrap_or_default()
        };
        let annotations = secret.metadata.annotations.as_ref();
        let published = annotations.and_then(|annotations| annotations.get(PUBLISHED)).and_then(|published| {
            let (key, time) = published.split_once(' ')?;
            Some((key.to_owned(), time.parse().ok()?))
        });
        Self {
            bundle: split(&text("ca.crt")),
            authority_key: text("ca.key"),
            certificate: text("tls.crt"),
            key: text("tls.key"),
            published,
        }
    }

    /// Puts it into a Secret, beside whatever else is there.
    pub(super) fn write(&self, secret: &mut Secret) {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = secret.data.get_or_insert_default();
        data.insert("ca.crt".to_owned(), bytes(&self.bundle()));
        data.insert("ca.key".to_owned(), bytes(&self.authority_key));
        data.insert("tls.crt".to_owned(), bytes(&self.certificate));
        data.insert("tls.key".to_owned(), bytes(&self.key));
        let annotations: &mut BTreeMap<String, String> = secret.metadata.annotations.get_or_insert_default();
        match &self.published {
            Some((key, time)) => drop(annotations.insert(PUBLISHED.to_owned(), format!("{key} {time}"))),
            None => drop(annotations.remove(PUBLISHED)),
        }
    }

    /// The authorities as one text, for `caBundle`.
    pub(super) fn bundle(&self) -> String {
        self.bundle.concat()
    }

    /// The same, once the newest authority has been injected everywhere; `None` if that was known.
    pub(super) fn publish(&self, now: Timestamp) -> Option<Self> {
        let newest = Facts::read(self.bundle.first()?)?.key_id?;
        if self.published.as_ref().is_some_and(|(key, _)| *key == newest) {
            return None;
        }
        Some(Self { published: Some((newest, now)), ..self.clone() })
    }

    /// The serving certificate, if it is usable: with its key, by an authority of the bundle.
    fn serving(&self, authorities: &[(String, Facts)], now: Timestamp) -> Option<Facts> {
        certify(self.certificate.as_bytes(), self.key.as_bytes()).ok()?;
        let facts = Facts::read(&self.certificate)?;
        let signed =
            facts.signer.is_some() && authorities.iter().any(|(_, authority)| authority.key_id == facts.signer);
        (signed && facts.is_valid(now)).then_some(facts)
    }
}

impl Policy {
    /// What the Secret should hold instead; `None` if it is fine.
    pub(super) fn next(
        &self,
        current: Option<&Material>,
        now: Timestamp,
    ) -> Result<Option<Material>, CertificateError> {
        let empty = Material {
            bundle: Vec::new(),
            authority_key: String::new(),
            certificate: String::new(),
            key: String::new(),
            published: None,
        };
        let current = current.unwrap_or(&empty);
        let mut next = current.clone();
        let mut authorities: Vec<(String, Facts)> = Vec::new();
        for pem in &current.bundle {
            if let Some(facts) = Facts::read(pem)
                && facts.is_valid(now)
            {
                authorities.push((pem.clone(), facts));
            }
        }
        let usable = authorities.first().is_some_and(|(_, newest)| {
            newest.key_id.is_some() && newest.key_id == key_id(&current.authority_key) && !newest.is_due(now)
        });
        if !usable {
            let authority = make_authority(now, self.authority_lifetime)?;
            let facts = read(&authority.certificate)?;
            authorities.insert(0, (authority.certificate, facts));
            next.authority_key = authority.key;
        }
        let newest = &authorities[0].1;
        let serving = current.serving(&authorities, now);
        // Replicas that are called by other names share the certificate: none takes away another's.
        let mut names = self.names.clone();
        let named = serving.as_ref().is_none_or(|serving| names.iter().all(|name| serving.names.contains(name)));
        if let Some(serving) = serving.as_ref().filter(|_| !named) {
            names.extend(serving.names.iter().filter(|name| !self.names.contains(name)).cloned());
        }
        let due = |serving: &Facts| serving.is_due(now) || serving.signer != newest.key_id;
        let wanted = !named || serving.as_ref().is_none_or(due);
        let trusted = authorities.len() == 1 || self.is_settled(current, newest, now);
        // A certificate that is not trusted yet is better than one that has expired or is for others.
        let urgent = !named || serving.as_ref().is_none_or(|serving| serving.is_urgent(now));
        if wanted && (trusted || urgent) {
            let identity = make_serving(&next.authority_key, newest, &names, now, self.serving_lifetime)?;
            (next.certificate, next.key) = (identity.certificate, identity.key);
        }
        next.bundle = authorities.into_iter().map(|(pem, _)| pem).collect();
        Ok((next != *current).then_some(next))
    }

    fn is_settled(&self, current: &Material, newest: &Facts, now: Timestamp) -> bool {
        current.published.as_ref().is_some_and(|(key, since)| {
            Some(key) == newest.key_id.as_ref() && now.as_second() - since.as_second() >= self.settle.as_secs() as i64
        })
    }
}

fn read(pem: &str) -> Result<Facts, CertificateError> {
    Facts::read(pem).ok_or_else(|| CertificateError::Unusable("the new certificate cannot be parsed".to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(86400);

    fn policy() -> Policy {
        Policy {
            names: vec!["hook.default.svc".to_owned()],
            authority_lifetime: DAY * 300,
            serving_lifetime: DAY * 90,
            settle: Duration::from_secs(60),
        }
    }

    fn start() -> Timestamp {
        "2026-03-01T00:00:00Z".parse().expect("a time")
    }

    fn signer(material: &Material) -> Option<String> {
        Facts::read(&material.certificate).expect("a certificate").signer
    }

    fn authority(material: &Material, index: usize) -> Option<String> {
        Facts::read(&material.bundle[index]).expect("a certificate").key_id
    }

    #[test]
    fn the_first_certificate_is_served_at_once_and_stays() {
        let now = start();
        let made = policy().next(None, now).expect("made").expect("something");
        assert_eq!(made.bundle.len(), 1);
        assert_eq!(signer(&made), authority(&made, 0));
        assert_eq!(policy().next(Some(&made), now + DAY * 59).expect("looked"), None);
        let mut secret = Secret::default();
        made.write(&mut secret);
        assert_eq!(Material::read(&secret), made);
    }

    #[test]
    fn serving_certificates_are_renewed_by_the_same_authority() {
        let now = start();
        let made = policy().next(None, now).expect("made").expect("something");
        let renewed = policy().next(Some(&made), now + DAY * 61).expect("made").expect("something");
        assert_eq!(renewed.bundle, made.bundle);
        assert_ne!(renewed.certificate, made.certificate);
        assert_eq!(signer(&renewed), authority(&made, 0));
    }

    #[test]
    fn authorities_overlap_until_the_old_one_expires() {
        let (policy, begin) = (Policy { serving_lifetime: DAY * 300, ..policy() }, start());
        let made = policy.next(None, begin).expect("made").expect("something");
        let old = authority(&made, 0);
        let now = begin + DAY * 201;
        let announced = policy.next(Some(&made), now).expect("made").expect("something");
        assert_eq!(announced.bundle.len(), 2);
        assert_eq!(authority(&announced, 1), old);
        assert_eq!((&announced.certificate, signer(&announced)), (&made.certificate, old.clone()));
        assert_eq!(policy.next(Some(&announced), now + DAY).expect("looked"), None, "not injected yet");
        let published = announced.publish(now).expect("news");
        assert_eq!(published.publish(now), None);
        assert_eq!(policy.next(Some(&published), now + Duration::from_secs(59)).expect("looked"), None);
        let now = now + Duration::from_secs(60);
        let switched = policy.next(Some(&published), now).expect("made").expect("something");
        assert_eq!(signer(&switched), authority(&announced, 0));
        assert_eq!(switched.bundle, announced.bundle);
        assert_eq!(policy.next(Some(&switched), now).expect("looked"), None);
        let steady = policy.next(Some(&switched), begin + DAY * 300).expect("made").expect("something");
        assert_eq!(steady.bundle, switched.bundle[..1]);
        assert_eq!(steady.certificate, switched.certificate);
    }

    #[test]
    fn expiring_certificates_do_not_wait_for_the_announcement() {
        let (policy, begin) = (Policy { serving_lifetime: DAY * 300, ..policy() }, start());
        let made = policy.next(None, begin).expect("made").expect("something");
        let announced = policy.next(Some(&made), begin + DAY * 201).expect("made").expect("something");
        assert_eq!(policy.next(Some(&announced), begin + DAY * 269).expect("looked"), None);
        let late = policy.next(Some(&announced), begin + DAY * 271).expect("made").expect("something");
        assert_eq!(signer(&late), authority(&announced, 0));
    }

    #[test]
    fn what_is_damaged_is_made_anew_and_trusted_authorities_stay() {
        let now = start();
        let made = policy().next(None, now).expect("made").expect("something");
        let check = |damage: &dyn Fn(&mut Material), bundle: usize| {
            let mut damaged = made.clone();
            damage(&mut damaged);
            let next = policy().next(Some(&damaged), now).expect("made").expect("something");
            assert_eq!(next.bundle.len(), bundle);
            certify(next.certificate.as_bytes(), next.key.as_bytes()).expect("usable");
            assert!(next.bundle.iter().any(|pem| Facts::read(pem).expect("read").key_id == signer(&next)));
        };
        check(&|material| material.key = "garbage".to_owned(), 1);
        check(&|material| material.certificate.clear(), 1);
        check(&|material| material.bundle.clear(), 1);
        check(&|material| material.bundle[0] = "garbage".to_owned(), 1);
        check(&|material| material.authority_key = "garbage".to_owned(), 2);
        let renamed = Policy { names: vec!["other.default.svc".to_owned()], ..policy() };
        let next = renamed.next(Some(&made), now).expect("made").expect("something");
        let names = Facts::read(&next.certificate).expect("read").names;
        assert_eq!(names, ["other.default.svc", "hook.default.svc"]);
        assert_eq!(policy().next(Some(&next), now).expect("looked"), None, "both are content");
        assert_eq!(renamed.next(Some(&next), now).expect("looked"), None);
    }

    /// What may happen between two looks at the Secret.
    #[derive(Clone, Debug)]
    enum Happening {
        Days(u64),
        Published,
        KeyLost,
        AuthorityKeyLost,
        Renamed,
    }

    fn happening() -> impl Strategy<Value = Happening> {
        prop_oneof![
            6 => (0..60_u64).prop_map(Happening::Days),
            3 => Just(Happening::Published),
            1 => Just(Happening::KeyLost),
            1 => Just(Happening::AuthorityKeyLost),
            1 => Just(Happening::Renamed),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_bundle_always_trusts_the_serving_certificate(
            happenings in prop::collection::vec(happening(), 1..24),
        ) {
            let mut policy = policy();
            let mut now = start();
            let mut material = policy.next(None, now).expect("made").expect("something");
            for happening in happenings {
                let before = material.clone();
                match happening {
                    Happening::Days(days) => now += DAY * u32::try_from(days).expect("few"),
                    Happening::Published => material = material.publish(now).unwrap_or(material),
                    Happening::KeyLost => material.key.clear(),
                    Happening::AuthorityKeyLost => material.authority_key.clear(),
                    Happening::Renamed => policy.names = vec![format!("n{}.default.svc", now.as_second())],
                }
                if let Some(next) = policy.next(Some(&material), now).expect("made") {
                    material = next;
                }
                prop_assert_eq!(policy.next(Some(&material), now).expect("looked"), None, "one step is enough");
                certify(material.certificate.as_bytes(), material.key.as_bytes()).expect("usable");
                let serving = Facts::read(&material.certificate).expect("a certificate");
                prop_assert!(serving.is_valid(now));
                prop_assert!(policy.names.iter().all(|name| serving.names.contains(name)));
                let bundle: Vec<_> = material.bundle.iter().map(|pem| Facts::read(pem).expect("read")).collect();
                prop_assert!(bundle.iter().all(|authority| authority.is_valid(now)));
                prop_assert!(bundle.iter().any(|authority| authority.key_id == serving.signer));
                for pem in &before.bundle {
                    let expired = !Facts::read(pem).expect("read").is_valid(now);
                    prop_assert!(expired || material.bundle.contains(pem), "a trusted authority has left");
                }
            }
        }
    }
}
