INSERT INTO "{t}" (id, lane, type, ordering_key, tenant, priority, headers, content_type, body, due_at)
VALUES ($1::text::uuid, $2::smallint, $3::text, $4::text, $5::text, $6::integer, $7::text::jsonb, $8::text, $9::bytea,
  clock_timestamp() + $10::bigint * interval '1 microsecond')
