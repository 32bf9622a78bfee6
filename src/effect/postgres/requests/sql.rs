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
