//! The SQL of requests: their table, and the functions that read and change it.
//!
//! A request is **reserved** before it is carried out: its holder has a **token** and a **lease**. Nobody else carries
//! the request out until the lease ends. Later its **answer**, the service's response, is remembered. A request whose
//! lease has ended without an answer is **in doubt**.
//!
//! **No role needs a right to the table.** The functions run with the rights of their owner (`security definer`), with
//! a search path of their own, and no role may execute them without a grant. A caller cannot reach a request that it
//! does not know: a request is found by its id, a digest of key, caller, scope and more, and is changed with its token;
//! reading its response also requires the digest of the request's content. Only the functions for people list requests.

/// The maximum number of forgotten requests' rows that one call of `tidy_requests` removes.
const TIDY_ROWS_MAX: u32 = 1_000;
/// The number of attempts to reserve a request that others change at the same moment.
const ATTEMPTS_MAX: u32 = 10;

/// The kind of role that executes a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The store: a proxy's role, or that of a program with the layer.
    Store,
    /// A service that stores its response in its own transaction.
    Service,
    /// People, who list requests and settle them.
    People,
}

/// A function of the database.
pub(super) struct Function {
    pub caller: Caller,
    /// Its name, with its schema and the types of its parameters: `schema.name(types)`.
    pub name: String,
    /// Its body, as `pg_proc.prosrc` has it.
    pub body: String,
    /// Its name, with its schema, its parameters and its result.
    declaration: String,
}

impl Function {
    /// The SQL that creates it, or replaces it.
    fn ddl(&self) -> String {
        let Self { name, body, declaration, .. } = self;
        format!(
            "create or replace function {declaration}\nlanguage plpgsql security definer set search_path = {SEARCH_PATH} as \
             $ratchet${body}$ratchet$;\nrevoke all on function {name} from public"
        )
    }
}

/// The functions' search path: without schemas that others may write to.
pub(super) const SEARCH_PATH: &str = "pg_catalog, pg_temp";

/// All functions in a schema, whose name is quoted.
pub(super) fn functions(schema: &str) -> Vec<Function> {
    let function = |caller, name: &str, types: &str, declared: &str, body: String| Function {
        caller,
        name: format!("{schema}.{name}({types})"),
        body,
        declaration: format!("{schema}.{name}{declared}"),
    };
    let (bytes, seconds) = ("bytea, bytea", "double precision");
    vec![
        function(
            Caller::Store,
            "reserve_request",
            &format!("{bytes}, bytea, {seconds}, {seconds}, boolean"),
            &format!("({bytes}, bytea, {seconds}, {seconds}, boolean, out outcome text, out remembered bytea)"),
            reserve(schema),
        ),
        function(
            Caller::Store,
            "extend_request",
            &format!("{bytes}, {seconds}"),
            &format!("({bytes}, {seconds}) returns boolean"),
            extend(schema),
        ),
        function(
            Caller::Store,
            "complete_request",
            &format!("{bytes}, bytea, boolean, {seconds}"),
            &format!("({bytes}, bytea, boolean, {seconds}) returns text"),
            complete(schema),
        ),
        function(Caller::Store, "release_request", bytes, &format!("({bytes}) returns boolean"), release(schema)),
        function(Caller::Store, "tidy_requests", "", "() returns bigint", tidy(schema)),
        function(
            Caller::Service,
            "answer_request",
            "text, integer, text, bytea",
            "(reservation text, status int, content_type text, body bytea) returns void",
            answer(schema),
        ),
        function(
            Caller::People,
            "list_requests",
            "boolean, text, bigint",
            "(boolean, text, bigint) returns table (request bytea, is_answered boolean, is_over boolean, lease_until_ms \
             bigint, until_ms bigint)",
            list(schema),
        ),
        function(
            Caller::People,
            "settle_request",
            "bytea, bytea, bytea",
            "(bytea, bytea, bytea, out outcome text, out lease_until_ms bigint)",
            settle(schema),
        ),
    ]
}

/// The SQL that creates all functions, or replaces them, in a schema whose name is quoted.
pub(super) fn functions_ddl(schema: &str) -> String {
    functions(schema).iter().map(Function::ddl).collect::<Vec<_>>().join(";\n")
}

