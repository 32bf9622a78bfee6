//! The paths of a registry's API: Confluent's API, which Apicurio has too, or Apicurio's own.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::config::IdsOf;
use crate::schemas::Id;
use crate::schemas::id::hyphenated;

/// The path of Confluent's API at Apicurio; a version follows.
const CCOMPAT: &str = "/apis/ccompat/";
/// The path of Apicurio's own API; a version follows.
const OWN: &str = "/apis/registry/";
/// The group of artifacts for which no group is named.
const DEFAULT_GROUP: &str = "default";

/// The characters that are percent-encoded in a subject.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// An address of a registry, with the API that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The address, without a slash at its end.
    pub url: String,
    own: Own,
}

/// Whether Apicurio's own API is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    /// Only Confluent's API is there.
    No,
    /// Confluent's API is there, and Apicurio's own is at this address of the same server.
    Beside(String),
    /// Apicurio's own API is there.
    Is,
}

/// A request for a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// To Confluent's API, at this URL: the answer is JSON that holds the schema's text and references.
    Confluent(String),
    /// To Apicurio's own API: the answer is the schema's text. Its references take another request.
    Apicurio {
        /// The URL of the text.
        url: String,
        /// The URL of the list of references.
        references: String,
    },
}

impl Question {
    /// The URL to ask.
    pub fn url(&self) -> &str {
        match self {
            Self::Confluent(url) | Self::Apicurio { url, .. } => url,
        }
    }
}

impl Base {
    /// The address, with the API that its path shows.
    pub fn of(url: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let own = match url.find(CCOMPAT) {
            Some(at) => Own::Beside(format!("{}{}", &url[..at], OWN.trim_end_matches('/'))),
            None if url.contains(OWN) => Own::Is,
            None => Own::No,
        };
        Self { url, own }
    }

    /// The questions to ask for a schema, in turn until the registry understands one.
    ///
    /// # Errors
    /// Why a registry with this API cannot be asked for the schema.
    pub fn schema(&self, id: Id, ids_of: IdsOf) -> Result<Vec<Question>, String> {
        let kind = match id {
            Id::Content(_) => "contentIds",
            Id::Global(_) => "globalIds",
            _ if ids_of == IdsOf::Versions => "globalIds",
            _ => "contentIds",
        };
        let at_own = |base: &str, number| {
            let url = format!("{base}/ids/{kind}/{number}");
            Question::Apicurio {
                references: format!("{url}/references"),
                url: format!("{url}?returnArtifactType=true"),
            }
        };
        match (id, id.number(), &self.own) {
            (Id::Guid(_), _, Own::Is) => {
                Err(format!("{id} is Confluent's, and Apicurio's own API knows no GUIDs: name its {CCOMPAT}v7 instead"))
            }
            (Id::Guid(uuid), ..) => Ok(vec![self.confluent(&format!("schemas/guids/{}", hyphenated(uuid)))]),
            (Id::Global(_) | Id::Content(_), Some(number), Own::Beside(own)) => {
                Ok(["v3", "v2"].iter().map(|version| at_own(&format!("{own}/{version}"), number)).collect())
            }
            (_, Some(number), Own::Is) => Ok(vec![at_own(&self.url, number)]),
            (_, Some(number), _) => Ok(vec![self.confluent(&format!("schemas/ids/{number}?fetchMaxId=false"))]),
            _ => Err(format!("no registry has {id}")),
        }
    }

    /// The question for one version of a subject.
    pub fn version(&self, subject: &str, version: &str) -> Question {
        let [subject, version] = [subject, version].map(segment);
        match &self.own {
            Own::Is => artifact(&self.url, DEFAULT_GROUP, &subject, &version),
            _ => self.confluent(&format!("subjects/{subject}/versions/{version}?deleted=true")),
        }
    }

    /// The question for a subject's latest version.
    pub fn latest(&self, subject: &str) -> Question {
        let subject = segment(subject);
        match &self.own {
            Own::Is if self.is_v2() => {
                let url = format!("{}/groups/{DEFAULT_GROUP}/artifacts/{subject}", self.url);
                Question::Apicurio { references: format!("{url}/references"), url }
            }
            Own::Is => artifact(&self.url, DEFAULT_GROUP, &subject, "branch=latest"),
            _ => self.confluent(&format!("subjects/{subject}/versions/latest")),
        }
    }

    fn confluent(&self, path: &str) -> Question {
        Question::Confluent(format!("{}/{path}", self.url))
    }

    fn is_v2(&self) -> bool {
        self.url.ends_with("/v2")
    }
}

