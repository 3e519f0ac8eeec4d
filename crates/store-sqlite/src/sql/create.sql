CREATE TABLE {rows} (
  -- A relay reads on from 0.
  seq           INTEGER PRIMARY KEY CHECK (seq > 0),
  id            TEXT NOT NULL DEFAULT (printf('%08x-%04x-7%03x-%04x-%012x', {millis} >> 16, {millis} & 65535,
                  random() & 4095, 32768 | (random() & 16383), random() & 281474976710655)),
  idempotent    INTEGER DEFAULT 1 CHECK (idempotent = 1),
  lane          INTEGER NOT NULL DEFAULT 0 CHECK (lane BETWEEN 0 AND 127),
  type          TEXT NOT NULL CHECK (length(type) BETWEEN 1 AND 255),
  ordering_key  TEXT,
  tenant        TEXT,
  priority      INTEGER NOT NULL DEFAULT 0,
  headers       TEXT NOT NULL DEFAULT '{}',
  content_type  TEXT NOT NULL DEFAULT 'application/json',
  due_at        INTEGER NOT NULL DEFAULT ({now}),
  -- Not with IN, for which SQLite would build a set at every insert.
  status        TEXT NOT NULL DEFAULT 'pending'
                CHECK (status = 'pending' OR status = 'processing' OR status = 'published' OR status = 'failed'
                OR status = 'invalid' OR status = 'discarded'),
  attempts      INTEGER NOT NULL DEFAULT 0,
  last_error    TEXT,
  outstanding   TEXT,
  claimed_by    TEXT,
  claim_token   INTEGER,
  claimed_until INTEGER,
  created_at    INTEGER NOT NULL DEFAULT ({now}),
  published_at  INTEGER,
  body          BLOB
);

-- An id that somebody else may write again occurs once. Ids that Posthaste makes for itself have
-- NULL there, and cost a commit nothing.
CREATE UNIQUE INDEX {idempotent} ON {rows} (id) WHERE idempotent = 1;

-- Dead letters are found without a scan; a table without them has an empty index.
CREATE INDEX {dead} ON {rows} (seq) WHERE status = 'invalid';

-- No undelivered row has a seq below `lowest`. `rewinds` grows when a relay must read from there again.
CREATE TABLE {meta} (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  version     INTEGER NOT NULL,
  lowest      INTEGER NOT NULL DEFAULT 1,
  rewinds     INTEGER NOT NULL DEFAULT 0,
  placeholder INTEGER
);
INSERT INTO {meta} (one, version) VALUES (1, {version});

-- Keeps that true when rows are repaired by hand.
CREATE TRIGGER {reopened} AFTER UPDATE OF status ON {rows}
WHEN (OLD.status = 'published' OR OLD.status = 'invalid' OR OLD.status = 'discarded')
AND (NEW.status = 'pending' OR NEW.status = 'processing' OR NEW.status = 'failed')
BEGIN
  UPDATE {meta} SET lowest = min(lowest, NEW.seq), rewinds = rewinds + 1;
END;

-- SQLite gives the seq of a deleted highest row to the next event.
CREATE TRIGGER {shrunk} AFTER DELETE ON {rows}
WHEN OLD.seq > (SELECT coalesce(max(seq), 0) FROM {rows})
BEGIN
  UPDATE {meta} SET lowest = min(lowest, (SELECT coalesce(max(seq), 0) + 1 FROM {rows})), rewinds = rewinds + 1;
END;

-- What operators changed.
CREATE TABLE {log} (
  at           INTEGER NOT NULL DEFAULT ({now}),
  who          TEXT NOT NULL,
  why          TEXT NOT NULL,
  action       TEXT NOT NULL,
  id           TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  type         TEXT NOT NULL,
  ordering_key TEXT,
  status       TEXT NOT NULL
);
