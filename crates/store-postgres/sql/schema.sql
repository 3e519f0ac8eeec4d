CREATE SEQUENCE "{t}_seq" AS bigint CACHE 1;
-- whoever may insert may take a number; a number that is never used does no harm
GRANT USAGE ON SEQUENCE "{t}_seq" TO PUBLIC;

CREATE TABLE "{t}" (
  -- the transaction gets its id before the number: whoever sees a later number sees this
  -- transaction in progress, even while nothing of it is in the table yet
  -- a relay reads on from 0
  seq bigint NOT NULL DEFAULT {next_seq} CHECK (seq > 0),
  id uuid NOT NULL DEFAULT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing
    substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
    from 1 for 6), 52, 1), 53, 1), 'hex')::uuid,
  lane smallint NOT NULL CHECK (lane BETWEEN 0 AND 127),
  priority integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  published_at timestamptz,
  status text NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'processing', 'published', 'failed', 'invalid')),
  type text NOT NULL CHECK (octet_length(type) BETWEEN 1 AND 255),
  ordering_key text CHECK (octet_length(ordering_key) BETWEEN 1 AND 1024),
  tenant text CHECK (octet_length(tenant) BETWEEN 1 AND 256),
  headers jsonb NOT NULL DEFAULT '{}',
  content_type text NOT NULL DEFAULT 'application/json' CHECK (octet_length(content_type) BETWEEN 1 AND 255),
  body bytea,
  last_error text,
  outstanding text[],
  claimed_by text,
  claim_token bigint,
  claimed_until timestamptz,
  CONSTRAINT "{t}_pkey" PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000);
ALTER SEQUENCE "{t}_seq" OWNED BY "{t}".seq;

-- what a relay reads
CREATE INDEX "{t}_undelivered" ON "{t}" (lane, seq) WHERE {undelivered};
-- what retention deletes, and dead letters
CREATE INDEX "{t}_published" ON "{t}" (published_at, seq) WHERE status = 'published';
CREATE INDEX "{t}_invalid" ON "{t}" (seq) WHERE status = 'invalid';

-- the lane of a row that a plain INSERT wrote
CREATE OR REPLACE FUNCTION "{t}_lane"() RETURNS trigger LANGUAGE plpgsql AS $lane$
BEGIN
  new.lane := get_byte(decode(md5(coalesce(new.ordering_key, new.id::text)), 'hex'), 0) & 127;
  RETURN new;
END $lane$;
CREATE TRIGGER lane BEFORE INSERT ON "{t}" FOR EACH ROW WHEN (new.lane IS NULL) EXECUTE FUNCTION "{t}_lane"();

-- the lock is refused only while a relay sleeps: then, and only then, it is woken
CREATE OR REPLACE FUNCTION "{t}_wake"() RETURNS trigger LANGUAGE plpgsql AS $wake$
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared({wake_lock}, TG_RELID::integer) THEN
    PERFORM pg_notify('posthaste_' || TG_RELID,
      (SELECT CASE WHEN min(lane) = max(lane) THEN min(lane)::text ELSE '' END FROM fresh));
  END IF;
  RETURN NULL;
END $wake$;
CREATE TRIGGER wake AFTER INSERT ON "{t}" REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION "{t}_wake"();

-- writes one event. A session plans an INSERT inside a function once; one that is sent unnamed, as it
-- must be behind a pooler, it plans anew each time, and that costs more than the writing
CREATE OR REPLACE FUNCTION "{t}_enqueue"(id uuid, lane smallint, type text, ordering_key text, tenant text,
  priority integer, headers jsonb, content_type text, body bytea, delay bigint) RETURNS text LANGUAGE plpgsql AS $enqueue$
BEGIN
  INSERT INTO "{t}" (id, lane, type, ordering_key, tenant, priority, headers, content_type, body, due_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp() + $10 * interval '1 microsecond');
  RETURN $1;
END $enqueue$;
-- it may do no more than its caller
GRANT EXECUTE ON FUNCTION "{t}_enqueue" TO PUBLIC;

-- what operators did; kept even where the outbox is dropped and made anew
CREATE TABLE IF NOT EXISTS "{t}_log" (
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  who text NOT NULL,
  why text NOT NULL,
  action text NOT NULL,
  row_id uuid NOT NULL,
  type text NOT NULL,
  ordering_key text,
  status text NOT NULL
);

CREATE OR REPLACE FUNCTION "{t}_version"() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT {version}';
