//! Signatures by the Standard Webhooks specification, version v1: HMAC-SHA256 over
//! `id.timestamp.body`, in base64. The body may be any bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use posthaste_core::options::ConfigError;
use sha2::Sha256;

/// The header with the message id.
pub const ID: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, separated by spaces.
pub const SIGNATURE: &str = "webhook-signature";

/// Signs with one secret, or with several while they are being exchanged.
#[derive(Clone)]
pub struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl Signer {
    /// Takes `whsec_` and base64, or any other text as the very bytes of the key. Without a secret
    /// it signs nothing.
    ///
    /// # Errors
    /// A secret that is empty or whose base64 can't be decoded; it does not show in the error.
    pub fn new(secrets: &[String]) -> Result<Signer, ConfigError> {
        let keys = secrets.iter().map(|secret| key(secret)).collect::<Result<_, _>>()?;
        Ok(Signer { keys })
    }

    /// The value of the signature header; `None` without a secret.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Option<String> {
        if self.keys.is_empty() {
            return None;
        }
        let signatures: Vec<String> = self.keys.iter().map(|key| sign(key.clone(), id, timestamp, body)).collect();
        Some(signatures.join(" "))
    }
}

fn sign(mut mac: Hmac<Sha256>, id: &str, timestamp: u64, body: &[u8]) -> String {
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

fn key(secret: &str) -> Result<Hmac<Sha256>, ConfigError> {
    let bad = |detail: &str| ConfigError::Option { name: "secret".to_owned(), detail: detail.to_owned() };
    let bytes = match secret.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).map_err(|_| bad("what follows whsec_ is not base64"))?,
        None => secret.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        return Err(bad("it is empty; leave it out to send unsigned"));
    }
    Ok(Hmac::new_from_slice(&bytes).expect("HMAC takes keys of every length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn signer(secrets: &[&str]) -> Signer {
        Signer::new(&secrets.iter().map(|&secret| secret.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn signs_as_the_specification_s_own_example() {
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        let signed = signer(&[SECRET]).sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
        assert_eq!(signed.as_deref(), Some("v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="));
    }

    #[test]
    fn signs_with_every_secret_while_they_are_exchanged() {
        let both = signer(&[SECRET, "plain text"]).sign("m", 1, &[0xff]).unwrap();
        let alone = |secret| signer(&[secret]).sign("m", 1, &[0xff]).unwrap();
        assert_eq!(both, format!("{} {}", alone(SECRET), alone("plain text")));
        assert_ne!(alone(SECRET), alone("plain text"));
        assert_eq!(signer(&[]).sign("m", 1, b""), None);
    }

    #[test]
    fn an_unusable_secret_is_refused_without_being_shown() {
        for secret in ["", "whsec_", "whsec_???nobase64"] {
            let error = Signer::new(&[secret.to_owned()]).err().unwrap().to_string();
            assert!(error.starts_with("option secret: ") && !error.contains("nobase64"), "{error}");
        }
    }
}
