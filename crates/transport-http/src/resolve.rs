//! Names become addresses here, and only addresses that the guard lets pass come out: the ones
//! that are then connected to, so that a name can't change its meaning in between.

use std::{io, net::SocketAddr, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::guard::{Guard, Refused};

/// Resolves by the system's resolver and filters the answer.
#[derive(Clone, Debug)]
pub struct Resolver {
    guard: Arc<Guard>,
}

/// Why a name has no address to connect to.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The system knows no address.
    #[error("{name} can't be resolved")]
    Unknown {
        /// The name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// It has addresses, and all of them are refused.
    #[error("{name}: {refused}")]
    Refused {
        /// The name.
        name: String,
        /// The first of them.
        refused: Refused,
    },
}

impl Resolver {
    /// A resolver whose answers pass `guard`.
    pub fn new(guard: Arc<Guard>) -> Resolver {
        Resolver { guard }
    }

    /// The addresses of `name` that may be connected to; at least one.
    ///
    /// # Errors
    /// It has none.
    pub async fn lookup(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
        let unknown = |source| ResolveError::Unknown { name: name.to_owned(), source };
        let answer: Vec<SocketAddr> = tokio::net::lookup_host((name, port)).await.map_err(unknown)?.collect();
        admit(&self.guard, name, answer)
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let addresses = resolver.lookup(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn admit(guard: &Guard, name: &str, answer: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, ResolveError> {
    let mut first_refused = None;
    let mut admitted = Vec::with_capacity(answer.len());
    for address in answer {
        match guard.check(address.ip()) {
            Ok(()) => admitted.push(address),
            Err(refused) => first_refused = first_refused.or(Some(refused)),
        }
    }
    match (admitted.is_empty(), first_refused) {
        (false, _) => Ok(admitted),
        (true, Some(refused)) => Err(ResolveError::Refused { name: name.to_owned(), refused }),
        (true, None) => {
            let source = io::Error::new(io::ErrorKind::NotFound, "no address");
            Err(ResolveError::Unknown { name: name.to_owned(), source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn lw_39_only_addresses_that_were_checked_are_handed_on() {
        let guard = Guard::default();
        let mixed = addresses(&["127.0.0.1:0", "8.8.8.8:0", "[::ffff:10.0.0.1]:0", "[2606:4700::1]:0"]);
        assert_eq!(admit(&guard, "h", mixed).unwrap(), addresses(&["8.8.8.8:0", "[2606:4700::1]:0"]));
        let private = admit(&guard, "inner.example", addresses(&["10.0.0.7:0"])).unwrap_err().to_string();
        assert!(private.contains("inner.example") && private.contains("10.0.0.7"), "{private}");
        assert!(matches!(admit(&guard, "h", Vec::new()), Err(ResolveError::Unknown { .. })));
    }

    #[tokio::test]
    async fn a_name_that_means_this_machine_is_refused_unless_allowed() {
        let refused = Resolver::new(Arc::default()).lookup("localhost", 80).await;
        assert!(matches!(refused, Err(ResolveError::Refused { .. })), "{refused:?}");
        let guard = Guard::parse(&["127.0.0.0/8,::1".to_owned()]).unwrap();
        let allowed = Resolver::new(Arc::new(guard)).lookup("localhost", 80).await.unwrap();
        assert!(allowed.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
    }
}
