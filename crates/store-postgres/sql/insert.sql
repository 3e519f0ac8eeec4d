INSERT INTO "{t}" (id, lane, type, ordering_key, tenant, priority, headers, content_type, body, due_at)
SELECT id, lane, type, ordering_key, tenant, priority, headers::jsonb, content_type, body,
  clock_timestamp() + delay * interval '1 microsecond'
FROM unnest($1::text[]::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
    $8::text[], $9::bytea[], $10::bigint[]) WITH ORDINALITY
  AS e(id, lane, type, ordering_key, tenant, priority, headers, content_type, body, delay, place)
ORDER BY place