/// The SQL that creates the table and the functions in a schema, whose name is quoted.
pub(super) fn ddl(schema: &str) -> String {
    let functions = functions_ddl(schema);
    format!(
        "create table if not exists {schema}.request (
    id bytea not null primary key,
    token bytea not null,
    fingerprint bytea not null,
    lease_until timestamptz,
    until timestamptz not null,
    answer bytea,
    is_whole boolean not null default false
);
create index if not exists request_until on {schema}.request (until);
{functions}"
    )
}

/// The rights that a store's role needs, as SQL; the schema's name is quoted.
pub(super) fn rights(schema: &str) -> String {
    let functions = functions(schema);
    let names: Vec<&str> =
        functions.iter().filter(|function| function.caller == Caller::Store).map(|function| &*function.name).collect();
    format!("grant usage on schema {schema} to ROLE;\ngrant execute on function {} to ROLE;", names.join(", "))
}

/// The SQL condition that selects the row of the request `$1`, if `condition` holds for the row, and if no other
/// transaction has locked it: the service that has locked a row is about to store a response.
fn unlocked_row(schema: &str, condition: &str) -> String {
    format!("id = (select id from {schema}.request where id = $1 and {condition} for update skip locked)")
}

/// The condition that the request is still reserved under the token `$2`, and has no answer yet.
const HELD_CONDITION: &str = "token = $2 and until > clock_timestamp() and lease_until is not null";

/// Parameters: request, token, fingerprint (a digest of the request's content), lease, retention, whether a request in
/// doubt is refused instead of taken over. In the table, `lease_until` is the end of the lease, null once there is an
/// answer, and `until` is when the request is forgotten.
///
/// An existing row is not inserted again: the insert would wait for the session that has locked it.
fn reserve(schema: &str) -> String {
    let now = "clock_timestamp()";
    let (lease, until) = (format!("{now} + make_interval(secs => $4)"), format!("{now} + make_interval(secs => $5)"));
    let takeable = unlocked_row(
        schema,
        &format!(
            "token = known.token and (until <= {now} or (answer is null and (lease_until <= {now} or token = $2)))"
        ),
    );
    format!(
        "
declare
    known record;
begin
    for look in 1..{ATTEMPTS_MAX} loop
        insert into {schema}.request (id, token, fingerprint, lease_until, until)
            select $1, $2, $3, {lease}, {until}
            where not exists (select from {schema}.request where id = $1) on conflict (id) do nothing;
        if found then
            outcome := 'reserved';
            return;
        end if;
        select token, fingerprint, answer, coalesce(lease_until <= {now}, false) as is_over, until <= {now} as is_forgotten
            into known from {schema}.request where id = $1;
        continue when not found;
        if known.is_forgotten then
            outcome := 'reserved';
        elsif known.fingerprint <> $3 then
            outcome := 'other';
            return;
        elsif known.answer is not null then
            outcome := 'answered';
            remembered := known.answer;
            return;
        elsif known.token = $2 then
            outcome := 'reserved';
        elsif not known.is_over then
            outcome := 'in_progress';
            return;
        elsif $6 then
            outcome := 'in_doubt';
            return;
        else
            outcome := 'taken_over';
        end if;
        update {schema}.request set token = $2, fingerprint = $3, lease_until = {lease}, until = {until},
            answer = null, is_whole = false where {takeable};
        if found then
            return;
        end if;
    end loop;
    -- Somebody is at it, again and again.
    outcome := 'in_progress';
end
"
    )
}

/// Parameters: request, token, lease. Returns whether the token's holder still has the request.
fn extend(schema: &str) -> String {
    let end = "clock_timestamp() + make_interval(secs => $3)";
    let held = unlocked_row(schema, HELD_CONDITION);
    format!(
        "
begin
    update {schema}.request set lease_until = {end}, until = greatest(until, {end}) where {held};
    -- One that is locked, or has an answer, is still its holder's.
    return found or exists (select from {schema}.request where id = $1 and token = $2 and until > clock_timestamp());
end
"
    )
}

