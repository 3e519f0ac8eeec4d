#!/usr/bin/env python3
"""An order and its event from a language that Posthaste has no library for: two INSERTs, one commit.

    python3 examples/python/producer.py sqlite:app.db
    python3 examples/python/producer.py postgresql://postgres@127.0.0.1:5432/test    (needs psycopg)

The outbox must be there: `posthaste migrate --store URL`. A running `posthaste relay` delivers what is
committed; this program needs no other part of Posthaste.
"""

import json
import sys
import uuid

CREATE = "CREATE TABLE IF NOT EXISTS shop_order (id {text} PRIMARY KEY, total INTEGER NOT NULL)"


def place_order(cursor, mark, total):
    """Writes the order and its event in the open transaction. Every column left out has a default."""
    order = str(uuid.uuid4())
    body = json.dumps({"order": order, "total": total}).encode()
    cursor.execute(f"INSERT INTO shop_order (id, total) VALUES ({mark}, {mark})", (order, total))
    cursor.execute(
        f"INSERT INTO outbox (type, body, ordering_key) VALUES ({mark}, {mark}, {mark})",
        ("order.placed", body, order),
    )
    return order


def with_sqlite(path):
    import sqlite3

    # autocommit, so that the transaction below begins where it says
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(CREATE.format(text="TEXT"))
    # IMMEDIATE: waits for another writer here instead of failing later
    connection.execute("BEGIN IMMEDIATE")
    try:
        order = place_order(connection, "?", 10)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return order


def with_postgres(url):
    try:
        import psycopg
    except ImportError:
        sys.exit("psycopg is not installed: pip install 'psycopg[binary]'")

    # commits at the end of the block, rolls back on an exception
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(CREATE.format(text="text"))
        return place_order(cursor, "%s", 10)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    url = sys.argv[1]
    order = with_sqlite(url.removeprefix("sqlite:")) if url.startswith("sqlite:") else with_postgres(url)
    print(f"placed order {order} and its event")


if __name__ == "__main__":
    main()
