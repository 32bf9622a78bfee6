//! Rights on the test brokers: granted and revoked one by one, and in force when the call returns.
//!
//! rust-rdkafka does not offer these calls, so they go to librdkafka itself; starting Java for each would take seconds.

use std::ffi::{CStr, CString, c_char};

use rdkafka::bindings as rd;

use super::Kafka;
use crate::until::{DEADLINE, within};

/// What kind of thing a right applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Topic,
    Group,
    TransactionalId,
}

/// One operation that a user may perform on the resource of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    pub resource: Resource,
    pub name: String,
    /// Whether it applies to every name with this prefix.
    pub prefixed: bool,
    /// As `kafka-acls.sh` takes it: `Read`, `DescribeConfigs`.
    pub operation: String,
}

impl Acl {
    /// librdkafka's binding, which also serves as the filter that finds it.
    fn binding(&self, user: &str) -> *mut rd::rd_kafka_AclBinding_t {
        use rd::{rd_kafka_AclOperation_t as Operation, rd_kafka_ResourcePatternType_t as Pattern};
        let resource = match self.resource {
            Resource::Topic => rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
            Resource::Group => rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_GROUP,
            Resource::TransactionalId => rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TRANSACTIONAL_ID,
        };
        let operation = match self.operation.as_str() {
            "Read" => Operation::RD_KAFKA_ACL_OPERATION_READ,
            "Write" => Operation::RD_KAFKA_ACL_OPERATION_WRITE,
            "Create" => Operation::RD_KAFKA_ACL_OPERATION_CREATE,
            "Describe" => Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE,
            "DescribeConfigs" => Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS,
            other => panic!("no test needs the operation {other:?} yet"),
        };
        let pattern = match self.prefixed {
            true => Pattern::RD_KAFKA_RESOURCE_PATTERN_PREFIXED,
            false => Pattern::RD_KAFKA_RESOURCE_PATTERN_LITERAL,
        };
        let text = |text: &str| CString::new(text).expect("names have no zeros");
        let (name, principal, host) = (text(&self.name), text(&format!("User:{user}")), text("*"));
        let mut why = [0 as c_char; 256];
        // SAFETY: all strings live through the call, which copies them; the buffer has the given length.
        let binding = unsafe {
            rd::rd_kafka_AclBinding_new(
                resource,
                name.as_ptr(),
                pattern,
                principal.as_ptr(),
                host.as_ptr(),
                operation,
                rd::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                why.as_mut_ptr(),
                why.len(),
            )
        };
        assert!(!binding.is_null(), "{self:?} is not a valid right");
        binding
    }
}

impl Kafka {
    /// Grants `user` all of these. Returns once the broker applies them.
    pub fn allow(&self, user: &str, acls: &[Acl]) {
        let mut bindings: Vec<_> = acls.iter().map(|acl| acl.binding(user)).collect();
        // SAFETY: the bindings are alive and copied by the call.
        self.request_acls(|client, queue| unsafe {
            rd::rd_kafka_CreateAcls(client, bindings.as_mut_ptr(), bindings.len(), std::ptr::null(), queue);
        });
        destroy(&mut bindings);
        acls.iter().for_each(|acl| self.await_acl(user, acl, true));
    }

    /// Revokes a right. Returns once the broker applies that.
    pub fn disallow(&self, user: &str, acl: &Acl) {
        let mut filters = vec![acl.binding(user)];
        // SAFETY: the filter is alive and copied by the call.
        self.request_acls(|client, queue| unsafe {
            rd::rd_kafka_DeleteAcls(client, filters.as_mut_ptr(), filters.len(), std::ptr::null(), queue);
        });
        destroy(&mut filters);
        self.await_acl(user, acl, false);
    }

    fn await_acl(&self, user: &str, acl: &Acl, there: bool) {
        within(DEADLINE, &format!("{acl:?} of {user} to be known (to be gone if not: {there})"), || {
            (self.has_acl(user, acl) == there).then_some(())
        });
    }

    fn has_acl(&self, user: &str, acl: &Acl) -> bool {
        let mut filters = vec![acl.binding(user)];
        // SAFETY: the filter is alive and copied by the call.
        let response = self.request_acls(|client, queue| unsafe {
            rd::rd_kafka_DescribeAcls(client, filters[0], std::ptr::null(), queue);
        });
        destroy(&mut filters);
        let mut count = 0;
        // SAFETY: the response is alive and of this call's type.
        unsafe {
            let result = rd::rd_kafka_event_DescribeAcls_result(response.0);
            assert!(!result.is_null(), "the response is another request's");
            rd::rd_kafka_DescribeAcls_result_acls(result, &mut count);
        }
        count > 0
    }

    /// Sends a request and waits for its response, which must not be an error.
    fn request_acls(&self, send: impl FnOnce(*mut rd::rd_kafka_t, *mut rd::rd_kafka_queue_t)) -> Response {
        let client = self.admin.inner().native_ptr();
        // SAFETY: the client lives as long as `self`, the queue until it is destroyed here.
        let response = unsafe {
            let queue = rd::rd_kafka_queue_new(client);
            send(client, queue);
            let response = rd::rd_kafka_queue_poll(queue, DEADLINE.as_millis() as i32);
            rd::rd_kafka_queue_destroy(queue);
            response
        };
        assert!(!response.is_null(), "the broker does not respond about rights within {DEADLINE:?}");
        let response = Response(response);
        // SAFETY: the response is alive; the string is static or the response's.
        let (code, words) = unsafe {
            let words = rd::rd_kafka_event_error_string(response.0);
            (rd::rd_kafka_event_error(response.0), CStr::from_ptr(words).to_string_lossy().into_owned())
        };
        assert_eq!(code, rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR, "{words}");
        response
    }
}

/// A response, destroyed when dropped.
struct Response(*mut rd::rd_kafka_event_t);

impl Drop for Response {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

fn destroy(bindings: &mut Vec<*mut rd::rd_kafka_AclBinding_t>) {
    for binding in bindings.drain(..) {
        // SAFETY: made by `Acl::binding` and owned by the list.
        unsafe { rd::rd_kafka_AclBinding_destroy(binding) }
    }
}