/// The question for a version of an artifact that a schema refers to. `origin` is the URL at which Apicurio's own API
/// gave the schema's references.
pub fn referred(origin: &str, group: Option<&str>, artifact_id: &str, version: &str) -> Option<Question> {
    let at = origin.find(OWN)? + OWN.len();
    let end = origin[at..].find('/').map_or(origin.len(), |length| at + length);
    let [group, id, version] = [group.unwrap_or(DEFAULT_GROUP), artifact_id, version].map(segment);
    Some(artifact(&origin[..end], &group, &id, &version))
}

fn artifact(base: &str, group: &str, id: &str, version: &str) -> Question {
    let of_version = format!("{base}/groups/{group}/artifacts/{id}/versions/{version}");
    let url = if base.ends_with("/v2") { of_version.clone() } else { format!("{of_version}/content") };
    Question::Apicurio { url, references: format!("{of_version}/references") }
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Why registries are never asked for a schema with this id; `None` if they are.
pub fn never_asked(id: Id) -> Option<String> {
    match id {
        Id::Glue(uuid) => Some(format!(
            "{id} is in AWS Glue's registry, which ratchet does not ask: put it as {}.avsc, .proto or .json into the \
             folder that schemas.dir names",
            hyphenated(uuid)
        )),
        Id::Fingerprint(_) => Some(format!(
            "{id} is in no registry: put it into the folder that schemas.dir names, as a file that ends with .avsc"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Goal: each kind of id is asked for where the registry has it.

    use super::*;

    const GUID: Id = Id::Guid([0x11; 16]);

    fn urls(base: &str, id: Id, ids_of: IdsOf) -> Vec<String> {
        let questions = Base::of(base).schema(id, ids_of).unwrap_or_default();
        questions.iter().map(|question| question.url().to_owned()).collect()
    }

    #[test]
    fn confluent_has_ids_and_guids() {
        let url = "http://host:8081/";
        for id in [Id::Number(5), Id::Long(5), Id::Global(5), Id::Content(5)] {
            assert_eq!(urls(url, id, IdsOf::Versions), ["http://host:8081/schemas/ids/5?fetchMaxId=false"]);
        }
        assert_eq!(
            urls(url, GUID, IdsOf::Contents),
            ["http://host:8081/schemas/guids/11111111-1111-1111-1111-111111111111"]
        );
    }

    #[test]
    fn apicurio_is_asked_by_its_own_api_for_its_own_ids() {
        let compat = "http://host/x/apis/ccompat/v7";
        assert_eq!(urls(compat, Id::Number(5), IdsOf::Contents), [format!("{compat}/schemas/ids/5?fetchMaxId=false")]);
        assert_eq!(
            urls(compat, Id::Global(5), IdsOf::Contents),
            ["v3", "v2"].map(|v| format!("http://host/x/apis/registry/{v}/ids/globalIds/5?returnArtifactType=true"))
        );
        let own = "http://host/apis/registry/v3";
        let of = |kind| format!("{own}/ids/{kind}/5?returnArtifactType=true");
        assert_eq!(urls(own, Id::Number(5), IdsOf::Contents), [of("contentIds")]);
        assert_eq!(urls(own, Id::Long(5), IdsOf::Versions), [of("globalIds")]);
        assert_eq!(urls(own, Id::Content(5), IdsOf::Versions), [of("contentIds")]);
        assert!(Base::of(own).schema(GUID, IdsOf::Contents).unwrap_err().contains("knows no GUIDs"));
    }

    #[test]
    fn subjects_are_encoded_and_references_are_asked_for_by_the_same_api() {
        let confluent = Base::of("http://host").version("a/b c%?", "2");
        let Question::Confluent(url) = confluent else { panic!("{confluent:?}") };
        assert_eq!(url, "http://host/subjects/a%2Fb%20c%25%3F/versions/2?deleted=true");
        let of = |version: &str, group| {
            let origin = format!("http://host/apis/registry/{version}/ids/globalIds/5/references");
            match referred(&origin, group, "money", "1") {
                Some(Question::Apicurio { url, references }) => (url, references),
                other => panic!("{other:?}"),
            }
        };
        let v3 = "http://host/apis/registry/v3/groups/g/artifacts/money/versions/1";
        assert_eq!(of("v3", Some("g")), (format!("{v3}/content"), format!("{v3}/references")));
        let v2 = "http://host/apis/registry/v2/groups/default/artifacts/money/versions/1";
        assert_eq!(of("v2", None), (v2.to_owned(), format!("{v2}/references")));
    }

    #[test]
    fn glue_ids_and_fingerprints_are_for_files_only() {
        assert!(never_asked(Id::Glue([0; 16])).unwrap().contains("00000000-0000-0000-0000-000000000000.avsc"));
        assert!(never_asked(Id::Fingerprint(1)).unwrap().contains("schemas.dir"));
        assert_eq!(never_asked(GUID), None);
    }
}
