//! Advice about properties that librdkafka does not have: those of Java's clients, and misspelt ones.

use super::client::known_properties;
use super::properties::OWNED;
use crate::yaml::Explained;
use crate::yaml::read::did_you_mean;

const LOGIN: &str = "write `sasl.mechanism` with `sasl.username` and `sasl.password: ${env:NAME}` for PLAIN and SCRAM, with \
                     `sasl.oauthbearer.method: oidc` and `sasl.oauthbearer.client.id`, `.client.secret` and \
                     `.token.endpoint.url` for OAUTHBEARER; logins by Kerberos (GSSAPI) are not built in";
const AUTHORITIES: &str = "write `ssl.ca.location`, the path of the authorities' certificates as PEM (from a JKS: `keytool \
                           -list -rfc -keystore FILE`); without it the system's authorities count";
const FORMATS: &str = "remove it; `input.key_format` and `input.value_format` in a topology say how records are read, and \
                       they are written as they were read";
const OWN_CODE: &str = "remove it; there is no Java here that could load a class";

/// Properties of Java's clients that librdkafka does not have, and what to write instead.
const JAVA: &[(&str, &str)] = &[
    ("sasl.jaas.config", LOGIN),
    (
        "sasl.login.callback.handler.class",
        "remove it; for OAUTHBEARER write `sasl.oauthbearer.method: oidc`, with which ratchet asks for tokens itself",
    ),
    ("sasl.login.class", OWN_CODE),
    ("sasl.client.callback.handler.class", OWN_CODE),
    ("sasl.oauthbearer.token.endpoint", "write `sasl.oauthbearer.token.endpoint.url`"),
    ("ssl.truststore.location", AUTHORITIES),
    ("ssl.truststore.password", AUTHORITIES),
    ("ssl.truststore.type", AUTHORITIES),
    ("ssl.truststore.certificates", "write `ssl.ca.pem: ${file:PATH}`, or `ssl.ca.location` with the path"),
    (
        "ssl.keystore.type",
        "remove it; `ssl.keystore.location` is a PKCS#12 file; for PEM write `ssl.certificate.location` and `ssl.key.location`",
    ),
    ("ssl.keystore.certificate.chain", "write `ssl.certificate.location`, the path of the certificates as PEM"),
    ("ssl.keystore.key", "write `ssl.key.location`, the path of the key as PEM"),
    ("ssl.protocol", "remove it; which version of TLS is spoken is settled with the broker"),
    ("ssl.enabled.protocols", "remove it; which version of TLS is spoken is settled with the broker"),
    ("key.deserializer", FORMATS),
    ("value.deserializer", FORMATS),
    ("key.serializer", FORMATS),
    ("value.serializer", FORMATS),
    ("schema.registry.url", "remove it; ratchet reads JSON, and asks no schema registry"),
    ("interceptor.classes", OWN_CODE),
    ("metric.reporters", "remove it; ratchet serves its metrics for Prometheus at `http`"),
    ("max.poll.records", "remove it; `commit.records` bounds the records of a transaction"),
    ("max.request.size", "write `message.max.bytes`"),
    ("buffer.memory", "remove it; `memory` bounds what the process takes"),
    ("fetch.max.wait.ms", "write `fetch.wait.max.ms`"),
    ("send.buffer.bytes", "write `socket.send.buffer.bytes`"),
    ("receive.buffer.bytes", "write `socket.receive.buffer.bytes`"),
    ("default.api.timeout.ms", "write `socket.timeout.ms`, for one request; ratchet repeats what was not answered"),
    ("max.block.ms", "write `socket.timeout.ms`, for one request; ratchet repeats what was not answered"),
    ("transaction.state.log.replication.factor", "remove it; that is a broker's property"),
];

/// What is wrong with the name of a property that librdkafka rejects, if known. The property's value is not needed.
pub fn explained(property: &str) -> Option<Explained> {
    if let Some((_, help)) = JAVA.iter().find(|(name, _)| *name == property) {
        return Some(Explained {
            message: format!("`{property}` is a property of Java's clients, which librdkafka does not have"),
            label: "not taken by librdkafka".to_owned(),
            help: (*help).to_owned(),
        });
    }
    let known: Vec<&str> = known_properties().collect();
    if known.contains(&property) {
        return None;
    }
    let suggestion = did_you_mean(property, &known)?;
    let help = match OWNED.contains(&suggestion) {
        true => format!("remove it; if `{suggestion}` was meant, that is ratchet's own"),
        false => format!("write `{suggestion}`, or remove it"),
    };
    Some(Explained {
        message: format!("{property} is no kafka property that librdkafka knows"),
        label: format!("did you mean `{suggestion}`?"),
        help,
    })
}

#[cfg(test)]
mod tests {
    use super::super::native::Conf;
    use super::*;

    #[test]
    fn properties_of_javas_clients_are_unknown_to_librdkafka() {
        for (name, help) in JAVA {
            assert!(Conf::new().set(name, "1").is_err(), "{name} is one of librdkafka's");
            // Each advised property, if its whole name is given, is known.
            let named = help.split('`').skip(1).step_by(2).map(|word| word.split(':').next().unwrap_or_default());
            for advised in named.filter(|word| word.contains('.') && !word.starts_with('.')) {
                let is_ratchets = ["input.", "commit."].iter().any(|prefix| advised.starts_with(prefix));
                let is_known = known_properties().any(|known| known == advised) || is_ratchets;
                assert!(is_known, "{advised} is advised in place of {name}");
            }
        }
    }

    #[test]
    fn misspelt_property_is_compared_with_all_known_properties() {
        let label = |property| explained(property).map(|explained| explained.label);
        assert_eq!(label("sesion.timeout.ms").as_deref(), Some("did you mean `session.timeout.ms`?"));
        assert_eq!(label("sasl.pasword").as_deref(), Some("did you mean `sasl.password`?"));
        assert_eq!(label("gruop.id").as_deref(), Some("did you mean `group.id`?"));
        assert!(explained("gruop.id").is_some_and(|explained| explained.help.contains("ratchet's own")));
        assert_eq!(label("session.timeout.ms"), None, "only its value can be wrong");
        assert_eq!(label("completely.unheard.of"), None);
    }
}