/// Parameters: request, token, response, whether its body is whole (`false` if it was cut off), retention. Returns
/// `kept` if the response, or an earlier one whose body is whole, is stored; `fenced` if the request has another token,
/// or is forgotten; `locked` if the row is locked.
fn complete(schema: &str) -> String {
    let held = unlocked_row(schema, "token = $2 and until > clock_timestamp() and not is_whole");
    format!(
        "
declare
    is_done boolean;
begin
    update {schema}.request set answer = $3, is_whole = $4, lease_until = null,
        until = clock_timestamp() + make_interval(secs => $5) where {held};
    if found then
        return 'kept';
    end if;
    select is_whole into is_done from {schema}.request where id = $1 and token = $2 and until > clock_timestamp();
    return case when not found then 'fenced' when is_done then 'kept' else 'locked' end;
end
"
    )
}

/// Removes a reservation. Parameters: request, token. Returns whether it was removed.
fn release(schema: &str) -> String {
    let held = unlocked_row(schema, HELD_CONDITION);
    format!(
        "
begin
    delete from {schema}.request where {held};
    return found;
end
"
    )
}

/// Removes rows of requests that are forgotten by now. Returns how many.
fn tidy(schema: &str) -> String {
    format!(
        "
declare
    removed bigint;
begin
    delete from {schema}.request where id in (select id from {schema}.request where until <= clock_timestamp()
        order by until limit {TIDY_ROWS_MAX} for update skip locked);
    get diagnostics removed = row_count;
    return removed;
end
"
    )
}

/// Stores a service's response within the service's own transaction. `reservation` is the request's id and the token,
/// as hexadecimal digits with a dot in between. A response without a content type has no such header; one without a
/// body has an empty body. No part may be NULL: the concatenation, and so the response, would be NULL.
fn answer(schema: &str) -> String {
    format!(
        "
declare
    kind bytea := convert_to(content_type, 'UTF8');
begin
    if reservation is null then
        raise exception 'the reservation is null: hand over what the header said';
    end if;
    if status is null or status not between 200 and 599 then
        raise exception 'the status is no final one of HTTP: %', status;
    end if;
    update {schema}.request set lease_until = null, is_whole = true,
        answer = '\\x01'::bytea || int2send(status::int2) || case when kind is null then int2send(0::int2)
            else int2send(1::int2) || int2send(12::int2) || 'content-type'::bytea || int4send(octet_length(kind)) || kind end
            || '\\x00'::bytea || coalesce(body, ''::bytea)
    where id = decode(split_part(reservation, '.', 1), 'hex') and token = decode(split_part(reservation, '.', 2), 'hex')
        and until > clock_timestamp() and not is_whole;
    if not found then
        raise exception 'the request was taken over, or has an answer';
    end if;
end
"
    )
}

/// Parameters: whether answered requests are listed, the hexadecimal digits with which the ids begin, the maximum
/// number.
fn list(schema: &str) -> String {
    format!(
        "
begin
    return query select id, answer is not null, coalesce(lease_until <= clock_timestamp(), false),
            (extract(epoch from lease_until) * 1000)::bigint, (extract(epoch from until) * 1000)::bigint
        from {schema}.request where until > clock_timestamp() and ($1 or answer is null)
        and starts_with(encode(id, 'hex'), $2) order by lease_until nulls last, id limit $3;
end
"
    )
}

/// Settles a request for an operator. Parameters: request, the operator's new token, response, or null to forget the
/// request.
fn settle(schema: &str) -> String {
    let remembered = "until > clock_timestamp()";
    let in_doubt =
        unlocked_row(schema, &format!("{remembered} and answer is null and lease_until <= clock_timestamp()"));
    let idle =
        unlocked_row(schema, &format!("{remembered} and (answer is not null or lease_until <= clock_timestamp())"));
    format!(
        "
declare
    was_answered boolean;
    lease timestamptz;
begin
    if $3 is not null then
        update {schema}.request set token = $2, answer = $3, is_whole = true, lease_until = null where {in_doubt};
        if found then
            outcome := 'answered';
            return;
        end if;
    else
        delete from {schema}.request where {idle} returning answer is not null into was_answered;
        if found then
            outcome := case when was_answered then 'answer_forgotten' else 'forgotten' end;
            return;
        end if;
    end if;
    select answer is not null, lease_until into was_answered, lease from {schema}.request where id = $1 and {remembered};
    if not found then
        outcome := 'unknown';
    elsif was_answered and $3 is not null then
        outcome := 'already';
    elsif not was_answered and lease > clock_timestamp() then
        outcome := 'under_way';
        lease_until_ms := (extract(epoch from lease) * 1000)::bigint;
    else
        outcome := 'locked';
    end if;
end
"
    )
}
