//! The SQL of requests: their table, the function by which a service answers in its own transaction, and the statements.

/// How many rows are removed at once.
const TIDY_ROWS_MAX: u32 = 1_000;

/// Each statement, in the order of `Open`'s fields. The schema's name is quoted.
pub(super) fn statements(schema: &str) -> [String; 7] {
    let table = format!("{schema}.request");
    let now = "clock_timestamp()";
    // A row that another transaction has locked is passed over: its service is about to answer.
    let locked =
        |condition: &str| format!("id = (select id from {table} where id = $1 and {condition} for update skip locked)");
    let kept = locked(&format!("token = $2 and until > {now} and lease_until is not null"));
    [
        // A row that is there is only read: an insert that finds it would wait for whoever has locked it.
        format!(
            "insert into {table} (id, token, fingerprint, lease_until, until) select $1, $2, $3, \
             {now} + make_interval(secs => $4), {now} + make_interval(secs => $5) \
             where not exists (select from {table} where id = $1) on conflict (id) do nothing"
        ),
        format!(
            "select token, fingerprint, coalesce(lease_until <= {now}, false), until <= {now}, answer from {table} where id = $1"
        ),
        format!(
            "update {table} set token = $2, fingerprint = $3, lease_until = {now} + make_interval(secs => $4), \
             until = {now} + make_interval(secs => $5), answer = null, is_whole = false where {}",
            locked(&format!(
                "token = $6 and (until <= {now} or (answer is null and (lease_until <= {now} or token = $2)))"
            ))
        ),
        format!(
            "update {table} set lease_until = {now} + make_interval(secs => $3), \
             until = greatest(until, {now} + make_interval(secs => $3)) where {kept}"
        ),
        format!(
            "update {table} set answer = $3, is_whole = $4, lease_until = null, until = {now} + make_interval(secs => $5) \
             where {}",
            locked(&format!("token = $2 and until > {now} and not is_whole"))
        ),
        format!("delete from {table} where {kept}"),
        format!(
            "delete from {table} where id in (select id from {table} where until <= {now} \
             order by until limit {TIDY_ROWS_MAX} for update skip locked)"
        ),
    ]
}

/// What people see of a row: its id, whether it is answered, whether its lease is over, until when that is or was, and until
/// when it is remembered.
const SEEN: &str = "id, answer is not null, coalesce(lease_until <= clock_timestamp(), false), \
                    (extract(epoch from lease_until) * 1000)::bigint, (extract(epoch from until) * 1000)::bigint";

/// The rows, of those that are answered too or not ($1), whose ids begin with these digits ($2), so many ($3).
pub(super) fn list(schema: &str) -> String {
    format!(
        "select {SEEN} from {schema}.request where until > clock_timestamp() and ($1 or answer is null) \
         and starts_with(encode(id, 'hex'), $2) order by lease_until nulls last, id limit $3"
    )
}

/// One row.
pub(super) fn see(schema: &str) -> String {
    format!("select {SEEN} from {schema}.request where id = $1 and until > clock_timestamp()")
}

/// Settles a row in doubt with this token and answer.
pub(super) fn answer(schema: &str) -> String {
    let doubted = "until > clock_timestamp() and answer is null and lease_until <= clock_timestamp()";
    format!(
        "update {schema}.request set token = $2, answer = $3, is_whole = true, lease_until = null where id = \
         (select id from {schema}.request where id = $1 and {doubted} for update skip locked)"
    )
}

/// Forgets a row, unless it is under way; whether it was answered.
pub(super) fn forget(schema: &str) -> String {
    let idle = "until > clock_timestamp() and (answer is not null or lease_until <= clock_timestamp())";
    format!(
        "delete from {schema}.request where id = \
         (select id from {schema}.request where id = $1 and {idle} for update skip locked) returning answer is not null"
    )
}

/// The SQL that creates the table and the function in a schema, whose name is quoted.
pub(super) fn ddl(schema: &str) -> String {
    let function = function_ddl(schema);
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
{function}"
    )
}

/// The SQL that creates the function alone, or replaces it.
pub(super) fn function_ddl(schema: &str) -> String {
    let body = function_body(schema);
    format!(
        "create or replace function {schema}.answer_request(reservation text, status int, content_type text, body bytea) \
         returns void
language plpgsql as $ratchet${body}$ratchet$"
    )
}

/// What `answer_request` does. An answer without a type has no such header; one without a body has an empty one. Each
/// part has to be something: with one NULL among them the whole would be NULL, and no answer.
pub(super) fn function_body(schema: &str) -> String {
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
